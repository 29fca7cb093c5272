//! The numbers that keep factors of `f16` in their range, as the warp that evaluates the rates of a head writes them.

use super::{HeadNumbers, LEAST_BOUND, LEAST_KNOWN, MIDDLE, MOST_BOUND, NUMBERS, OF_KEYS, OF_PAIRS, WarpgroupSweep};
use crate::block::lane_sum::over_lanes;
use crate::block::powers::{self, at_most, inverse, largest_finite};
use crate::build::{Builder, f32, zero};
use crate::schedules::chunkwise::decay::Rates;
use crate::schedules::chunkwise_backward::rates::PER_LANE;
use crate::schedules::chunkwise_backward::walk::{Chunk, HeadSlice};
use crate::target::WARP;
use crate::tile::{Expr, Memory, Operand, Reg, SharedId, Shuffle};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Binary, Unary};

/// The bits of an exponent begin here, and those of 1 are this.
const OF_EXPONENT: u32 = 23;
const BIAS: i32 = 127;

/// A number for each of a lane's times.
type AtTimes = [Operand; PER_LANE as usize];

/// The rates of a head at a lane's times, with the running sums of logarithms.
#[derive(Clone, Copy)]
pub(in super::super) struct SummedRates<'r> {
    pub rates: &'r Rates,
    pub sums: &'r [Operand],
}

/// What a time's values are multiplied by for the chunk's end: the decay since the time, without and with its gain.
struct ToEnd {
    decays: AtTimes,
    factors: AtTimes,
}

impl WarpgroupSweep<'_> {
    /// The power of key', which the warp that evaluates rates follows from head to head.
    pub(in super::super) fn power_of_keys(&self, b: &mut Builder) -> Option<Reg> {
        self.range.map(|_| b.var(f32(powers::MOST)))
    }

    /// Reads the numbers by which S and D of a head are to be multiplied.
    pub(in super::super) fn read_undone_states(
        &self,
        b: &mut Builder,
        own: &HeadSlice,
        chunk: &Chunk,
    ) -> Option<[Operand; 2]> {
        self.range.map(|_| self.read_undone(b, own, chunk))
    }

    /// Writes the numbers of a head and of its rows.
    pub(in super::super) fn write_range(
        &self,
        b: &mut Builder,
        undone: [Operand; 2],
        power: Reg,
        rates: &SummedRates,
        at: Operand,
    ) {
        let Some(range) = self.range else { return };
        let to_end = to_end(b, rates);
        let changed = follow_power(b, undone[1], power, &to_end);
        let numbers = HeadNumbers { undone_states: undone[0], undone_duals: undone[1], power: power.into(), changed };
        self.write_head_numbers(b, range.numbers, numbers);
        let powers = self.powers_of_weights(b, rates, range.scores);
        for (k, row) in powers.into_iter().enumerate() {
            let at = b.add(at, k as i32);
            let inverse = inverse(b, row);
            let gain = b.mul(rates.rates.gains(0)[k], inverse);
            let log = exponent(b, row);
            let sum = b.sub(rates.sums[k], log);
            let place = b.mul(at, OF_PAIRS);
            b.store(Memory::Shared(range.of_pairs), place, &[sum, gain], None);
            let [decay, factor] = [to_end.decays[k], to_end.factors[k]].map(|own| b.mul(own, undone[1]));
            let (decay, factor) = (b.mul(decay, row), b.mul(factor, power));
            let place = b.mul(at, OF_KEYS);
            b.store(Memory::Shared(range.of_keys), place, &[decay, gain, factor, inverse], None);
        }
    }

    fn write_head_numbers(&self, b: &mut Builder, array: SharedId, numbers: HeadNumbers) {
        let HeadNumbers { undone_states, undone_duals, power, changed } = numbers;
        let (place, first) = (b.mul(self.set, NUMBERS), b.eq(self.thread.lane, 0));
        b.store(Memory::Shared(array), place, &[undone_states, undone_duals, power, changed], Some(first));
    }

    /// The powers of the rows of weights at the lane's times.
    fn powers_of_weights(&self, b: &mut Builder, rates: &SummedRates, scores: SharedId) -> AtTimes {
        let weights = self.largest_weights(b, rates);
        let at = b.mul(self.thread.lane, PER_LANE);
        let scores = b.load(Memory::Shared(scores), at, PER_LANE, None, zero(Ty::F32));
        [0, 1].map(|k: usize| {
            let bound = b.mul(scores[k], weights[k]);
            let (above, below) = (b.ge(bound, f32(LEAST_BOUND)), b.binary(Binary::Le, bound, f32(MOST_BOUND)));
            let is_within = b.and(above, below);
            let bound = b.binary(Binary::Max, bound, f32(LEAST_KNOWN));
            let power = at_most(b, bound);
            let power = inverse(b, power);
            let power = b.mul(power, f32(MIDDLE));
            b.select(is_within, f32(1.0), power)
        })
    }

    /// The largest weight 2^(s\[i\] − s\[j\])·gain'\[i\] of later times i, at each of the lane's times j.
    fn largest_weights(&self, b: &mut Builder, rates: &SummedRates) -> AtTimes {
        let SummedRates { rates, sums } = *rates;
        let logs: Vec<Operand> = match self.form.cotangents.gain.is_empty() {
            true => sums.to_vec(),
            false => (sums.iter().zip(rates.gains(1)))
                .map(|(sum, gain)| {
                    let gain = b.unary(Unary::Abs, *gain);
                    let log = b.let_(Ty::F32, Expr::Log2Fast(gain));
                    b.add(*sum, log)
                })
                .collect(),
        };
        let mut later = b.binary(Binary::Max, logs[0], logs[1]);
        let mut by = 1;
        while by < WARP {
            // A lane without such a lane behind it is given its own number.
            let other = b.shuffle(Shuffle::Down, later, Operand::i32(by as i32));
            later = b.binary(Binary::Max, later, other);
            by *= 2;
        }
        let behind = b.shuffle(Shuffle::Down, later, Operand::i32(1));
        let is_last = b.eq(self.thread.lane, WARP as i32 - 1);
        let behind = b.select(is_last, logs[1], behind);
        let most = [later, b.binary(Binary::Max, logs[1], behind)];
        [0, 1].map(|k: usize| {
            let apart = b.sub(most[k], sums[k]);
            b.let_(Ty::F32, Expr::Exp2Fast(apart))
        })
    }
}

/// What values are multiplied by for the chunk's end.
fn to_end(b: &mut Builder, rates: &SummedRates) -> ToEnd {
    let SummedRates { rates, sums } = *rates;
    let end = b.shuffle(Shuffle::Index, sums[sums.len() - 1], Operand::i32(WARP as i32 - 1));
    let decays = [0, 1].map(|k: usize| {
        let apart = b.sub(end, sums[k]);
        b.let_(Ty::F32, Expr::Exp2Fast(apart))
    });
    let factors = [0, 1].map(|k: usize| b.mul(decays[k], rates.gains(0)[k]));
    ToEnd { decays, factors }
}

/// Makes the power of key' one that is possible beside the values of a head; gives the factor by which it changes.
fn follow_power(b: &mut Builder, undone: Operand, power: Reg, to_end: &ToEnd) -> Operand {
    let largest = largest_finite(b, &to_end.factors);
    let largest = over_lanes(b, Binary::Max, largest, &[1, 2, 4, 8, 16]);
    let largest = b.mul(largest, undone);
    let below = at_most(b, largest);
    let above = b.mul(below, f32(2.0));
    let possible = inverse(b, above);
    let before = inverse(b, power.into());
    let next = b.binary(Binary::Min, power.into(), possible);
    b.assign(power, next);
    b.mul(next, before)
}

/// The logarithm of a power of two, to base 2.
fn exponent(b: &mut Builder, power: Operand) -> Operand {
    let bits = b.bits(Ty::I32, power);
    let exponent = b.binary(Binary::Shr, bits, OF_EXPONENT);
    let exponent = b.sub(exponent, BIAS);
    b.convert(Ty::F32, exponent)
}
