//! Running a program on tensors, wherever they are.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use oplus_codegen::plan::{self, Plan};
use oplus_codegen::target::Target;
use oplus_dsl::Elem;
use oplus_dsl::ir::{Output, Program};

use crate::bind::{Binding, Known, bind, check_count, check_overlaps};
use crate::cuda::{CudaDevice, Pointers, Prepared};
use crate::tensor::Storage;
use crate::{Device, Error, Tensor, host, source};

/// A program that can be called: for any element type, any sizes, with any of its outputs.
pub(crate) struct Executable {
    /// Distinguishes programs in the caches of a device.
    pub(crate) id: u64,
    pub(crate) program: Program,
    instances: RwLock<HashMap<Variant, Arc<Program>>>,
}

/// The call's element type, and which outputs are wanted.
type Variant = (Elem, Vec<bool>);

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

/// A call with everything known: tensors of the outputs that are wanted, in order.
struct Ready<'a> {
    wanted: Vec<bool>,
    elem: Elem,
    sizes: Vec<usize>,
    inputs: &'a [Option<&'a Tensor>],
    outputs: Vec<Tensor>,
}

impl Executable {
    /// A program of the user's, already verified.
    pub(crate) fn new(program: Program) -> Executable {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Executable { id: NEXT.fetch_add(1, Ordering::Relaxed), program, instances: RwLock::default() }
    }

    /// The program with the call's element type in place, and only the outputs that are wanted.
    pub(crate) fn instance(&self, elem: Elem, wanted: &[bool]) -> Arc<Program> {
        let key = (elem, wanted.to_vec());
        let known = self.instances.read().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        known.unwrap_or_else(|| {
            let mut program = self.program.instantiate(elem);
            let mut wanted = wanted.iter();
            program.outputs.retain(|_| wanted.next().copied().unwrap_or(true));
            let program = Arc::new(program);
            let mut instances = self.instances.write().unwrap_or_else(PoisonError::into_inner);
            instances.entry(key).or_insert(program).clone()
        })
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
        let ready = Ready {
            wanted: sinks.iter().map(|s| !matches!(s, Sink::Skip)).collect(),
            elem: binding.elem,
            sizes: binding.sizes.clone(),
            inputs,
            outputs: outputs.iter().flatten().cloned().collect(),
        };
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
        host::run(&self.instance(ready.elem, &ready.wanted), &ready.sizes, ready.inputs, &ready.outputs)
    }

    fn run_on_cuda(&self, ready: &Ready<'_>, device: &CudaDevice) -> Result<(), Error> {
        let context = &device.0.context;
        let call = self.call_words(ready);
        let prepared = match context.prepared(&call) {
            Some(prepared) => prepared,
            None => match self.prepare(ready, device) {
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
        let params: Vec<u64> = ready.inputs.iter().map(|t| t.map_or(0, address)).collect();
        let outputs: Vec<u64> = ready.outputs.iter().map(address).collect();
        prepared.run(device, Pointers { params: &params, outputs: &outputs })
    }

    /// Everything a plan depends on, as numbers: program, element type, outputs wanted, sizes, and for every tensor
    /// whether it is there, its alignment and its strides.
    fn call_words(&self, ready: &Ready<'_>) -> Vec<u64> {
        let mut words = Vec::with_capacity(64);
        words.extend([self.id, ready.elem as u64]);
        words.extend(ready.wanted.iter().map(|&w| u64::from(w)));
        words.extend(ready.sizes.iter().map(|&n| n as u64));
        let tensors = ready.inputs.iter().copied().chain(ready.outputs.iter().map(Some));
        for tensor in tensors {
            words.push(tensor.map_or(0, |t| u64::from(alignment(t))));
            words.extend(tensor.iter().flat_map(|t| t.strides()).map(|&s| s as u64));
        }
        words
    }

    fn prepare(&self, ready: &Ready<'_>, device: &CudaDevice) -> Result<Prepared, Error> {
        let program = self.instance(ready.elem, &ready.wanted);
        let call = plan::Call {
            sizes: ready.sizes.iter().map(|&n| n as i64).collect(),
            params: ready.inputs.iter().map(|t| t.map(plan_layout)).collect(),
            outputs: ready.outputs.iter().map(plan_layout).collect(),
        };
        let plan = make_plan(&program, &call, &device.target())?;
        let isa = device.target().isa;
        Prepared::new(&device.0.context, plan, |launch| source::find(&program.name, launch, isa))
    }

    /// Runs a call of a GPU on the CPU: copies there and back.
    fn run_aside(&self, ready: &Ready<'_>) -> Result<(), Error> {
        let inputs = ready.inputs.iter().map(|t| t.map(Tensor::to_cpu).transpose()).collect::<Result<Vec<_>, _>>()?;
        let inputs: Vec<Option<&Tensor>> = inputs.iter().map(Option::as_ref).collect();
        let fresh = |t: &Tensor| Tensor::uninitialised(t.elem(), t.shape(), &Device::Cpu);
        let outputs = ready.outputs.iter().map(fresh).collect::<Result<Vec<_>, _>>()?;
        host::run(&self.instance(ready.elem, &ready.wanted), &ready.sizes, &inputs, &outputs)?;
        outputs.iter().zip(&ready.outputs).try_for_each(|(from, to)| from.write_to(to))
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

/// Plans a call of an instantiated program.
pub(crate) fn make_plan(program: &Program, call: &plan::Call, target: &Target) -> Result<Plan, Error> {
    let _ = (call, target);
    Err(Error::Plan { kernel: program.name.clone(), reason: "SEAM".into() })
}

fn plan_layout(tensor: &Tensor) -> plan::Layout {
    plan::Layout { strides: tensor.strides().to_vec(), align: alignment(tensor) }
}

/// The power of two that divides the address of index 0, 0, …; at most 16.
fn alignment(tensor: &Tensor) -> u32 {
    1 << tensor.device_ptr().unwrap_or(0).trailing_zeros().min(4)
}
