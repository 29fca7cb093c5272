//! Factors of `f16` in their range. Keys, queries, values and cotangents are multiplied as they are; all else takes powers of two.
//!
//! S and D were [saved](crate::schedules::chunkwise::range) times a power each, which is undone in `f32`: in the factors by which the rows of
//! their products are multiplied anyway.
//!
//! Weights of a row, w\[i,j\]·G\[i,j\] over later times i, are at most the largest weight of the row times its largest G. The first factor
//! is a number of the head, and the second one of the chunk. Where their product may leave the range, all that is added to the row is multiplied
//! by a power of two: the logarithm of its weights grows by that of the power, and what is multiplied by the weights, the gain of the row, is
//! divided by it. So neither E nor its product with G changes. value' is divided in the end. The warp that evaluates decays writes the numbers of all
//! [rows](rates).
//!
//! The sums of key' are multiplied by a power that lets values of every head so far be scaled as they are read. The warp that evaluates
//! decays follows it: where a head asks for a smaller one, the sums so far are multiplied, too. E, summed over heads, is multiplied by one power for all
//! pairs, as are the sums that it completes.

mod rates;

pub(super) use rates::SummedRates;

use super::{PAIRS, WarpgroupSweep};
use crate::block::lane_sum::over_lanes;
use crate::block::powers::{at_most, inverse, largest_finite};
use crate::block::ring::RingStage;
use crate::build::{Builder, f32, zero};
use crate::schedules::chunkwise_backward::parameters::GROUP;
use crate::schedules::chunkwise_backward::rates::Decays;
use crate::schedules::chunkwise_backward::walk::Chunk;
use crate::schedules::chunkwise_backward::{BLOCKS, COLUMNS, GradientSweep, TIMES};
use crate::tile::{Memory, Operand, Reg, SharedId, SharedKind, Stmt};
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

/// The numbers by which factors keep the range of `f16`.
#[derive(Clone, Copy)]
pub(super) struct HalfRange {
    /// The [numbers](HeadNumbers) of each head in flight.
    numbers: SharedId,
    /// The sum of logarithms and the gain of every row, changed by its power, for each head in flight.
    of_pairs: SharedId,
    /// The [numbers](RowOfKeys) of every row for the role of key', for each head in flight.
    of_keys: SharedId,
    /// The largest G of each row.
    scores: SharedId,
    /// The largest sum of E that each warp has.
    pairs: SharedId,
    /// The mbarrier that says that the largest G are there.
    scored: SharedId,
}

/// Numbers of a head, and of a row of one for the roles of pairs and of key'.
const NUMBERS: u32 = 4;
const OF_PAIRS: u32 = 2;
const OF_KEYS: u32 = 4;

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

/// The numbers of one of a thread's rows for the role of key'.
#[derive(Clone, Copy)]
pub(super) struct RowOfKeys {
    /// The factor of the row of D·key: the decay to the chunk's end times the row's power.
    pub to_end: Operand,
    /// The gain, divided by the power.
    pub gain: Operand,
    /// The factor of the row of values for key', times the power of key'.
    pub factor: Operand,
    /// The inverse of the power.
    pub undone: Operand,
}

impl HalfRange {
    pub(super) fn declare(b: &mut Builder, heads: u32) -> HalfRange {
        let mut numbers = |name: &str, len| b.shared(name, SharedKind::Elem(Elem::F32), len);
        let of_heads = numbers("head_numbers", NUMBERS * heads);
        let [of_pairs, of_keys] = [("rows_of_pairs", OF_PAIRS), ("rows_of_keys", OF_KEYS)]
            .map(|(name, each)| numbers(name, each * heads * TIMES));
        let [scores, pairs] = [("largest_scores", TIMES), ("largest_pairs", BLOCKS)].map(|(name, n)| numbers(name, n));
        let scored = b.shared("scored", SharedKind::Mbarrier, 1);
        HalfRange { numbers: of_heads, of_pairs, of_keys, scores, pairs, scored }
    }

    pub(super) fn init(self, b: &mut Builder) {
        b.init_mbarriers(self.scored, 1, GROUP);
    }
}

impl WarpgroupSweep<'_> {
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

    /// Multiplies the sums of key' so far by the factor by which their power changes with the head.
    pub(super) fn follow_power_of_keys(&self, b: &mut Builder, sums: &[[Reg; 4]]) {
        let Some(HeadNumbers { changed, .. }) = self.head_numbers(b) else { return };
        let changes = b.ne(changed, f32(1.0));
        b.if_(changes, |b| multiply(b, sums, [changed; 2]));
    }

    /// The numbers of the head.
    pub(super) fn head_numbers(&self, b: &mut Builder) -> Option<HeadNumbers> {
        let range = self.range?;
        let at = b.mul(self.set, NUMBERS);
        let four = b.load(Memory::Shared(range.numbers), at, NUMBERS, None, zero(Ty::F32));
        Some(HeadNumbers { undone_states: four[0], undone_duals: four[1], power: four[2], changed: four[3] })
    }

    /// The decays of a head by which weights of the thread's rows are multiplied by their powers, and what is multiplied by weights is
    /// divided by them.
    pub(super) fn decays_of_weights(&self, b: &mut Builder, decays: &Decays) -> Option<Decays> {
        let array = self.range?.of_pairs;
        let mut decays = decays.clone();
        for (row, [sum, gain]) in decays.rows.iter_mut().zip(self.of_rows(b, array)) {
            (row[0], row[1]) = (sum, gain);
        }
        Some(decays)
    }

    /// The numbers of the thread's rows for the role of key'.
    pub(super) fn rows_of_keys(&self, b: &mut Builder) -> Option<[RowOfKeys; 2]> {
        let array = self.range?.of_keys;
        let rows = self.of_rows(b, array);
        Some(rows.map(|[to_end, gain, factor, undone]| RowOfKeys { to_end, gain, factor, undone }))
    }

    /// The N numbers of each of the thread's rows in an array.
    fn of_rows<const N: usize>(&self, b: &mut Builder, array: SharedId) -> [[Operand; N]; 2] {
        let of_head = b.mul(self.set, TIMES);
        let row = self.first_row(b);
        let row = b.add(of_head, row);
        [0, COLUMNS].map(|by| {
            let at = b.add(row, by);
            let at = b.mul(at, N as u32);
            let all = b.load(Memory::Shared(array), at, N as u32, None, zero(Ty::F32));
            std::array::from_fn(|k| all[k])
        })
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

/// Divides the thread's rows of sums by the powers of rows, where a row of the warp has another than 1.
pub(super) fn divide(b: &mut Builder, sums: &[[Reg; 4]], rows: [RowOfKeys; 2]) {
    let are_one = rows.map(|row| b.eq(row.undone, f32(1.0)));
    let both = b.and(are_one[0], are_one[1]);
    let all = b.all(both);
    let any = b.unary(Unary::Not, all);
    b.if_(any, |b| multiply(b, sums, rows.map(|row| row.undone)));
}

/// Multiplies the thread's two rows of sums by a number each.
pub(super) fn multiply(b: &mut Builder, sums: &[[Reg; 4]], by: [Operand; 2]) {
    for (r, sum) in sums.iter().flat_map(|four| four.iter().enumerate()) {
        let scaled = b.mul((*sum).into(), by[r / 2]);
        b.assign(*sum, scaled);
    }
}
