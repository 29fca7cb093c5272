//! Sums over the rows of a block: copy warps add those of its warps out of the ring, and write them to global memory.
//!
//! A thread takes the same numbers out of every half of the ring. What does not depend on the half or on time is found once, where it is
//! little.

use super::row_sums::{HALF, HALVES, RowSums, added};
use super::{SUBTILE, StateSpaceBackwardKernel};
use crate::build::{Builder, zero};
use crate::schedules::state_space::{CHUNK, Time};
use crate::target::WARP;
use crate::tile::{Memory, Operand, Reg, Stmt};
use oplus_dsl::Ty;
use oplus_dsl::ir::Binary;

/// The most numbers of a half for which a thread keeps places.
const MOST: u32 = 2;

/// The place of one number, of four steps, that a thread takes out of every half.
pub(super) struct SumPlace {
    /// Its element in the first half of the ring, of the first warp, `i32`.
    ring: Operand,
    /// Its destination, of the half that is walked first in a tile that begins at step 0.
    to: Destination,
}

/// The destination in global memory of a number of the ring.
struct Destination {
    at: Operand,
    /// Its first step in the tile, `i32`.
    column: Operand,
    /// Whether it is kept: its state and steps exist.
    exists: Operand,
}

impl StateSpaceBackwardKernel<'_> {
    /// The places of a thread, if they are few.
    pub(super) fn sum_places(&self, b: &mut Builder, sums: &RowSums, thread: Operand) -> Option<Vec<SumPlace>> {
        let ([all, _], threads) = (sums.numbers(), self.schedule.copy_warps * WARP);
        let count = all.div_ceil(threads);
        if count > MOST {
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
    fn take_from(&self, b: &mut Builder, sums: &RowSums, half: Operand, i: Operand, from: &SumPlace, time: &Time) {
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

    /// Writes the sums of a tile over the warps of the block to global memory.
    pub(super) fn take_sums(
        &self,
        b: &mut Builder,
        sums: &RowSums,
        (thread, places): (Operand, Option<&[SumPlace]>),
        number: Reg,
        time: &Time,
    ) {
        let halves = self.schedule.steps / SUBTILE / HALF;
        b.for_(Operand::i32(0), halves, 1, |b, i| {
            let half = HALVES.at(b, number.into());
            b.wait(sums.filled, half);
            b.push(Stmt::SyncWarp);
            let half = half.index;
            let [all, _] = sums.numbers();
            let threads = self.schedule.copy_warps * WARP;
            match places {
                Some(places) => places.iter().for_each(|place| self.take_from(b, sums, half, i, place, time)),
                None => b.for_(thread, all, threads, |b, o| self.take(b, sums, half, i, o, time)),
            }
            b.arrive(sums.taken, half);
            let next = b.add(number.into(), 1);
            b.assign(number, next);
        });
    }

    /// Writes one number of a half: `i` is the half's index in its tile, `o` the number's in the half.
    fn take(&self, b: &mut Builder, sums: &RowSums, half: Operand, i: Operand, o: Operand, time: &Time) {
        let [_, outputs] = sums.numbers();
        let [place, number] = b.div_rem(o, Operand::i32(outputs as i32));
        let at = self.first_of_warps(b, sums, half, place, number);
        let total = self.over_warps(b, sums, at);
        let Destination { at, exists, .. } = self.destination(b, sums, i, place, number, time);
        b.store(Memory::Global(self.base.args.scratch[1]), at, &total, Some(exists));
    }

    /// The element of a number of the ring, in the first warp's batch.
    fn first_of_warps(
        &self,
        b: &mut Builder,
        sums: &RowSums,
        half: Operand,
        place: Operand,
        number: Operand,
    ) -> Operand {
        let outputs = Operand::i32(sums.numbers()[1] as i32);
        let all = Operand::i32((HALF * sums.batches) as i32);
        let warps = Operand::i32(self.schedule.warps as i32);
        let at = b.mul(half, all);
        let at = b.add(at, place);
        let at = b.mul(at, warps);
        let at = b.mul(at, outputs);
        let at = b.add(at, number);
        b.mul(at, CHUNK)
    }

    /// The sum over the warps of the block, in their order, of numbers of which the first warp's is at an element of the ring.
    fn over_warps(&self, b: &mut Builder, sums: &RowSums, first: Operand) -> Vec<Operand> {
        let [_, outputs] = sums.numbers();
        let load = |b: &mut Builder, warp: u32| {
            let at = b.add(first, warp * outputs * CHUNK);
            b.load(Memory::Shared(sums.ring), at, CHUNK, None, zero(Ty::F32))
        };
        let terms: Vec<Vec<Operand>> = (0..self.schedule.warps).map(|warp| load(b, warp)).collect();
        added(b, terms)
    }

    /// The destination of a number of the ring.
    fn destination(
        &self,
        b: &mut Builder,
        sums: &RowSums,
        i: Operand,
        place: Operand,
        number: Operand,
        time: &Time,
    ) -> Destination {
        let (lanes, batch, batches) = (sums.lanes as i32, sums.batch as i32, sums.batches as i32);
        let split = |b: &mut Builder, x: Operand, by: i32| (b.binary(Binary::Div, x, by), b.binary(Binary::Rem, x, by));
        let (subtile, batch_number) = split(b, place, batches);
        let (group, position) = split(b, number, lanes);
        let (group, quarter) = split(b, group, 2);
        let (sum, within) = split(b, group, batch);
        let state = b.mul(position, self.schedule.states);
        let first = b.mul(batch_number, batch);
        let state = b.add(state, first);
        let state = b.add(state, within);
        let number = b.mul(i, HALF);
        let number = b.add(number, subtile);
        let subtile = self.subtile(b, number);
        let column = b.mul(subtile, SUBTILE);
        let quarter = b.mul(quarter, CHUNK);
        let column = b.add(column, quarter);
        let exists = b.lt(column, time.steps);
        let in_tile = column;
        let [sum, state, column] = [sum, state, column].map(|x| b.convert(Ty::I64, x));
        let exists = self.scratch.room.holds(b, state, exists);
        let origin = self.scratch.sums(b, 0);
        let apart = self.scratch.sums(b, 1);
        let apart = b.sub(apart, origin);
        let at = b.mul(sum, apart);
        let at = b.add(at, origin);
        let along = b.mul(state, self.scratch.steps);
        let at = b.add(at, along);
        let at = b.add(at, time.first);
        Destination { at: b.add(at, column), column: in_tile, exists }
    }
}
