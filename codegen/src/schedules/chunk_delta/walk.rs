//! The walk of a block over the times of its recurrence.

use super::{DeltaKernel, TIMES};
use crate::block::layout::{Lanes, left_rows, right_rows};
use crate::block::pair::Values;
use crate::build::Builder;
use crate::schedules::Strategy;
use crate::tile::{Operand, Stmt};
use oplus_dsl::Ty;
use oplus_dsl::ir::Binary;

/// The lanes by which tiles are read.
pub(in crate::schedules) struct AllLanes {
    /// Tiles over the depth as left factors, from the first row on.
    pub left: Lanes,
    /// Tiles over the depth as right factors.
    pub right: Lanes,
    /// Tiles over pairs of times as right factors.
    pub pairs: Lanes,
    /// Keys as right factors over time.
    pub in_time: Lanes,
    /// The index of the warp's values as left factors over time.
    pub values: Operand,
}

impl DeltaKernel<'_> {
    pub(in crate::schedules) fn body(&self, b: &mut Builder) {
        self.start(b);
        let source = self.source();
        let origins: Vec<Operand> = self.tiles().map(|tile| self.origin(b, tile, &source)).collect();
        let times = i64::from(TIMES);
        let up = b.add(self.args.size(self.form.time), Operand::i64(times - 1));
        let tiles = b.binary(Binary::Div, up, Operand::i64(times));
        let tiles = b.convert(Ty::I32, tiles);
        for tile in 0..self.schedule.stages as i32 {
            self.fetch(b, &origins, Operand::i32(tile), tiles);
        }
        let values = Values::new(self.stage, &self.args, [self.form.time, self.form.width], self.outer.clone());
        let state = self.first_state(b, &values);
        let rates = self.rates(b, &values, Operand::i32(0));
        self.store_rates(b, &rates, Operand::i32(0));
        b.barrier();
        let lanes = self.lanes(b);
        b.for_(Operand::i32(0), tiles, Operand::i32(1), |b, tile| {
            self.tile(b, &values, &state, &lanes, tile);
            let next = b.add(tile, Operand::i32(self.schedule.stages as i32));
            self.fetch(b, &origins, next, tiles);
        });
        self.finals(b, &values, &state);
    }

    /// Initialises the mbarriers, by one thread.
    pub(in crate::schedules) fn start(&self, b: &mut Builder) {
        let first = b.eq(self.thread, Operand::i32(0));
        b.if_(first, |b| {
            self.tiles().for_each(|tile| b.init_mbarriers(tile.full, self.schedule.stages, self.schedule.threads()));
            b.push(Stmt::FenceInit);
        });
        b.barrier();
    }

    /// Starts the copies of a tile of times, if there is one.
    fn fetch(&self, b: &mut Builder, origins: &[Operand], number: Operand, tiles: Operand) {
        self.fetch_from(b, origins, (number, tiles), |_| number);
    }

    /// Starts the copies of the tile that is taken as this one of all, if there is one; `place` gives its place in time.
    pub(in crate::schedules) fn fetch_from(
        &self,
        b: &mut Builder,
        origins: &[Operand],
        (number, tiles): (Operand, Operand),
        place: impl FnOnce(&mut Builder) -> Operand,
    ) {
        let exists = b.lt(number, tiles);
        b.if_(exists, |b| {
            let place = place(b);
            let first = b.mul(place, Operand::i32(TIMES as i32));
            let stage = b.binary(Binary::Rem, number, Operand::i32(self.schedule.stages as i32));
            let source = self.source();
            for (tile, origin) in self.tiles().zip(origins) {
                tile.fill(b, &source, *origin, first, stage);
            }
        });
    }

    pub(in crate::schedules) fn lanes(&self, b: &mut Builder) -> AllLanes {
        let (row, half) = left_rows(b, self.lane);
        let left = self.keys.lanes(b, row, half);
        let in_time = left.clone();
        let (row, half) = right_rows(b, self.lane);
        let right = self.keys.lanes(b, row, half);
        let pairs = self.inverses.lanes(b, row, half);
        let values = self.values.lanes_at(b, row, half, self.warp);
        AllLanes { left, right, pairs, in_time, values }
    }
}
