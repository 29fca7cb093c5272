//! The gradient of packed sequences that begin or end at states of their own, cut into the gradient of one sequence and what reads that.
//!
//! Sums over all times, such as the gradient of a number for each head, are no values of one sequence: stages of the whole program take them
//! of what the stages of sequences store.

use std::collections::{BTreeSet, HashSet};

use oplus_dsl::Elem;
use oplus_dsl::ir::{Axis, Op, Output, Program, Value};
use oplus_dsl::verify::verify;

use super::Taken;
use super::one::{OneSequence, Packed};
use super::rewriting::Rewriting;
use crate::stage::backward_scan::{Sums, first_taken};
use crate::stage::cut::{matrices_back, prepare};
use crate::stage::error::CutError;
use crate::stage::rest::Rest;
use crate::stage::{Cut, CutKind, CutRefusal, SequencesRefusal, Sink, Source, Stage, Temporary};

/// The gradient of one sequence, and how it is part of that of all.
struct Gradient {
    one: OneSequence,
    /// The outputs of all sequences that it gives, by number; what it gives beyond these is stored.
    outputs: Vec<usize>,
    stored: Vec<Value>,
}

/// A cut of a gradient with blocks for packed sequences, or why they have none; `None` where the program has nothing that this is for.
pub(super) fn cut_gradient(program: &Program) -> Result<Taken, CutError> {
    let gradient = match gradient(program) {
        Ok(Some(gradient)) => gradient,
        Ok(None) => return Ok(None),
        Err(refusal) => return Ok(Some(Err(refusal.into()))),
    };
    // The last outer axis of states is their width, so that of sequences comes first.
    let first = gradient.one.sequences;
    let of_one = prepare(&renumbered(&gradient.one.program, |axis| moved_first(axis, first)))?;
    let cut = match of_one.has_matrix_scans() {
        true => matrices_back(&of_one)?.map(Ok),
        false => {
            let time = moved_first(gradient.one.time, first);
            let refusal = |stage: &Stage| CutKind::MatrixBackward.refusal(stage).or_else(|| other_states(stage, time));
            first_taken(&of_one, Sums::All, refusal)?
        }
    };
    let mut cut = match cut {
        Some(Ok(cut)) => cut,
        Some(Err(refusal)) => return Ok(Some(Err(refusal))),
        None => return Ok(Some(Err(SequencesRefusal::Opposite.into()))),
    };
    let groups = cut.stages.iter_mut().flat_map(|stage| &mut stage.axes);
    for axis in groups.chain(cut.buffers.iter_mut().map(|buffer| &mut buffer.axes)).flatten() {
        *axis = moved_back(*axis, first);
    }
    match gradient.one.packed_cut(cut) {
        Some(cut) => gradient.joined(program, cut).map(|cut| Some(Ok(cut))),
        None => Ok(Some(Err(SequencesRefusal::Stage.into()))),
    }
}

/// Why a stage of states alone cannot have a block for each sequence, if it cannot.
fn other_states(stage: &Stage, time: Axis) -> Option<CutRefusal> {
    let is_of_states =
        stage.opposite_scans().is_none() && stage.axis().is_some_and(|axis| stage.axes[axis.0 as usize] == [time]);
    let refusal = stage.kind().matrices().err().filter(|_| is_of_states)?;
    Some(CutRefusal::Stage { stage: stage.program.name.clone(), refusals: vec![refusal] })
}

/// The place of an axis where `first` comes before those that were before it.
fn moved_first(axis: Axis, first: Axis) -> Axis {
    match axis {
        axis if axis == first => Axis(0),
        axis if axis < first => Axis(axis.0 + 1),
        axis => axis,
    }
}

/// The axis that is at a place after [`moved_first`].
fn moved_back(axis: Axis, first: Axis) -> Axis {
    match axis {
        Axis(0) => first,
        axis if axis <= first => Axis(axis.0 - 1),
        axis => axis,
    }
}

/// A program whose axes have other places.
fn renumbered(program: &Program, to: impl Fn(Axis) -> Axis) -> Program {
    let mut program = program.clone();
    let mut names = program.axes.clone();
    for (k, name) in (0..).zip(&program.axes) {
        names[to(Axis(k)).0 as usize] = name.clone();
    }
    program.axes = names;
    for node in &mut program.nodes {
        node.op.map_axes(&to);
        node.axes = node.axes.iter().map(&to).collect();
    }
    let tensors = program.params.iter_mut().map(|param| &mut param.axes);
    for axis in tensors.chain(program.outputs.iter_mut().map(|output| &mut output.axes)).flatten() {
        *axis = to(*axis);
    }
    program
}

/// Whether something is scanned from the end, as cotangents are.
pub(super) fn is_gradient(program: &Program) -> bool {
    let is_back = |op: &Op| match op {
        Op::Scan { reverse, .. } => *reverse,
        Op::MatrixScan(scan) => scan.reverse,
        _ => false,
    };
    program.nodes.iter().any(|node| is_back(&node.op))
}

fn gradient(program: &Program) -> Result<Option<Gradient>, SequencesRefusal> {
    let Some(packed) = Packed::of(program)? else { return Ok(None) };
    let scans = packed.scans_forward(program).filter(|scans| !scans.is_empty()).ok_or(SequencesRefusal::Scan)?;
    let mut rewriting = Rewriting::of(program, &packed, scans);
    let (mut outputs, mut own, mut rest) = (vec![], vec![], vec![]);
    for (k, output) in program.outputs.iter().enumerate() {
        match rewriting.whole(output.value) {
            Some(value) => {
                outputs.push(k);
                own.push(Output { value, ..output.clone() });
            }
            None => rest.push(output.value),
        }
    }
    let stored = stored(program, &mut rewriting, rest).ok_or(SequencesRefusal::Rest)?;
    for value in &stored {
        let of_one = rewriting.whole(*value).ok_or(SequencesRefusal::Values)?;
        let Temporary { name, axes, elem } = buffer(program, *value);
        own.push(Output { name, axes, elem, value: of_one });
    }
    let sequences = packed.packing.sequences();
    for output in &mut own {
        let has_sequences = rewriting.b.program().node(output.value).axes.contains(sequences);
        if has_sequences && !output.axes.contains(&sequences) {
            output.axes.insert(0, sequences);
        }
    }
    let of_one = Program { outputs: own, ..rewriting.b.finish() };
    let of_one = oplus_dsl::simplify::simplified(&of_one);
    verify(&of_one).map_err(|_| SequencesRefusal::Values)?;
    Ok(Some(Gradient { one: packed.one(program, of_one)?, outputs, stored }))
}

/// The values of one sequence that others are computed from, which are values of all sequences together; `None` where those need a scan
/// itself.
fn stored(program: &Program, rewriting: &mut Rewriting<'_>, mut open: Vec<Value>) -> Option<Vec<Value>> {
    let waits = waits(program);
    let (mut seen, mut stored) = (HashSet::new(), BTreeSet::new());
    while let Some(value) = open.pop() {
        if !waits[value.0 as usize] || !seen.insert(value) {
            continue;
        }
        if rewriting.is_scan(value) {
            return None;
        }
        match rewriting.whole(value).filter(|_| program.node(value).ty.elem().is_some()) {
            Some(_) => _ = stored.insert(value),
            None => open.extend(program.node(value).op.operands()),
        }
    }
    Some(stored.into_iter().collect())
}

/// For every value, whether it depends on a scan.
fn waits(program: &Program) -> Vec<bool> {
    let mut waits: Vec<bool> = vec![];
    for node in &program.nodes {
        let is_scan = matches!(node.op, Op::Scan { .. } | Op::MatrixScan(_));
        waits.push(is_scan || node.op.operands().iter().any(|v| waits[v.0 as usize]));
    }
    waits
}

/// The temporary tensor of a value.
fn buffer(program: &Program, value: Value) -> Temporary {
    let node = program.node(value);
    let axes: Vec<Axis> = node.axes.iter().collect();
    Temporary { name: format!("v{}", value.0), axes, elem: node.ty.elem().unwrap_or(Elem::F32) }
}

impl Gradient {
    /// The cut of one sequence with the stages that read what it stores.
    fn joined(&self, program: &Program, of_one: Cut) -> Result<Cut, CutError> {
        let Cut { mut stages, buffers: own, .. } = of_one;
        let stored: Vec<Temporary> = self.stored.iter().map(|value| buffer(program, *value)).collect();
        let (exported, first) = (self.outputs.len(), stored.len() as u32);
        for stage in &mut stages {
            let place = |k: u32| match (k as usize).checked_sub(exported) {
                Some(k) => Err(k as u32),
                None => Ok(self.outputs[k as usize] as u32),
            };
            for source in &mut stage.sources {
                *source = match *source {
                    Source::Param(k) => Source::Param(k),
                    Source::Output(k) => place(k).map_or_else(Source::Buffer, Source::Output),
                    Source::Buffer(k) => Source::Buffer(k + first),
                };
            }
            for sink in &mut stage.sinks {
                *sink = match *sink {
                    Sink::Output(k) => place(k).map_or_else(Sink::Buffer, Sink::Output),
                    Sink::Buffer(k) => Sink::Buffer(k + first),
                };
            }
        }
        let mut buffers: Vec<Temporary> = stored.into_iter().chain(own).collect();
        let rest = Rest::new(program, |k| self.outputs.contains(&k), self.stored.clone());
        rest.append_to(&mut stages, &mut buffers)?;
        Ok(Cut { stages, buffers, partial_axis: None })
    }
}
