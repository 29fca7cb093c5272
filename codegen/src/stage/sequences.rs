//! Packed sequences that begin or end at states of their own, a block for each.
//!
//! Such a program is one scan along all times ([`oplus_dsl::packed`]). At the first time of a sequence the element holds the sequence's
//! initial state. Final states are read from the states of all times. A kernel that goes by chunks does not make the states of all times, so
//! it cannot run this scan. Instead, each block takes one sequence: `one` finds the program of a single sequence, with an initial and a final
//! state, and that program is cut as any other. The gradient of such a program becomes that of a single sequence (`gradient`), value by value
//! (`rewriting`, `views`, `cotangents`).

mod alike;
mod cotangents;
mod gradient;
mod normal;
mod one;
mod operator;
mod rewriting;
mod views;

use std::fmt::{self, Display, Formatter};

use oplus_dsl::ir::{Axis, Op, Param, Program};

use super::cut::{contracted, recurrences_with_decays};
use super::error::CutError;
use super::{Cut, CutRefusal, SequencesRefusal, Source, Stage};
use one::{OneSequence, one_sequence};

/// Where the sequences of a stage lie along time: sequence s has the times from `offsets`\[s\] to `offsets`\[s + 1\] − 1.
///
/// Times before the first sequence and behind the last one belong to two more sequences, which begin at 0 and whose last states are not
/// kept: to a kernel the axis of sequences is two longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sequences {
    /// The axis along which they lie.
    pub time: Axis,
    /// Their axis.
    pub axis: Axis,
    /// The axis of the offsets.
    pub list: Axis,
    /// The parameter that has the offsets.
    pub offsets: u32,
}

impl Sequences {
    /// The sequences that a kernel has beside those of the program.
    pub const MORE: i64 = 2;

    /// The sizes of the stage's axes for a kernel.
    pub(crate) fn sizes(self, sizes: &[i64]) -> Vec<i64> {
        let mut sizes = sizes.to_vec();
        sizes[self.axis.0 as usize] += Sequences::MORE;
        sizes
    }

    /// How many places there are for what is stored for each tile of so many times of a sequence, by the sizes that a kernel has.
    pub(crate) fn tiles(self, size: impl Fn(Axis) -> i64, times: u32) -> i64 {
        size(self.time) / i64::from(times) + size(self.axis)
    }

    /// The times of a sequence of average length, for estimates: the lengths are not known before a call.
    pub(crate) fn length(self, sizes: &[i64]) -> u64 {
        let [times, sequences] = [self.time, self.axis].map(|axis| sizes[axis.0 as usize] as u64);
        times.div_ceil(sequences.saturating_sub(Sequences::MORE as u64).max(1))
    }
}

impl Display for Sequences {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "sequences {} of {} in {}", self.axis.0, self.time.0, self.offsets)
    }
}

/// A cut, or why there is none; `None` where the program has nothing that the cut is for.
type Taken = Option<Result<Cut, CutRefusal>>;

/// A cut with blocks for packed sequences, or why they have none; `None` where the program has none with states of their own.
pub(super) fn cut_sequences(program: &Program) -> Result<Taken, CutError> {
    let taken = match one_sequence(program) {
        Ok(Some(one)) => cut_one(&one)?,
        _ if gradient::is_gradient(program) => gradient::cut_gradient(program)?,
        Ok(None) => None,
        Err(refusal) => Some(Err(refusal.into())),
    };
    // Only a program whose sequences have states of their own has an operation `gather`, by which it reads states at the times where
    // sequences begin or end.
    let has_states = || program.nodes.iter().any(|node| matches!(node.op, Op::Gather { .. }));
    Ok(taken.filter(|taken| taken.is_ok() || has_states()))
}

/// A cut of one sequence as one of all; `None` where no states are summed away.
fn cut_one(one: &OneSequence) -> Result<Taken, CutError> {
    let cut = match one.program.has_matrix_scans() {
        true => Some(recurrences_with_decays(&one.program)?),
        false => contracted(&one.program)?,
    };
    Ok(cut.map(|cut| Ok(one.packed_cut(cut).ok_or(SequencesRefusal::Stage)?)))
}

impl OneSequence {
    /// A cut of one sequence as one of all; `None` where it cannot be.
    fn packed_cut(&self, mut cut: Cut) -> Option<Cut> {
        for buffer in &mut cut.buffers {
            self.pack(&mut buffer.axes);
        }
        let stages = cut.stages.into_iter().map(|stage| self.packed(stage)).collect::<Option<Vec<Stage>>>()?;
        Some(Cut { stages, ..cut })
    }

    /// Removes the axis of sequences from those of a tensor along time.
    fn pack(&self, axes: &mut Vec<Axis>) {
        if axes.contains(&self.time) {
            axes.retain(|axis| *axis != self.sequences);
        }
    }

    /// A stage of one sequence as one of all, in tensors where these lie one behind the other; `None` where it cannot be.
    fn packed(&self, stage: Stage) -> Option<Stage> {
        let own = |axis: Axis| stage.axes.iter().position(|group| *group == [axis]).map(|place| Axis(place as u32));
        let (Some(time), Some(sequences)) = (own(self.time), own(self.sequences)) else { return Some(stage) };
        let mut program = stage.program.clone();
        let tensors = program.params.iter_mut().map(|param| &mut param.axes);
        for axes in tensors.chain(program.outputs.iter_mut().map(|output| &mut output.axes)) {
            if axes.contains(&time) {
                axes.retain(|axis| *axis != sequences);
            }
        }
        let tensors = program.params.iter().map(|param| param.axes.contains(&sequences)).collect();
        remove(&mut program, tensors, [time, sequences]);
        if stage.axis() == Some(time) {
            return Some(self.of_sequences(stage, program, [time, sequences]));
        }
        // A map of readouts treats every time alike, whatever sequence it is of.
        let is_map =
            program.nodes.iter().all(|node| ![time, sequences].into_iter().any(|axis| goes_along(&node.op, axis)));
        let has_sequences = |axes: &Vec<Axis>| axes.contains(&sequences);
        let params = program.params.iter().map(|param| &param.axes);
        let is_left = params.chain(program.outputs.iter().map(|output| &output.axes)).any(has_sequences);
        if !is_map || is_left {
            return None;
        }
        program.nodes.iter_mut().for_each(|node| node.axes = node.axes.without(sequences));
        Some(stage.with_program(program))
    }

    /// A stage of states along time, with the list of offsets as one more parameter.
    fn of_sequences(&self, stage: Stage, mut program: Program, [time, axis]: [Axis; 2]) -> Stage {
        let (list, offsets) = (Axis(program.axes.len() as u32), program.params.len() as u32);
        program.axes.push(self.list_name.clone());
        program.params.push(Param { axes: vec![list], ..self.offsets.clone() });
        let mut stage = Stage { program, ..stage };
        stage.axes.push(vec![self.list]);
        stage.sources.push(Source::Param(self.place));
        stage.views.push(vec![]);
        stage.with_sequences(Sequences { time, axis, list, offsets })
    }
}

/// Removes the axis of sequences from all values that no longer have it through a parameter, of which some have it themselves.
fn remove(program: &mut Program, params: Vec<bool>, [time, sequences]: [Axis; 2]) {
    let mut has: Vec<bool> = vec![];
    for node in &mut program.nodes {
        let own = match node.op {
            Op::Param(k) => params[k as usize],
            // A constant state of each sequence.
            Op::Broadcast(_) if !node.axes.contains(time) => node.axes.contains(sequences),
            _ => false,
        };
        let own = own || node.op.operands().iter().any(|v| has[v.0 as usize]);
        if !own {
            node.axes = node.axes.without(sequences);
        }
        has.push(own);
    }
}

/// Whether an operation goes along an axis, or names positions on it.
fn goes_along(op: &Op, along: Axis) -> bool {
    let found = std::cell::Cell::new(false);
    op.clone().map_axes(|axis| {
        found.set(found.get() || axis == along);
        axis
    });
    found.get()
}
