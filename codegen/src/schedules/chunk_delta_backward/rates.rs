//! The numbers of 64 times: running sums of logarithms of decays, and the factors of vectors z, of keys and of cotangents.

use super::TIMES;
use super::common::{Place, number};
use super::gradients::{Gradients, KINDS};
use crate::block::lane_sum::{Neighbours, Side, sum_beside};
use crate::block::matmul::COLUMNS;
use crate::block::pair::{Coordinates, Values};
use crate::build::{Builder, f32};
use crate::schedules::chunk_delta::{before_step, forgotten, reset_at};
use crate::schedules::chunkwise::decay::logarithm_at;
use crate::target::WARP;
use crate::tile::{Memory, Operand};

/// Times of a lane.
pub(super) const EACH: u32 = TIMES / WARP;

/// The kinds of rates: running sums of logarithms after each step and before it, −y with the factors of z, y, and g.
pub(super) const SUMS: usize = 0;
pub(super) const BEFORE: usize = 1;
pub(super) const READ: usize = 2;
pub(super) const ADDED: usize = 3;
pub(super) const GIVEN: usize = 4;

impl Gradients<'_> {
    /// Sets the lane's times as rows.
    pub(super) fn set_times(&self, b: &mut Builder, values: &mut Values, place: &Place) {
        let own = b.mul(self.thread.lane, Operand::i32(EACH as i32));
        let own = b.add(place.first, own);
        for k in 0..EACH {
            let at = b.add(own, Operand::i32(k as i32));
            values.set_row(k, self.index_along(b, at, self.form.states.time));
        }
    }

    /// Computes the rates of all times and writes them, by the first warp.
    pub(super) fn store_rates(&self, b: &mut Builder, values: &Values, place: &Place) {
        let is_first = b.eq(self.thread.warp, Operand::i32(0));
        b.if_(is_first, |b| {
            let mut values = values.clone();
            self.set_times(b, &mut values, place);
            let mut rates: [Vec<Operand>; KINDS] = Default::default();
            let mut resets = vec![];
            for k in 0..EACH {
                let here = Coordinates { row: Some(k), ..Coordinates::default() };
                let exists = values.row(k).exists;
                let rule = &self.form.states;
                let log = logarithm_at(b, &mut values, rule.decay, here);
                let reset = reset_at(b, &mut values, rule, k);
                let log = forgotten(b, log, reset);
                let sum = rates[SUMS].last().map_or(log, |sum| b.add(*sum, log));
                rates[SUMS].push(sum);
                resets.push(reset);
                let [column, row] = [&rule.column, &rule.row].map(|of| number(b, &mut values, of, here));
                let read = b.mul(column, row);
                let added = number(b, &mut values, &rule.value, here);
                let given = number(b, &mut values, &self.form.cotangents.value, here);
                for (kind, number) in [(READ, read), (ADDED, added), (GIVEN, given)] {
                    rates[kind].push(b.select(exists, number, f32(0.0)));
                }
            }
            let last = rates[SUMS][EACH as usize - 1];
            let earlier = sum_beside(b, Neighbours::in_warp(self.thread.lane), last, Side::Before);
            for (k, reset) in resets.into_iter().enumerate() {
                let before = if k == 0 { earlier } else { b.add(earlier, rates[SUMS][k - 1]) };
                rates[BEFORE].push(before_step(b, before, reset));
            }
            rates[SUMS].iter_mut().for_each(|sum| *sum = b.add(earlier, *sum));
            let at = b.mul(self.thread.lane, Operand::i32(EACH as i32));
            for (array, own) in self.rates.iter().zip(&rates) {
                b.store(Memory::Shared(*array), at, own, None);
            }
        });
    }

    /// The rates of a kind at the thread's two rows.
    pub(super) fn of_rows(&self, b: &mut Builder, kind: usize) -> [Operand; 2] {
        let row = self.first_row(b);
        [0, COLUMNS].map(|by| {
            let row = b.add(row, Operand::i32(by as i32));
            b.load1(Memory::Shared(self.rates[kind]), row)
        })
    }

    /// The rates of a kind at the thread's two columns of a block of its half.
    pub(super) fn of_columns(&self, b: &mut Builder, kind: usize, block: u32) -> [Operand; 2] {
        let (half, column) = (self.half_of(b, TIMES), self.fragment.column(b));
        let at = b.add(half, column);
        let at = b.add(at, Operand::i32((block * COLUMNS) as i32));
        let two = b.load(Memory::Shared(self.rates[kind]), at, 2, None, f32(0.0));
        [two[0], two[1]]
    }

    /// The rates of a kind at the lane's times.
    pub(super) fn of_times(&self, b: &mut Builder, kind: usize) -> [Operand; 2] {
        let at = b.mul(self.thread.lane, Operand::i32(EACH as i32));
        let two = b.load(Memory::Shared(self.rates[kind]), at, EACH, None, f32(0.0));
        [two[0], two[1]]
    }

    /// The sum of all logarithms.
    pub(super) fn end(&self, b: &mut Builder) -> Operand {
        b.load1(Memory::Shared(self.rates[SUMS]), Operand::i32(TIMES as i32 - 1))
    }
}
