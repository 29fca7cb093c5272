//! The scratch memory between passes: [saved states](crate::schedules::state_space::saved), the sums of blocks, and the
//! carries and totals of [segments](super::segments).
//!
//! ```text
//! block sums  [sums][blocks of rows][points][places][steps]  states and time in whole chunks
//! sums so far [sums][points][places][steps]                   of pieces, where rows are taken piece by piece
//! ```

use super::segments::totals_per_row;
use crate::block::args::Args;
use crate::build::Builder;
use crate::schedules::state_space::saved::{Room, Saved, in_whole_chunks, saved_len, up};
use crate::schedules::state_space::{CHUNK, StateSpaceKernel, ends_len};
use crate::schedules::{Pass, StateSpaceBackward};
use crate::stage::Stage;
use crate::stage::kind::BackwardScan;
use crate::tile::{Operand, Special};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Axis, AxisSet, Binary};

/// The index of the ends of segments among the scratch.
pub(super) const SEGMENT_CARRIES: usize = 5;

/// A pass before the walk. It takes few registers and little shared memory: blocks are smaller, share a multiprocessor and
/// have more tiles in flight, a ring of two for each team of copy warps.
pub fn before(schedule: &StateSpaceBackward, pass: Pass) -> StateSpaceBackward {
    let copy_warps = schedule.copy_warps.max(4);
    StateSpaceBackward { pass, rows: 1, copy_warps, stages: 4, blocks: 2, registers: 0, saved_ahead: 0, ..*schedule }
}

/// The kernels of a stage under a schedule, in order: its walk, and the passes before and after it.
pub fn passes(stage: &Stage, schedule: &StateSpaceBackward) -> Vec<StateSpaceBackward> {
    let alike = StateSpaceBackward { registers: 0, saved_ahead: 0, ..*schedule };
    let [ends, save, carry] = [Pass::Ends, Pass::Save, Pass::Carry].map(|pass| before(schedule, pass));
    let sum = StateSpaceBackward { pass: Pass::Sum, ..alike };
    let sums = sum_threads(stage, schedule, |_| 1).is_some_and(|threads| threads > 0);
    let cut = |pass| schedule.segmented.then_some(pass);
    let before = [cut(ends), Some(save), cut(carry)];
    before.into_iter().flatten().chain([*schedule]).chain(sums.then_some(sum)).collect()
}

/// The threads of the last pass, for axes of these sizes; `None` when 63 bits cannot count them.
pub fn sum_threads(stage: &Stage, schedule: &StateSpaceBackward, size: impl Fn(Axis) -> i64) -> Option<u64> {
    let form = stage.kind().walk_back().ok()?;
    let points = count(form.others(), &size)?;
    let row_len = in_whole_chunks(size(form.state))?;
    let of_sum = points.checked_mul(row_len)?.checked_mul(up(size(form.time), i64::from(CHUNK)))?;
    let of_row = if schedule.segmented { totals_per_row(form, row_len) } else { 0 };
    let of_rows = points.checked_mul(form.row.map_or(1, &size))?.checked_mul(of_row)?;
    of_sum.checked_mul(form.row_sums.len() as i64)?.checked_add(of_rows).map(|n| n as u64)
}

fn count(axes: AxisSet, size: impl Fn(Axis) -> i64) -> Option<i64> {
    axes.iter().try_fold(1i64, |n, axis| n.checked_mul(size(axis)))
}

/// The lengths of the scratch memory in `f32`, for axes of these sizes and a number of segments; `None` when 63 bits
/// cannot count them.
pub fn scratch(
    stage: &Stage,
    schedule: &StateSpaceBackward,
    segments: u64,
    size: impl Fn(Axis) -> i64,
) -> Option<Vec<u64>> {
    let form = stage.kind().walk_back().ok()?;
    let points = count(form.others(), &size)?;
    let rows = form.row.map_or(1, &size);
    let (states, steps) = (in_whole_chunks(size(form.state))?, in_whole_chunks(size(form.time))?);
    let saved = saved_len(stage, &size)?;
    let all = (form.row_sums.len() as i64).checked_mul(points)?.checked_mul(states)?.checked_mul(steps)?;
    let sums = all.checked_mul(up(rows, i64::from(schedule.block_rows())))?;
    let mut lens = vec![saved, sums as u64, all as u64];
    if schedule.segmented {
        let rows = points.checked_mul(rows)?.checked_mul(segments as i64)?;
        let carries = rows.checked_mul(states.checked_mul(2)?)?;
        let totals = rows.checked_mul(totals_per_row(form, states))?;
        lens.extend([carries as u64, totals as u64, ends_len(stage, segments, &size)?]);
    }
    Some(lens)
}

/// The indices of a block's part of the scratch. All `i64`.
pub(super) struct Scratch {
    /// The block's point, and how many there are.
    pub point: Operand,
    pub points: Operand,
    /// The block's number among those of its point, and how many those are.
    pub group: Operand,
    pub groups: Operand,
    /// The number of steps, in whole chunks.
    pub steps: Operand,
    /// The memory of a row's states.
    pub room: Room,
    /// The saved states of the block's point.
    pub saved: Option<Saved>,
}

impl Scratch {
    pub(super) fn find(
        b: &mut Builder,
        base: &StateSpaceKernel,
        form: &BackwardScan,
        schedule: &StateSpaceBackward,
    ) -> Scratch {
        let number = b.special(Special::Block);
        let number = b.convert(Ty::I64, number);
        let mut scratch = Scratch::sizes(b, &base.args, form, schedule);
        scratch.point = b.binary(Binary::Div, number, scratch.groups);
        scratch.group = b.binary(Binary::Rem, number, scratch.groups);
        scratch.saved = Some(Saved::find(b, base, schedule.block_rows()));
        scratch
    }

    /// The scratch at point 0 and group 0.
    pub(super) fn sizes(b: &mut Builder, args: &Args, form: &BackwardScan, schedule: &StateSpaceBackward) -> Scratch {
        let zero = Operand::i64(0);
        let rows = form.row.map_or(Operand::i64(1), |row| args.size(row));
        let groups = b.div_ceil(rows, schedule.block_rows());
        let points = args.rows(b, form.others());
        let above = b.add(args.size(form.time), i64::from(CHUNK) - 1);
        let steps = b.binary(Binary::And, above, -i64::from(CHUNK));
        let room = Room::find(b, schedule.capacity(), schedule.padded, args.size(form.state));
        Scratch { point: zero, points, group: zero, groups, steps, room, saved: None }
    }

    /// The first step of a sum over the rows of a block, at state 0.
    pub(super) fn sums(&self, b: &mut Builder, sum: usize) -> Operand {
        let at = b.mul(self.groups, sum);
        let at = b.add(at, self.group);
        let at = b.mul(at, self.points);
        let at = b.add(at, self.point);
        let at = b.mul(at, self.steps);
        b.mul(at, self.room.row_len)
    }
}
