//! Which recurrence runs next, and what its stage writes.

use std::collections::BTreeSet;

use oplus_dsl::ir::{Axis, AxisSet, MatrixScan, Op, Program, Value};
use oplus_dsl::transition::is_sum;

use super::points::Points;
use super::{Progress, waits};

/// A recurrence with what its stage reads and writes.
pub(super) struct Group {
    pub(super) scan: MatrixScan,
    /// The nodes of its states: after the steps, before them, or both.
    pub(super) members: Vec<Value>,
    /// Values that are stored before the stage runs.
    pub(super) imports: BTreeSet<Value>,
    /// The outputs of the program that the stage writes.
    pub(super) outputs: Vec<usize>,
    /// Values that the stage stores for other stages.
    pub(super) stored: BTreeSet<Value>,
}

impl Group {
    /// The next recurrence whose operands are known; `None` if all have their stages.
    pub(super) fn next(progress: &Progress<'_>) -> Option<Group> {
        let program = progress.program;
        let reach = Reach::find(progress)?;
        let (mut outputs, mut stored) = (vec![], BTreeSet::new());
        let mut open = vec![];
        for (k, output) in program.outputs.iter().enumerate().filter(|(k, _)| !progress.written.contains(k)) {
            let own: AxisSet = output.axes.iter().copied().collect();
            let is_whole = own == program.node(output.value).axes;
            if is_whole && (reach.is_body(output.value) || reach.is_end(progress, output.value)) {
                outputs.push(k);
            } else {
                open.push(output.value);
            }
        }
        let mut seen = BTreeSet::new();
        while let Some(value) = open.pop() {
            if progress.held.contains_key(&value) || !reach.waits[value.0 as usize] || !seen.insert(value) {
                continue;
            }
            if reach.is_state(value) || reach.is_readout(value) || reach.is_end(progress, value) {
                stored.insert(value);
            } else {
                open.extend(program.node(value).op.operands());
            }
        }
        let Reach { scan, members, .. } = reach;
        let mut group = Group { scan, members, imports: BTreeSet::new(), outputs, stored };
        group.imports = group.points(progress).imports;
        Some(group)
    }

    /// All axes of the states.
    pub(super) fn axes(&self, program: &Program) -> AxisSet {
        program.node(self.members[0]).axes
    }

    /// The values beneath the stage.
    pub(super) fn points(&self, progress: &Progress<'_>) -> Points {
        let outputs = self.outputs.iter().map(|k| progress.program.outputs[*k].value);
        Points::of(progress, &self.scan, &self.members, outputs.chain(self.stored.iter().copied()).collect())
    }
}

/// The values that the states of a recurrence reach by maps and sums.
pub(super) struct Reach {
    pub(super) scan: MatrixScan,
    pub(super) members: Vec<Value>,
    /// For every value, whether it depends on a recurrence without a stage.
    waits: Vec<bool>,
    /// For every value, whether it is a map of states, of sums of such maps, and of known values.
    reached: Vec<bool>,
    /// Sums over the axis that the matrices act on.
    pub(super) readouts: BTreeSet<Value>,
}

impl Reach {
    /// The first recurrence without a stage whose operands are known.
    pub(super) fn find(progress: &Progress<'_>) -> Option<Reach> {
        let program = progress.program;
        let waits = waits(progress);
        let scan_of = |v: Value| match &program.node(v).op {
            Op::MatrixScan(scan) => Some(&**scan),
            _ => None,
        };
        let is_left = |v: &Value| !progress.ran.contains(v) && !progress.held.contains_key(v);
        let is_ready = |v: &Value| {
            let operands = scan_of(*v).map(MatrixScan::operands);
            operands.is_some_and(|all| all.iter().all(|operand| !waits[operand.0 as usize]))
        };
        let values = || (0..program.nodes.len() as u32).map(Value);
        let first = values().filter(is_left).find(is_ready)?;
        let scan = scan_of(first)?.clone();
        let is_alike =
            |v: &Value| scan_of(*v).is_some_and(|own| MatrixScan { exclusive: scan.exclusive, ..own.clone() } == scan);
        let members = values().filter(is_left).filter(is_alike).collect();
        let mut reach = Reach { scan, members, waits, reached: vec![], readouts: BTreeSet::new() };
        for value in values() {
            let reached = reach.is_reached(program, value);
            reach.reached.push(reached);
        }
        Some(reach)
    }

    fn is_state(&self, value: Value) -> bool {
        self.members.contains(&value)
    }

    fn is_readout(&self, value: Value) -> bool {
        self.readouts.contains(&value)
    }

    /// Whether the stage can write a value at every step.
    fn is_body(&self, value: Value) -> bool {
        self.reached[value.0 as usize]
    }

    /// Whether a value is the last state.
    fn is_end(&self, progress: &Progress<'_>, value: Value) -> bool {
        let (axis, of, empty, reverse) = match progress.program.node(value).op {
            Op::Last { axis, value, empty } => (axis, value, empty, false),
            Op::First { axis, value, empty } => (axis, value, empty, true),
            _ => return false,
        };
        let is_inclusive = matches!(&progress.program.node(of).op, Op::MatrixScan(scan) if !scan.exclusive);
        is_inclusive
            && self.is_state(of)
            && (axis, reverse, empty) == (self.scan.axis, self.scan.reverse, self.scan.init)
            && self.axes(progress.program).without(axis) == progress.program.node(value).axes
    }

    fn axes(&self, program: &Program) -> AxisSet {
        program.node(self.members[0]).axes
    }

    fn is_reached(&mut self, program: &Program, value: Value) -> bool {
        if self.is_state(value) {
            return true;
        }
        let node = program.node(value);
        if !self.waits[value.0 as usize] {
            return false;
        }
        if let Op::Field(tuple, 0) = node.op {
            let is_readout = self.sums(program, tuple);
            if is_readout {
                self.readouts.insert(value);
            }
            return is_readout;
        }
        let is_known = |v: &Value| self.reached[v.0 as usize] || !self.waits[v.0 as usize];
        node.op.is_map() && self.axes(program).contains_all(node.axes) && node.op.operands().iter().all(is_known)
    }

    /// Whether a tuple is the sum of reached values over the axis that the matrices act on.
    fn sums(&self, program: &Program, tuple: Value) -> bool {
        let Op::Reduce { axis, operator, elements } = &program.node(tuple).op else { return false };
        let along: Axis = self.scan.along;
        *axis == along
            && is_sum(program.operator(*operator))
            && self.reached[elements[0].0 as usize]
            && program.node(elements[0]).axes == self.axes(program)
    }
}
