//! The cut of a gradient into one stage of two recurrences of matrices in opposite directions: the states, and their cotangents.
//!
//! The stage takes along all sums of both over the axis that the matrices act on and over the width, and maps of these. Nothing of the
//! size of all states is stored.

use std::collections::BTreeSet;

use oplus_dsl::Elem;
use oplus_dsl::ir::{Axis, AxisSet, MatrixScan, Op, Param, Program, Term, Value};
use oplus_dsl::transition::is_sum;

use super::assemble::assemble;
use super::before::store_readouts;
use super::points::{Points, is_decay};
use super::{Progress, of_sink, waits};
use crate::stage::dear::is_dear;
use crate::stage::error::CutError;
use crate::stage::{Cut, Sink};

/// Cuts a program with a recurrence of states and one of their cotangents into a stage of both, and stages of all else, into which `plain`
/// cuts programs without recurrences; `None` where the program is not of that form.
pub(in crate::stage) fn cut_opposite(
    program: &Program,
    plain: impl Fn(&Program) -> Result<Cut, CutError>,
) -> Result<Option<Cut>, CutError> {
    let mut progress = Progress::new(program);
    store_readouts(&mut progress, &plain)?;
    let Some(both) = Both::of(&progress) else { return Ok(None) };
    let Some((outputs, stored)) = both.written() else { return Ok(None) };
    let roots: Vec<Value> =
        outputs.iter().map(|k| program.outputs[*k].value).chain(stored.iter().copied()).chain(both.members()).collect();
    let imports = both.points(&progress, roots.clone()).imports;
    progress.store_as(&imports, |value| both.stored_elem(value), &plain)?;
    let points = both.points(&progress, roots);
    let mut writes: Vec<(Value, Sink)> =
        outputs.iter().map(|k| (program.outputs[*k].value, Sink::Output(*k as u32))).collect();
    let known = progress.held.clone();
    writes.extend(stored.iter().map(|value| (*value, progress.buffer(*value, None))));
    let all = std::mem::replace(&mut progress.held, known);
    let stage = assemble(&progress, both.axes, &points, &writes)?;
    progress.held = all;
    progress
        .held
        .extend(writes.iter().map(|(value, sink)| (*value, of_sink(*sink))).filter(|(v, _)| stored.contains(v)));
    progress.written.extend(outputs);
    progress.stages.push(stage);
    progress.rest(&plain)?;
    Ok(Some(progress.finish()))
}

/// The recurrences of a gradient.
struct Both<'p> {
    program: &'p Program,
    /// The states, after the steps or before them.
    states: Vec<Value>,
    /// The cotangents of the states after the steps.
    cotangents: Value,
    forward: &'p MatrixScan,
    back: &'p MatrixScan,
    /// All axes of the states.
    axes: AxisSet,
    /// The axis of the states that keys lack.
    width: Axis,
    /// For every value, whether it depends on the recurrences.
    waits: Vec<bool>,
    /// For every value, whether it is a map of states, of sums of such maps, and of known values.
    reached: Vec<bool>,
}

impl<'p> Both<'p> {
    fn of(progress: &Progress<'p>) -> Option<Both<'p>> {
        let program = progress.program;
        let scan = |(k, node): (usize, &'p oplus_dsl::ir::Node)| match &node.op {
            Op::MatrixScan(scan) => Some((Value(k as u32), &**scan)),
            _ => None,
        };
        let (back, states): (Vec<_>, Vec<_>) =
            program.nodes.iter().enumerate().filter_map(scan).partition(|(_, scan)| scan.reverse);
        let ([(cotangents, back)], Some((first, forward))) = (&back[..], states.first().copied()) else { return None };
        let is_alike = |scan: &MatrixScan| MatrixScan { exclusive: forward.exclusive, ..scan.clone() } == *forward;
        if back.exclusive || !states.iter().all(|(_, scan)| is_alike(scan)) {
            return None;
        }
        let waits = waits(progress);
        let is_known = |scan: &MatrixScan| scan.operands().iter().all(|v| !waits[v.0 as usize]);
        let [Term::Pair { row, .. }] = forward.terms[..] else { return None };
        let axes = program.node(first).axes;
        let same = (back.axis, back.along) == (forward.axis, forward.along) && program.node(*cotangents).axes == axes;
        if !same || !is_known(forward) || !is_known(back) {
            return None;
        }
        let width = axes.minus(program.node(row).axes).without(forward.axis).without(forward.along).iter().last()?;
        let states = states.iter().map(|(value, _)| *value).collect();
        let mut both =
            Both { program, states, cotangents: *cotangents, forward, back, axes, width, waits, reached: vec![] };
        for value in (0..program.nodes.len() as u32).map(Value) {
            let reached = both.is_reached(value);
            both.reached.push(reached);
        }
        Some(both)
    }

    fn members(&self) -> impl Iterator<Item = Value> + '_ {
        self.states.iter().copied().chain([self.cotangents])
    }

    fn is_reached(&self, value: Value) -> bool {
        if self.members().any(|own| own == value) {
            return true;
        }
        let node = self.program.node(value);
        if !self.waits[value.0 as usize] {
            return false;
        }
        let is_known = |v: &Value| self.reached[v.0 as usize] || !self.waits[v.0 as usize];
        match &node.op {
            Op::Field(tuple, 0) => self.sums(*tuple),
            Op::First { axis, value, empty } => {
                (*axis, *value, *empty) == (self.back.axis, self.cotangents, self.back.init)
            }
            op => op.is_map() && self.axes.contains_all(node.axes) && op.operands().iter().all(is_known),
        }
    }

    /// Whether a tuple is the sum of reached values over the depth or the width.
    fn sums(&self, tuple: Value) -> bool {
        let Op::Reduce { axis, operator, elements } = &self.program.node(tuple).op else { return false };
        [self.back.along, self.width].contains(axis)
            && is_sum(self.program.operator(*operator))
            && self.reached[elements[0].0 as usize]
    }

    /// Whether a value has an element for every element of the states of all times.
    fn is_of_all_states(&self, value: Value) -> bool {
        let axes = self.program.node(value).axes;
        [self.back.axis, self.back.along, self.width].into_iter().all(|axis| axes.contains(axis))
    }

    /// The outputs that the stage writes, and the values that it stores for others; `None` where those are all states.
    fn written(&self) -> Option<(Vec<usize>, BTreeSet<Value>)> {
        let (mut outputs, mut stored, mut open) = (vec![], BTreeSet::new(), vec![]);
        for (k, output) in self.program.outputs.iter().enumerate() {
            let own: AxisSet = output.axes.iter().copied().collect();
            let is_whole = own == self.program.node(output.value).axes;
            if self.reached[output.value.0 as usize] && is_whole && !self.is_of_all_states(output.value) {
                outputs.push(k);
            } else {
                open.push(output.value);
            }
        }
        let mut seen = BTreeSet::new();
        while let Some(value) = open.pop() {
            if !self.waits[value.0 as usize] || !seen.insert(value) {
                continue;
            }
            if !self.reached[value.0 as usize] {
                open.extend(self.program.node(value).op.operands());
            } else if self.is_of_all_states(value) {
                return None;
            } else {
                stored.insert(value);
            }
        }
        (!outputs.is_empty() || !stored.is_empty()).then_some((outputs, stored))
    }

    /// The values beneath some.
    fn points(&self, progress: &Progress<'_>, mut open: Vec<Value>) -> Points {
        let mut points = Points { inside: BTreeSet::new(), held: BTreeSet::new(), imports: BTreeSet::new() };
        while let Some(value) = open.pop() {
            if progress.held.contains_key(&value) {
                points.held.insert(value);
            } else if !self.is_inside(value) {
                points.imports.insert(value);
            } else if points.inside.insert(value) {
                open.extend(self.program.node(value).op.operands());
            }
        }
        points
    }

    /// Whether the stage computes a value.
    fn is_inside(&self, value: Value) -> bool {
        let (node, time) = (self.program.node(value), self.back.axis);
        let is_vector =
            node.axes.contains(time) && [self.back.along, self.width].iter().any(|axis| node.axes.contains(*axis));
        match &node.op {
            _ if self.waits[value.0 as usize] => true,
            Op::Param(_) | Op::Const(_) | Op::Index(_) | Op::Size(_) => true,
            Op::Shift { axis, .. } | Op::First { axis, .. } => *axis == time,
            _ if is_decay(self.program, value, self.forward) => true,
            op => op.is_map() && !(is_dear(op) && is_vector) && !self.joins_vectors(op),
        }
    }

    /// The type in which a value is stored that the stage reads. Vectors over the width are factors of products, which want one type: a
    /// vector that is computed has the type of the parameters beside it, to which the products would round it.
    fn stored_elem(&self, value: Value) -> Elem {
        let program = self.program;
        let own = program.node(value).ty.elem().unwrap_or(Elem::F32);
        if own != Elem::F32 || !self.is_vector_over_width(program.node(value).axes) {
            return own;
        }
        let is_vector = |param: &&Param| self.is_vector_over_width(param.axes.iter().copied().collect());
        let mut elems = program.params.iter().filter(is_vector).map(|param| param.elem);
        let first = elems.next();
        first.filter(|first| elems.all(|elem| elem == *first)).unwrap_or(own)
    }

    /// Whether an element has the time and the width, but not the depth.
    fn is_vector_over_width(&self, axes: AxisSet) -> bool {
        axes.contains(self.back.axis) && axes.contains(self.width) && !axes.contains(self.back.along)
    }

    /// Whether an operation makes one vector over the width of two at every time, such as a cotangent times a gate.
    fn joins_vectors(&self, op: &Op) -> bool {
        let is_vector = |value: &Value| self.is_vector_over_width(self.program.node(*value).axes);
        op.operands().iter().filter(|value| is_vector(value)).count() > 1
    }
}
