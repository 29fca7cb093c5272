//! The decays of a chunk: running sums of their logarithms, and the gains.

use super::form::Decay;
use super::{COLUMNS, ChunksKernel};
use crate::build::Builder;
use crate::lower::pairs::values::{Index, Spot, Values};
use crate::schedule::WARP;
use crate::tile::{Expr, Memory, Operand, SharedId, Shuffle};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Binary, Literal, Value};
use std::f64::consts::LOG2_E;

/// The least logarithm of a decay.
const LEAST: f64 = -160.0;

/// What a thread knows of the decays of a chunk.
pub(super) struct Decays {
    /// Its first row and column among the chunk's times, `i32`.
    pub row: Operand,
    pub column: Operand,
    /// The running sums at its two rows, and 2 to their power.
    pub rows: [Operand; 2],
    pub from_start: [Operand; 2],
    /// The running sum at the end, and 2 to its power.
    pub end: Operand,
    pub whole: Operand,
    /// Where the chunk's rates are.
    from: Operand,
}

/// The logarithms of decays, and gains of several kinds, at a lane's times of a chunk.
pub(super) struct Rates {
    logs: Vec<Operand>,
    gains: Vec<Vec<Operand>>,
}

impl Rates {
    /// Evaluates them at times that lie at these places.
    pub(super) fn at(
        b: &mut Builder,
        values: &mut Values,
        places: &[Index],
        (decay, gains): (Option<Decay>, &[&[Value]]),
    ) -> Rates {
        let mut rates = Rates { logs: vec![], gains: vec![vec![]; gains.len()] };
        for (k, place) in (0..).zip(places) {
            values.set_row(k, *place);
            rates.logs.push(logarithm(b, values, decay, k));
            for (own, factors) in rates.gains.iter_mut().zip(gains) {
                own.push(gain(b, values, factors, k));
            }
        }
        rates
    }

    /// Sums the logarithms over the lanes, and where `guard` holds writes sums and gains of each kind to these arrays.
    pub(super) fn store(&self, b: &mut Builder, lane: Operand, arrays: &[SharedId], (at, guard): (Operand, Operand)) {
        let mut sums: Vec<Operand> = vec![];
        for log in &self.logs {
            sums.push(sums.last().map_or(*log, |sum| b.add(*sum, *log)));
        }
        let before = sum_before(b, lane, sums[sums.len() - 1]);
        let sums: Vec<Operand> = sums.into_iter().map(|sum| b.add(before, sum)).collect();
        for (array, own) in arrays.iter().zip([&sums].into_iter().chain(&self.gains)) {
            b.store(Memory::Shared(*array), at, own, Some(guard));
        }
    }
}

impl ChunksKernel<'_> {
    /// Evaluates the decays and gains of the lane's times of a chunk from its first time on.
    pub(super) fn rates(&self, b: &mut Builder, values: &Values, first: Operand) -> Rates {
        let per_lane = self.schedule.times() / WARP;
        let own = b.mul(self.lane, Operand::i32(per_lane as i32));
        let own = b.add(first, own);
        let mut place = |k: u32| {
            let at = b.add(own, Operand::i32(k as i32));
            self.place(b, at, self.form.time)
        };
        let places: Vec<Index> = (0..per_lane).map(&mut place).collect();
        Rates::at(b, &mut values.clone(), &places, (self.form.decay, &[&self.form.gain]))
    }

    /// The first warp writes the rates of a turn.
    pub(super) fn store_rates(&self, b: &mut Builder, rates: &Rates, turn: Operand) {
        let own = b.mul(self.lane, Operand::i32((self.schedule.times() / WARP) as i32));
        let from = self.rates_of(b, turn);
        let at = b.add(from, own);
        let is_first = b.eq(self.warp, Operand::i32(0));
        rates.store(b, self.lane, &[self.sums, self.gains], (at, is_first));
    }

    /// Where the rates of a turn are.
    fn rates_of(&self, b: &mut Builder, turn: Operand) -> Operand {
        let odd = b.binary(Binary::And, turn, Operand::i32(1));
        b.mul(odd, Operand::i32(self.schedule.times() as i32))
    }

    /// Reads what the thread needs of the decays of a turn.
    pub(super) fn decays(&self, b: &mut Builder, turn: Operand) -> Decays {
        let (row, column) = (self.first_row(b), self.first_column(b));
        let times = self.schedule.times() as i32;
        let from = self.rates_of(b, turn);
        let at = |b: &mut Builder, array, index: Operand, by: i32| {
            let index = b.add(from, index);
            let index = b.add(index, Operand::i32(by));
            b.load1(Memory::Shared(array), index)
        };
        let rows = [0, 8].map(|by| at(b, self.sums, row, by));
        let end = at(b, self.sums, Operand::i32(times - 1), 0);
        let mut power = |x| b.let_(Ty::F32, Expr::Exp2Fast(x));
        let (from_start, whole) = (rows.map(&mut power), power(end));
        Decays { row, column, rows, from_start, end, whole, from }
    }

    /// The running sums and the gains at the thread's two columns of a block, read where they are needed: registers are
    /// scarce.
    pub(super) fn columns(&self, b: &mut Builder, decays: &Decays, block: u32) -> [[Operand; 2]; 2] {
        let at = b.add(decays.from, decays.column);
        let at = b.add(at, Operand::i32((block * COLUMNS) as i32));
        [self.sums, self.gains].map(|array| {
            let two = b.load(Memory::Shared(array), at, 2, None, f32(0.0));
            [two[0], two[1]]
        })
    }
}

/// The logarithm of the decay, to base 2, at the row of a slot; 0 where there is none.
fn logarithm(b: &mut Builder, values: &mut Values, decay: Option<Decay>, slot: u32) -> Operand {
    logarithm_at(b, values, decay, Spot { row: Some(slot), ..Spot::default() })
}

/// The same at a place of a row.
pub(super) fn logarithm_at(b: &mut Builder, values: &mut Values, decay: Option<Decay>, spot: Spot) -> Operand {
    let exists = spot.row.map_or(Operand::bool(true), |slot| values.row(slot).exists);
    let Some(Decay { log, binary, reset }) = decay else { return f32(0.0) };
    let log = values.value(b, log, spot);
    let log = if binary { log } else { b.mul(log, f32(LOG2_E)) };
    let log = b.binary(Binary::Max, log, f32(LEAST));
    let log = match reset {
        None => log,
        Some(reset) => {
            let reset = values.value(b, reset, spot);
            b.select(reset, f32(LEAST), log)
        }
    };
    b.select(exists, log, f32(0.0))
}

/// The product of the factors of a gain at the row of a slot; 0 where there is none.
pub(super) fn gain(b: &mut Builder, values: &mut Values, factors: &[Value], slot: u32) -> Operand {
    let (exists, spot) = (values.row(slot).exists, Spot { row: Some(slot), ..Spot::default() });
    let gain = values.product(b, None, factors, spot).unwrap_or(f32(1.0));
    b.select(exists, gain, f32(0.0))
}

/// The sum of the lanes before.
fn sum_before(b: &mut Builder, lane: Operand, own: Operand) -> Operand {
    let mut sum = own;
    for by in [1, 2, 4, 8, 16] {
        let other = b.shuffle(Shuffle::Up, sum, Operand::i32(by));
        let inside = b.ge(lane, Operand::i32(by));
        let both = b.add(sum, other);
        sum = b.select(inside, both, sum);
    }
    let before = b.shuffle(Shuffle::Up, sum, Operand::i32(1));
    let is_first = b.eq(lane, Operand::i32(0));
    b.select(is_first, f32(0.0), before)
}

/// An `f32` constant.
pub(super) fn f32(x: f64) -> Operand {
    Operand::Const(Ty::F32, Literal::Float(x))
}
