//! Flags of packed sequences, written by stages of their own before what reads them.
//!
//! Where segments begin is found in a list of offsets ([`Op::Starts`]); a stage of scans takes the flags as a parameter.

use oplus_dsl::Elem;
use oplus_dsl::ir::{Op, Output, Param, Program, Value};

use super::cut::{CutError, cut_plain};
use super::{Cut, Sink, Source, Stage, Temporary};

/// The flags of a program: the stages that write them, and the tensors that hold them.
#[derive(Clone)]
pub(super) struct Flags {
    cut: Cut,
    held: Vec<Temporary>,
    /// How many parameters the program itself has.
    params: u32,
}

/// A program with its flags as further parameters, and what writes them; the program itself where it has none.
pub(super) fn flagged(program: Program) -> Result<(Program, Option<Flags>), CutError> {
    let starts = |i: &u32| matches!(program.nodes[*i as usize].op, Op::Starts { .. });
    let flags: Vec<Value> = (0..program.nodes.len() as u32).filter(starts).map(Value).collect();
    if flags.is_empty() {
        return Ok((program, None));
    }
    let output = |value: &Value| {
        let axes = program.node(*value).axes.iter().collect();
        Output { name: format!("v{}", value.0), axes, elem: Elem::Bool, value: *value }
    };
    let outputs: Vec<Output> = flags.iter().map(output).collect();
    let cut = cut_plain(&Program { outputs: outputs.clone(), ..program.clone() })?;
    let (mut rest, mut held, params) = (program.clone(), vec![], program.params.len() as u32);
    for Output { name, axes, elem, value } in outputs {
        rest.nodes[value.0 as usize].op = Op::Param(rest.params.len() as u32);
        rest.params.push(Param { name: name.clone(), axes: axes.clone(), elem, default: None });
        held.push(Temporary { name, axes, elem });
    }
    Ok((rest, Some(Flags { cut, held, params })))
}

impl Flags {
    /// Their stages before those of the program that reads them.
    pub(super) fn before(self, rest: Cut) -> Cut {
        let Flags { cut, held, params } = self;
        let flags = held.len() as u32;
        let first = flags + cut.buffers.len() as u32;
        let mut stages = cut.stages;
        for stage in &mut stages {
            let read = |source: &mut Source| {
                *source = match *source {
                    Source::Output(k) => Source::Buffer(k),
                    Source::Buffer(k) => Source::Buffer(k + flags),
                    Source::Param(k) => Source::Param(k),
                };
            };
            stage.sources.iter_mut().for_each(read);
            let written = |sink: &mut Sink| {
                *sink = match *sink {
                    Sink::Output(k) => Sink::Buffer(k),
                    Sink::Buffer(k) => Sink::Buffer(k + flags),
                };
            };
            stage.sinks.iter_mut().for_each(written);
        }
        stages.extend(rest.stages.into_iter().map(|stage| after(stage, params, first)));
        Cut { stages, buffers: [held, cut.buffers, rest.buffers].concat(), part_axis: rest.part_axis }
    }
}

/// A stage of the rest: its parameters from `params` on are the flags, its buffers come after `first` others.
fn after(mut stage: Stage, params: u32, first: u32) -> Stage {
    for source in &mut stage.sources {
        *source = match *source {
            Source::Param(k) if k >= params => Source::Buffer(k - params),
            Source::Buffer(k) => Source::Buffer(k + first),
            other => other,
        };
    }
    for sink in &mut stage.sinks {
        if let Sink::Buffer(k) = sink {
            *k += first;
        }
    }
    stage
}
