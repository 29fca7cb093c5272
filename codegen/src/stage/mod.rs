//! Stages: the parts of a program that each run as one kernel.
//!
//! [`cut()`] divides a verified, instantiated program into stages in *normal form*:
//!
//! * a stage has at most one scan axis and direction, and at most one operator along it. Several scans become one by
//!   the product operator, whose fields are those of all of them; a reduction is the final state of a scan. There are
//!   at most two [`Op::Scan`] nodes, an inclusive and an exclusive one, with the same elements and init, and no
//!   [`Op::Reduce`] but contractions;
//! * elements and init are *point values*: they depend on parameters only, through maps, `Index`, `Size`, and `Shift`,
//!   `First`, `Last` of point values along the stage's axis. A shift along another axis is a [`View`] of a parameter;
//!   other positions along other axes are stages of their own;
//! * an output is one of three. A *body* output has the scan axis; its value at t is a map of the states at t and of
//!   point values. A *final* output lacks the scan axis; it is a map of point values and of [`Op::Last`] (in reverse:
//!   [`Op::First`]) of the states or of maps of inclusive states and point values. In a stage without a scan every
//!   output is a map of point values, which may have `First` and `Last` along one axis, or it is a `Starts`
//!   or a `Gather`; there is no `Shift`, only views;
//! * a *contraction* is an [`Op::Reduce`] by the sum, over an axis of the states, of a map of states and point values. It
//!   stands in body outputs like a point value. All contractions of a stage are over one axis, the *state axis*, and body
//!   outputs lack it. Only [`cut_contracted`] makes such stages;
//! * a *backward-scan* stage ([`Stage::opposite_scans`]) has a second scan along the same axis in the opposite direction, an affine one
//!   whose decay is that of a step before, `Shift`ed. The first `Reduce` of its program is over the state axis. Its
//!   outputs are maps of contractions; sums of maps of states over the *row axis*, the last outer one; sums over time of
//!   maps of states or of maps of contractions; and the product of decay and second state at the end of the second scan.
//!   Only [`cut_backward_scan`] and [`cut_matrix_backward`] make such stages; those of the latter also sum over rows what was summed over the
//!   state axis, and sums of states over outer axes. Flags of packed sequences are a parameter, and so are factors that are
//!   maps, written by stages before;
//! * a *recurrence* stage ([`Stage::recurrence`]) has an [`Op::MatrixScan`], or an inclusive and an exclusive one that are alike otherwise, in
//!   the place of scans. Its operands are point values, but a whole matrix may also have its other axis; its state axis is the one that the
//!   matrices act on. Outputs are maps of states, of contractions and of point values, with or without the state axis, and the last state.
//!   Only cuts of programs with such operations make them;
//! * an output of *partial sums* has the stage's axis of partial sums, the scan axis and the outer axes but the last ones. It is a sum
//!   over those last ones of a map of states and point values, broadcast over the axis of partial sums; each of these is the sum over
//!   some of the columns. Only [`cut_partial_sums`] makes such outputs. Of a sum over pairs ([`cut_split_k`]) every output has the part axis,
//!   and is the sum over some of the columns of pairs;
//! * a stage of *sequences* ([`Stage::sequences`]) has the program of one sequence, whose first and last states have the axis of the
//!   sequences. Tensors along time hold the sequences one behind the other and lack that axis, although the values of outputs have it. Only the
//!   cut [`CutKind::Sequences`] makes such stages;
//! * all outputs of a stage have the same axes up to the scan axis and the state axis, the stage's *outer axes* (in the order of the
//!   stage's axes). So nothing is produced when one of the outer axes is empty; when only the scan axis is empty, the
//!   final outputs still are. Only stages that join partial sums over pairs ([`Kind::UnevenReduce`]) have final outputs that lack some of these axes.
//!
//! A value that crosses from one stage to a later one is stored: in an output of the program if it holds the value exactly,
//! else in a buffer of the value's type. Cheap maps are computed again rather than stored.

mod ahead;
mod assemble;
mod assembly;
mod backward_scan;
mod bound;
mod collapse;
mod contraction;
mod copy;
mod course;
mod cut;
mod cuts;
mod cutter;
mod dear;
mod error;
mod factors;
mod family;
mod finals;
mod flags;
mod group;
mod import;
pub mod kind;
mod leaves;
mod limits;
mod narrow;
mod needs;
mod opposite;
mod pairwise;
mod partial_sums;
mod product;
mod recurrence;
mod recurrences;
mod reduction;
mod refusal;
mod rest;
mod sequences;
pub mod tensor;
mod time_invariant;

pub use backward_scan::{cut_backward_scan, cut_matrix_backward};
pub use bound::{Bound, Placed};
pub use collapse::{Collapsed, collapse};
pub use cut::{cut, cut_contracted, cut_ordered, cut_partial_sums};
pub use cuts::{CutKind, CutRefusal, Cuts, SequencesRefusal, cuts};
pub(crate) use dear::is_dear;
pub use error::{CutError, MAX_NESTED, MAX_OPERATIONS};
pub use kind::Kind;
pub use pairwise::{
    cut_across, cut_arranged, cut_grouped_query, cut_pairwise, cut_pairwise_separate, cut_split_k, sums_outward,
};
pub use recurrence::Recurrence;
pub use refusal::Refusal;
pub use sequences::Sequences;

use std::sync::Arc;

use oplus_dsl::Elem;
use oplus_dsl::ir::{Axis, AxisSet, Op, OperatorId, Output, Program, Value};

/// A part of a program that runs as one kernel: see the [module documentation](self).
#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
    /// The program that it computes, in normal form.
    pub program: Program,
    /// For every axis of `program`, the axes of the whole program that it stands for, outermost first. It is
    /// several after the planner has merged neighbours; one that stands for none has size 1.
    pub axes: Vec<Vec<Axis>>,
    /// Where each parameter comes from.
    pub sources: Vec<Source>,
    /// For each parameter, along which axes it is read elsewhere than at the point.
    pub views: Vec<Vec<View>>,
    /// Where each output goes.
    pub sinks: Vec<Sink>,
    /// The axis of partial sums over columns; no parameter has it.
    pub partial_axis: Option<Axis>,
    /// Where the sequences lie along time, of a stage whose program is that of one sequence.
    sequences: Option<Sequences>,
    /// The axis of the states that a lane holds, of a stage that keeps final states alone and sums none of them away.
    final_states: Option<Axis>,
    /// The second scan of a backward-scan stage, and its decay before the shift.
    back: Option<(Value, Value)>,
    /// The kind of the stage, which follows from all of the above but the places of tensors.
    kind: Arc<Kind>,
}

/// Where a stage reads a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Source {
    /// A parameter of the whole program.
    Param(u32),
    /// An output of the whole program, written by an earlier stage.
    Output(u32),
    /// A buffer, written by an earlier stage.
    Buffer(u32),
}

/// A parameter of a stage whose element at index i along an axis is the tensor's at i − by, or at the nearer end where
/// that lies outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct View {
    /// The axis, of the stage.
    pub axis: Axis,
    /// The distance by which the tensor's elements appear later.
    pub by: i64,
}

/// Where a stage writes an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Sink {
    /// An output of the whole program.
    Output(u32),
    /// A buffer.
    Buffer(u32),
}

/// A temporary tensor between stages, contiguous.
#[derive(Clone, Debug, PartialEq)]
pub struct Temporary {
    /// A name, for explanations.
    pub name: String,
    /// Its axes (of the whole program) in memory order, last fastest.
    pub axes: Vec<Axis>,
    /// The type that it stores.
    pub elem: Elem,
}

/// A program as stages in order of execution.
#[derive(Clone, Debug, PartialEq)]
pub struct Cut {
    /// The stages.
    pub stages: Vec<Stage>,
    /// The temporary tensors between them.
    pub buffers: Vec<Temporary>,
    /// The axis of partial sums, one more than the program has. Its size is 1 for an interpreter of the stages, and the plan's choice
    /// for kernels.
    pub partial_axis: Option<Axis>,
}

/// The scan of a stage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scan<'a> {
    /// The axis scanned.
    pub axis: Axis,
    /// Whether it goes from the last index to the first.
    pub reverse: bool,
    /// The operator.
    pub operator: OperatorId,
    /// The elements, one point value per field.
    pub elements: &'a [Value],
    /// The state before the first element, one point value per field; empty for the identity.
    pub init: &'a [Value],
    /// The tuple of states after each element, if an output uses it.
    pub inclusive: Option<Value>,
    /// The tuple of states before each element, if an output uses it.
    pub exclusive: Option<Value>,
}

impl Scan<'_> {
    /// The numbers below n in the order of the scan.
    pub fn in_order(&self, n: u32) -> impl DoubleEndedIterator<Item = u32> + use<> {
        let reverse = self.reverse;
        (0..n).map(move |i| if reverse { n - 1 - i } else { i })
    }
}

/// The scans of a backward-scan stage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OppositeScans<'a> {
    /// The scan of the states, which are rematerialised.
    pub forward: Scan<'a>,
    /// Their cotangents, in the opposite direction.
    pub back: Scan<'a>,
    /// The decay of the second scan at its own step; the elements of the scan have it one step later.
    pub decay: Value,
    /// The state axis.
    pub state: Axis,
}

/// The program of a stage, and its axes and tensors in the whole program: [`Stage::new`] makes a stage of it.
#[derive(Clone, Debug, PartialEq)]
pub struct NormalForm {
    /// [`Stage::program`].
    pub program: Program,
    /// [`Stage::axes`].
    pub axes: Vec<Vec<Axis>>,
    /// [`Stage::sources`].
    pub sources: Vec<Source>,
    /// [`Stage::views`].
    pub views: Vec<Vec<View>>,
    /// [`Stage::sinks`].
    pub sinks: Vec<Sink>,
    /// [`Stage::partial_axis`].
    pub partial_axis: Option<Axis>,
}

impl Stage {
    /// A stage of a program in normal form; finds its kind.
    pub fn new(placed: NormalForm) -> Stage {
        let NormalForm { program, axes, sources, views, sinks, partial_axis } = placed;
        let (kind, back) = (Arc::new(Kind::Map), opposite::second_scan(&program));
        let (sequences, final_states) = (None, None);
        let mut stage =
            Stage { program, axes, sources, views, sinks, partial_axis, sequences, final_states, back, kind };
        stage.kind = Arc::new(Kind::of(&stage));
        stage
    }

    /// The stage, which keeps final states alone, with one of their axes as its state axis; finds its new kind.
    pub(crate) fn with_final_states(mut self, axis: Axis) -> Stage {
        self.final_states = Some(axis);
        self.kind = Arc::new(Kind::of(&self));
        self
    }

    /// The stage, whose program is that of one sequence of several; finds its new kind.
    pub(crate) fn with_sequences(mut self, sequences: Sequences) -> Stage {
        self.sequences = Some(sequences);
        self.kind = Arc::new(Kind::of(&self));
        self
    }

    /// Where the sequences lie along time, of a stage whose program is that of one sequence.
    pub fn sequences(&self) -> Option<Sequences> {
        self.sequences
    }

    /// The axis of sequences, if the stage's program is that of one of several.
    pub(crate) fn axis_of_sequences(&self) -> AxisSet {
        self.sequences.map_or(AxisSet::EMPTY, |sequences| AxisSet::of(sequences.axis))
    }

    /// The tiles of so many times, with these sizes of axes; where blocks have one of several sequences, the places of the tiles of all.
    pub(crate) fn tiles_of_times(&self, time: Axis, times: u32, size: impl Fn(Axis) -> i64) -> u64 {
        let tiles = |sequences: Sequences| sequences.tiles(&size, times) as u64;
        self.sequences.map_or_else(|| (size(time) as u64).div_ceil(u64::from(times)), tiles)
    }

    /// The axes of an output's values: those of one sequence at its times have the axis of sequences, which the tensor lacks.
    pub(crate) fn axes_of_values(&self, output: &Output) -> AxisSet {
        let axes: AxisSet = output.axes.iter().copied().collect();
        let is_of_times = self.sequences.is_some_and(|sequences| axes.contains(sequences.time));
        if is_of_times { axes.union(self.axis_of_sequences()) } else { axes }
    }

    /// The stage with another program in normal form over the same axes and tensors; finds its new kind.
    pub fn with_program(&self, program: Program) -> Stage {
        let mut stage = self.rewritten(program);
        stage.kind = Arc::new(Kind::of(&stage));
        stage
    }

    /// The stage with a program that gives the same values, written for one schedule. Its kind remains that of the program before.
    pub(crate) fn rewritten(&self, program: Program) -> Stage {
        Stage { back: opposite::second_scan(&program), program, ..self.clone() }
    }

    /// The scan, if there is one; in a backward-scan stage the one whose decay is not shifted.
    pub fn scan(&self) -> Option<Scan<'_>> {
        let back = self.back.map(|(value, _)| value);
        self.scan_of(|value| Some(value) != back)
    }

    /// The two scans of a backward-scan stage.
    pub fn opposite_scans(&self) -> Option<OppositeScans<'_>> {
        let (back, decay) = self.back?;
        Some(OppositeScans {
            forward: self.scan()?,
            back: self.scan_of(|value| value == back)?,
            decay,
            state: self.state_axis()?,
        })
    }

    /// The scan of some tuples.
    fn scan_of(&self, own: impl Fn(Value) -> bool) -> Option<Scan<'_>> {
        let mut found: Option<Scan<'_>> = None;
        for (i, node) in self.program.nodes.iter().enumerate().filter(|(i, _)| own(Value(*i as u32))) {
            let Op::Scan { axis, operator, elements, init, reverse, exclusive } = &node.op else { continue };
            let (axis, operator, reverse) = (*axis, *operator, *reverse);
            let none = Scan { axis, reverse, operator, elements, init, inclusive: None, exclusive: None };
            let scan = found.get_or_insert(none);
            let state = if *exclusive { &mut scan.exclusive } else { &mut scan.inclusive };
            *state = Some(Value(i as u32));
        }
        found
    }

    /// The scan axis.
    pub fn axis(&self) -> Option<Axis> {
        let of_matrices = || self.recurrence().map(|recurrence| recurrence.scan.axis);
        self.scan().map(|s| s.axis).or_else(of_matrices)
    }

    /// The kind of the stage.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// Whether only final states are kept of a scan.
    pub fn is_reduction(&self) -> bool {
        let is_body = |axis| self.program.outputs.iter().any(|o| o.axes.contains(&axis));
        self.axis().is_some_and(|axis| !is_body(axis))
    }

    /// Whether only final states are kept, and some outputs lack outer axes that others have.
    pub(crate) fn is_uneven(&self) -> bool {
        *self.kind == Kind::UnevenReduce
    }

    /// Whether some outputs lack outer axes that others have.
    pub(in crate::stage) fn has_uneven_outputs(&self) -> bool {
        let outer = self.outer_axes();
        let has_all = |output: &Output| outer.iter().all(|axis| output.axes.contains(&axis));
        !self.program.outputs.iter().all(has_all)
    }

    /// The axis of `First`, `Last`, `Shift` and `Starts`.
    pub fn position_axis(&self) -> Option<Axis> {
        self.program.nodes.iter().find_map(|node| match node.op {
            Op::Scan { axis, .. } | Op::First { axis, .. } | Op::Last { axis, .. } => Some(axis),
            Op::Shift { axis, .. } | Op::Starts { axis, .. } => Some(axis),
            Op::MatrixScan(ref scan) => Some(scan.axis),
            _ => None,
        })
    }

    /// Whether the stage is a sum over pairs: it has reductions, and no scan.
    pub fn is_pairwise(&self) -> bool {
        let scans = self.program.nodes.iter().any(|node| matches!(node.op, Op::Scan { .. } | Op::MatrixScan(_)));
        !scans && self.program.nodes.iter().any(|node| matches!(node.op, Op::Reduce { .. }))
    }

    /// The axis of contractions, the one that the matrices of a recurrence act on, or that of final states that a lane holds.
    pub fn state_axis(&self) -> Option<Axis> {
        if self.partial_axis.is_some() || self.final_states.is_some() {
            return self.final_states;
        }
        if let Some(recurrence) = self.recurrence() {
            return Some(recurrence.scan.along);
        }
        self.program.nodes.iter().find_map(|node| if let Op::Reduce { axis, .. } = node.op { Some(axis) } else { None })
    }

    /// Whether an output has partial sums over columns.
    pub fn has_partial_sums(&self, output: usize) -> bool {
        self.partial_axis.is_some_and(|part| self.program.outputs[output].axes.contains(&part))
    }

    /// The tuples of the sums that have partial sums, output by output.
    pub fn summed_tuples(&self) -> impl Iterator<Item = Value> {
        (0..self.program.outputs.len()).filter(|k| self.has_partial_sums(*k)).filter_map(|k| self.summed_tuple(k))
    }

    /// The tuple of the sum whose partial sums an output has.
    pub fn summed_tuple(&self, output: usize) -> Option<Value> {
        let Op::Broadcast(sum) = self.program.node(self.program.outputs[output].value).op else { return None };
        if let Op::Field(tuple, _) = self.program.node(sum).op { Some(tuple) } else { None }
    }

    /// The axes over which the kernel is parallel: those of the outputs and of sequences, without the scan axis, the state axis and the axis of
    /// partial sums.
    pub fn outer_axes(&self) -> AxisSet {
        let all = self.program.outputs.iter().flat_map(|o| o.axes.iter().copied());
        let all: AxisSet = all.chain(self.sequences.map(|sequences| sequences.axis)).collect();
        self.axis().into_iter().chain(self.state_axis()).chain(self.partial_axis).fold(all, AxisSet::without)
    }

    /// Whether the stage keeps final states alone, of an axis that a lane holds several of.
    pub fn has_final_states(&self) -> bool {
        self.final_states.is_some()
    }

    /// Whether any output is written once per row, after the scan.
    pub fn has_finals(&self) -> bool {
        (0..self.program.outputs.len()).any(|output| self.is_final(output))
    }

    /// Whether an output is written once per row, after the scan.
    pub fn is_final(&self, output: usize) -> bool {
        self.axis().is_some_and(|axis| !self.program.outputs[output].axes.contains(&axis))
    }
}
