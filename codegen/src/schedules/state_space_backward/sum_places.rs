//! The places of a copy thread among the sums over rows: in the ring, and in global memory.
//!
//! A thread takes the same numbers out of every half of the ring. What does not depend on the half or on time is found once.

use super::row_sums::{Destination, HALF, RowSums};
use super::{SUBTILE, StateSpaceBackwardKernel};
use crate::build::Builder;
use crate::schedules::state_space::{CHUNK, Time};
use crate::target::WARP;
use crate::tile::{Memory, Operand};
use oplus_dsl::Ty;

/// The most numbers of a half for which a thread keeps places.
const MOST: u32 = 2;

/// The place of one number, of four steps, that a thread takes out of every half.
pub(super) struct SumPlace {
    /// Its element in the first half of the ring, of the first warp, `i32`.
    ring: Operand,
    /// Its destination, of the half that is walked first in a tile that begins at step 0.
    to: Destination,
}

impl StateSpaceBackwardKernel<'_> {
    /// The places of a thread, if they are few and the kernel hoists.
    pub(super) fn sum_places(&self, b: &mut Builder, sums: &RowSums, thread: Operand) -> Option<Vec<SumPlace>> {
        let ([all, _], threads) = (sums.numbers(), self.schedule.copy_warps * WARP);
        let count = all.div_ceil(threads);
        if !self.schedule.hoists || count > MOST {
            return None;
        }
        let place = |pass: u32| {
            let number = b.add(thread, pass * threads);
            self.sum_place(b, sums, number)
        };
        Some((0..count).map(place).collect())
    }

    fn sum_place(&self, b: &mut Builder, sums: &RowSums, number: Operand) -> SumPlace {
        let [all, outputs] = sums.numbers().map(|n| n as i32);
        let [place, in_batch] = b.div_rem(number, Operand::i32(outputs));
        let ring = self.first_of_warps(b, sums, Operand::i32(0), place, in_batch);
        let steps = Operand::i32(self.schedule.steps as i32);
        let start = Time { first: Operand::i64(0), steps, is_whole: false };
        let to = self.destination(b, sums, Operand::i32(0), place, in_batch, &start);
        let held = b.lt(number, all);
        SumPlace { ring, to: Destination { exists: b.and(to.exists, held), ..to } }
    }

    /// Writes a number of a half: `half` is the half's index in the ring, `i` that in its tile.
    pub(super) fn take_from(
        &self,
        b: &mut Builder,
        sums: &RowSums,
        half: Operand,
        i: Operand,
        from: &SumPlace,
        time: &Time,
    ) {
        let ([all, _], SumPlace { ring, to }) = (sums.numbers(), from);
        b.if_(to.exists, |b| {
            let before = b.mul(half, all * self.schedule.warps * CHUNK);
            let first = b.add(*ring, before);
            let total = self.over_warps(b, sums, first);
            let further = b.mul(i, HALF * SUBTILE);
            let further = if self.base.scan.reverse { b.sub(Operand::i32(0), further) } else { further };
            let column = b.add(to.column, further);
            let inside = b.lt(column, time.steps);
            let further = b.convert(Ty::I64, further);
            let along = b.add(time.first, further);
            let at = b.add(to.at, along);
            b.store(Memory::Global(self.base.args.scratch[1]), at, &total, Some(inside));
        });
    }
}
