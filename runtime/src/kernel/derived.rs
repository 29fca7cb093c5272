//! Gradients of any order as functions of a kernel's inputs and of cotangents alone.

use std::sync::Arc;

use oplus_dsl::adjoint::adjoint_of_inputs;

use super::{Kernel, float_params, own_hand};
use crate::bind::check_count;
use crate::execute::Sink;
use crate::{Error, Tensor};

impl Kernel {
    /// The gradients of the floating-point parameters, differentiated so often. `inputs` are the tensors of the kernel, then the
    /// cotangents of each order; those that were left out have no gradient.
    pub(crate) fn gradients_of_order(
        &self,
        order: usize,
        inputs: &[Option<&Tensor>],
    ) -> Result<Vec<Option<Tensor>>, Error> {
        if order == 1 {
            return self.first_gradients(inputs);
        }
        let (kernel, lower) = (self.derived_to_order(order, inputs)?, self.derived_to_order(order - 1, inputs)?);
        check_count("inputs", kernel.program()?.params.len(), inputs.len())?;
        let sink = |p: usize| if inputs[p].is_some() { Sink::New } else { Sink::Skip };
        let sinks: Vec<Sink<'_>> = float_params(lower.program()?).map(sink).collect();
        Ok(kernel.run(inputs, &sinks, own_hand())?.outputs)
    }

    /// The gradients of a call that computes only the outputs that its gradient reads.
    fn first_gradients(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Option<Tensor>>, Error> {
        let count = self.program()?.params.len();
        let (inputs, cotangents) = inputs.split_at(count.min(inputs.len()));
        let read = self.with_form(inputs, |form, _| {
            let (outputs, gradient) = (form.forward.program.outputs.len(), form.gradient()?);
            Ok((0..outputs).map(|output| gradient.reads(output)).collect::<Vec<bool>>())
        })?;
        let call = if read.contains(&true) {
            let sinks: Vec<Sink<'_>> = read.iter().map(|read| if *read { Sink::New } else { Sink::Skip }).collect();
            self.run(inputs, &sinks, own_hand())?
        } else {
            self.made(inputs, &vec![None; read.len()], None)?
        };
        self.backward(&call, cotangents)
    }

    /// The kernel that is differentiated so often, for calls with these inputs.
    pub(crate) fn derived_to_order(&self, order: usize, inputs: &[Option<&Tensor>]) -> Result<Arc<Kernel>, Error> {
        let mut kernel = self.derived(inputs)?;
        for _ in 1..order {
            kernel = kernel.derived(inputs)?;
        }
        Ok(kernel)
    }

    /// The gradient of the form that calls with these inputs take.
    fn derived(&self, inputs: &[Option<&Tensor>]) -> Result<Arc<Kernel>, Error> {
        let derive = |kernel: &Kernel, form: &super::Form| {
            let failed = |reason: String| Error::NoGradient { kernel: kernel.name.to_string(), reason };
            let program = adjoint_of_inputs(&form.forward.program).map_err(|e| failed(e.to_string()))?;
            Ok(Arc::new(Kernel::of(program)))
        };
        self.with_form(inputs, |form, _| form.derived.get_or_init(|| derive(self, form)).clone())
    }
}
