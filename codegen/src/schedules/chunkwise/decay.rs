//! The decays of a chunk: running sums of their logarithms, and the gains.

use super::numbers::ChunkNumbers;
use super::{COLUMNS, ChunkwiseKernel};
use crate::block::lane_sum::{Neighbours, Side, sum_beside};
use crate::block::pair::{Coordinates, Index, Values};
use crate::block::ring::Ring;
use crate::build::{Builder, f32};
use crate::stage::kind::Decay;
use crate::target::WARP;
use crate::tile::{Expr, Memory, Operand, SharedId};
use oplus_dsl::ir::{Binary, Value};
use oplus_dsl::{Elem, Ty};
use std::f64::consts::LOG2_E;

/// The least logarithm of a decay, which leaves nothing of an `f32`.
pub(crate) const NOTHING: f64 = -160.0;

/// The decays of a chunk whose numbers are there.
#[derive(Clone, Copy)]
pub(super) struct NumberedDecays<'d> {
    pub decays: &'d Decays,
    pub numbers: ChunkNumbers,
}

/// The decays of a chunk that one thread needs.
pub(super) struct Decays {
    /// The thread's first row and column among the chunk's times, `i32`.
    pub row: Operand,
    pub column: Operand,
    /// The running sums at the thread's two rows, and 2 to their power.
    pub rows: [Operand; 2],
    pub from_start: [Operand; 2],
    /// The running sum at the end, and 2 to its power.
    pub end: Operand,
    pub whole: Operand,
    /// The rounding errors of the sums at the thread's rows and at the end, where [sums](Rates::store_split) are two numbers.
    rounding_errors: Option<[Operand; 3]>,
    /// The numbers of the chunk, if weights may be products.
    pub numbers: Option<ChunkNumbers>,
    /// The index of the chunk's rates.
    from: Operand,
}

/// The logarithms of decays, and gains of several kinds, at a lane's times of a chunk.
pub(crate) struct Rates {
    logs: Vec<Operand>,
    gains: Vec<Vec<Operand>>,
}

impl Rates {
    /// Evaluates logarithms and gains at times that lie at these indices.
    pub(crate) fn at(
        b: &mut Builder,
        values: &mut Values,
        times: &[Index],
        decay: Option<Decay>,
        gains: &[&[Value]],
    ) -> Rates {
        let mut rates = Rates { logs: vec![], gains: vec![vec![]; gains.len()] };
        for (k, time) in (0..).zip(times) {
            values.set_row(k, *time);
            rates.logs.push(logarithm(b, values, decay, k));
            for (own, factors) in rates.gains.iter_mut().zip(gains) {
                own.push(gain(b, values, factors, k));
            }
        }
        rates
    }

    /// Sums the logarithms over the lanes, and where `guard` holds writes sums and gains of each kind to these arrays.
    pub(crate) fn store(&self, b: &mut Builder, lane: Operand, arrays: &[SharedId], at: Operand, guard: Operand) {
        let sums = self.summed(b, lane);
        self.store_summed(b, &sums, arrays, at, guard);
    }

    /// Writes these sums and the gains of each kind to arrays where `guard` holds.
    pub(crate) fn store_summed(
        &self,
        b: &mut Builder,
        sums: &[Operand],
        arrays: &[SharedId],
        at: Operand,
        guard: Operand,
    ) {
        for (array, own) in arrays.iter().zip([sums].into_iter().chain(self.gains.iter().map(Vec::as_slice))) {
            b.store(Memory::Shared(*array), at, own, Some(guard));
        }
    }
}

impl Rates {
    /// The running sums of the logarithms over the lanes, at the lane's times.
    pub(crate) fn summed(&self, b: &mut Builder, lane: Operand) -> Vec<Operand> {
        let mut sums: Vec<Operand> = vec![];
        for log in &self.logs {
            sums.push(sums.last().map_or(*log, |sum| b.add(*sum, *log)));
        }
        let before = sum_beside(b, Neighbours::in_warp(lane), sums[sums.len() - 1], Side::Before);
        sums.into_iter().map(|sum| b.add(before, sum)).collect()
    }

    /// The gains of the first kind.
    pub(super) fn first_gains(&self) -> &[Operand] {
        self.gains(0)
    }

    /// The gains of a kind.
    pub(crate) fn gains(&self, kind: usize) -> &[Operand] {
        &self.gains[kind]
    }

    /// Sums the logarithms over the lanes and writes every sum as two numbers: the sum in `f32`, and its rounding error,
    /// which lies this many elements further. The differences of large sums at neighbouring times would be too coarse in `f32` alone.
    pub(crate) fn store_split(
        &self,
        b: &mut Builder,
        lane: Operand,
        of_sums: SharedId,
        of_gains: &[SharedId],
        at: Operand,
        further: u32,
    ) {
        let mut sums: Vec<Operand> = vec![];
        for log in &self.logs {
            let log = b.convert(Ty::F64, *log);
            sums.push(sums.last().map_or(log, |sum| b.add(*sum, log)));
        }
        let before = sum_beside(b, Neighbours::in_warp(lane), sums[sums.len() - 1], Side::Before);
        let two = sums.into_iter().map(|sum| {
            let sum = b.add(before, sum);
            split_sum(b, sum).into()
        });
        let (sums, rounding_errors): (Vec<Operand>, Vec<Operand>) = two.unzip();
        let errors_at = b.add(at, further);
        b.store(Memory::Shared(of_sums), at, &sums, None);
        b.store(Memory::Shared(of_sums), errors_at, &rounding_errors, None);
        for (of_gains, own) in of_gains.iter().zip(&self.gains) {
            b.store(Memory::Shared(*of_gains), at, own, None);
        }
    }
}

impl ChunkwiseKernel<'_> {
    /// Whether running sums are two numbers, a sum and its rounding error.
    pub(super) fn has_rounding_errors(&self) -> bool {
        self.elem() == Elem::F32 || self.is_split()
    }

    /// The distance from a running sum to its rounding error.
    pub(super) fn errors_apart(&self) -> u32 {
        if self.handover.is_some() { self.schedule.stages * self.schedule.times() } else { self.schedule.times() }
    }

    /// Evaluates the decays and gains of the lane's times of a chunk from its first time on.
    pub(super) fn rates(&self, b: &mut Builder, values: &Values, first: Operand) -> Rates {
        let places = self.places(b, first);
        Rates::at(b, &mut values.clone(), &places, self.form.decay, &[&self.form.gain])
    }

    /// The lane's times of a chunk from its first time on.
    pub(super) fn places(&self, b: &mut Builder, first: Operand) -> Vec<Index> {
        let per_lane = self.schedule.times() / WARP;
        let own = b.mul(self.thread.lane, per_lane);
        let own = b.add(first, own);
        let mut place = |k: u32| {
            let at = b.add(own, k);
            self.index_along(b, at, self.form.time)
        };
        (0..per_lane).map(&mut place).collect()
    }

    /// Writes the rates of an iteration, by the first warp.
    pub(super) fn store_rates(&self, b: &mut Builder, rates: &Rates, iteration: Operand) {
        let own = b.mul(self.thread.lane, self.schedule.times() / WARP);
        let from = self.rates_of(b, iteration);
        let at = b.add(from, own);
        let is_first = b.eq(self.thread.warp, 0);
        if self.has_rounding_errors() {
            let (gains, further) = (&[self.gains][..], self.errors_apart());
            return b.if_(is_first, |b| rates.store_split(b, self.thread.lane, self.sums, gains, at, further));
        }
        rates.store(b, self.thread.lane, &[self.sums, self.gains], at, is_first);
    }

    /// The index of the rates of an iteration. In `tf32` there is room for one iteration: the next ones are written after
    /// the barrier behind the last read.
    pub(super) fn rates_of(&self, b: &mut Builder, iteration: Operand) -> Operand {
        if self.is_tf32 {
            return Operand::i32(0);
        }
        let place = match self.handover {
            Some(_) => {
                let stage = Ring::of(self.schedule.stages).at(b, iteration).index;
                self.of_head(b, stage, self.schedule.stages)
            }
            None => b.binary(Binary::And, iteration, 1),
        };
        b.mul(place, self.schedule.times())
    }

    /// Reads the decays of an iteration that the thread needs.
    pub(super) fn decays(&self, b: &mut Builder, iteration: Operand) -> Decays {
        let (row, column) = (self.first_row(b), self.fragment.column(b));
        let times = self.schedule.times() as i32;
        let from = self.rates_of(b, iteration);
        let at = |b: &mut Builder, array, index: Operand, by: i32| {
            let index = b.add(from, index);
            let index = b.add(index, by);
            b.load1(Memory::Shared(array), index)
        };
        let rows = [0, 8].map(|by| at(b, self.sums, row, by));
        let end = at(b, self.sums, Operand::i32(times - 1), 0);
        let numbers = self.factored.and_then(|_| {
            let stage = Ring::of(self.schedule.stages).stage(b, iteration);
            self.numbers(b, stage)
        });
        let since = numbers.map_or(rows, |numbers| rows.map(|row| b.add(row, numbers.base)));
        let mut power = |x| b.let_(Ty::F32, Expr::Exp2Fast(x));
        let (from_start, whole) = (since.map(&mut power), power(end));
        let rounding_errors = self.has_rounding_errors().then(|| {
            let places = [(row, 0), (row, 8), (Operand::i32(times - 1), 0)];
            places.map(|(index, by)| at(b, self.sums, index, self.errors_apart() as i32 + by))
        });
        Decays { row, column, rows, from_start, end, whole, rounding_errors, numbers, from }
    }

    /// The running sums and the gains at the thread's two columns of a block, read where they are needed: registers are
    /// scarce.
    pub(super) fn columns(&self, b: &mut Builder, decays: &Decays, block: u32) -> [[Operand; 2]; 2] {
        let at = b.add(decays.from, decays.column);
        let at = b.add(at, block * COLUMNS);
        [self.sums, self.gains].map(|array| {
            let two = b.load(Memory::Shared(array), at, 2, None, f32(0.0));
            [two[0], two[1]]
        })
    }

    /// The numbers of an array at the thread's two columns of a block.
    pub(super) fn columns_of(&self, b: &mut Builder, decays: &Decays, block: u32, array: SharedId) -> [Operand; 2] {
        let at = b.add(decays.from, decays.column);
        let at = b.add(at, block * COLUMNS);
        let two = b.load(Memory::Shared(array), at, 2, None, f32(0.0));
        [two[0], two[1]]
    }

    /// The rounding errors of the thread's sums, and those at its two columns of a block, where sums are two numbers.
    pub(super) fn rounding_errors(
        &self,
        b: &mut Builder,
        decays: &Decays,
        block: u32,
    ) -> Option<([Operand; 3], [Operand; 2])> {
        let own = decays.rounding_errors?;
        let at = b.add(decays.from, decays.column);
        let at = b.add(at, self.errors_apart() + block * COLUMNS);
        let two = b.load(Memory::Shared(self.sums), at, 2, None, f32(0.0));
        Some((own, [two[0], two[1]]))
    }
}

/// A sum in `f64` as two numbers of `f32`: the nearest one, and the rest.
pub(crate) fn split_sum(b: &mut Builder, sum: Operand) -> [Operand; 2] {
    let high = b.convert(Ty::F32, sum);
    let same = b.convert(Ty::F64, high);
    let low = b.sub(sum, same);
    [high, b.convert(Ty::F32, low)]
}

/// The difference of two running sums with the difference of their rounding errors, where sums are two numbers.
pub(crate) fn with_rounding_errors(
    b: &mut Builder,
    apart: Operand,
    rounding_errors: Option<(Operand, Operand)>,
) -> Operand {
    let Some((of_later, of_earlier)) = rounding_errors else { return apart };
    let more = b.sub(of_later, of_earlier);
    b.add(apart, more)
}

/// The logarithm of the decay, to base 2, at the row of a number; 0 where there is none.
fn logarithm(b: &mut Builder, values: &mut Values, decay: Option<Decay>, number: u32) -> Operand {
    logarithm_at(b, values, decay, Coordinates { row: Some(number), ..Coordinates::default() })
}

/// The logarithm of the decay, to base 2, at coordinates; 0 where there is none.
pub(crate) fn logarithm_at(
    b: &mut Builder,
    values: &mut Values,
    decay: Option<Decay>,
    coordinates: Coordinates,
) -> Operand {
    let exists = coordinates.row.map_or(Operand::bool(true), |number| values.row(number).exists);
    let Some(Decay { log, binary, reset }) = decay else { return f32(0.0) };
    let log = values.value(b, log, coordinates);
    let log = if binary { log } else { b.mul(log, f32(LOG2_E)) };
    let log = b.binary(Binary::Max, log, f32(NOTHING));
    let log = match reset {
        None => log,
        Some(reset) => {
            let reset = values.value(b, reset, coordinates);
            b.select(reset, f32(NOTHING), log)
        }
    };
    b.select(exists, log, f32(0.0))
}

/// The product of the factors of a gain at the row of a number; 0 where there is none.
pub(super) fn gain(b: &mut Builder, values: &mut Values, factors: &[Value], number: u32) -> Operand {
    let (exists, coordinates) =
        (values.row(number).exists, Coordinates { row: Some(number), ..Coordinates::default() });
    let gain = values.product(b, None, factors, coordinates).unwrap_or(f32(1.0));
    b.select(exists, gain, f32(0.0))
}
