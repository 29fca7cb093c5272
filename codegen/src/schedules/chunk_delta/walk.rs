//! The kernel: a block goes over the times of its recurrence.

use super::channels::System;
use super::{DeltaKernel, RuleSweep};
use crate::block::layout::{Lanes, left_rows, right_rows};
use crate::build::Builder;
use crate::tile::Operand;
use oplus_dsl::Elem;

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
    /// The index of the warp's values as left factors over time, where they have 16 bits.
    pub values: Operand,
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
        let walk = |b: &mut Builder| {
            let state = self.first_state(b, &values);
            self.walk(b, tiles, |b, place| self.chunks(b, &values, &state, &lanes, place));
            self.finals(b, &values, &state);
        };
        let walk = |b: &mut Builder| {
            self.in_pairs(b, walk, |b, own, handed| own.read_behind(b, &values, tiles, &lanes, handed));
        };
        let is_prepared = self.schedule.sweep == RuleSweep::Walk;
        self.in_roles(b, walk, |b, own| match &own.channels {
            _ if is_prepared => own.copy_ahead(b, tiles, &own.stored(), own.stored_in()),
            Some(channels) => own.compute_ahead(b, &values, tiles, |b, place| {
                own.channel_pairs(b, &values, tiles, channels, place, System::OfRows);
            }),
            None => own.compute_ahead(b, &values, tiles, |b, place| own.pairs(b, &lanes, place)),
        });
    }

    pub(in crate::schedules) fn lanes(&self, b: &mut Builder) -> AllLanes {
        let (row, half) = left_rows(b, self.thread.lane);
        let left = self.factor_tile().lanes(b, row, half);
        let in_time = left.clone();
        let (row, half) = right_rows(b, self.thread.lane);
        let right = self.factor_tile().lanes(b, row, half);
        let pairs = self.inverses.lanes(b, row, half);
        let values = match self.values.elem {
            // Of `f32` single elements are read.
            Elem::F32 => Operand::i32(0),
            _ => self.values.lanes_at(b, row, half, self.thread.warp),
        };
        AllLanes { left, right, pairs, in_time, values }
    }
}
