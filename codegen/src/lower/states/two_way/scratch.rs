//! What the passes hand on: saved states, and the sums of blocks.
//!
//! ```text
//! saved states  [points][sub-tiles][rows][capacity]              every eighth state of every row
//! block sums    [sums][blocks of rows][points][capacity][steps]  time in whole tiles
//! ```
//!
//! A *point* is one of the outer axes other than the rows.

use super::SUBTILE;
use super::parts::Parts;
use crate::build::Builder;
use crate::lower::args::Args;
use crate::lower::states::StatesKernel;
use crate::schedule::{Pass, TwoWay};
use crate::stage::Stage;
use crate::tile::{Operand, Special};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Axis, AxisSet, Binary};

/// The kernels of a stage under a schedule, in order: the schedule as it is, with other passes before and after it.
pub fn passes(stage: &Stage, schedule: &TwoWay) -> Vec<TwoWay> {
    let alike = TwoWay { registers: 0, ..*schedule };
    let save = TwoWay { pass: Pass::Save, ..alike };
    let sum = TwoWay { pass: Pass::Sum, ..alike };
    let sums = Parts::of(stage).is_some_and(|parts| !parts.row_sums.is_empty());
    [save, *schedule].into_iter().chain(sums.then_some(sum)).collect()
}

/// The numbers of `f32` that the passes hand on, for axes of these sizes; `None` when 63 bits cannot count them.
pub fn scratch(stage: &Stage, schedule: &TwoWay, size: impl Fn(Axis) -> i64) -> Option<Vec<u64>> {
    let parts = Parts::of(stage)?;
    let points = others(stage, parts.row).iter().try_fold(1i64, |n, axis| n.checked_mul(size(axis)))?;
    let rows = parts.row.map_or(1, &size);
    let capacity = i64::from(schedule.capacity());
    let whole = |n: i64, by: u32| n / i64::from(by) + i64::from(n % i64::from(by) != 0);
    let steps = whole(size(parts.time), schedule.steps).checked_mul(i64::from(schedule.steps))?;
    let saved = points.checked_mul(steps / i64::from(SUBTILE))?.checked_mul(rows)?.checked_mul(capacity)?;
    let blocks = whole(rows, schedule.block_rows());
    let sums = (parts.row_sums.len() as i64).checked_mul(blocks)?.checked_mul(points)?;
    let sums = sums.checked_mul(capacity)?.checked_mul(steps)?;
    Some(vec![saved as u64, sums as u64])
}

/// The outer axes other than the rows.
pub(super) fn others(stage: &Stage, row: Option<Axis>) -> AxisSet {
    row.map_or(AxisSet::EMPTY, |row| stage.outer_axes().without(row))
}

/// Where a block's part of the scratch is. All `i64`.
pub(super) struct Scratch {
    /// The block's point, and how many there are.
    pub point: Operand,
    pub points: Operand,
    /// The block's number among those of its point, and how many those are.
    pub group: Operand,
    pub groups: Operand,
    /// Rows, sub-tiles, steps in whole tiles.
    pub rows: Operand,
    pub subtiles: Operand,
    pub steps: Operand,
}

impl Scratch {
    pub(super) fn find(b: &mut Builder, base: &StatesKernel, parts: &Parts, schedule: &TwoWay) -> Scratch {
        let tiles = b.convert(Ty::I64, base.tile_count);
        let number = b.special(Special::Block);
        let number = b.convert(Ty::I64, number);
        let mut scratch = Scratch::sizes(b, &base.args, parts, schedule, tiles);
        scratch.point = b.binary(Binary::Div, number, scratch.groups);
        scratch.group = b.binary(Binary::Rem, number, scratch.groups);
        scratch
    }

    /// At point 0 and group 0.
    pub(super) fn sizes(b: &mut Builder, args: &Args, parts: &Parts, schedule: &TwoWay, tiles: Operand) -> Scratch {
        let zero = Operand::i64(0);
        let rows = parts.row.map_or(Operand::i64(1), |row| args.size(row));
        let block_rows = Operand::i64(i64::from(schedule.block_rows()));
        let up = b.add(rows, Operand::i64(i64::from(schedule.block_rows()) - 1));
        let groups = b.binary(Binary::Div, up, block_rows);
        let points = args.rows(b, others(&parts.stage, parts.row));
        let subtiles = b.mul(tiles, Operand::i64(i64::from(schedule.steps / SUBTILE)));
        let steps = b.mul(tiles, Operand::i64(i64::from(schedule.steps)));
        Scratch { point: zero, points, group: zero, groups, rows, subtiles, steps }
    }

    /// The first saved state of a row (`i64`, of all rows of the point) at a sub-tile (`i64`).
    pub(super) fn saved(&self, b: &mut Builder, schedule: &TwoWay, subtile: Operand, row: Operand) -> Operand {
        let at = b.mul(self.point, self.subtiles);
        let at = b.add(at, subtile);
        let at = b.mul(at, self.rows);
        let at = b.add(at, row);
        b.mul(at, Operand::i64(i64::from(schedule.capacity())))
    }

    /// The first step of a sum over the rows of a block, at state 0.
    pub(super) fn sums(&self, b: &mut Builder, schedule: &TwoWay, sum: usize) -> Operand {
        let at = b.mul(self.groups, Operand::i64(sum as i64));
        let at = b.add(at, self.group);
        let at = b.mul(at, self.points);
        let at = b.add(at, self.point);
        let at = b.mul(at, self.steps);
        b.mul(at, Operand::i64(i64::from(schedule.capacity())))
    }
}
