//! Factors of `f16` in their range. Keys, queries, values and cotangents are multiplied as they are; all else takes powers of two.
//!
//! S and D were [saved](crate::schedules::chunkwise::range) times a power each, which is undone in `f32`: in the factors by which the rows of
//! their products are multiplied anyway.
//!
//! Weights of a row, w\[i,j\]·G\[i,j\] over later times i, are at most the largest weight of the row times its largest G. The first factor
//! is a number of the head, which the warp that evaluates decays writes, and the second one of the chunk. Where their product may leave the range, all
//! that is added to the row is multiplied by a power of two: the logarithm of its weights grows by that of the power, and what is multiplied by
//! the weights, the gain of the row, is divided by it. So neither E nor its product with G changes. value' is divided in the end.
//!
//! The sums of key' are multiplied by a power that lets values of every head so far be scaled as they are read. The warp that evaluates
//! decays follows it: where a head asks for a smaller one, the sums so far are multiplied, too. E, summed over heads, is multiplied by one power for all
//! pairs, as are the sums that it completes.

use super::super::rates::{Decays, PER_LANE};
use super::{PAIRS, WarpgroupSweep};
use crate::block::lane_sum::over_lanes;
use crate::block::powers::{self, at_most, inverse, largest_finite};
use crate::block::ring::RingStage;
use crate::build::{Builder, f32, zero};
use crate::schedules::chunkwise::decay::Rates;
use crate::schedules::chunkwise::range::power_of_element;
use crate::schedules::chunkwise_backward::parameters::GROUP;
use crate::schedules::chunkwise_backward::walk::{Chunk, HeadSlice};
use crate::schedules::chunkwise_backward::{BLOCKS, COLUMNS, GradientSweep, TIMES};
use crate::target::WARP;
use crate::tile::{Expr, Memory, Operand, Reg, SharedId, SharedKind, Shuffle, Stmt};
use oplus_dsl::ir::{Binary, Unary};
use oplus_dsl::{Elem, Ty};

/// Rows of weights whose bounds are between these have room in `f16`; others are brought near the number between.
const LEAST_BOUND: f64 = 1.0 / 256.0;
const MOST_BOUND: f64 = 32768.0;
const MIDDLE: f64 = 64.0;
/// Bounds below this are as small as this.
const LEAST_KNOWN: f64 = 1.0 / 16_777_216.0;
/// The largest sum of E becomes at least this, and less than twice this.
const LARGEST_PAIR: f64 = 16384.0;
/// The bits of an exponent begin here, and those of 1 are this.
const OF_EXPONENT: u32 = 23;
const BIAS: i32 = 127;

/// The numbers by which factors keep the range of `f16`.
#[derive(Clone, Copy)]
pub(super) struct HalfRange {
    /// The [numbers](HeadNumbers) of each head in flight.
    numbers: SharedId,
    /// The largest weight of each row, without G, for each head in flight.
    weights: SharedId,
    /// The largest G of each row.
    scores: SharedId,
    /// The largest sum of E that each warp has.
    pairs: SharedId,
    /// The mbarrier that says that the largest G are there.
    scored: SharedId,
}

/// Numbers of a head.
const NUMBERS: u32 = 4;

/// The numbers of a head that are the same for all its rows, powers of two.
#[derive(Clone, Copy)]
pub(super) struct HeadNumbers {
    /// The numbers that S and D are to be multiplied by.
    pub undone_states: Operand,
    pub undone_duals: Operand,
    /// The power by which the sums of key' are multiplied from this head on, and the factor by which it has changed.
    pub power: Operand,
    pub changed: Operand,
}

/// The rates of a head at a lane's times, with the running sums of logarithms.
#[derive(Clone, Copy)]
pub(super) struct SummedRates<'r> {
    pub rates: &'r Rates,
    pub sums: &'r [Operand],
}

/// The powers of two of a thread's two rows of weights.
#[derive(Clone, Copy)]
pub(super) struct RowPowers([Operand; 2]);

impl HalfRange {
    pub(super) fn declare(b: &mut Builder, heads: u32) -> HalfRange {
        let mut numbers = |name: &str, len| b.shared(name, SharedKind::Elem(Elem::F32), len);
        let of_heads = numbers("head_numbers", NUMBERS * heads);
        let [weights, scores] =
            [("largest_weights", heads), ("largest_scores", 1)].map(|(name, n)| numbers(name, n * TIMES));
        let pairs = numbers("largest_pairs", BLOCKS);
        HalfRange { numbers: of_heads, weights, scores, pairs, scored: b.shared("scored", SharedKind::Mbarrier, 1) }
    }

    pub(super) fn init(self, b: &mut Builder) {
        b.init_mbarriers(self.scored, 1, GROUP);
    }
}

impl WarpgroupSweep<'_> {
    /// The power of key', which the warp that evaluates rates follows from head to head.
    pub(super) fn power_of_keys(&self, b: &mut Builder) -> Option<Reg> {
        self.range.map(|_| b.var(f32(powers::MOST)))
    }

    /// Reads the numbers by which S and D of a head are to be multiplied.
    pub(super) fn read_undone_states(&self, b: &mut Builder, own: &HeadSlice, chunk: &Chunk) -> Option<[Operand; 2]> {
        self.range?;
        let behind = self.saved(b, own, chunk);
        let behind = b.add(behind, TIMES * self.schedule.depth);
        Some([0, 1].map(|number: usize| {
            let element = b.load1(Memory::Global(self.args.scratch[number]), behind);
            power_of_element(b, element)
        }))
    }

    /// Writes the numbers of a head, by the warp that has evaluated its rates.
    pub(super) fn write_range(
        &self,
        b: &mut Builder,
        undone: [Operand; 2],
        power: Reg,
        rates: &SummedRates,
        at: Operand,
    ) {
        let Some(range) = self.range else { return };
        let changed = self.follow_power(b, undone[1], power, rates);
        let (place, first) = (b.mul(self.set, NUMBERS), b.eq(self.thread.lane, 0));
        let numbers = [undone[0], undone[1], power.into(), changed];
        b.store(Memory::Shared(range.numbers), place, &numbers, Some(first));
        let largest = self.largest_weights(b, rates);
        b.store(Memory::Shared(range.weights), at, &largest, None);
    }

    /// Makes the power of key' one that is possible beside the values of a head; gives the factor by which it changes.
    fn follow_power(&self, b: &mut Builder, undone: Operand, power: Reg, rates: &SummedRates) -> Operand {
        let SummedRates { rates, sums } = *rates;
        let end = b.shuffle(Shuffle::Index, sums[sums.len() - 1], Operand::i32(WARP as i32 - 1));
        let factors = sums.iter().zip(rates.gains(0)).map(|(sum, gain)| {
            let apart = b.sub(end, *sum);
            let decay = b.let_(Ty::F32, Expr::Exp2Fast(apart));
            b.mul(decay, *gain)
        });
        let factors: Vec<Operand> = factors.collect();
        let largest = largest_finite(b, &factors);
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

    /// The largest weight 2^(s\[i\] − s\[j\])·gain'\[i\] of later times i, at each of the lane's times j.
    fn largest_weights(&self, b: &mut Builder, rates: &SummedRates) -> [Operand; PER_LANE as usize] {
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

    /// Writes the largest |G| of later times of each row, by the role of pairs.
    pub(super) fn write_largest_scores(&self, b: &mut Builder, scores: &[[Operand; 4]]) {
        let Some(range) = self.range else { return };
        let (row, column) = (self.first_row(b), self.fragment.column(b));
        let mut largest = [zero(Ty::F32); 2];
        for (block, four) in scores.iter().enumerate() {
            for (r, score) in four.iter().enumerate() {
                let j = b.add(row, (r / 2) as u32 * COLUMNS);
                let i = b.add(column, (block as u32 * COLUMNS) as i32 + (r % 2) as i32);
                let is_later = b.ge(i, j);
                let score = b.unary(Unary::Abs, *score);
                let score = b.select(is_later, score, zero(Ty::F32));
                largest[r / 2] = b.binary(Binary::Max, largest[r / 2], score);
            }
        }
        let own = b.eq(self.fragment.member, 0);
        for (h, largest) in largest.into_iter().enumerate() {
            let all = over_lanes(b, Binary::Max, largest, &[1, 2]);
            let at = b.add(row, h as u32 * COLUMNS);
            b.store(Memory::Shared(range.scores), at, &[all], Some(own));
        }
        b.arrive(range.scored, Operand::i32(0));
    }

    /// Waits until the largest G of all rows are there.
    pub(super) fn wait_largest_scores(&self, b: &mut Builder) {
        if let Some(range) = self.range {
            b.wait(range.scored, RingStage::FIRST);
        }
    }

    /// The number that the sums of key' are to be multiplied by when all heads are done: the last head's numbers are there yet.
    pub(super) fn undone_power_of_keys(&self, b: &mut Builder, chunk: &Chunk) -> Option<Operand> {
        let last = b.sub(chunk.heads, 1);
        let set = self.ring().stage(b, last);
        let kernel = WarpgroupSweep { sweep: GradientSweep { set, ..self.sweep.clone() }, ..self.clone() };
        kernel.head_numbers(b).map(|numbers| inverse(b, numbers.power))
    }

    /// The numbers of the head.
    pub(super) fn head_numbers(&self, b: &mut Builder) -> Option<HeadNumbers> {
        let range = self.range?;
        let at = b.mul(self.set, NUMBERS);
        let four = b.load(Memory::Shared(range.numbers), at, NUMBERS, None, zero(Ty::F32));
        Some(HeadNumbers { undone_states: four[0], undone_duals: four[1], power: four[2], changed: four[3] })
    }

    /// The powers of the thread's rows of weights.
    pub(super) fn row_powers(&self, b: &mut Builder) -> Option<RowPowers> {
        let range = self.range?;
        let row = self.first_row(b);
        let of_head = b.mul(self.set, TIMES);
        Some(RowPowers([0, COLUMNS].map(|by| {
            let row = b.add(row, by);
            let score = b.load1(Memory::Shared(range.scores), row);
            let at = b.add(of_head, row);
            let weight = b.load1(Memory::Shared(range.weights), at);
            let bound = b.mul(score, weight);
            let (above, below) = (b.ge(bound, f32(LEAST_BOUND)), b.binary(Binary::Le, bound, f32(MOST_BOUND)));
            let is_within = b.and(above, below);
            let bound = b.binary(Binary::Max, bound, f32(LEAST_KNOWN));
            let power = at_most(b, bound);
            let power = inverse(b, power);
            let power = b.mul(power, f32(MIDDLE));
            b.select(is_within, f32(1.0), power)
        })))
    }

    /// Makes the largest sum of E of all warps as large as the range lets it be, by the role of pairs.
    pub(super) fn pairs_in_range(&self, b: &mut Builder, sums: &[[Reg; 4]]) {
        let Some(range) = self.range else { return };
        let all: Vec<Operand> = sums.iter().flatten().map(|sum| Operand::Reg(*sum)).collect();
        let largest = largest_finite(b, &all);
        let largest = over_lanes(b, Binary::Max, largest, &[1, 2, 4, 8, 16]);
        let first = b.eq(self.thread.lane, 0);
        b.store(Memory::Shared(range.pairs), self.block, &[largest], Some(first));
        b.push(Stmt::Barrier { id: PAIRS, threads: GROUP });
        self.multiply_by_power_of_pairs(b, sums, f32(1.0));
    }

    /// Multiplies sums by the power of E, once the largest sums are there; gives its inverse.
    pub(super) fn multiply_by_power_of_pairs(
        &self,
        b: &mut Builder,
        sums: &[[Reg; 4]],
        by: Operand,
    ) -> Option<Operand> {
        let range = self.range?;
        let warps = b.load(Memory::Shared(range.pairs), Operand::i32(0), BLOCKS, None, zero(Ty::F32));
        let largest = warps.into_iter().reduce(|x, y| b.binary(Binary::Max, x, y)).unwrap_or(zero(Ty::F32));
        let below = at_most(b, largest);
        let power = inverse(b, below);
        let power = b.mul(power, f32(LARGEST_PAIR));
        let power = at_most(b, power);
        let by = b.mul(by, power);
        multiply(b, sums, [by; 2]);
        Some(inverse(b, power))
    }
}

impl RowPowers {
    /// Decays by which weights of pairs are multiplied by the powers, and what is multiplied by weights is divided by them.
    pub(super) fn of_weights(self, b: &mut Builder, decays: &Decays) -> Decays {
        let mut decays = decays.clone();
        for (row, power) in decays.rows.iter_mut().zip(self.0) {
            let bits = b.bits(Ty::I32, power);
            let exponent = b.binary(Binary::Shr, bits, OF_EXPONENT);
            let exponent = b.sub(exponent, BIAS);
            let log = b.convert(Ty::F32, exponent);
            let undone = inverse(b, power);
            row[0] = b.sub(row[0], log);
            row[1] = b.mul(row[1], undone);
        }
        decays
    }

    /// Decays by which a product of the head is multiplied by the powers, and by a number, and its shares are divided by them.
    pub(super) fn of_rows(self, b: &mut Builder, decays: &Decays, by: Operand) -> Decays {
        let mut decays = decays.clone();
        for (h, power) in self.0.into_iter().enumerate() {
            let undone = inverse(b, power);
            let by = b.mul(by, power);
            decays.to_end[h] = b.mul(decays.to_end[h], by);
            decays.rows[h][1] = b.mul(decays.rows[h][1], undone);
        }
        decays
    }

    /// Divides the thread's rows of sums by the powers, where a row of the warp has another than 1.
    pub(super) fn divide(self, b: &mut Builder, sums: &[[Reg; 4]]) {
        let are_one = self.0.map(|power| b.eq(power, f32(1.0)));
        let both = b.and(are_one[0], are_one[1]);
        let all = b.all(both);
        let any = b.unary(Unary::Not, all);
        b.if_(any, |b| {
            let undone = self.0.map(|power| inverse(b, power));
            multiply(b, sums, undone);
        });
    }
}

/// Multiplies the thread's two rows of sums by a number each.
pub(super) fn multiply(b: &mut Builder, sums: &[[Reg; 4]], by: [Operand; 2]) {
    for (r, sum) in sums.iter().flat_map(|four| four.iter().enumerate()) {
        let scaled = b.mul((*sum).into(), by[r / 2]);
        b.assign(*sum, scaled);
    }
}
