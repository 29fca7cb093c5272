//! Which parameters a stage reads along its scan axis, what does not change along it, and which fields of states it reads.

use crate::stage::{Scan, Stage};
use oplus_dsl::ir::{Axis, Op, Program, Value};
use std::collections::{BTreeMap, BTreeSet};

/// The least and the greatest displacement along the scan axis at which a parameter is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offsets {
    /// The least.
    pub least: i64,
    /// The greatest.
    pub greatest: i64,
}

impl Offsets {
    /// The point alone.
    pub const HERE: Offsets = Offsets::at(0);

    /// One displacement.
    const fn at(by: i64) -> Offsets {
        Offsets { least: by, greatest: by }
    }

    /// These and one more.
    fn with(self, by: i64) -> Offsets {
        Offsets { least: self.least.min(by), greatest: self.greatest.max(by) }
    }
}

/// The displacements at which each parameter with the scan axis is read at the point.
pub fn displacements(stage: &Stage, axis: Axis, roots: impl Iterator<Item = Value>) -> BTreeMap<u32, Offsets> {
    let (mut ranges, mut seen) = (BTreeMap::new(), BTreeSet::new());
    let mut stack: Vec<(Value, i64)> = roots.map(|v| (v, 0)).collect();
    while let Some((value, at)) = stack.pop() {
        let node = stage.program.node(value);
        if !node.axes.contains(axis) || !seen.insert((value, at)) {
            continue;
        }
        match &node.op {
            Op::Param(p) => {
                let range = ranges.entry(*p).or_insert(Offsets::at(at));
                *range = range.with(at);
            }
            Op::Shift { axis: along, by, value, .. } if *along == axis => stack.push((*value, at - by)),
            Op::Scan { .. } => {}
            op => stack.extend(op.operands().into_iter().map(|v| (v, at))),
        }
    }
    ranges
}

/// The ranges in which parameters are read around a tile that holds the point and `reach` elements on both sides of it: the
/// point is in every range, and what is farther away in none.
pub fn near(stage: &Stage, axis: Axis, roots: impl Iterator<Item = Value>, reach: i64) -> BTreeMap<u32, Offsets> {
    let has_axis = |param: u32| stage.program.params[param as usize].axes.contains(&axis);
    let (mut ranges, mut seen) = (BTreeMap::new(), BTreeSet::new());
    let mut stack: Vec<(Value, i64)> = roots.map(|v| (v, 0)).collect();
    while let Some((value, at)) = stack.pop() {
        if !seen.insert((value, at)) {
            continue;
        }
        match &stage.program.node(value).op {
            Op::Param(p) if at.abs() <= reach && has_axis(*p) => {
                let range = ranges.entry(*p).or_insert(Offsets::HERE);
                *range = range.with(at);
            }
            Op::Shift { axis: along, by, value, fill } if *along == axis => {
                stack.extend([(*value, at - by), (*fill, at)]);
            }
            Op::Scan { .. } => {}
            op => stack.extend(op.operands().into_iter().map(|v| (v, at))),
        }
    }
    ranges
}

/// The values without the scan axis beneath `roots` that depend on no state: they are the same along a row.
pub fn constant_along(program: &Program, axis: Axis, roots: impl Iterator<Item = Value>) -> Vec<Value> {
    let (mut found, mut seen) = (vec![], BTreeSet::new());
    let mut stack: Vec<Value> = roots.collect();
    while let Some(value) = stack.pop() {
        let node = program.node(value);
        if !seen.insert(value) || matches!(node.op, Op::Field(..) | Op::Const(_)) {
            continue;
        }
        if node.axes.contains(axis) || has_state(program, value) {
            stack.extend(node.op.operands());
        } else {
            found.push(value);
        }
    }
    found.sort();
    found
}

/// Whether a value depends on the scan.
fn has_state(program: &Program, value: Value) -> bool {
    let (mut seen, mut stack) = (BTreeSet::new(), vec![value]);
    while let Some(value) = stack.pop() {
        let op = &program.node(value).op;
        if matches!(op, Op::Field(..)) {
            return true;
        }
        stack.extend(op.operands().into_iter().filter(|v| seen.insert(*v)));
    }
    false
}

/// Which fields of the states outputs read.
pub fn used_fields(stage: &Stage, scan: &Scan) -> Vec<bool> {
    let mut used = vec![false; stage.program.operator(scan.operator).fields.len()];
    for node in &stage.program.nodes {
        if let Op::Field(tuple, k) = node.op
            && matches!(stage.program.node(tuple).op, Op::Scan { .. })
        {
            used[k as usize] = true;
        }
    }
    used
}
