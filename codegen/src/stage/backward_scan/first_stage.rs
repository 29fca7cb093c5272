//! The backward-scan stage of a cut.

use oplus_dsl::ir::{AxisSet, Output, Value};
use oplus_dsl::typing::TypeError;

use super::{Outline, Sums};
use crate::stage::copy::Copier;
use crate::stage::error::CutError;
use crate::stage::rest::Rest;
use crate::stage::{Cut, Sink, Stage, Temporary};

/// A value that the backward-scan stage gives, as an output of that stage, and where it goes.
struct StageOutput {
    value: Value,
    output: Output,
    sink: Sink,
}

/// A backward-scan stage, and the tensors that it writes for later stages.
pub(super) struct FirstStage {
    pub stage: Stage,
    pub buffers: Vec<Temporary>,
}

impl Outline<'_> {
    /// The backward-scan stage.
    pub(super) fn first_stage(&self) -> Result<FirstStage, CutError> {
        let mut buffers = vec![];
        let mut given: Vec<StageOutput> = vec![];
        for (k, value) in &self.direct {
            let output = self.program.outputs[*k].clone();
            given.push(StageOutput { value: *value, output, sink: Sink::Output(*k as u32) });
        }
        for value in &self.exports {
            let sink = Sink::Buffer(buffers.len() as u32);
            let buffer = self.buffer(*value);
            let Temporary { name, axes, elem } = buffer.clone();
            given.push(StageOutput { value: *value, output: Output { name, axes, elem, value: *value }, sink });
            buffers.push(buffer);
        }
        Ok(FirstStage { stage: self.stage(&given)?, buffers })
    }

    /// The cut that begins with this stage.
    pub(super) fn finished(&self, FirstStage { stage, mut buffers }: FirstStage) -> Result<Cut, CutError> {
        let mut stages = vec![stage];
        let exports = self.exports.iter().copied().collect();
        let rest = Rest::new(self.program, |k| self.direct.contains_key(&k), exports);
        rest.append_to(&mut stages, &mut buffers)?;
        Ok(Cut { stages, buffers, partial_axis: None })
    }

    /// A temporary tensor for a value, time last; in a stage that takes all sums what belongs to a time is contiguous.
    fn buffer(&self, value: Value) -> Temporary {
        let node = self.program.node(value);
        let within = match self.sums {
            Sums::All => self.row().into_iter().chain([self.state]).collect(),
            Sums::OfStates => AxisSet::EMPTY,
        };
        let last = within.with(self.pair.time);
        let time = node.axes.iter().filter(|a| *a == self.pair.time);
        let inner = node.axes.iter().filter(|a| within.contains(*a));
        let axes = node.axes.minus(last).iter().chain(time).chain(inner).collect();
        Temporary { name: format!("v{}", value.0), axes, elem: node.ty.elem().unwrap_or(oplus_dsl::Elem::F32) }
    }

    fn stage(&self, given: &[StageOutput]) -> Result<Stage, TypeError> {
        let mut copier = Copier::new(self.program, &self.program.name)?;
        if let Some(sum) = self.first_sum() {
            copier.copy(sum)?;
        }
        for StageOutput { value, output, .. } in given {
            copier.output(output, *value)?;
        }
        Ok(copier.finish(given.iter().map(|given| given.sink).collect()))
    }
}
