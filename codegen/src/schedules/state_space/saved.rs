//! Saved states: the state before every eighth step, in the order of the scan, for the pass that walks the other way.
//!
//! ```text
//! [points][sub-tiles][rows][places]
//! ```
//!
//! A *point* is one of the outer axes other than that of the rows, a *sub-tile* is eight steps. A row's states take whole
//! chunks of *places*, for the states that there are and not for all that a schedule has room for: all schedules save alike.

use super::{CHUNK, SUBTILE, StateSpaceKernel};
use crate::build::Builder;
use crate::stage::Stage;
use crate::tile::{Memory, Operand, Special};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Axis, AxisSet, Binary};

/// The indices of saved states. All `i64`.
#[derive(Clone, Copy)]
pub(crate) struct Saved {
    /// The block's point.
    pub(crate) point: Operand,
    pub(crate) subtiles: Operand,
    pub(crate) rows: Operand,
    pub(crate) room: Room,
}

/// The memory of the states of one row.
#[derive(Clone, Copy)]
pub(crate) struct Room {
    /// The places of a row, `i64`.
    pub row_len: Operand,
    /// Whether lanes may have states that have no place.
    padded: bool,
}

/// Neighbouring states of a row, before the sub-tile of a step.
pub(crate) struct StateRun<'a> {
    /// The step, `i64`.
    pub step: Operand,
    /// The number of the first state, `i32`.
    pub first: Operand,
    /// The place of that state before the first sub-tile.
    pub anchor: Operand,
    pub states: &'a [Operand],
}

/// The outer axes other than that of the rows.
pub(crate) fn others(stage: &Stage, row: Option<Axis>) -> AxisSet {
    row.map_or(AxisSet::EMPTY, |row| stage.outer_axes().without(row))
}

/// The number of saved numbers, for axes of these sizes; `None` when 63 bits cannot count it.
pub fn saved_len(stage: &Stage, size: impl Fn(Axis) -> i64) -> Option<u64> {
    let (time, row) = (stage.axis()?, stage.outer_axes().iter().last());
    let row_len = in_whole_chunks(size(stage.state_axis()?))?;
    let points = others(stage, row).iter().try_fold(1i64, |n, axis| n.checked_mul(size(axis)))?;
    let subtiles = up(size(time), i64::from(SUBTILE));
    let states = points.checked_mul(subtiles)?.checked_mul(row.map_or(1, size))?;
    states.checked_mul(row_len).map(|n| n as u64)
}

/// The places of so many states; `None` when 63 bits cannot count them.
pub(crate) fn in_whole_chunks(states: i64) -> Option<i64> {
    up(states, i64::from(CHUNK)).checked_mul(i64::from(CHUNK))
}

/// The least number of times `by` that reaches a number.
pub(crate) fn up(number: i64, by: i64) -> i64 {
    number / by + i64::from(number % by != 0)
}

/// The point of the kernel's block, which has `block_rows` rows, `i64`.
pub(super) fn point(b: &mut Builder, kernel: &StateSpaceKernel, block_rows: u32) -> Operand {
    if let Some(point) = kernel.frame.block.point {
        return point;
    }
    let rows = kernel.values.row.map_or(Operand::i64(1), |row| kernel.args.size(row));
    let groups = b.div_ceil(rows, block_rows);
    let number = b.special(Special::Block);
    let number = b.convert(Ty::I64, number);
    b.binary(Binary::Div, number, groups)
}

impl Room {
    /// Finds the room of so many states (`i64`) under a schedule with a capacity, which is filled or padded.
    pub(crate) fn find(b: &mut Builder, capacity: u32, padded: bool, states: Operand) -> Room {
        if !padded {
            return Room { row_len: Operand::i64(i64::from(capacity)), padded };
        }
        let above = b.add(states, i64::from(CHUNK) - 1);
        Room { row_len: b.binary(Binary::And, above, -i64::from(CHUNK)), padded }
    }

    /// A guard, where the `number`-th state (`i64`) has a place.
    pub(crate) fn holds(&self, b: &mut Builder, number: Operand, guard: Operand) -> Operand {
        if !self.padded {
            return guard;
        }
        let held = b.lt(number, self.row_len);
        b.and(guard, held)
    }
}

impl Saved {
    /// The rows of the kernel's block, `block_rows` of them.
    pub(crate) fn find(b: &mut Builder, kernel: &StateSpaceKernel, block_rows: u32) -> Saved {
        let rows = kernel.values.row.map_or(Operand::i64(1), |row| kernel.args.size(row));
        let point = point(b, kernel, block_rows);
        let subtiles = b.div_ceil(kernel.frame.len, SUBTILE);
        let (schedule, states) = (kernel.schedule, b.convert(Ty::I64, kernel.frame.state_count));
        let room = Room::find(b, schedule.capacity(), schedule.padded, states);
        Saved { point, subtiles, rows, room }
    }

    /// The first state of a row (of all rows of the point) before a sub-tile.
    pub(crate) fn element(&self, b: &mut Builder, subtile: Operand, row: Operand) -> Operand {
        let at = b.mul(self.point, self.subtiles);
        let at = b.add(at, subtile);
        let at = b.mul(at, self.rows);
        let at = b.add(at, row);
        b.mul(at, self.room.row_len)
    }

    /// The distance from a sub-tile to the next.
    pub(crate) fn apart(&self, b: &mut Builder) -> Operand {
        b.mul(self.rows, self.room.row_len)
    }
}

impl StateSpaceKernel<'_> {
    /// The place before the first sub-tile (`i64`) of a state of a row of the block (both `i32`).
    pub(crate) fn anchor_of_states(&self, b: &mut Builder, saved: &Saved, row: Operand, state: Operand) -> Operand {
        let row = b.convert(Ty::I64, row);
        let row = b.add(self.frame.block.first_row, row);
        let at = saved.element(b, Operand::i64(0), row);
        let state = b.convert(Ty::I64, state);
        b.add(at, state)
    }

    /// Stores neighbouring states of a row.
    pub(crate) fn store_states(&self, b: &mut Builder, saved: &Saved, run: StateRun, guard: Operand) {
        let StateRun { step, first, anchor, states } = run;
        let subtile = b.binary(Binary::Div, step, SUBTILE);
        let apart = saved.apart(b);
        let along = b.mul(subtile, apart);
        let at = b.add(anchor, along);
        let first = b.convert(Ty::I64, first);
        for (access, values) in states.chunks(CHUNK as usize).enumerate() {
            let access = Operand::i64(i64::from(access as u32 * CHUNK));
            let (at, own) = (b.add(at, access), b.add(first, access));
            let guard = saved.room.holds(b, own, guard);
            b.store(Memory::Global(self.args.scratch[0]), at, values, Some(guard));
        }
    }
}
