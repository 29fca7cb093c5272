//! Decays and gains of a chunk.

use super::{BackKernel, TIMES};
use crate::build::Builder;
use crate::lower::chunks::COLUMNS;
use crate::lower::chunks::decay::{f32, gain, logarithm, sum_before};
use crate::lower::pairs::values::Values;
use crate::schedule::WARP;
use crate::tile::{Expr, Memory, Operand};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Axis, Binary};

/// Times of a lane when a warp has all of a chunk.
pub(super) const PER_LANE: u32 = TIMES / WARP;

/// The logarithm of the decay and both gains at a lane's times.
pub(super) struct Rates([[Operand; 3]; PER_LANE as usize]);

/// What a thread knows of a chunk's decays.
pub(super) struct Decays {
    /// The running sums and both gains at its two times among rows.
    pub rows: [[Operand; 3]; 2],
    /// The running sums and gains' at its times among columns, two of every eight of the warp's half.
    pub columns: Vec<[Operand; 2]>,
    /// What remains at the chunk's end of its two times, and 2 to the power of their sums.
    pub to_end: [Operand; 2],
    pub from_start: [Operand; 2],
    /// What remains of the chunk's start at its end.
    pub whole: Operand,
}

impl BackKernel<'_> {
    /// Evaluates decays and gains at the lane's times, at a point of the outer axes.
    pub(super) fn rates(&self, b: &mut Builder, outer: &[(Axis, Operand)], first: Operand) -> Rates {
        let (time, width) = (self.form.states.time, self.form.states.width);
        let mut values = Values::new(self.stage, &self.args, [time, width], outer.to_vec());
        let own = b.mul(self.lane, Operand::i32(PER_LANE as i32));
        let own = b.add(first, own);
        let mut step = |k: u32| {
            let at = b.add(own, Operand::i32(k as i32));
            let place = self.place(b, at, time);
            values.set_row(k, place);
            let log = logarithm(b, &mut values, self.form.states.decay, k);
            let gains = [&self.form.states, &self.form.cotangents].map(|form| gain(b, &mut values, &form.gain, k));
            [log, gains[0], gains[1]]
        };
        Rates([step(0), step(1)])
    }

    /// The first warp sums the logarithms and writes all of it for a turn.
    pub(super) fn store_rates(&self, b: &mut Builder, rates: &Rates, turn: Operand) {
        let Rates([one, two]) = rates;
        let both = b.add(one[0], two[0]);
        let before = sum_before(b, self.lane, both);
        let sums = [b.add(before, one[0]), b.add(before, both)];
        let own = b.mul(self.lane, Operand::i32(PER_LANE as i32));
        let from = self.rates_of(b, turn);
        let at = b.add(from, own);
        let is_first = b.eq(self.warp, Operand::i32(0));
        let [sum, gains, back] = self.rates.map(Memory::Shared);
        b.store(sum, at, &sums, Some(is_first));
        b.store(gains, at, &[one[1], two[1]], Some(is_first));
        b.store(back, at, &[one[2], two[2]], Some(is_first));
    }

    /// Where the rates of a turn are.
    fn rates_of(&self, b: &mut Builder, turn: Operand) -> Operand {
        let even = b.binary(Binary::And, turn, Operand::i32(1));
        b.mul(even, Operand::i32(TIMES as i32))
    }

    /// Reads what the thread needs of the decays of a turn.
    pub(super) fn decays(&self, b: &mut Builder, turn: Operand) -> Decays {
        let from = self.rates_of(b, turn);
        let [sums, gains, back] = self.rates.map(Memory::Shared);
        let row = self.first_row(b);
        let row = b.add(from, row);
        let rows = [0, 8].map(|by| {
            let at = b.add(row, Operand::i32(by));
            [sums, gains, back].map(|array| b.load1(array, at))
        });
        let (half, column) = (self.half_of(b, TIMES), self.first_column(b));
        let column = b.add(half, column);
        let column = b.add(from, column);
        let pair = |block: u32| {
            let at = b.add(column, Operand::i32((block * COLUMNS) as i32));
            let [sums, back] = [sums, back].map(|array| b.load(array, at, 2, None, f32(0.0)));
            [[sums[0], back[0]], [sums[1], back[1]]]
        };
        let columns = (0..TIMES / 2 / COLUMNS).flat_map(pair).collect();
        let last = b.add(from, Operand::i32(TIMES as i32 - 1));
        let end = b.load1(sums, last);
        let mut power = |x| b.let_(Ty::F32, Expr::Exp2Fast(x));
        let (from_start, whole) = (rows.map(|row| power(row[0])), power(end));
        let to_end = rows.map(|row| {
            let apart = b.sub(end, row[0]);
            b.let_(Ty::F32, Expr::Exp2Fast(apart))
        });
        Decays { rows, columns, to_end, from_start, whole }
    }
}
