//! The storage of a stage's values: tiles in shared memory, constants in registers, sums.
//!
//! The walk needs values at every step. Those without time are computed once and kept in registers. Of the others, a
//! *tile value* is brought into shared memory by the copy warps, for all rows and states that it depends on: a parameter,
//! or a map without states that takes many instructions (softplus, say), so that it is computed once per row and step. Lanes compute
//! all maps of tile values. Values that only outputs need (a gate) are not tiled.

use crate::block::reads::constant_along;
use crate::stage::kind::is_point;
use crate::stage::{Scan, Stage, is_dear};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Axis, Op, Program, Value};
use std::collections::BTreeSet;

/// A value that is brought into shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tile {
    /// The value.
    pub value: Value,
    /// Whether it depends on rows of the block.
    pub rows: bool,
    /// Whether it depends on states.
    pub states: bool,
}

impl Tile {
    /// The parameter that the tile is a plain copy of: one whose elements have four bytes.
    pub(crate) fn copied(&self, program: &Program) -> Option<u32> {
        let Op::Param(param) = program.node(self.value).op else { return None };
        (program.params[param as usize].elem.bytes() == Some(4)).then_some(param)
    }
}

/// A stage's values by their storage.
pub(crate) struct Values {
    /// The axis of the rows of a block: the last outer one.
    pub row: Option<Axis>,
    /// The state axis.
    pub state: Axis,
    /// The tiles that the walk reads from shared memory.
    pub tiles: Vec<Tile>,
    /// The values that the walk keeps in registers.
    pub constants: Vec<Value>,
    /// The contractions: each tuple, and the value that is summed.
    pub sums: Vec<(Value, Value)>,
    /// For each contraction the tile that it may overwrite.
    pub over: Vec<Option<usize>>,
}

impl Values {
    /// The values of a stage that has contractions.
    pub(super) fn of(stage: &Stage, scan: &Scan, state: Axis) -> Values {
        Values::with_sums(stage, scan, state, sums(&stage.program))
    }

    /// The values that the scan alone needs.
    pub(super) fn of_scan(stage: &Stage, scan: &Scan, state: Axis) -> Values {
        Values::with_sums(stage, scan, state, vec![])
    }

    fn with_sums(stage: &Stage, scan: &Scan, state: Axis, sums: Vec<(Value, Value)>) -> Values {
        let program = &stage.program;
        let roots: Vec<Value> = scan.elements.iter().copied().chain(sums.iter().map(|(_, element)| *element)).collect();
        let row = stage.outer_axes().iter().last();
        let over = |value: Value, axis: Option<Axis>| axis.is_some_and(|a| program.node(value).axes.contains(a));
        let tile = |value| Tile { value, rows: over(value, row), states: over(value, Some(state)) };
        let tiles: Vec<Tile> = tile_values(program, scan.axis, state, &roots).into_iter().map(tile).collect();
        let constants = constant_along(program, scan.axis, roots.into_iter());
        let mut values = Values { row, state, tiles, constants, sums, over: vec![] };
        values.over = values.overwritten(stage, scan.axis);
        values
    }

    /// The first tiles that go over all rows and that no output reads.
    fn overwritten(&self, stage: &Stage, time: Axis) -> Vec<Option<usize>> {
        let read: BTreeSet<Value> = drained(stage, time).collect();
        let free = |(i, tile): (usize, &Tile)| {
            let number = stage.program.node(tile.value).ty == Ty::F32;
            (number && tile.rows && !tile.states && !read.contains(&tile.value)).then_some(i)
        };
        let mut free = self.tiles.iter().enumerate().filter_map(free);
        self.sums.iter().map(|_| free.next()).collect()
    }

    /// The tile of a value.
    pub(super) fn tile(&self, value: Value) -> Option<usize> {
        self.tiles.iter().position(|tile| tile.value == value)
    }

    /// The sum that a field of a contraction is.
    pub(super) fn sum(&self, program: &Program, value: Value) -> Option<usize> {
        let Op::Field(tuple, _) = program.node(value).op else { return None };
        self.sums.iter().position(|(own, _)| *own == tuple)
    }
}

/// The contractions of a program, each with the value that is summed.
fn sums(program: &Program) -> Vec<(Value, Value)> {
    let sum = |(i, node): (usize, &oplus_dsl::ir::Node)| match &node.op {
        Op::Reduce { elements, .. } => Some((Value(i as u32), elements[0])),
        _ => None,
    };
    program.nodes.iter().enumerate().filter_map(sum).collect()
}

/// The values beneath some roots that are tiled.
fn tile_values(program: &Program, time: Axis, state: Axis, roots: &[Value]) -> BTreeSet<Value> {
    let (mut tiles, mut seen, mut stack) = (BTreeSet::new(), BTreeSet::new(), roots.to_vec());
    while let Some(value) = stack.pop() {
        let node = program.node(value);
        if !node.axes.contains(time) || !seen.insert(value) {
            continue;
        }
        let dear = !node.axes.contains(state) && is_dear(&node.op) && is_point(program, value);
        match &node.op {
            Op::Field(..) | Op::Index(_) => {}
            Op::Param(_) => _ = tiles.insert(value),
            _ if dear => _ = tiles.insert(value),
            op => stack.extend(op.operands()),
        }
    }
    tiles
}

/// The parameters beneath a value, in order.
pub(crate) fn params_beneath(program: &Program, value: Value) -> Vec<u32> {
    let (mut params, mut seen, mut stack) = (BTreeSet::new(), BTreeSet::new(), vec![value]);
    while let Some(value) = stack.pop() {
        match &program.node(value).op {
            _ if !seen.insert(value) => {}
            Op::Param(param) => _ = params.insert(*param),
            op => stack.extend(op.operands()),
        }
    }
    params.into_iter().collect()
}

/// The values with time beneath the outputs, down to contractions.
pub(super) fn drained(stage: &Stage, time: Axis) -> impl Iterator<Item = Value> {
    let program = &stage.program;
    let outputs = (0..program.outputs.len()).filter(|k| !stage.is_final(*k)).map(|k| program.outputs[k].value);
    let (mut found, mut stack) = (BTreeSet::new(), outputs.collect::<Vec<_>>());
    while let Some(value) = stack.pop() {
        let node = program.node(value);
        if node.axes.contains(time) && found.insert(value) && !matches!(node.op, Op::Field(..)) {
            stack.extend(node.op.operands());
        }
    }
    found.into_iter()
}
