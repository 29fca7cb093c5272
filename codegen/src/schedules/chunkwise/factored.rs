//! Weights of pairs of times as products of a number of each time.
//!
//! With L the sum of logarithms from some chunk before on to the start of this one, a weight 2^(s[i] − s[j])·gain[j] is 2^(L + s[i]) times
//! 2^(−L − s[j])·gain[j]. Warps that only copy compute the second number, the *column factor* of a time, once; the first is applied to whole rows of
//! results. The state before the chunk is kept divided by 2^L, and values times their column factors are added to it: from chunk to chunk nothing
//! is multiplied by decays. Where a sum leaves ±60 the state is *renewed*: it takes its decays, and L begins at 0 again. If a chunk's own sums leave the
//! range, its weights are computed pair by pair, and its factors are the gains scaled to the chunk's end.
//!
//! States of `f16` take the decays of every chunk, and L is 0. Factors in two parts have weights of pairs.

use super::copiers::Handover;
use super::decay::{Decays, Rates};
use super::numbers::{ChunkNumbers, Factored, NUMBERS};
use super::state::State;
use super::{COLUMNS, ChunkwiseKernel};
use crate::block::matmul::{Blocks, block_values};
use crate::build::{Builder, f32, zero};
use crate::target::WARP;
use crate::tile::{Expr, Memory, Operand, Reg, Shuffle};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Binary, Unary};

/// The greatest magnitude of a sum whose powers are computed apart.
const MOST: f64 = 60.0;
/// The sums of a lane's times.
struct OwnSums {
    sums: Vec<Operand>,
    /// The sum at the chunk's end.
    end: Operand,
}

impl ChunkwiseKernel<'_> {
    /// Renews the state, if a chunk asks for it.
    pub(super) fn renew(&self, b: &mut Builder, state: &State, numbers: Option<ChunkNumbers>) {
        let Some(ChunkNumbers { renewal, .. }) = numbers.filter(|_| state.base.is_some()) else { return };
        let is_renewed = b.ne(renewal, f32(1.0));
        b.if_(is_renewed, |b| state.scale_by(b, renewal));
    }

    /// Gives the state the decays of a chunk whose weights are no products, and follows the sum L.
    pub(super) fn follow(&self, b: &mut Builder, state: &State, decays: &Decays) {
        let Some((base, numbers)) = state.base.zip(decays.numbers) else { return };
        let is_far = b.unary(Unary::Not, numbers.is_near);
        b.if_(is_far, |b| state.scale_by(b, decays.whole));
        let next = b.add(numbers.base, decays.end);
        let next = b.select(numbers.is_near, next, f32(0.0));
        b.assign(base, next);
    }

    /// The factors of the thread's rows of the queries' reads: those before weighed values are added, and those after.
    pub(super) fn row_factors(&self, b: &mut Builder, decays: &Decays, numbers: ChunkNumbers) -> [[Operand; 2]; 2] {
        let is_near = numbers.is_near;
        let before = decays.from_start.map(|own| b.select(is_near, f32(1.0), own));
        [before, decays.from_start.map(|own| b.select(is_near, own, f32(1.0)))]
    }

    /// Multiplies the thread's rows of sums that have ended by a number each.
    pub(super) fn scale_rows_of(&self, b: &mut Builder, sums: &[[Reg; 4]], rows: [Operand; 2]) {
        for (r, reg) in sums.iter().flat_map(|block| block.iter().enumerate()) {
            let scaled = b.mul((*reg).into(), rows[r / 2]);
            b.assign(*reg, scaled);
        }
    }

    /// The weights of pairs of times, but for the rows' factors where they are products with the factors of columns.
    pub(super) fn weighed_by_factors(
        &self,
        b: &mut Builder,
        decays: &Decays,
        numbers: ChunkNumbers,
        factors: &[[Operand; 2]],
        scores: &Blocks,
    ) -> Blocks {
        let regs: Vec<[Reg; 4]> = scores.iter().map(|_| [0; 4].map(|_| b.reg(Ty::F32))).collect();
        let assign = |b: &mut Builder, regs: &[Reg; 4], block: [Operand; 4]| {
            regs.iter().zip(block).for_each(|(reg, weight)| b.assign(*reg, weight));
        };
        let products = |b: &mut Builder| {
            for (block, ((regs, scores), factors)) in (0..).zip(regs.iter().zip(scores).zip(factors)) {
                let weights = [0, 1, 2, 3].map(|r: usize| {
                    let product = b.mul(scores[r], factors[r % 2]);
                    self.if_earlier(b, decays, block, r, product)
                });
                assign(b, regs, weights);
            }
        };
        let pairs = |b: &mut Builder| {
            let weights = self.weighed(b, decays, scores);
            regs.iter().zip(weights).for_each(|(regs, block)| assign(b, regs, block));
        };
        b.if_else(numbers.is_near, products, pairs);
        block_values(&regs)
    }

    /// A weight of a block, or 0 where its column is later than its row.
    pub(super) fn if_earlier(
        &self,
        b: &mut Builder,
        decays: &Decays,
        block: u32,
        r: usize,
        weight: Operand,
    ) -> Operand {
        let column = b.add(decays.column, (block * COLUMNS) as i32 + (r % 2) as i32);
        let row = b.add(decays.row, (r / 2) as u32 * COLUMNS);
        let earlier = b.binary(Binary::Le, column, row);
        b.select(earlier, weight, zero(Ty::F32))
    }

    /// Writes the sums, the gains, the factors of columns and the numbers of an iteration, by one warp.
    pub(super) fn store_factors(
        &self,
        b: &mut Builder,
        handover: Handover,
        iteration: Operand,
        stage: Operand,
        rates: &Rates,
        base: Option<Reg>,
    ) {
        let Some(Factored(chunks)) = self.factored else { return };
        let sums = rates.summed(b, self.thread.lane);
        let end = b.shuffle(Shuffle::Index, sums[sums.len() - 1], Operand::i32(WARP as i32 - 1));
        let own = OwnSums { sums, end };
        let (numbers, base) = self.numbers_of_sums(b, &own, base);
        let gains = rates.first_gains();
        let each = own.sums.iter().zip(gains);
        let factors: Vec<Operand> = each
            .map(|(sum, gain)| match self.form.reverse {
                true => decayed(b, *sum, *gain),
                false => factor(b, *sum, *gain, end, numbers, base),
            })
            .collect();
        let at = b.mul(self.thread.lane, self.schedule.times() / WARP);
        let from = self.rates_of(b, iteration);
        let at = b.add(from, at);
        for (array, own) in [(self.sums, &own.sums[..]), (self.gains, gains), (handover.remaining, &factors)] {
            b.store(Memory::Shared(array), at, own, None);
        }
        let whole = b.let_(Ty::F32, Expr::Exp2Fast(end));
        let whole = b.select(numbers.is_near, whole, f32(1.0));
        let most = self.most_power(b, &factors, whole);
        let is_near = b.select(numbers.is_near, f32(1.0), f32(0.0));
        let stage = self.of_head(b, stage, self.schedule.stages);
        let (at, first) = (b.mul(stage, NUMBERS), b.eq(self.thread.lane, 0));
        b.store(Memory::Shared(chunks), at, &[numbers.renewal, base, is_near, most], Some(first));
    }

    /// The numbers of a chunk whose sums these are, and its L; the sum that is followed becomes that of the next chunk.
    fn numbers_of_sums(&self, b: &mut Builder, own: &OwnSums, followed: Option<Reg>) -> (ChunkNumbers, Operand) {
        if self.form.reverse {
            // No weights of pairs are asked for.
            let is_near = Operand::bool(false);
            return (ChunkNumbers { renewal: f32(1.0), base: f32(0.0), is_near, most: f32(1.0) }, f32(0.0));
        }
        let mut are_near = |base: Option<Operand>| {
            let near = own.sums.iter().map(|sum| {
                let sum = base.map_or(*sum, |base| b.add(base, *sum));
                let sum = b.unary(Unary::Abs, sum);
                b.binary(Binary::Le, sum, f32(MOST))
            });
            let near: Vec<Operand> = near.collect();
            let near = near.into_iter().reduce(|x, y| b.and(x, y)).unwrap_or(Operand::bool(true));
            b.all(near)
        };
        let alone = are_near(None);
        let Some(followed) = followed else {
            let numbers = ChunkNumbers { renewal: f32(1.0), base: f32(0.0), is_near: alone, most: f32(1.0) };
            return (numbers, f32(0.0));
        };
        let stays = are_near(Some(followed.into()));
        let is_near = b.binary(Binary::Or, stays, alone);
        let taken = b.let_(Ty::F32, Expr::Exp2Fast(followed.into()));
        let renewal = b.select(stays, f32(1.0), taken);
        let base = b.select(stays, followed.into(), f32(0.0));
        let next = b.add(base, own.end);
        let next = b.select(is_near, next, f32(0.0));
        b.assign(followed, next);
        (ChunkNumbers { renewal, base, is_near, most: f32(1.0) }, base)
    }
}

/// The factor of a column, from its sum and its gain; `end` is the sum at the chunk's end.
fn factor(b: &mut Builder, sum: Operand, gain: Operand, end: Operand, numbers: ChunkNumbers, base: Operand) -> Operand {
    let start = b.sub(zero(Ty::F32), base);
    let from = b.select(numbers.is_near, start, end);
    let apart = b.sub(from, sum);
    decayed(b, apart, gain)
}

/// A gain times the decay of a logarithm.
fn decayed(b: &mut Builder, log: Operand, gain: Operand) -> Operand {
    let decay = b.let_(Ty::F32, Expr::Exp2Fast(log));
    b.mul(decay, gain)
}
