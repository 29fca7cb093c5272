//! What the passes hand on: [saved states](crate::lower::states::saved), the sums of blocks, and what
//! [segments](super::segments) hand to one another.
//!
//! ```text
//! block sums  [sums][blocks of rows][points][capacity][steps]  time in whole tiles
//! ```

use super::parts::Parts;
use super::segments::totals_per_row;
use crate::build::Builder;
use crate::lower::args::Args;
use crate::lower::states::saved::{Saved, others, saved_len};
use crate::lower::states::{CHUNK, StatesKernel};
use crate::schedule::{Pass, TwoWay};
use crate::stage::Stage;
use crate::tile::{Operand, Special};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Axis, Binary};

/// A pass before the walk. It takes few registers and little shared memory: blocks are smaller, share a multiprocessor and
/// have a tile more in flight.
pub fn before(schedule: &TwoWay, pass: Pass) -> TwoWay {
    let segmented = schedule.segmented && pass == Pass::Carry;
    TwoWay { pass, rows: 1, blocks: 2, stages: schedule.stages + 1, registers: 0, segmented, ..*schedule }
}

/// The kernels of a stage under a schedule, in order: the schedule as it is, with other passes before and after it.
pub fn passes(stage: &Stage, schedule: &TwoWay) -> Vec<TwoWay> {
    let alike = TwoWay { registers: 0, ..*schedule };
    let (save, carry) = (before(schedule, Pass::Save), before(schedule, Pass::Carry));
    let sum = TwoWay { pass: Pass::Sum, ..alike };
    let sums = sum_threads(stage, schedule, (1, 1, 1)) > 0;
    let before = [Some(save), schedule.segmented.then_some(carry)];
    before.into_iter().flatten().chain([*schedule]).chain(sums.then_some(sum)).collect()
}

/// The threads of the last pass, for so many points, rows of all points, and tiles.
pub fn sum_threads(stage: &Stage, schedule: &TwoWay, (points, rows, tiles): (u64, u64, u64)) -> u64 {
    let Some(parts) = Parts::of(stage) else { return 0 };
    let chunks = tiles.saturating_mul(u64::from(schedule.steps / CHUNK));
    let of_sum = points.saturating_mul(u64::from(schedule.capacity())).saturating_mul(chunks);
    let of_row = if schedule.segmented { totals_per_row(&parts, schedule.capacity()) } else { 0 };
    of_sum.saturating_mul(parts.row_sums.len() as u64).saturating_add(rows.saturating_mul(of_row))
}

/// The numbers of `f32` that the passes hand on, for axes of these sizes and a number of segments; `None` when 63 bits
/// cannot count them.
pub fn scratch(stage: &Stage, schedule: &TwoWay, segments: u64, size: impl Fn(Axis) -> i64) -> Option<Vec<u64>> {
    let parts = Parts::of(stage)?;
    let points = others(stage, parts.row).iter().try_fold(1i64, |n, axis| n.checked_mul(size(axis)))?;
    let rows = parts.row.map_or(1, &size);
    let capacity = i64::from(schedule.capacity());
    let whole = |n: i64, by: u32| n / i64::from(by) + i64::from(n % i64::from(by) != 0);
    let steps = whole(size(parts.time), schedule.steps).checked_mul(i64::from(schedule.steps))?;
    let saved = saved_len(stage, schedule.capacity(), &size)?;
    let blocks = whole(rows, schedule.block_rows());
    let sums = (parts.row_sums.len() as i64).checked_mul(blocks)?.checked_mul(points)?;
    let sums = sums.checked_mul(capacity)?.checked_mul(steps)?;
    let mut all = vec![saved, sums as u64];
    if schedule.segmented {
        let rows = points.checked_mul(rows)?.checked_mul(segments as i64)?;
        let carries = rows.checked_mul(2 * capacity)?;
        let totals = rows.checked_mul(totals_per_row(&parts, schedule.capacity()) as i64)?;
        all.extend([carries as u64, totals as u64]);
    }
    Some(all)
}

/// Where a block's part of the scratch is. All `i64`.
pub(super) struct Scratch {
    /// The block's point, and how many there are.
    pub point: Operand,
    pub points: Operand,
    /// The block's number among those of its point, and how many those are.
    pub group: Operand,
    pub groups: Operand,
    /// Steps in whole tiles.
    pub steps: Operand,
    /// The saved states of the block's point.
    pub saved: Option<Saved>,
}

impl Scratch {
    pub(super) fn find(b: &mut Builder, base: &StatesKernel, parts: &Parts, schedule: &TwoWay) -> Scratch {
        let tiles = b.convert(Ty::I64, base.tile_count);
        let number = b.special(Special::Block);
        let number = b.convert(Ty::I64, number);
        let mut scratch = Scratch::sizes(b, &base.args, parts, schedule, tiles);
        scratch.point = b.binary(Binary::Div, number, scratch.groups);
        scratch.group = b.binary(Binary::Rem, number, scratch.groups);
        scratch.saved = Some(Saved::find(b, base, schedule.block_rows()));
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
        let steps = b.mul(tiles, Operand::i64(i64::from(schedule.steps)));
        Scratch { point: zero, points, group: zero, groups, steps, saved: None }
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
