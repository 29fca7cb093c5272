//! Decays and gains of a chunk.

use super::{GradientSweep, TIMES};
use crate::block::pair::{Index, Values};
use crate::build::{Builder, f32};
use crate::schedules::chunkwise::COLUMNS;
use crate::schedules::chunkwise::decay::{Rates, with_rounding_errors};
use crate::target::WARP;
use crate::tile::{Expr, Memory, Operand};
use oplus_dsl::ir::{Axis, Binary};
use oplus_dsl::{Elem, Ty};

/// Times of a lane when a warp has all of a chunk.
pub(super) const PER_LANE: u32 = TIMES / WARP;

/// The decays of a chunk that one thread needs.
#[derive(Clone)]
pub(super) struct Decays {
    /// The running sums and both gains at the thread's two times among rows.
    pub rows: [[Operand; 3]; 2],
    /// The factors that remain at the chunk's end of its two times, and 2 to the power of their sums.
    pub to_end: [Operand; 2],
    pub from_start: [Operand; 2],
    /// The factor that remains of the chunk's start at its end.
    pub whole: Operand,
    /// The rounding errors of the sums at the thread's two times and at the end, where sums are two numbers.
    rounding_errors: Option<[Operand; 3]>,
    /// The index of the rates.
    from: Operand,
}

impl GradientSweep<'_> {
    /// The indices of the lane's times of a chunk.
    pub(super) fn own_times(&self, b: &mut Builder, first: Operand) -> [Index; PER_LANE as usize] {
        let own = b.mul(self.thread.lane, PER_LANE);
        let own = b.add(first, own);
        let mut place = |k: i32| {
            let at = b.add(own, k);
            self.index_along(b, at, self.form.states.time)
        };
        [place(0), place(1)]
    }

    /// Evaluates decays and gains at the lane's times, at a point of the outer axes.
    pub(super) fn rates(&self, b: &mut Builder, outer: &[(Axis, Operand)], first: Operand) -> Rates {
        let [states, cotangents] = [&self.form.states, &self.form.cotangents];
        let mut values = Values::new(self.stage, &self.args, [states.time, states.width], outer.to_vec());
        let times = self.own_times(b, first);
        let decay = states.decay.filter(|_| !states.channels);
        Rates::at(b, &mut values, &times, decay, &[&states.gain, &cotangents.gain])
    }

    /// Writes the rates of an iteration, by the first warp.
    pub(super) fn store_rates(&self, b: &mut Builder, rates: &Rates, iteration: Operand) {
        let at = self.own_rates(b, iteration);
        let is_first = b.eq(self.thread.warp, 0);
        if self.has_rounding_errors() {
            return b.if_(is_first, |b| self.store_split_rates(b, rates, at));
        }
        rates.store(b, self.thread.lane, &self.rates, at, is_first);
    }

    /// Writes rates whose sums are two numbers, at the lane's times, by one warp.
    pub(super) fn store_split_rates(&self, b: &mut Builder, rates: &Rates, at: Operand) {
        let [of_sums, of_gains @ ..] = &self.rates;
        rates.store_split(b, self.thread.lane, *of_sums, of_gains, at, self.errors_apart());
    }

    /// The index of the rates of an iteration at the lane's times.
    pub(super) fn own_rates(&self, b: &mut Builder, iteration: Operand) -> Operand {
        let own = b.mul(self.thread.lane, PER_LANE);
        let from = self.rates_of(b, iteration);
        b.add(from, own)
    }

    /// Whether running sums are two numbers, a sum and its rounding error.
    pub(super) fn has_rounding_errors(&self) -> bool {
        self.keys.elem == Elem::F32 || self.keys.low.is_some()
    }

    /// The distance from a sum of logarithms to its rounding error: behind the sums of the heads in flight, or of two.
    pub(super) fn errors_apart(&self) -> u32 {
        self.schedule.sets_of_rates() * TIMES
    }

    /// The index of the rates of an iteration.
    fn rates_of(&self, b: &mut Builder, iteration: Operand) -> Operand {
        let place = match self.schedule.warpgroups {
            true => self.ring().stage(b, iteration),
            false => b.binary(Binary::And, iteration, 1),
        };
        b.mul(place, TIMES)
    }

    /// Reads the decays of an iteration that the thread needs.
    pub(super) fn decays(&self, b: &mut Builder, iteration: Operand) -> Decays {
        let from = self.rates_of(b, iteration);
        let [sums, gains, back] = self.rates.map(Memory::Shared);
        let row = self.first_row(b);
        let row = b.add(from, row);
        let rows = [0, 8].map(|by| {
            let at = b.add(row, by);
            [sums, gains, back].map(|array| b.load1(array, at))
        });
        let last = b.add(from, TIMES as i32 - 1);
        let end = b.load1(sums, last);
        let mut power = |x| b.let_(Ty::F32, Expr::Exp2Fast(x));
        let (from_start, whole) = (rows.map(|row| power(row[0])), power(end));
        let rounding_errors = self.has_rounding_errors().then(|| {
            let further = Operand::i32(self.errors_apart() as i32);
            [(row, 0), (row, 8), (last, 0)].map(|(at, by)| {
                let at = b.add(at, by);
                let at = b.add(at, further);
                b.load1(sums, at)
            })
        });
        let to_end = [0, 1].map(|h: usize| {
            let apart = b.sub(end, rows[h][0]);
            let apart = with_rounding_errors(
                b,
                apart,
                rounding_errors.map(|rounding_errors| (rounding_errors[2], rounding_errors[h])),
            );
            b.let_(Ty::F32, Expr::Exp2Fast(apart))
        });
        Decays { rows, to_end, from_start, whole, rounding_errors, from }
    }

    /// The running sum and gain' at each of the thread's two times of a block among columns, of the warp's half; read where
    /// they are needed: registers are scarce.
    pub(super) fn columns(&self, b: &mut Builder, decays: &Decays, block: u32) -> [[Operand; 2]; 2] {
        let at = self.at_columns(b, decays, block);
        let [sums, _, back] = self.rates.map(Memory::Shared);
        let [sums, back] = [sums, back].map(|array| b.load(array, at, 2, None, f32(0.0)));
        [[sums[0], back[0]], [sums[1], back[1]]]
    }

    /// The rounding errors of the thread's sums, and those at its two times of a block among columns, where sums are two numbers.
    pub(super) fn rounding_errors(
        &self,
        b: &mut Builder,
        decays: &Decays,
        block: u32,
    ) -> Option<([Operand; 3], [Operand; 2])> {
        let own = decays.rounding_errors?;
        let at = self.at_columns(b, decays, block);
        let at = b.add(at, self.errors_apart());
        let two = b.load(Memory::Shared(self.rates[0]), at, 2, None, f32(0.0));
        Some((own, [two[0], two[1]]))
    }

    /// The index of the rates at the thread's first time of a block among columns.
    fn at_columns(&self, b: &mut Builder, decays: &Decays, block: u32) -> Operand {
        let (half, column) = (self.half_of(b, TIMES), self.fragment.column(b));
        [half, column, Operand::i32((block * COLUMNS) as i32)].into_iter().fold(decays.from, |at, by| b.add(at, by))
    }
}
