//! The derived gradient of a kernel, and how its parameters and outputs correspond to the kernel's.

use oplus_dsl::ir::{Param, Program};

use crate::bind::{Known, check_count};
use crate::dist::Plans;
use crate::execute::{Executable, Hand, Sink};
use crate::kernel::{float_outputs, float_params};
use crate::tensor::Storage;
use crate::{Call, Error, Tensor};

/// The program of a gradient, wired to the kernel it belongs to.
pub(crate) struct Gradient {
    pub(crate) executable: Executable,
    /// Where each parameter comes from.
    sources: Vec<Source>,
    /// For every floating-point parameter of the kernel, the output that is its gradient.
    gradients: Vec<usize>,
    /// How many cotangents the kernel's outputs have.
    cotangents: usize,
    /// For every axis, the kernel's axis of that name.
    axes: Vec<Option<usize>>,
    plans: Plans,
}

/// Where a parameter of a gradient comes from.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Source {
    /// The kernel's input of that index.
    Input(usize),
    /// The kernel's output of that index.
    Output(usize),
    /// The cotangent of the kernel's floating-point output of that position among them.
    Cotangent(usize),
}

impl Gradient {
    /// Derives the gradient of a program.
    pub(crate) fn of(forward: &Program) -> Result<Gradient, Error> {
        let failed = |reason: String| Error::NoGradient { kernel: forward.name.clone(), reason };
        let program = oplus_dsl::adjoint::adjoint(forward).map_err(|e| failed(e.to_string()))?;
        let cotangents = float_outputs(forward).count();
        let first = program.params.len() - cotangents;
        let source = |(k, p): (usize, &Param)| match k.checked_sub(first) {
            Some(output) => Ok(Source::Cotangent(output)),
            None => source(forward, &p.name).ok_or_else(|| failed(format!("nothing is called `{}`", p.name))),
        };
        let sources = program.params.iter().enumerate().map(source).collect::<Result<_, _>>()?;
        let gradient = |p: usize| {
            let name = format!("{}.bar", forward.params[p].name);
            let at = program.outputs.iter().position(|o| o.name == name);
            at.ok_or_else(|| failed(format!("it does not compute `{name}`")))
        };
        let gradients = float_params(forward).map(gradient).collect::<Result<_, _>>()?;
        let axes = program.axes.iter().map(|name| forward.axis(name).map(|a| a.0 as usize)).collect();
        let (executable, plans) = (Executable::new(program), Plans::default());
        Ok(Gradient { executable, sources, gradients, cotangents, axes, plans })
    }

    /// Whether it reads an output of the kernel.
    pub(crate) fn reads(&self, output: usize) -> bool {
        self.sources.contains(&Source::Output(output))
    }

    /// Runs the gradient of a call. `sinks` has one entry per floating-point parameter of the kernel.
    pub(crate) fn run(
        &self,
        call: &Call,
        cotangents: &[Option<&Tensor>],
        sinks: &[Sink<'_>],
    ) -> Result<Vec<Option<Tensor>>, Error> {
        check_count("cotangents", self.cotangents, cotangents.len())?;
        let tensor = |source: &Source| match *source {
            Source::Input(k) => call.inputs[k].as_ref(),
            Source::Output(k) => call.outputs[k].as_ref(),
            Source::Cotangent(k) => cotangents[k],
        };
        let inputs: Vec<Option<&Tensor>> = self.sources.iter().map(tensor).collect();
        let mut own = vec![Sink::Skip; self.executable.program.outputs.len()];
        self.gradients.iter().zip(sinks).for_each(|(&at, sink)| own[at] = *sink);
        let known = Known {
            sizes: self.axes.iter().map(|axis| axis.map(|a| call.sizes[a])).collect(),
            elem: Some(call.elem),
            home: home(call),
        };
        let hand = call.residual.as_ref().map_or(Hand::Nothing, Hand::Saved);
        let mut outputs = match &call.shard {
            None => self.executable.run(&known, &inputs, &own, hand)?.outputs,
            Some(shard) => shard.clone().run(&self.plans, &self.executable.program, &known, &inputs, &own)?.1,
        };
        Ok(self.gradients.iter().map(|&at| outputs[at].take()).collect())
    }
}

/// Where a call ran.
fn home(call: &Call) -> Option<&Storage> {
    call.inputs.iter().chain(&call.outputs).flatten().map(|t| &t.storage).next()
}

/// The tensor of the kernel that a parameter of the gradient is named after, if it is no cotangent.
fn source(forward: &Program, name: &str) -> Option<Source> {
    let input = forward.params.iter().position(|p| p.name == name).map(Source::Input);
    input.or_else(|| forward.outputs.iter().position(|o| o.name == name).map(Source::Output))
}
