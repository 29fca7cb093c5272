//! Copies to the tiles, from tensors and from the memory in which walks save.

use super::super::common::{Place, SavedTile};
use super::{ChannelGradients, WARPS};
use crate::abi::{Tensor, elem};
use crate::block::layout::{Tile, TileStage};
use crate::block::prepare::{are_copied, prepare};
use crate::block::ring::RingStage;
use crate::build::Builder;
use crate::schedules::chunk_delta_backward::{BLOCKS, TIMES};
use crate::tile::{Operand, Stmt};
use oplus_dsl::Ty;

impl ChannelGradients<'_> {
    /// The tiles over the depth that are copied from tensors.
    fn deep(&self) -> impl Iterator<Item = &Tile> {
        [&self.keys, &self.queries].into_iter().chain(&self.columns).chain(&self.rows)
    }

    /// The tiles of a part of the width.
    fn of_part(&self) -> impl Iterator<Item = &Tile> {
        let all = [&self.cotangents, &self.errors, &self.states, &self.duals];
        all.into_iter().chain(&self.products).chain(self.of_values.iter().flatten())
    }

    /// The tile of values, where they are copied from a tensor: of a rule with two keys, and as errors where steps read nothing.
    fn copied_values(&self) -> impl Iterator<Item = &Tile> {
        let errors = (!self.form.states.reads).then_some(&self.errors);
        errors.into_iter().chain(self.of_values.iter().map(|[values, _]| values))
    }

    /// Initialises the mbarriers, by one thread.
    pub(super) fn start(&self, b: &mut Builder) {
        let first = b.eq(self.thread.number, 0);
        b.if_(first, |b| {
            for tile in self.deep().chain(self.of_part()) {
                b.init_mbarriers(tile.full, 1, self.threads());
            }
            b.push(Stmt::FenceInit);
        });
        b.barrier();
    }

    /// Starts the copies of the tiles over the depth.
    pub(super) fn fetch_deep(&self, b: &mut Builder, place: &Place) {
        self.third().fetch_deep(b, self.deep(), place);
    }

    /// Starts the copies of a part of the width.
    pub(super) fn fetch_part(&self, b: &mut Builder, place: &Place, part: Operand) {
        let source = self.third().source(&place.outer);
        let width = self.form.states.width;
        let part = b.convert(Ty::I64, part);
        let first = b.mul(part, i64::from(TIMES));
        let given = self.third().first_given(b, place.first);
        let values = self.copied_values().map(|values| (values, place.first));
        for (tile, first_time) in [(&self.cotangents, given)].into_iter().chain(values) {
            let origin = tile.origin(b, &source);
            let by = b.mul(first, self.args.stride(Tensor::Param(tile.param), width));
            let origin = b.add(origin, by);
            tile.fill(b, &source, origin, first_time, Operand::i32(0));
        }
        let row = b.mul(place.point, place.parts);
        let row = b.add(row, part);
        let number = b.mul(row, place.count);
        let number = b.add(number, place.number);
        let chunks = WARPS / (self.schedule.depth / super::SLICE);
        let of_states = [(&self.states, BLOCKS, chunks), (&self.duals, BLOCKS, chunks)];
        let errors = self.form.states.reads.then_some(&self.errors);
        let of_values = self.of_values.iter().map(|[_, products]| products);
        let of_rows = errors.into_iter().chain(&self.products).chain(of_values);
        let of_rows = of_rows.map(|tile| (tile, 1, 1));
        for (scratch, (tile, each, stages)) in of_states.into_iter().chain(of_rows).enumerate() {
            // A saved tile has 64 times, of which the block has a part.
            let len = tile.len() * stages;
            let saved = TIMES * if each == 1 { TIMES } else { each * tile.depth };
            let first = b.mul(number, i64::from(saved));
            let by = b.mul(place.part_of_times, i64::from(len));
            let first = b.add(first, by);
            let saved = SavedTile { tile, len, stage: Operand::i32(0) };
            self.third().fill_saved(b, saved, self.args.scratch[scratch], first);
        }
    }

    /// Waits for the tiles over the depth.
    pub(super) fn wait_deep(&self, b: &mut Builder) {
        self.deep().for_each(|tile| b.wait(tile.full, RingStage::FIRST));
    }

    /// Makes factors of a part of the width, where products do not take the elements as they are: a warp for each chunk.
    pub(super) fn prepare_part(&self, b: &mut Builder) {
        let own = elem(self.stage, Tensor::Param(self.cotangents.param));
        if !are_copied(&self.cotangents, own, self.schedule.vector) {
            return;
        }
        let is_first = b.eq(self.slice, 0);
        b.if_(is_first, |b| {
            let first = self.first_of_chunk(b);
            let tiles = [&self.cotangents].into_iter().chain(self.copied_values());
            let stages: Vec<TileStage> = tiles.map(TileStage::only).collect();
            prepare(b, &stages, self.thread.lane, first);
        });
        b.barrier();
    }

    /// Waits for the tiles of a part of the width.
    pub(super) fn wait_part(&self, b: &mut Builder, part: Operand) {
        let stage = RingStage::only(b, part);
        self.of_part().for_each(|tile| b.wait(tile.full, stage));
    }
}
