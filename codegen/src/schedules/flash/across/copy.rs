//! The warps that copy: the rows of a block, and the tiles of columns.

use super::super::FlashKernel;
use super::work::TileStep;
use crate::abi::Tensor;
use crate::block::copy::Source;
use crate::block::layout::Tile;
use crate::block::ring::RingStage;
use crate::build::Builder;
use crate::tile::{Operand, Reg, SharedId, Stmt};
use oplus_dsl::ir::Axis;

impl FlashKernel<'_> {
    /// Copies the rows of the block and all tiles of columns.
    pub(super) fn copy_across(&self, b: &mut Builder) {
        let number = b.var(Operand::i32(0));
        let start = b.var(Operand::i32(0));
        self.each_point(b, |kernel, b, work, iteration| {
            b.assign(start, number.into());
            // The first tiles of columns are on their way before all warps have left the rows of the point before.
            kernel.each_step(b, work, number, |b, step| {
                kernel.copy_step(b, step);
                let is_first = b.eq(step.number, Operand::Reg(start));
                b.if_(is_first, |b| kernel.copy_rows(b, iteration));
            });
            let has_none = b.eq(number.into(), Operand::Reg(start));
            b.if_(has_none, |b| kernel.copy_rows(b, iteration));
        });
    }

    /// Copies the rows of the block.
    fn copy_rows(&self, b: &mut Builder, iteration: Reg) {
        let filled = RingStage::only(b, iteration.into());
        let read = filled.before(b);
        b.wait(self.rows_empty, read);
        let source = self.source(&self.outer);
        self.row_tiles.iter().for_each(|tile| self.copy_tile(b, tile, &source, self.first_row, filled));
        self.row_tiles.iter().for_each(|tile| self.hand_tile_over(b, tile, filled));
    }

    /// The source of copies at outer indices.
    pub(super) fn source<'s>(&'s self, outer: &'s [(Axis, Operand)]) -> Source<'s> {
        Source {
            args: &self.args,
            outer,
            threads: self.schedule.copying(),
            thread: self.thread.number,
            vector: self.schedule.vector,
            padded: false,
            fenced: true,
            rolled: None,
        }
    }

    /// Copies the tiles of a step into their stages, once all warps have left these. Numbers of columns come with the first tile.
    fn copy_step(&self, b: &mut Builder, step: &TileStep) {
        let outer = self.outer_of(b, step);
        let source = self.source(&outer);
        let first = b.mul(step.tile, self.schedule.columns);
        let filled = self.ring().at(b, step.number);
        let left = filled.before(b);
        for (ring, tile) in self.column_tiles.iter().enumerate() {
            let at = b.add(left.index, ring as u32 * self.schedule.stages);
            b.wait(self.empty, RingStage { index: at, ..left });
            if ring == 0 {
                for vector in &self.vectors {
                    let origin = self.args.offset(b, Tensor::Param(vector.param), &outer);
                    vector.fill(b, &source, self.form.column, origin, first, filled.index);
                }
            }
            self.copy_tile(b, tile, &source, first, filled);
        }
        self.column_tiles.iter().for_each(|tile| self.hand_tile_over(b, tile, filled));
    }

    /// Copies a tile's rows from `first` on into a stage.
    fn copy_tile(&self, b: &mut Builder, tile: &Tile, source: &Source, first: Operand, filled: RingStage) {
        tile.start_copies_in_loop(b, source, first, filled.index);
        b.arrive_with_copies(self.landed(tile), filled.index);
    }

    /// Hands a tile over to those who walk, once its copies have landed. Warpgroups read what this fence has ordered.
    fn hand_tile_over(&self, b: &mut Builder, tile: &Tile, filled: RingStage) {
        b.wait(self.landed(tile), filled);
        b.push(Stmt::FenceAsync);
        b.arrive(tile.full, filled.index);
    }

    /// The mbarriers that say that a tile's copies have landed.
    fn landed(&self, tile: &Tile) -> SharedId {
        let mut tiles = self.row_tiles.iter().chain(&self.column_tiles).map(|own| own.array);
        let number = tiles.position(|array| array == tile.array).unwrap_or(0);
        self.arrays().landed[number]
    }
}
