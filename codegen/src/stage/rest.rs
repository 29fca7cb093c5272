//! The rest of a program whose first stages write some outputs and store some values: the stages of the other outputs, which read these
//! values.

use oplus_dsl::ir::{Op, Param, Program, Value};

use super::cut::cut;
use super::error::CutError;
use super::{Sink, Source, Stage, Temporary};

/// The part of a program that is left.
pub(super) struct Rest<'p> {
    program: &'p Program,
    /// The outputs that are left, by number.
    outputs: Vec<usize>,
    /// The values that are stored, each in the temporary tensor of its place.
    stored: Vec<Value>,
}

impl<'p> Rest<'p> {
    pub(super) fn new(program: &'p Program, is_written: impl Fn(usize) -> bool, stored: Vec<Value>) -> Rest<'p> {
        Rest { program, outputs: (0..program.outputs.len()).filter(|k| !is_written(*k)).collect(), stored }
    }

    /// Adds the stages of the outputs that are left, and their temporary tensors.
    pub(super) fn append_to(&self, stages: &mut Vec<Stage>, buffers: &mut Vec<Temporary>) -> Result<(), CutError> {
        if self.outputs.is_empty() {
            return Ok(());
        }
        let rest = cut(&self.remaining_program(buffers))?;
        let before = buffers.len() as u32;
        stages.extend(rest.stages.into_iter().map(|stage| self.moved(stage, before)));
        buffers.extend(rest.buffers);
        Ok(())
    }

    /// The program of the outputs that are left, with stored values as parameters behind its own.
    fn remaining_program(&self, buffers: &[Temporary]) -> Program {
        let mut rest = self.program.clone();
        rest.name = format!("{}_sums", rest.name);
        for (value, buffer) in self.stored.iter().zip(buffers) {
            rest.nodes[value.0 as usize].op = Op::Param(rest.params.len() as u32);
            let Temporary { name, axes, elem } = buffer.clone();
            rest.params.push(Param { name, axes, elem, or: None, default: None });
        }
        rest.outputs = self.outputs.iter().map(|k| self.program.outputs[*k].clone()).collect();
        rest
    }

    /// A stage of the rest with the tensors of the whole program.
    fn moved(&self, mut stage: Stage, before: u32) -> Stage {
        let params = self.program.params.len() as u32;
        let output = |k: u32| self.outputs[k as usize] as u32;
        for source in &mut stage.sources {
            *source = match *source {
                Source::Param(k) if k >= params => Source::Buffer(k - params),
                Source::Param(k) => Source::Param(k),
                Source::Output(k) => Source::Output(output(k)),
                Source::Buffer(k) => Source::Buffer(k + before),
            };
        }
        for sink in &mut stage.sinks {
            *sink = match *sink {
                Sink::Output(k) => Sink::Output(output(k)),
                Sink::Buffer(k) => Sink::Buffer(k + before),
            };
        }
        stage
    }
}
