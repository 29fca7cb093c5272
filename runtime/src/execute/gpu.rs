//! Running a program on a GPU.

use std::sync::Arc;

use oplus_codegen::plan::{self, IsThere, Launch};
use oplus_codegen::schedules::lower_sound;
use oplus_dsl::Elem;
use oplus_dsl::ir::{Axis, Output, Param};

use super::variant::Planned;
use super::{Executable, Hand, Ready, Signature};
use crate::call::{Residual, check_states};
use crate::cuda::{Access, CudaDevice, DeviceMemory, Pointers, Prepared, hold};
use crate::tensor::Storage;
use crate::{Device, Error, Tensor, host, source};

impl Executable {
    /// Queues a call on the stream of a GPU, or computes it on the CPU if its kernels are missing and the program has
    /// said so.
    pub(super) fn run_on_cuda(&self, ready: &Ready<'_>, device: &CudaDevice) -> Result<Option<Residual>, Error> {
        match self.queue(ready, device) {
            Err(Error::NoKernel { .. }) if !matches!(ready.hand, Hand::Nothing) => {
                let Ready { signature, sizes, inputs, outputs, .. } = ready;
                let (signature, sizes, outputs) = (signature.clone(), sizes.clone(), outputs.clone());
                self.run_on_cuda(&Ready { signature, sizes, inputs, outputs, hand: Hand::Nothing }, device)
            }
            Err(Error::NoKernel { .. }) if source::falls_back_to_cpu() => self.run_aside(ready).map(|()| None),
            result => result,
        }
    }

    /// Gives the states that the call saves.
    fn queue(&self, ready: &Ready<'_>, device: &CudaDevice) -> Result<Option<Residual>, Error> {
        let Some(prepared) = self.prepared(ready, device)? else {
            return self.with_whole(ready, device, |whole| self.queue(whole, device));
        };
        let address = |tensor: &Tensor| tensor.device_ptr().unwrap_or(0);
        let params: Vec<u64> = ready.inputs.iter().flatten().map(|t| address(t)).collect();
        let outputs: Vec<u64> = ready.outputs.iter().map(address).collect();
        let saved = prepared.saves.as_ref().map(|form| self.place(form, ready.hand, device)).transpose()?;
        let found = if let Hand::Saved(own) = ready.hand { Some(&own.states) } else { None };
        let own = saved.as_ref().map(|saved| &saved.states);
        let residual = own.or(found).map_or(0, address);
        let read = ready.inputs.iter().flatten().copied().chain(found).filter_map(memory).map(|m| (m, Access::Read));
        let written = ready.outputs.iter().chain(own).filter_map(memory).map(|m| (m, Access::Write));
        let held = hold(device, read.chain(written).collect())?;
        let queued = prepared.run(device, Pointers { params: &params, outputs: &outputs, residual });
        drop(held);
        queued.map(|()| saved)
    }

    /// Where a call saves its states.
    fn place(&self, form: &plan::Residual, hand: Hand<'_>, device: &CudaDevice) -> Result<Residual, Error> {
        let states = match hand {
            Hand::SaveInto(states) => {
                check_states(states, form.len)?;
                states.clone()
            }
            _ => Tensor::uninitialised(Elem::F32, &[form.len as usize], &Device::Cuda(device.clone()))?,
        };
        Ok(Residual { program: self.id, form: form.clone(), states })
    }

    /// How many numbers a call saves; `None` when it saves nothing.
    pub(super) fn saved_on_cuda(&self, ready: &Ready<'_>, device: &CudaDevice) -> Result<Option<u64>, Error> {
        match self.prepared(ready, device) {
            Ok(Some(prepared)) => Ok(prepared.saves.as_ref().map(|form| form.len)),
            Ok(None) => self.with_whole(ready, device, |whole| self.saved_on_cuda(whole, device)),
            Err(Error::NoKernel { .. }) => Ok(None),
            Err(other) => Err(other),
        }
    }

    /// A call's launches; `None` when kernels are missing and the call can be made one of the whole program.
    fn prepared(&self, ready: &Ready<'_>, device: &CudaDevice) -> Result<Option<Arc<Prepared>>, Error> {
        let rank = device.0.schedule_rank();
        let only = device.0.only().map_or(0, |only| only.id);
        let call = self.call_words(ready, (rank, only), device.0.is_portable());
        device.0.context.prepared(&call).map_or_else(|| self.prepare(ready, device, rank, call), Ok)
    }

    /// Everything that a call's launches depend on, as numbers: program, kernel sources, rank of the schedules, to which
    /// kernels they are restricted and whose they are, what is given and wanted, sizes, alignment and strides.
    fn call_words(&self, ready: &Ready<'_>, (rank, only): (usize, u64), portable: bool) -> Vec<u64> {
        let mut words = Vec::with_capacity(64);
        let Signature { elem, given, wanted, ordered } = &ready.signature;
        let flags = [portable, *ordered].map(u64::from);
        words.extend([self.id, source::generation(), *elem as u64, rank as u64, only, flags[0], flags[1]]);
        words.extend(given.iter().chain(wanted).map(|&yes| u64::from(yes)));
        words.extend(match ready.hand {
            Hand::Nothing => [0, 0],
            Hand::Save | Hand::SaveInto(_) => [1, 0],
            Hand::Saved(residual) => [2, residual.form.len],
        });
        words.extend(ready.sizes.iter().map(|&n| n as u64));
        for tensor in ready.inputs.iter().flatten().copied().chain(&ready.outputs) {
            words.push(u64::from(alignment(tensor)));
            words.extend(tensor.strides().iter().map(|&s| s as u64));
        }
        words
    }

    /// Plans a call that has not been seen before, and loads its kernels; `None` when they are missing and the call can
    /// be made one of the whole program.
    fn prepare(
        &self,
        ready: &Ready<'_>,
        device: &CudaDevice,
        rank: usize,
        call: Vec<u64>,
    ) -> Result<Option<Arc<Prepared>>, Error> {
        let prepared = match self.load(ready, device, rank) {
            Err(Error::NoKernel { .. }) if self.completed(&ready.signature) != ready.signature => None,
            loaded => Some(Arc::new(loaded?)),
        };
        device.0.context.keep(call.into(), prepared.clone());
        Ok(prepared)
    }

    /// The fastest plan with its kernels loaded. Where one is missing, the fastest plan whose kernels are all there; where one
    /// cannot be compiled, the fastest whose kernels the verifier accepts.
    fn load(&self, ready: &Ready<'_>, device: &CudaDevice, rank: usize) -> Result<Prepared, Error> {
        let variant = self.variant(&ready.signature)?;
        let call = plan::Call {
            sizes: ready.sizes.iter().map(|&n| n as i64).collect(),
            params: ready.given().into_iter().map(|t| Some(plan_layout(t))).collect(),
            outputs: ready.outputs.iter().map(plan_layout).collect(),
        };
        let target = device.target();
        let among = |is_there: &IsThere<'_>| variant.plan_among(&call, &target, ready.hand, is_there);
        if let Some(only) = device.0.only() {
            return self.loaded(device, among(&|launch| only.keys.contains(&launch.key.to_string()))?);
        }
        if rank > 0 {
            return self.loaded(device, (variant.plan(&call, &target, rank)?, None));
        }
        let is_there = |launch: &Launch| source::has(launch, target.isa);
        let is_sound = |launch: &Launch| lower_sound(&launch.stage, &launch.schedule, &target).is_ok();
        match self.loaded(device, variant.plan_with(&call, &target, ready.hand)?) {
            Err(missing @ Error::NoKernel { .. }) => match among(&is_there) {
                Ok(slower) => self.loaded(device, slower),
                Err(_) => Err(missing),
            },
            Err(failed @ Error::Compile { .. }) => match among(&|launch| is_there(launch) && is_sound(launch)) {
                Ok(other) => self.loaded(device, other),
                Err(_) => Err(failed),
            },
            loaded => loaded,
        }
    }

    /// A plan with its kernels loaded.
    fn loaded(&self, device: &CudaDevice, (plan, saves): Planned) -> Result<Prepared, Error> {
        let (name, isa) = (&self.program.name, device.target().isa);
        let launches: Vec<&Launch> = plan.steps.iter().filter(|launch| !launch.grid.contains(&0)).collect();
        source::make_ready(name, &launches, isa)?;
        let mut prepared = Prepared::new(&device.0.context, plan, |launch| source::find_soon(name, launch, isa))?;
        prepared.saves = saves;
        Ok(prepared)
    }

    /// The signature of calls that leave nothing out but the cotangents that this one leaves out: zeros in their place
    /// would make NaN of infinite factors.
    fn completed(&self, signature: &Signature) -> Signature {
        let params = self.program.params.iter().zip(&signature.given);
        let given = params.map(|(param, given)| *given || !param.name.ends_with(".bar")).collect();
        Signature { given, wanted: vec![true; signature.wanted.len()], ..signature.clone() }
    }

    /// Works with a call as one that is complete: what is absent is a tensor of its default, what is not wanted goes to a
    /// tensor that is dropped. Kernels made ahead of time cannot cover every choice of what is left out.
    fn with_whole<T>(
        &self,
        ready: &Ready<'_>,
        device: &CudaDevice,
        work: impl FnOnce(&Ready<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let (elem, place) = (ready.signature.elem, Device::Cuda(device.clone()));
        let shape = |axes: &[Axis]| axes.iter().map(|a| ready.sizes[a.0 as usize]).collect::<Vec<_>>();
        let stored = |declared: Elem| declared.in_call(elem);
        let signature = self.completed(&ready.signature);
        let input = |((param, given), input): ((&Param, &bool), &Option<&Tensor>)| match (input, param.default) {
            (Some(tensor), _) => Ok(Some((*tensor).clone())),
            (None, _) if !given => Ok(None),
            (None, Some(value)) => Tensor::constant(stored(param.elem), value, &shape(&param.axes), device).map(Some),
            (None, None) => Err(Error::MissingTensor { tensor: param.name.clone() }),
        };
        let params = self.program.params.iter().zip(&signature.given);
        let inputs = params.zip(ready.inputs).map(input).collect::<Result<Vec<_>, _>>()?;
        let mut wanted = ready.outputs.iter();
        let output = |(output, is_wanted): (&Output, &bool)| match is_wanted.then(|| wanted.next()).flatten() {
            Some(tensor) => Ok(tensor.clone()),
            None => Tensor::uninitialised(stored(output.elem), &shape(&output.axes), &place),
        };
        let outputs = self.program.outputs.iter().zip(&ready.signature.wanted).map(output);
        let outputs = outputs.collect::<Result<Vec<_>, _>>()?;
        let inputs: Vec<Option<&Tensor>> = inputs.iter().map(Option::as_ref).collect();
        let whole = Ready { signature, sizes: ready.sizes.clone(), inputs: &inputs, outputs, hand: ready.hand };
        work(&whole)
    }

    /// Runs a call of a GPU on the CPU: copies there and back.
    fn run_aside(&self, ready: &Ready<'_>) -> Result<(), Error> {
        let variant = self.variant(&ready.signature)?;
        let inputs = ready.given().into_iter().map(Tensor::to_cpu).collect::<Result<Vec<_>, _>>()?;
        let fresh = |t: &Tensor| Tensor::uninitialised(t.elem(), t.shape(), &Device::Cpu);
        let outputs = ready.outputs.iter().map(fresh).collect::<Result<Vec<_>, _>>()?;
        host::run(variant.on_cpu()?, &ready.sizes, &inputs.iter().collect::<Vec<_>>(), &outputs)
            .map_err(|e| variant.refusal(e))?;
        outputs.iter().zip(&ready.outputs).try_for_each(|(from, to)| from.write_to(to))
    }
}

fn plan_layout(tensor: &Tensor) -> plan::Layout {
    plan::Layout { strides: tensor.strides().to_vec(), align: alignment(tensor) }
}

/// The memory of a tensor that has elements.
fn memory(tensor: &Tensor) -> Option<&DeviceMemory> {
    match &tensor.storage {
        Storage::Cuda(memory, _) if memory.bytes > 0 => Some(memory),
        _ => None,
    }
}

/// The power of two that divides the address of index 0, 0, …; at most 16.
fn alignment(tensor: &Tensor) -> u32 {
    1 << tensor.device_ptr().unwrap_or(0).trailing_zeros().min(4)
}
