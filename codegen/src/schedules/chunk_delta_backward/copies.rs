//! Copies to the tiles of the third sweep, from tensors and from the tiles that walks have saved.

use super::TIMES;
use super::common::{Place, SavedTile};
use super::gradients::Gradients;
use crate::block::layout::TileStage;
use crate::block::matmul::ROWS;
use crate::block::prepare::prepare;
use crate::block::ring::RingStage;
use crate::build::Builder;
use crate::tile::{Operand, Stmt};
use oplus_dsl::Ty;

impl Gradients<'_> {
    /// Initialises the mbarriers and the rematerialised numbers, by one thread.
    pub(super) fn start(&self, b: &mut Builder) {
        let numbers = self.numbers_of_place(b);
        let first = b.eq(self.thread.number, Operand::i32(0));
        b.if_(first, |b| {
            self.rematerialiser.store(b, &numbers);
            for tile in self.tiles.deep() {
                b.init_mbarriers(tile.full, 1, self.schedule.threads());
            }
            for tile in self.tiles.of_part() {
                b.init_mbarriers(tile.full, self.tiles.stages, self.schedule.threads());
            }
            b.push(Stmt::FenceInit);
        });
        b.barrier();
    }

    /// Starts the copies of the tiles over the depth.
    pub(super) fn fetch_deep(&self, b: &mut Builder, place: &Place) {
        self.third().fetch_deep(b, self.tiles.deep(), place);
    }

    /// Starts the copies of a part of the width to a stage.
    pub(super) fn fetch_part(&self, b: &mut Builder, place: &Place, part: Operand, stage: Operand) {
        let source = self.third().source(&place.outer);
        let (tile, width) = (&self.tiles.cotangents, self.form.states.width);
        let origin = tile.origin(b, &source);
        let part = b.convert(Ty::I64, part);
        let first = b.mul(part, Operand::i64(i64::from(TIMES)));
        let by = b.mul(first, self.args.stride(crate::abi::Tensor::Param(tile.param), width));
        let origin = b.add(origin, by);
        let given = self.third().first_given(b, place.first);
        tile.fill(b, &source, origin, given, stage);
        let row = b.mul(place.point, place.parts);
        let row = b.add(row, part);
        let number = b.mul(row, place.count);
        let number = b.add(number, place.number);
        let Self { tiles, .. } = self;
        for (scratch, tile) in [&tiles.states, &tiles.duals, &tiles.errors, &tiles.products].into_iter().enumerate() {
            let first = b.mul(number, Operand::i64(i64::from(tile.len())));
            let saved = SavedTile { tile, len: tile.len(), stage };
            self.third().fill_saved(b, saved, self.args.scratch[scratch], first);
        }
    }

    /// Waits for the tiles over the depth.
    pub(super) fn wait_deep(&self, b: &mut Builder, at: RingStage) {
        self.tiles.deep().for_each(|tile| b.wait(tile.full, at));
    }

    /// Makes factors of what has been copied to tiles, where products do not take the elements as they are: a half of the warps has every
    /// other tile.
    pub(super) fn prepare(&self, b: &mut Builder, tiles: &[TileStage]) {
        if !self.tiles.are_copied(self.stage, self.schedule.vector) {
            return;
        }
        let first = b.mul(self.block, ROWS);
        for half in 0..2 {
            let own: Vec<TileStage> = tiles.iter().skip(half).step_by(2).copied().collect();
            if own.is_empty() {
                continue;
            }
            let is_own = b.eq(self.half, half as u32);
            b.if_(is_own, |b| prepare(b, &own, self.thread.lane, first));
        }
    }

    /// Makes factors of a part of the width, for all threads.
    pub(super) fn prepare_part(&self, b: &mut Builder, stage: Operand) {
        if self.tiles.are_copied(self.stage, self.schedule.vector) {
            let cotangents = TileStage::of(b, &self.tiles.cotangents, stage);
            self.prepare(b, &[cotangents]);
            b.barrier();
        }
    }

    /// Waits for the tiles of a part of the width.
    pub(super) fn wait_part(&self, b: &mut Builder, at: RingStage) {
        self.tiles.of_part().into_iter().for_each(|tile| b.wait(tile.full, at));
    }
}
