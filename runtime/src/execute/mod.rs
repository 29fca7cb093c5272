//! Running a program on tensors, wherever they are.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use oplus_codegen::plan::{self, Plan, Planner};
use oplus_codegen::target::Target;
use oplus_dsl::Elem;
use oplus_dsl::ir::{Output, Program};
use oplus_dsl::specialize::for_call;

use crate::bind::{Binding, Known, bind, check_count, check_overlaps};
use crate::cuda::{CudaDevice, Pointers, Prepared};
use crate::tensor::Storage;
use crate::{Device, Error, Tensor, host, source};

/// A program that can be called: for any element type and sizes, with or without its optional parameters, for any of its
/// outputs.
pub(crate) struct Executable {
    /// Distinguishes programs in the caches of a device.
    pub(crate) id: u64,
    pub(crate) program: Program,
    variants: RwLock<HashMap<Signature, Arc<Variant>>>,
}

/// What selects a variant of a program: the call's element type, the parameters given and the outputs wanted.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Signature {
    pub(crate) elem: Elem,
    pub(crate) given: Vec<bool>,
    pub(crate) wanted: Vec<bool>,
}

/// A program as calls of one signature run it: without what they leave out.
pub(crate) struct Variant {
    pub(crate) program: Program,
    planners: Mutex<HashMap<Target, Planner>>,
}

/// What becomes of an output.
#[derive(Clone, Copy)]
pub(crate) enum Sink<'a> {
    /// It is not computed.
    Skip,
    /// It goes to a new tensor.
    New,
    /// It goes to a tensor of the caller's.
    Into(&'a Tensor),
}

/// A call with everything known: the tensors of the outputs that are wanted, in order.
struct Ready<'a> {
    signature: Signature,
    sizes: Vec<usize>,
    inputs: &'a [Option<&'a Tensor>],
    outputs: Vec<Tensor>,
}

impl Executable {
    /// A program of the user's, already verified.
    pub(crate) fn new(program: Program) -> Executable {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Executable { id: NEXT.fetch_add(1, Ordering::Relaxed), program, variants: RwLock::default() }
    }

    /// The variant for calls of a signature.
    pub(crate) fn variant(&self, signature: &Signature) -> Result<Arc<Variant>, Error> {
        let known = self.variants.read().unwrap_or_else(PoisonError::into_inner).get(signature).cloned();
        if let Some(variant) = known {
            return Ok(variant);
        }
        let variant = Arc::new(Variant::of(&self.program, signature)?);
        let mut variants = self.variants.write().unwrap_or_else(PoisonError::into_inner);
        Ok(variants.entry(signature.clone()).or_insert(variant).clone())
    }

    /// Runs the program where its tensors are. Gives the tensors of the outputs, `None` for those skipped, and what the
    /// tensors agreed on.
    pub(crate) fn run<'t>(
        &self,
        known: &Known<'t>,
        inputs: &[Option<&'t Tensor>],
        sinks: &[Sink<'t>],
    ) -> Result<(Vec<Option<Tensor>>, Binding<'t>), Error> {
        check_count("inputs", self.program.params.len(), inputs.len())?;
        check_count("outputs", self.program.outputs.len(), sinks.len())?;
        let given: Vec<Option<&Tensor>> = sinks.iter().map(Sink::given).collect();
        let binding = bind(&self.program, known, inputs, &given)?;
        if given.iter().any(Option::is_some) {
            check_overlaps(&self.program, inputs, &given)?;
        }
        let device = binding.home.map_or(Device::Cpu, Storage::device);
        let outputs = self.outputs(&binding, sinks, &device)?;
        let signature = Signature {
            elem: binding.elem,
            given: inputs.iter().map(Option::is_some).collect(),
            wanted: sinks.iter().map(|s| !matches!(s, Sink::Skip)).collect(),
        };
        let written = outputs.iter().flatten().cloned().collect();
        let ready = Ready { signature, sizes: binding.sizes.clone(), inputs, outputs: written };
        match device {
            Device::Cpu => self.run_on_cpu(&ready)?,
            Device::Cuda(device) => self.run_on_cuda(&ready, &device)?,
        }
        Ok((outputs, binding))
    }

    /// A tensor for every output that is wanted.
    fn outputs(&self, bound: &Binding<'_>, sinks: &[Sink<'_>], device: &Device) -> Result<Vec<Option<Tensor>>, Error> {
        let allocate = |output: &Output| {
            let shape: Vec<usize> = output.axes.iter().map(|a| bound.sizes[a.0 as usize]).collect();
            let elem = if output.elem == Elem::Call { bound.elem } else { output.elem };
            Tensor::uninitialised(elem, &shape, device)
        };
        let tensor = |(output, sink): (&Output, &Sink<'_>)| match sink {
            Sink::Skip => Ok(None),
            Sink::New => allocate(output).map(Some),
            Sink::Into(tensor) => Ok(Some((*tensor).clone())),
        };
        self.program.outputs.iter().zip(sinks).map(tensor).collect()
    }

    fn run_on_cpu(&self, ready: &Ready<'_>) -> Result<(), Error> {
        let variant = self.variant(&ready.signature)?;
        host::run(&variant.program, &ready.sizes, &ready.given(), &ready.outputs)
    }

    fn run_on_cuda(&self, ready: &Ready<'_>, device: &CudaDevice) -> Result<(), Error> {
        let context = &device.0.context;
        let rank = device.0.schedule_rank();
        let call = self.call_words(ready, rank);
        let prepared = match context.prepared(&call) {
            Some(prepared) => prepared,
            None => match self.prepare(ready, device, rank) {
                Ok(prepared) => {
                    let prepared = Arc::new(prepared);
                    context.keep(call.into(), prepared.clone());
                    prepared
                }
                Err(Error::NoKernel { .. }) if source::falls_back_to_cpu() => return self.run_aside(ready),
                Err(e) => return Err(e),
            },
        };
        let address = |tensor: &Tensor| tensor.device_ptr().unwrap_or(0);
        let params: Vec<u64> = ready.inputs.iter().flatten().map(|t| address(t)).collect();
        let outputs: Vec<u64> = ready.outputs.iter().map(address).collect();
        prepared.run(device, Pointers { params: &params, outputs: &outputs })
    }

    /// Everything a plan depends on, as numbers: program, element type, rank of the schedules, outputs wanted, sizes, and
    /// for every tensor whether it is there, its alignment and its strides.
    fn call_words(&self, ready: &Ready<'_>, rank: usize) -> Vec<u64> {
        let mut words = Vec::with_capacity(64);
        let Signature { elem, given, wanted } = &ready.signature;
        words.extend([self.id, *elem as u64, rank as u64]);
        words.extend(given.iter().chain(wanted).map(|&yes| u64::from(yes)));
        words.extend(ready.sizes.iter().map(|&n| n as u64));
        for tensor in ready.inputs.iter().flatten().copied().chain(&ready.outputs) {
            words.push(u64::from(alignment(tensor)));
            words.extend(tensor.strides().iter().map(|&s| s as u64));
        }
        words
    }

    fn prepare(&self, ready: &Ready<'_>, device: &CudaDevice, rank: usize) -> Result<Prepared, Error> {
        let variant = self.variant(&ready.signature)?;
        let call = plan::Call {
            sizes: ready.sizes.iter().map(|&n| n as i64).collect(),
            params: ready.given().into_iter().map(|t| Some(plan_layout(t))).collect(),
            outputs: ready.outputs.iter().map(plan_layout).collect(),
        };
        let plan = variant.plan(&call, &device.target(), rank)?;
        let (name, isa) = (&self.program.name, device.target().isa);
        Prepared::new(&device.0.context, plan, |launch| source::find(name, launch, isa))
    }

    /// Runs a call of a GPU on the CPU: copies there and back.
    fn run_aside(&self, ready: &Ready<'_>) -> Result<(), Error> {
        let variant = self.variant(&ready.signature)?;
        let inputs = ready.given().into_iter().map(Tensor::to_cpu).collect::<Result<Vec<_>, _>>()?;
        let fresh = |t: &Tensor| Tensor::uninitialised(t.elem(), t.shape(), &Device::Cpu);
        let outputs = ready.outputs.iter().map(fresh).collect::<Result<Vec<_>, _>>()?;
        host::run(&variant.program, &ready.sizes, &inputs.iter().collect::<Vec<_>>(), &outputs)?;
        outputs.iter().zip(&ready.outputs).try_for_each(|(from, to)| from.write_to(to))
    }
}

impl<'a> Ready<'a> {
    /// The inputs that are given: one per parameter of the variant.
    fn given(&self) -> Vec<&'a Tensor> {
        self.inputs.iter().copied().flatten().collect()
    }
}

impl<'a> Sink<'a> {
    fn given(&self) -> Option<&'a Tensor> {
        match *self {
            Sink::Into(tensor) => Some(tensor),
            Sink::Skip | Sink::New => None,
        }
    }
}

impl Variant {
    fn of(program: &Program, signature: &Signature) -> Result<Variant, Error> {
        let Signature { elem, given, wanted } = signature;
        let params = program.params.iter().zip(given).map(|(p, given)| (p.name.as_str(), *given));
        let outputs = program.outputs.iter().zip(wanted).map(|(o, wanted)| (o.name.as_str(), *wanted));
        let absent: Vec<&str> = params.filter(|(_, given)| !given).map(|(name, _)| name).collect();
        let wanted: Vec<&str> = outputs.filter(|(_, wanted)| *wanted).map(|(name, _)| name).collect();
        let variant = for_call(program, *elem, &wanted, &absent);
        if let Some(param) = variant.params.iter().find(|p| absent.contains(&p.name.as_str())) {
            let reason = format!("it cannot do without `{}`", param.name);
            return Err(Error::Plan { kernel: program.name.clone(), reason });
        }
        Ok(Variant { program: variant, planners: Mutex::default() })
    }

    /// The plan of a call on a target, with the schedules of that rank.
    pub(crate) fn plan(&self, call: &plan::Call, target: &Target, rank: usize) -> Result<Plan, Error> {
        let failed = |e: plan::PlanError| Error::Plan { kernel: self.program.name.clone(), reason: e.to_string() };
        let mut planners = self.planners.lock().unwrap_or_else(PoisonError::into_inner);
        let planner = match planners.entry(*target) {
            Entry::Occupied(planner) => planner.into_mut(),
            Entry::Vacant(place) => place.insert(Planner::new(&self.program, target).map_err(failed)?),
        };
        planner.plan_ranked(call, rank).map_err(failed)
    }
}

fn plan_layout(tensor: &Tensor) -> plan::Layout {
    plan::Layout { strides: tensor.strides().to_vec(), align: alignment(tensor) }
}

/// The power of two that divides the address of index 0, 0, …; at most 16.
fn alignment(tensor: &Tensor) -> u32 {
    1 << tensor.device_ptr().unwrap_or(0).trailing_zeros().min(4)
}
