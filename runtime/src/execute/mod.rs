//! Running a program on tensors, wherever they are.

mod gpu;
mod variant;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use oplus_dsl::ir::{Output, Program};

use crate::bind::{Binding, Known, bind, check_count, check_outputs, check_place_of_states};
use crate::call::Residual;
use crate::ordered::is_ordered;
use crate::tensor::Storage;
use crate::{Device, Error, Tensor, host};

pub(crate) use variant::{Signature, Variant};

/// A program that can be called: for any element type and sizes, with or without its optional parameters, for any of its
/// outputs.
pub(crate) struct Executable {
    /// Distinguishes programs in the caches of a device.
    pub(crate) id: u64,
    pub(crate) program: Program,
    variants: RwLock<HashMap<Signature, Arc<Variant>>>,
}

/// The use of an output.
#[derive(Clone, Copy)]
pub(crate) enum Sink<'a> {
    /// It is not computed.
    Skip,
    /// It goes to a new tensor.
    New,
    /// It goes to a tensor of the caller's.
    Into(&'a Tensor),
}

/// A tensor for every output that is wanted.
pub(crate) fn allocated(
    program: &Program,
    binding: &Binding<'_>,
    sinks: &[Sink<'_>],
    device: &Device,
) -> Result<Vec<Option<Tensor>>, Error> {
    let tensor = |(output, sink): (&Output, &Sink<'_>)| match sink {
        Sink::Skip => Ok(None),
        Sink::New => binding.allocate(output, device).map(Some),
        Sink::Into(tensor) => Ok(Some((*tensor).clone())),
    };
    program.outputs.iter().zip(sinks).map(tensor).collect()
}

/// The way of states from a call to its gradient.
#[derive(Clone, Copy)]
pub(crate) enum Hand<'a> {
    /// Nothing.
    Nothing,
    /// The call saves them if it can.
    Save,
    /// The call saves them if it can, in a tensor of the caller's.
    SaveInto(&'a Tensor),
    /// The gradient has them.
    Saved(&'a Residual),
}

/// The results of a call.
pub(crate) struct Outcome<'t> {
    /// The tensors of the outputs, `None` for those skipped.
    pub(crate) outputs: Vec<Option<Tensor>>,
    /// The sizes, type and place that the tensors agreed on.
    pub(crate) binding: Binding<'t>,
    /// States for the gradient.
    pub(crate) residual: Option<Residual>,
}

/// A call with everything known: the tensors of the outputs that are wanted, in order.
struct Ready<'a> {
    signature: Signature,
    sizes: Vec<usize>,
    inputs: &'a [Option<&'a Tensor>],
    outputs: Vec<Tensor>,
    hand: Hand<'a>,
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

    /// Runs the program where its tensors are.
    pub(crate) fn run<'t>(
        &self,
        known: &Known<'t>,
        inputs: &[Option<&'t Tensor>],
        sinks: &[Sink<'t>],
        hand: Hand<'_>,
    ) -> Result<Outcome<'t>, Error> {
        check_count("inputs", self.program.params.len(), inputs.len())?;
        check_count("outputs", self.program.outputs.len(), sinks.len())?;
        let given: Vec<Option<&Tensor>> = sinks.iter().map(Sink::given).collect();
        let binding = bind(&self.program, known, inputs, &given)?;
        if given.iter().any(Option::is_some) {
            check_outputs(&self.program, inputs, &given)?;
        }
        let device = binding.home.map_or(Device::Cpu, Storage::device);
        if let Hand::SaveInto(states) = hand {
            check_place_of_states(&self.program, states, &device, (inputs, &given))?;
        }
        device.in_order(|| self.run_bound(binding, inputs, sinks, hand, &device))
    }

    /// How many numbers a call saves for its gradient; `None` when it saves nothing.
    pub(crate) fn saved_len(&self, inputs: &[Option<&Tensor>], sinks: &[Sink<'_>]) -> Result<Option<u64>, Error> {
        check_count("inputs", self.program.params.len(), inputs.len())?;
        check_count("outputs", self.program.outputs.len(), sinks.len())?;
        let given: Vec<Option<&Tensor>> = sinks.iter().map(Sink::given).collect();
        let binding = bind(&self.program, &Known::default(), inputs, &given)?;
        let Device::Cuda(device) = binding.home.map_or(Device::Cpu, Storage::device) else { return Ok(None) };
        let outputs = given.into_iter().flatten().cloned().collect();
        let ready = Ready::new(&binding, inputs, sinks, (outputs, Hand::Save));
        device.in_order(|| self.saved_on_cuda(&ready, &device))
    }

    fn run_bound<'t>(
        &self,
        binding: Binding<'t>,
        inputs: &[Option<&'t Tensor>],
        sinks: &[Sink<'t>],
        hand: Hand<'_>,
        device: &Device,
    ) -> Result<Outcome<'t>, Error> {
        let outputs = allocated(&self.program, &binding, sinks, device)?;
        let ready = Ready::new(&binding, inputs, sinks, (outputs.iter().flatten().cloned().collect(), hand));
        let residual = match device {
            Device::Cpu => self.run_on_cpu(&ready).map(|()| None)?,
            Device::Cuda(device) => self.run_on_cuda(&ready, device)?,
        };
        Ok(Outcome { outputs, binding, residual })
    }

    fn run_on_cpu(&self, ready: &Ready<'_>) -> Result<(), Error> {
        let variant = self.variant(&ready.signature)?;
        let compiled = variant.on_cpu()?;
        host::run(compiled, &ready.sizes, &ready.given(), &ready.outputs).map_err(|e| variant.refusal(e))
    }
}

impl<'a> Ready<'a> {
    /// A call whose tensors have been bound, with those that it writes.
    fn new(
        binding: &Binding<'_>,
        inputs: &'a [Option<&'a Tensor>],
        sinks: &[Sink<'_>],
        (outputs, hand): (Vec<Tensor>, Hand<'a>),
    ) -> Ready<'a> {
        let signature = Signature {
            elem: binding.elem,
            given: inputs.iter().map(Option::is_some).collect(),
            wanted: sinks.iter().map(|s| !matches!(s, Sink::Skip)).collect(),
            ordered: is_ordered(),
        };
        Ready { signature, sizes: binding.sizes.clone(), inputs, outputs, hand }
    }

    /// The inputs that are given: one per parameter of the variant.
    fn given(&self) -> Vec<&'a Tensor> {
        self.inputs.iter().copied().flatten().collect()
    }
}

impl<'a> Sink<'a> {
    /// The tensor of the caller's, if it is one.
    pub(crate) fn given(&self) -> Option<&'a Tensor> {
        match *self {
            Sink::Into(tensor) => Some(tensor),
            Sink::Skip | Sink::New => None,
        }
    }
}
