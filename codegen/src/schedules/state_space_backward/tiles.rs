//! The values that are brought into shared memory, and what they hold for steps, rows and states that do not exist.
//!
//! The walk reads parameters with time, and state-free maps of them that take many instructions or that are not zero where the
//! parameters are. What is computed once per row and step, after the sums over states, reads those tiles and parameters.

use super::zero::{Fill, filled};
use crate::schedules::state_space::tiles::Tile;
use crate::stage::is_dear;
use crate::stage::kind::BackwardScan;
use crate::stage::kind::is_point;
use oplus_dsl::Ty;
use oplus_dsl::ir::{Axis, Op, Value};
use std::collections::BTreeSet;

/// The tiles of a kernel.
pub(super) struct Tiles {
    pub tiles: Vec<Tile>,
    /// The value of a tile where its step, row or state does not exist.
    pub fills: Vec<Fill>,
    /// Whether it is read at every state.
    pub walked: Vec<bool>,
}

impl Tiles {
    /// The tiles for values at every state and step, and values at every row and step.
    pub(super) fn of(form: &BackwardScan, walked: &[Value], finished: &[Value]) -> Tiles {
        let mut values = BTreeSet::new();
        let (mut seen, mut stack) = (BTreeSet::new(), walked.to_vec());
        while let Some(value) = stack.pop() {
            if seen.insert(value) && form.has_time(value) {
                match &form.program.node(value).op {
                    Op::Field(..) | Op::Index(_) => {}
                    op if is_tiled(form, value) || matches!(op, Op::Param(_)) => _ = values.insert(value),
                    op => stack.extend(op.operands()),
                }
            }
        }
        let walked = values.clone();
        stack.extend(finished);
        while let Some(value) = stack.pop() {
            if form.has_time(value) && !values.contains(&value) {
                match &form.program.node(value).op {
                    Op::Field(..) | Op::Index(_) => {}
                    Op::Param(_) => _ = values.insert(value),
                    op => stack.extend(op.operands()),
                }
            }
        }
        let over = |value: Value, axis| form.program.node(value).axes.contains(axis);
        let tile =
            |value| Tile { value, rows: form.row.is_some_and(|row| over(value, row)), states: over(value, form.state) };
        let fills = values.iter().map(|value| known(form, *value)).collect();
        let walked = values.iter().map(|value| walked.contains(value)).collect();
        Tiles { tiles: values.into_iter().map(tile).collect(), fills, walked }
    }

    /// The tile of a value.
    pub(super) fn place(&self, value: Value) -> Option<usize> {
        self.tiles.iter().position(|tile| tile.value == value)
    }
}

/// Whether a map is computed by the copy warps.
fn is_tiled(form: &BackwardScan, value: Value) -> bool {
    let node = form.program.node(value);
    let number = node.op.is_map() && node.ty == Ty::F32;
    let computed = number && !node.axes.contains(form.state) && is_point(&form.program, value);
    computed && (is_dear(&node.op) || at_zero(form, value) == Fill::Unknown)
}

/// The filling where a value does not exist: the value where its parameters are zero, if that is known.
fn known(form: &BackwardScan, value: Value) -> Fill {
    match at_zero(form, value) {
        Fill::One => Fill::One,
        _ => Fill::Zero,
    }
}

/// The value of a map of parameters where those with time are zero.
fn at_zero(form: &BackwardScan, value: Value) -> Fill {
    let program = &form.program;
    let is_zero = |v: Value| matches!(program.node(v).op, Op::Param(_)) && form.has_time(v);
    filled(program, value, |v| is_zero(v).then_some(Fill::Zero))
}

/// The value of a node at an index of `axis` that does not exist.
pub(super) fn fill(form: &BackwardScan, tiles: &Tiles, value: Value, axis: Axis) -> Fill {
    filled(&form.program, value, |v| {
        let node = form.program.node(v);
        let has_axis = node.axes.contains(axis);
        let tile = tiles.place(v).filter(|_| has_axis).map(|i| tiles.fills[i]);
        tile.or(match node.op {
            Op::Param(_) if has_axis => Some(Fill::Zero),
            Op::Field(tuple, _) if tuple == form.exclusive => Some(Fill::Before),
            _ => None,
        })
    })
}
