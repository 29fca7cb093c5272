//! Values that are written by stages of their own, before the stages of the program that reads them.

use std::collections::BTreeSet;

use oplus_dsl::Elem;
use oplus_dsl::ir::{Op, Output, Param, Program, Value};
use oplus_dsl::simplify::simplify;

use super::cut::cut_kept;
use super::cutter::memory_order;
use super::error::CutError;
use super::{Cut, Sink, Source, Stage, Temporary};

/// A program that runs before the rest of the whole one: it writes values for the rest, and the outputs that need nothing else.
#[derive(Clone)]
pub(super) struct Ahead {
    /// The program. Its outputs are the values, and then those outputs of the whole program.
    written: Program,
    held: Vec<Temporary>,
    /// The number of parameters of the whole program.
    params: u32,
    /// The outputs of the whole program that it writes, by their numbers there.
    given: Vec<u32>,
    /// The outputs of the whole program that the rest writes, by their numbers there.
    left: Vec<u32>,
}

impl Ahead {
    /// Divides a prepared program: the rest, which has these values as further parameters, stored as these types, and lacks these
    /// outputs; and the program that writes both.
    pub(super) fn of(program: &Program, values: &[(Value, Elem)], outputs: &BTreeSet<usize>) -> (Program, Ahead) {
        let (mut rest, mut held, params) = (program.clone(), vec![], program.params.len() as u32);
        for (value, elem) in values {
            let (name, axes) = (format!("v{}", value.0), memory_order(program, program.node(*value).axes));
            rest.nodes[value.0 as usize].op = Op::Param(rest.params.len() as u32);
            rest.params.push(Param { name: name.clone(), axes: axes.clone(), elem: *elem, or: None, default: None });
            held.push(Temporary { name, axes, elem: *elem });
        }
        let written = values.iter().zip(&held).map(|((value, _), Temporary { name, axes, elem })| Output {
            name: name.clone(),
            axes: axes.clone(),
            elem: *elem,
            value: *value,
        });
        let written = written.chain(outputs.iter().map(|k| program.outputs[*k].clone())).collect();
        let written = Program { outputs: written, ..program.clone() };
        let given: Vec<u32> = outputs.iter().map(|k| *k as u32).collect();
        let left: Vec<u32> = (0..program.outputs.len() as u32).filter(|k| !given.contains(k)).collect();
        rest.outputs = left.iter().map(|k| program.outputs[*k as usize].clone()).collect();
        (rest, Ahead { written, held, params, given, left })
    }

    /// The number of outputs that it writes.
    pub(super) fn outputs(&self) -> usize {
        self.given.len()
    }

    /// Its stages, with their places in the whole program.
    pub(super) fn cut(&self) -> Result<Cut, CutError> {
        let (given, first) = (&self.given, self.held.len() as u32);
        let mut cut = cut_kept(&simplify(&self.written))?;
        let place = |k: u32| if k < first { Place::Held(k) } else { Place::Output(given[(k - first) as usize]) };
        cut.stages.iter_mut().for_each(|stage| moved(stage, place, first));
        Ok(cut)
    }

    /// The whole cut: its own stages, as [`Ahead::cut`] gives them, and then those of the rest.
    pub(super) fn before(&self, own: Cut, rest: Cut) -> Cut {
        let Ahead { held, params, left, .. } = self;
        let first = (held.len() + own.buffers.len()) as u32;
        let mut stages = own.stages;
        for mut stage in rest.stages {
            moved(&mut stage, |k| Place::Output(left[k as usize]), first);
            // Its parameters from `params` on are what is held.
            for source in &mut stage.sources {
                if let Source::Param(k) = *source
                    && k >= *params
                {
                    *source = Source::Buffer(k - params);
                }
            }
            stages.push(stage);
        }
        Cut { stages, buffers: [held.clone(), own.buffers, rest.buffers].concat(), partial_axis: rest.partial_axis }
    }
}

/// The place in the whole program of an output of one of the two.
#[derive(Clone, Copy)]
enum Place {
    Held(u32),
    Output(u32),
}

/// Gives a stage its places in the whole, where its buffers come after `first` others.
fn moved(stage: &mut Stage, place: impl Fn(u32) -> Place, first: u32) {
    for source in &mut stage.sources {
        *source = match *source {
            Source::Param(k) => Source::Param(k),
            Source::Buffer(k) => Source::Buffer(k + first),
            Source::Output(k) => match place(k) {
                Place::Held(k) => Source::Buffer(k),
                Place::Output(k) => Source::Output(k),
            },
        };
    }
    for sink in &mut stage.sinks {
        *sink = match *sink {
            Sink::Buffer(k) => Sink::Buffer(k + first),
            Sink::Output(k) => match place(k) {
                Place::Held(k) => Sink::Buffer(k),
                Place::Output(k) => Sink::Output(k),
            },
        };
    }
}
