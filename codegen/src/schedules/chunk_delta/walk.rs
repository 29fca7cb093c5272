//! The kernel: a block goes over the times of its recurrence.

use super::ahead::TilePlace;
use super::channels::System;
use super::state::State;
use super::{DeltaKernel, RuleSweep};
use crate::block::layout::{Lanes, TileStage, left_rows, right_rows};
use crate::build::Builder;
use crate::tile::Operand;
use oplus_dsl::Elem;
use oplus_dsl::ir::Binary;

/// The lanes by which tiles are read.
#[derive(Clone)]
pub(in crate::schedules) struct AllLanes {
    /// Tiles over the depth as left factors, from the first row on.
    pub left: Lanes,
    /// Tiles over the depth as right factors.
    pub right: Lanes,
    /// Tiles over pairs of times as right factors.
    pub pairs: Lanes,
    /// Keys as right factors over time.
    pub in_time: Lanes,
    /// The index of the warp's values as left factors over time; of `f32` that of the thread's first one.
    pub values: Operand,
}

/// A tile of a walk.
pub(super) struct WalkedTile<'a> {
    /// The lanes, those of values in the tile's stage.
    pub lanes: &'a AllLanes,
    pub place: &'a TilePlace,
    /// The stages of factors over the depth and over pairs of times, from those that lanes are in.
    pub deep: Operand,
    pub pairs: Operand,
}

impl DeltaKernel<'_> {
    pub(super) fn body(&self, b: &mut Builder) {
        if self.own_tile.is_some() {
            return self.prepare_tile(b);
        }
        let tiles = self.tiles_of_times(b, false);
        let values = self.values_at();
        self.start(b, &values, tiles);
        let lanes = self.lanes(b);
        let is_prepared = self.schedule.sweep == RuleSweep::Walk;
        let walk = |b: &mut Builder| {
            let state = self.first_state(b, &values);
            let lanes = if is_prepared { self.kept_lanes(b, &lanes) } else { lanes.clone() };
            self.walk(b, tiles, |b, place| {
                let own = self.rematerialised_in_walk(b).map(|own| own.lanes(b));
                let own = own.map(|own| self.kept_lanes(b, &own));
                let lanes = own.as_ref().unwrap_or(&lanes);
                if is_prepared {
                    self.prepared_tile(b, &state, lanes, place);
                } else {
                    self.tile(b, &state, lanes, place);
                }
            });
            self.finals(b, &state);
        };
        let walk = |b: &mut Builder| {
            self.in_pairs(b, walk, |b, own, handed| own.read_behind(b, tiles, &lanes, handed));
        };
        self.in_roles(b, walk, |b, own| match &own.channels {
            _ if is_prepared => own.copy_ahead(b, tiles, &own.stored(), own.stored_in()),
            Some(channels) => own.compute_ahead(b, &values, tiles, |b, place| {
                own.channel_pairs(b, &values, tiles, channels, place, System::OfRows);
            }),
            None => own.compute_ahead(b, &values, tiles, |b, place| own.pairs(b, &lanes, place)),
        });
    }

    /// Computes a tile that another kernel has prepared.
    fn prepared_tile(&self, b: &mut Builder, state: &State, lanes: &AllLanes, place: &TilePlace) {
        let lanes = self.lanes_in(b, lanes, place);
        let [deep, pairs] = [Operand::i32(0); 2];
        self.chunks(b, state, &WalkedTile { lanes: &lanes, place, deep, pairs });
    }

    /// Computes a tile that the block's other warps have prepared.
    fn tile(&self, b: &mut Builder, state: &State, lanes: &AllLanes, place: &TilePlace) {
        let of_values = TileStage::of(b, &self.values, place.stage.index);
        let lanes = AllLanes { values: b.add(lanes.values, of_values.start), ..lanes.clone() };
        let (deep, pairs) = (self.walked_stage(place), place.pairs.index);
        self.chunks(b, state, &WalkedTile { lanes: &lanes, place, deep, pairs });
    }

    /// The lanes with an index of right factors that stays in one register.
    pub(in crate::schedules) fn kept_lanes(&self, b: &mut Builder, lanes: &AllLanes) -> AllLanes {
        AllLanes { right: lanes.right.kept(b, self.thread.lane), ..lanes.clone() }
    }

    /// The lanes in the stages of a tile.
    pub(in crate::schedules) fn lanes_in(&self, b: &mut Builder, lanes: &AllLanes, place: &TilePlace) -> AllLanes {
        let deep = TileStage::of(b, self.factor_tile(), self.walked_stage(place));
        let of_pairs = TileStage::of(b, &self.weights, place.pairs.index);
        let of_values = TileStage::of(b, &self.values, place.stage.index);
        let right = lanes.right.in_stage(b, deep);
        // Values and right factors of one layout differ in the pieces that a warp has.
        let are_alike = self.values.elem != Elem::F32
            && (self.values.panel(), self.values.len()) == (deep.tile.panel(), deep.tile.len())
            && place.stage.index == self.walked_stage(place);
        let values = if are_alike {
            let own = b.mul(self.thread.warp, self.values.step());
            let first = self.values.index(b, &right, 0, 0);
            b.binary(Binary::Xor, first, own)
        } else {
            b.add(lanes.values, of_values.start)
        };
        let [pairs, in_time] = [(&lanes.pairs, of_pairs), (&lanes.in_time, deep)].map(|(own, at)| own.in_stage(b, at));
        AllLanes { left: lanes.left.clone(), right, pairs, in_time, values }
    }

    pub(in crate::schedules) fn lanes(&self, b: &mut Builder) -> AllLanes {
        let (row, half) = left_rows(b, self.thread.lane);
        let left = self.factor_tile().lanes(b, row, half);
        let in_time = left.clone();
        let (row, half) = right_rows(b, self.thread.lane);
        let right = self.factor_tile().lanes(b, row, half);
        let pairs = self.weights.lanes(b, row, half);
        let values = match self.values.elem {
            Elem::F32 => {
                let (place, time) = (self.first_row(b), self.fragment.column(b));
                let [piece, within] = b.div_rem(place, self.values.piece());
                let index = self.values.piece_index(b, time, piece);
                b.add(index, within)
            }
            _ => self.values.lanes_at(b, row, half, self.thread.warp),
        };
        AllLanes { left, right, pairs, in_time, values }
    }
}
