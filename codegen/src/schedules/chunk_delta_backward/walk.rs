//! The walks: a block goes through the times of a recurrence, either way, and saves what the third sweep needs.

use super::saved::Saved;
use super::{DeltaSweep, STAGES, TIMES};
use crate::block::args::Args;
use crate::block::layout::{Lanes, left_rows};
use crate::block::pair::Values;
use crate::block::ring::Ring;
use crate::build::Builder;
use crate::schedules::ChunkDelta;
use crate::schedules::chunk_delta::{AllLanes, DeltaKernel, State, WARPS};
use crate::stage::Stage;
use crate::stage::kind::{DeltaCotangent, DeltaRuleBackward, DeltaSum};
use crate::tile::Operand;
use oplus_dsl::Ty;
use oplus_dsl::ir::Binary;

/// The kernel of a walk.
pub(super) struct Walk<'s> {
    /// Tiles, systems, rates and the state, as the rule itself has them.
    pub kernel: DeltaKernel<'s>,
    pub form: &'s DeltaRuleBackward,
    /// Whether it goes from the last time to the first, for the cotangents of states.
    pub is_back: bool,
    pub saved: Saved,
}

/// The place of a tile of times.
pub(super) struct Place {
    /// The stage of its copies.
    pub stage: Operand,
    /// The index of its rates.
    pub from: Operand,
    /// The number of its saved tiles, `i64`.
    pub number: Operand,
}

/// The lanes by which tiles are read.
pub(super) struct WalkLanes {
    pub all: AllLanes,
    /// Tiles over pairs of times as right factors over the later time.
    pub transposed: Lanes,
}

impl<'s> Walk<'s> {
    pub(super) fn declare(
        b: &mut Builder,
        stage: &'s Stage,
        form: &'s DeltaRuleBackward,
        (sweep, walked): (DeltaSweep, &'s ChunkDelta),
        args: Args,
    ) -> Walk<'s> {
        let is_back = sweep == DeltaSweep::Cotangents;
        let rule = if is_back { &form.cotangents } else { &form.errors };
        let kernel = DeltaKernel::walking(b, stage, rule, walked, args);
        let saved = Saved::declare(b, &kernel, is_back);
        Walk { kernel, form, is_back, saved }
    }

    pub(super) fn body(&self, b: &mut Builder) {
        let kernel = &self.kernel;
        kernel.start(b);
        let source = kernel.source();
        let origins: Vec<Operand> = kernel.tiles().map(|tile| kernel.origin(b, tile, &source)).collect();
        let times = i64::from(TIMES);
        let up = b.add(kernel.args.size(kernel.form.time), Operand::i64(times - 1));
        let tiles = b.binary(Binary::Div, up, Operand::i64(times));
        let tiles = b.convert(Ty::I32, tiles);
        for number in (0..STAGES as i32).map(Operand::i32) {
            kernel.fetch_from(b, &origins, (number, tiles), |b| self.place(b, number, tiles));
        }
        let values =
            Values::new(kernel.stage, &kernel.args, [kernel.form.time, kernel.form.width], kernel.outer.clone());
        let state = kernel.first_state(b, &values);
        let first = self.first_time(b, Operand::i32(0), tiles);
        let rates = kernel.rates(b, &values, first);
        kernel.store_rates(b, &rates, Operand::i32(0));
        b.barrier();
        let lanes = self.lanes(b);
        b.for_(Operand::i32(0), tiles, Operand::i32(1), |b, number| {
            self.tile(b, (&values, &state, &lanes), number, tiles);
            let next = b.add(number, Operand::i32(STAGES as i32));
            kernel.fetch_from(b, &origins, (next, tiles), |b| self.place(b, next, tiles));
        });
        self.finals(b, &values, &state);
    }

    /// The place in time of the tile that is taken as this one.
    fn place(&self, b: &mut Builder, number: Operand, tiles: Operand) -> Operand {
        if !self.is_back {
            return number;
        }
        let last = b.sub(tiles, Operand::i32(1));
        b.sub(last, number)
    }

    /// The first time of the tile that is taken as this one; of none that is before the first 0.
    fn first_time(&self, b: &mut Builder, number: Operand, tiles: Operand) -> Operand {
        let place = self.place(b, number, tiles);
        let place = if self.is_back { b.binary(Binary::Max, place, Operand::i32(0)) } else { place };
        b.mul(place, Operand::i32(TIMES as i32))
    }

    fn lanes(&self, b: &mut Builder) -> WalkLanes {
        let all = self.kernel.lanes(b);
        let (row, half) = left_rows(b, self.kernel.lane);
        WalkLanes { all, transposed: self.kernel.inverses.lanes(b, row, half) }
    }

    /// Computes a tile, and the rates of the next one.
    fn tile(
        &self,
        b: &mut Builder,
        (values, state, lanes): (&Values, &State, &WalkLanes),
        number: Operand,
        tiles: Operand,
    ) {
        let kernel = &self.kernel;
        let at = Ring::of(STAGES).at(b, number);
        kernel.tiles().for_each(|tile| b.wait(tile.full, at));
        let place = self.place(b, number, tiles);
        let place = self.saved.number(b, place, tiles);
        self.save_state(b, state, place);
        let factors = kernel.factors(b, &lanes.all, at.index);
        let from = kernel.rates_from(b, number);
        let next = b.add(number, Operand::i32(1));
        let after = self.first_time(b, next, tiles);
        let rates = kernel.rates(b, values, after);
        if self.is_back {
            kernel.pairs(b, &factors, &lanes.all, from);
        } else {
            self.error_pairs(b, &factors, lanes, from);
        }
        kernel.store_rates(b, &rates, next);
        b.barrier();
        let place = Place { stage: at.index, from, number: place };
        for chunk in 0..WARPS {
            if self.is_back {
                self.cotangent_chunk(b, (state, lanes, &factors), &place, WARPS - 1 - chunk);
            } else {
                self.error_chunk(b, (state, lanes, &factors), &place, chunk);
            }
        }
        b.barrier();
    }

    /// Stores the cotangent of the state before the first step.
    fn finals(&self, b: &mut Builder, values: &Values, state: &State) {
        let finals: Vec<usize> = (0..self.form.outputs.len())
            .filter(|output| self.form.outputs[*output] == DeltaCotangent::Initial)
            .collect();
        if !self.is_back || finals.is_empty() {
            return;
        }
        let mut values = values.clone();
        self.kernel.set_width(b, &mut values);
        for (block, sums) in (0..).zip(state) {
            let mut values = values.clone();
            let coordinates = self.kernel.coordinates(b, &mut values, block);
            for (here, sum) in coordinates.into_iter().zip(sums) {
                for (node, ..) in self.form.sums.iter().filter(|(_, sum, _)| *sum == DeltaSum::Initial) {
                    values.set(*node, here, (*sum).into());
                }
            }
            for two in coordinates.chunks(2) {
                finals.iter().for_each(|output| self.kernel.store_final(b, &mut values, *output, [two[0], two[1]]));
            }
        }
    }
}
