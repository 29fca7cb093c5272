//! The walks: a block goes through the times of a recurrence, either way, and saves states and rows for the third sweep.

use super::DeltaSweep;
use super::prepared::{Sharing, stored_in};
use super::saved::Saved;
use crate::abi::{Tensor, elem};
use crate::block::args::Args;
use crate::block::layout::{Lanes, TileStage, left_rows};
use crate::build::Builder;
use crate::schedules::ChunkDelta;
use crate::schedules::chunk_delta::{
    AllLanes, DeltaKernel, Factors, PowerCheck, RuleSweep, Staged, State, Stored, System, TilePlace, Tiles, WARPS,
};
use crate::stage::Stage;
use crate::stage::kind::{DeltaCotangent, DeltaRuleBackward, DeltaSum};
use crate::tile::Operand;
use oplus_dsl::Elem;

/// The kernel of a walk.
pub(super) struct Walk<'s> {
    /// Tiles, systems, rates and the state, as the rule itself has them.
    pub kernel: DeltaKernel<'s>,
    pub form: &'s DeltaRuleBackward,
    /// Whether it goes from the last time to the first, for the cotangents of states.
    pub is_back: bool,
    pub saved: Saved,
    /// The output over the width that goes through shared memory, where this walk stores it.
    pub staged: Option<Staged>,
}

/// The lanes by which tiles are read.
pub(super) struct WalkLanes {
    pub all: AllLanes,
    /// Tiles over pairs of times as right factors over the later time.
    pub transposed: Lanes,
}

/// A chunk of a walk.
pub(super) struct WalkedChunk<'a> {
    /// The state, or the cotangent of a state, that the chunk's steps change.
    pub state: &'a State,
    pub lanes: &'a WalkLanes,
    /// The factors of its tile.
    pub factors: &'a Factors<'a>,
    pub place: &'a TilePlace,
    /// The first time of its tile, `i32`.
    pub first: Operand,
    /// The number of its tile among those that are saved, `i64`.
    pub saved: Operand,
    /// Its number in its tile.
    pub number: u32,
    /// When a power of the state changes.
    pub check: &'a PowerCheck,
}

impl<'s> Walk<'s> {
    pub(super) fn declare(
        b: &mut Builder,
        stage: &'s Stage,
        form: &'s DeltaRuleBackward,
        sweep: DeltaSweep,
        walked: &'s ChunkDelta,
        args: Args,
    ) -> Walk<'s> {
        let is_back = sweep == DeltaSweep::Cotangents;
        let rule = if is_back { &form.cotangents } else { &form.errors };
        let mut kernel = DeltaKernel::walking(b, stage, rule, walked, args);
        let is_half = elem(stage, Tensor::Param(rule.key)) == Elem::F16;
        kernel.splits_states = is_half && kernel.elem() != Elem::F32 && !kernel.scales_states();
        kernel.has_no_values = is_back && !form.is_queried;
        let saved = Saved::declare(b, &kernel, is_back);
        let mut walk = Walk { kernel, form, is_back, saved, staged: None };
        walk.staged = walk.stage_width(b);
        walk
    }

    /// Whether bounds of packed sequences leave few registers, as two blocks share a multiprocessor or single elements have addresses.
    pub(super) fn has_few_registers(&self) -> bool {
        let schedule = self.kernel.schedule;
        self.kernel.keeps_bounds() && (schedule.blocks > 1 || schedule.vector == 1)
    }

    pub(super) fn body(&self, b: &mut Builder) {
        let kernel = &self.kernel;
        let tiles = kernel.tiles_of_times(b, self.is_back);
        let values = kernel.values_at();
        kernel.start(b, &values, tiles);
        let lanes = self.lanes(b);
        let walk = |b: &mut Builder| {
            let state = kernel.first_state(b, &values);
            let right = lanes.all.right.kept(b, kernel.thread.lane);
            let lanes =
                WalkLanes { all: AllLanes { right, ..lanes.all.clone() }, transposed: lanes.transposed.clone() };
            kernel.walk(b, tiles, |b, place| self.tile(b, &state, &lanes, tiles, place));
            self.finals(b, &state);
        };
        kernel.in_roles(b, walk, |b, own| {
            if own.schedule.sweep == RuleSweep::Walk {
                return own.copy_ahead(b, tiles, &self.stored(own), stored_in(own));
            }
            own.compute_ahead(b, &values, tiles, |b, place| match (&own.channels, self.is_back) {
                (Some(channels), is_back) => {
                    let has_two_keys = own.form.has_two_keys();
                    let system = if is_back || has_two_keys { System::OfRows } else { System::OfErrors };
                    own.channel_pairs(b, &values, tiles, channels, place, system);
                }
                (None, true) => own.pairs(b, &lanes.all, place),
                (None, false) => own.error_pairs(b, &lanes.all, place),
            });
        });
    }

    /// The walk's share of tiles that have been prepared.
    fn stored<'k>(&self, own: &'k DeltaKernel<'_>) -> Stored<'k> {
        let sharing = if self.is_back { Sharing::of_cotangents(own) } else { Sharing::of_errors(own) };
        sharing.stored(&self.form.states, own.schedule.depth)
    }

    fn lanes(&self, b: &mut Builder) -> WalkLanes {
        let all = self.kernel.lanes(b);
        let (row, half) = left_rows(b, self.kernel.thread.lane);
        WalkLanes { all, transposed: self.kernel.weights.lanes(b, row, half) }
    }

    /// The lanes in the stages of a tile.
    fn lanes_in(&self, b: &mut Builder, lanes: &WalkLanes, place: &TilePlace) -> WalkLanes {
        let of_pairs = TileStage::of(b, &self.kernel.weights, place.pairs.index);
        let transposed = lanes.transposed.in_stage(b, of_pairs);
        WalkLanes { all: self.kernel.lanes_in(b, &lanes.all, place), transposed }
    }

    /// Computes a tile.
    fn tile(&self, b: &mut Builder, state: &State, lanes: &WalkLanes, tiles: Tiles, place: &TilePlace) {
        let own = self.has_few_registers().then(|| self.kernel.rematerialised(b));
        let saved = self.saved.number(b, own.as_ref().unwrap_or(&self.kernel), tiles, place);
        let first = tiles.first_time(b, place.number);
        let has_channels = self.kernel.channels.is_some();
        if !has_channels {
            self.save_state(b, state, saved);
        }
        let lanes = &self.lanes_in(b, lanes, place);
        let factors = self.kernel.walked_factors(b, &lanes.all, Operand::i32(0));
        self.kernel.walk_tile(b, state, |b, check| {
            for number in 0..WARPS {
                let chunk = if self.is_back { WARPS - 1 - number } else { number };
                if has_channels {
                    // Decays for each channel are only multiplied inside of a chunk.
                    let first = b.mul(saved, Operand::i64(i64::from(WARPS)));
                    let of_chunk = b.add(first, Operand::i64(i64::from(chunk)));
                    self.save_state(b, state, of_chunk);
                }
                let chunk = WalkedChunk { state, lanes, factors: &factors, place, first, saved, number: chunk, check };
                if self.is_back {
                    self.cotangent_chunk(b, &chunk);
                } else {
                    self.error_chunk(b, &chunk);
                }
            }
        });
    }

    /// Stores the cotangent of the state before the first step.
    fn finals(&self, b: &mut Builder, state: &State) {
        let finals: Vec<usize> = (0..self.form.outputs.len())
            .filter(|output| self.form.outputs[*output] == DeltaCotangent::Initial)
            .collect();
        if !self.is_back || finals.is_empty() {
            return;
        }
        let kernel = self.kernel.rematerialised(b);
        let mut values = kernel.values_at();
        kernel.set_width_of_states(b, &mut values);
        for (block, sums) in (0..).zip(state.numbers(b)) {
            let mut values = values.clone();
            let coordinates = kernel.coordinates(b, &mut values, block);
            for (here, sum) in coordinates.into_iter().zip(sums) {
                for (node, ..) in self.form.sums.iter().filter(|(_, sum, _)| *sum == DeltaSum::Initial) {
                    values.set(*node, here, sum);
                }
            }
            for two in coordinates.chunks(2) {
                finals.iter().for_each(|output| kernel.store_final(b, &mut values, *output, [two[0], two[1]]));
            }
        }
    }
}
