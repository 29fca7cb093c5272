//! The backward-scan stage of a cut, and the stages of the rest of the program.

use oplus_dsl::ir::{AxisSet, Op, Output, Param, Program, Value};
use oplus_dsl::typing::TypeError;

use super::{Outline, Sums};
use crate::stage::copy::Copier;
use crate::stage::cut::cut;
use crate::stage::error::CutError;
use crate::stage::{Cut, Sink, Source, Stage, Temporary};

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
        if self.direct.len() < self.program.outputs.len() {
            let rest = cut(&self.rest(&buffers))?;
            stages.extend(rest.stages.into_iter().map(|stage| self.moved(stage, buffers.len() as u32)));
            buffers.extend(rest.buffers);
        }
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

    /// The program of all that reads the outputs of the stage.
    fn rest(&self, buffers: &[Temporary]) -> Program {
        let mut rest = self.program.clone();
        rest.name = format!("{}_sums", rest.name);
        for (value, buffer) in self.exports.iter().zip(buffers) {
            rest.nodes[value.0 as usize].op = Op::Param(rest.params.len() as u32);
            let Temporary { name, axes, elem } = buffer.clone();
            rest.params.push(Param { name, axes, elem, or: None, default: None });
        }
        let mut k = 0..;
        rest.outputs.retain(|_| k.next().is_some_and(|k| !self.direct.contains_key(&k)));
        rest
    }

    /// A stage of the rest as one of the whole program: with the tensors of that.
    fn moved(&self, mut stage: Stage, buffers: u32) -> Stage {
        let params = self.program.params.len() as u32;
        let outputs: Vec<u32> =
            (0..self.program.outputs.len()).filter(|k| !self.direct.contains_key(k)).map(|k| k as u32).collect();
        for source in &mut stage.sources {
            *source = match *source {
                Source::Param(i) if i >= params => Source::Buffer(i - params),
                Source::Param(i) => Source::Param(i),
                Source::Output(i) => Source::Output(outputs[i as usize]),
                Source::Buffer(i) => Source::Buffer(i + buffers),
            };
        }
        for sink in &mut stage.sinks {
            *sink = match *sink {
                Sink::Output(i) => Sink::Output(outputs[i as usize]),
                Sink::Buffer(i) => Sink::Buffer(i + buffers),
            };
        }
        stage
    }
}
