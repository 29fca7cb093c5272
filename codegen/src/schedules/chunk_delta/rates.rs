//! The numbers of the steps: decays, as running sums of logarithms, and the factors of z and of values.

use oplus_dsl::Ty;
use oplus_dsl::ir::{Binary, Unary, Value};

use super::{DeltaKernel, ROWS, TIMES};
use crate::block::lane_sum::{Neighbours, Side, sum_beside};
use crate::block::pair::{Coordinates, Values};
use crate::build::{Builder, f32};
use crate::schedules::chunkwise::decay::{NOTHING, logarithm_at};
use crate::stage::kind::{DeltaRule, Factored};
use crate::target::WARP;
use crate::tile::{Expr, Memory, Operand, Shuffle};

/// Times of a lane.
const EACH: u32 = TIMES / WARP;

/// The rates at a lane's times of a tile.
pub(super) struct Rates {
    logs: Vec<Operand>,
    /// Whether the state is forgotten before a step, where that may be.
    resets: Vec<Option<Operand>>,
    read: Vec<Operand>,
    added: Vec<Operand>,
}

impl DeltaKernel<'_> {
    /// Reads what the lane's times of a tile depend on.
    pub(super) fn rates(&self, b: &mut Builder, values: &Values, first: Operand) -> Rates {
        let mut values = values.clone();
        let own = b.mul(self.thread.lane, Operand::i32(EACH as i32));
        let own = b.add(first, own);
        let mut rates = Rates { logs: vec![], resets: vec![], read: vec![], added: vec![] };
        for k in 0..EACH {
            let at = b.add(own, Operand::i32(k as i32));
            let time = self.index_along(b, at, self.form.time);
            values.set_row(k, time);
            let here = Coordinates { row: Some(k), ..Coordinates::default() };
            let decay = self.form.decay.filter(|_| self.form.channels.is_none());
            let log = logarithm_at(b, &mut values, decay, here);
            let reset = reset_at(b, &mut values, self.form, k);
            rates.logs.push(forgotten(b, log, reset));
            rates.resets.push(reset);
            let column = self.number(b, &mut values, &self.form.column, here);
            let row = self.number(b, &mut values, &self.form.row, here);
            let read = b.mul(column, row);
            let added = self.number(b, &mut values, &self.form.value, here);
            rates.read.push(b.select(time.exists, read, f32(0.0)));
            rates.added.push(b.select(time.exists, added, f32(0.0)));
        }
        rates
    }

    /// The numbers that a parameter is multiplied by.
    pub(in crate::schedules) fn number(
        &self,
        b: &mut Builder,
        values: &mut Values,
        of: &Factored,
        here: Coordinates,
    ) -> Operand {
        let number = product(b, values, &of.factors, here);
        if of.negative { b.unary(Unary::Neg, number) } else { number }
    }

    /// Writes the rates of a tile, by the first warp.
    pub(super) fn store_rates(&self, b: &mut Builder, rates: &Rates, tile: Operand) {
        let is_first = b.eq(self.thread.warp, Operand::i32(0));
        let mut sums: Vec<Operand> = vec![];
        for log in &rates.logs {
            sums.push(sums.last().map_or(*log, |sum| b.add(*sum, *log)));
        }
        let earlier = self.sum_before(b, sums[sums.len() - 1]);
        let from = self.rates_from(b, tile);
        let own = b.mul(self.thread.lane, Operand::i32(EACH as i32));
        let at = b.add(from, own);
        let mut before = vec![];
        for k in 0..EACH as usize {
            let sum = if k == 0 { earlier } else { b.add(earlier, sums[k - 1]) };
            before.push(before_step(b, sum, rates.resets[k]));
        }
        let sums: Vec<Operand> = sums.into_iter().map(|sum| b.add(earlier, sum)).collect();
        let mut all = vec![sums.clone(), before.clone(), rates.read.clone(), rates.added.clone()];
        if self.form.decays() {
            all.extend(self.powers(b, &sums, &before, &rates.read));
        }
        for (array, own) in self.rates.iter().zip(&all) {
            b.store(Memory::Shared(*array), at, own, Some(is_first));
        }
    }

    /// The factors of z times the decays before each step, the decays from the chunk's start, and to its end.
    fn powers(&self, b: &mut Builder, sums: &[Operand], before: &[Operand], read: &[Operand]) -> [Vec<Operand>; 3] {
        let last = b.binary(Binary::Or, self.thread.lane, Operand::i32((ROWS / EACH) as i32 - 1));
        let end = b.shuffle(Shuffle::Index, sums[sums.len() - 1], last);
        let mut power = |log: Operand| b.let_(Ty::F32, Expr::Exp2Fast(log));
        let [before, from_start] = [before, sums].map(|logs| logs.iter().map(|log| power(*log)).collect::<Vec<_>>());
        let scales = before.iter().zip(read).map(|(decay, read)| b.mul(*decay, *read)).collect();
        let apart: Vec<Operand> = sums.iter().map(|sum| b.sub(end, *sum)).collect();
        let to_end = apart.into_iter().map(|log| b.let_(Ty::F32, Expr::Exp2Fast(log))).collect();
        [scales, from_start, to_end]
    }

    /// The sum of the lanes before that have times of the same chunk.
    fn sum_before(&self, b: &mut Builder, own: Operand) -> Operand {
        let count = ROWS / EACH;
        let lane = Neighbours { place: b.binary(Binary::Rem, self.thread.lane, count), count };
        sum_beside(b, lane, own, Side::Before)
    }

    /// Two neighbouring rates of a kind, at the thread's columns of a block.
    pub(in crate::schedules) fn two_rates(
        &self,
        b: &mut Builder,
        kind: usize,
        from: Operand,
        block: u32,
    ) -> [Operand; 2] {
        let column = self.fragment.column(b);
        let at = b.add(from, column);
        let at = b.add(at, Operand::i32((block * super::COLUMNS) as i32));
        let two = b.load(Memory::Shared(self.rates[kind]), at, 2, None, f32(0.0));
        [two[0], two[1]]
    }

    /// The factors of the products of z with the state before the chunk, at the thread's columns of a block.
    pub(in crate::schedules) fn two_scales(&self, b: &mut Builder, from: Operand, block: u32) -> [Operand; 2] {
        self.two_rates(b, if self.form.decays() { SCALE } else { READ }, from, block)
    }

    /// Decays from the chunk's start or to its end at the thread's columns of a block, where there are any.
    pub(in crate::schedules) fn two_decays(
        &self,
        b: &mut Builder,
        kind: usize,
        from: Operand,
        block: u32,
    ) -> Option<[Operand; 2]> {
        self.form.decays().then(|| self.two_rates(b, kind, from, block))
    }

    /// The decay over a chunk, where there is one.
    pub(in crate::schedules) fn decay_of_chunk(&self, b: &mut Builder, from: Operand, chunk: u32) -> Option<Operand> {
        let end = Operand::i32(((chunk + 1) * ROWS) as i32 - 1);
        self.form.decays().then(|| self.rate(b, FROM_START, from, end))
    }

    /// A rate of a kind at a time of the tile.
    pub(super) fn rate(&self, b: &mut Builder, kind: usize, from: Operand, time: Operand) -> Operand {
        let at = b.add(from, time);
        b.load1(Memory::Shared(self.rates[kind]), at)
    }
}

/// The running sums of logarithms from the chunk's start, after each step and before it.
pub(super) const SUMS: usize = 0;
pub(super) const BEFORE: usize = 1;
/// The factors of z, and of values.
pub(in crate::schedules) const READ: usize = 2;
pub(in crate::schedules) const ADDED: usize = 3;
/// The factors of z times the decay from the chunk's start to before each step.
const SCALE: usize = 4;
/// The decays from the chunk's start to after each step, and from there to its end.
pub(in crate::schedules) const FROM_START: usize = 5;
pub(in crate::schedules) const TO_END: usize = 6;

/// The names of the kinds of rates of a rule, in their order.
pub(super) fn kinds(form: &DeltaRule) -> &'static [&'static str] {
    let all = &["sums", "before", "read", "added", "scales", "from_start", "to_end"];
    if form.decays() { all } else { &all[..SCALE] }
}

/// Whether the state is forgotten before the step at a row, where that may be.
pub(in crate::schedules) fn reset_at(
    b: &mut Builder,
    values: &mut Values,
    rule: &DeltaRule,
    row: u32,
) -> Option<Operand> {
    let here = Coordinates { row: Some(row), ..Coordinates::default() };
    let exists = values.row(row).exists;
    rule.reset.map(|reset| {
        let reset = values.value(b, reset, here);
        b.and(exists, reset)
    })
}

/// The logarithm of a step's decay, which leaves nothing where the state is forgotten before the step.
pub(in crate::schedules) fn forgotten(b: &mut Builder, log: Operand, reset: Option<Operand>) -> Operand {
    reset.map_or(log, |reset| b.select(reset, f32(NOTHING), log))
}

/// The running sum of logarithms with which a step reads the state, from the sum of the steps before it.
pub(in crate::schedules) fn before_step(b: &mut Builder, sum: Operand, reset: Option<Operand>) -> Operand {
    reset.map_or(sum, |reset| {
        let forgotten = b.add(sum, f32(NOTHING));
        b.select(reset, forgotten, sum)
    })
}

/// The product of values, 1 of none.
fn product(b: &mut Builder, values: &mut Values, factors: &[Value], here: Coordinates) -> Operand {
    values.product(b, None, factors, here).unwrap_or(f32(1.0))
}
