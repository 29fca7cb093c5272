//! Persistent blocks of warps that walk and warps that copy go from rows to rows without a pause.
//!
//! A walking warpgroup starts the products of the last tile of some rows and at once the contraction of the first tile of the next
//! ones. While that runs it stores the outputs of the rows before.
//!
//! The copying warps [assign](super::assignment) the rows.

use super::assignment::Assignment;
use super::block_rows::BlockRows;
use super::overlap::{FilledTile, PackedRegisters};
use super::sums::Sums;
use super::visible::Tiles;
use super::walk::{Past, TileLoop, Walk};
use super::{FlashKernel, Grid};
use crate::block::matmul::finish_all;
use crate::block::ring::{Ring, RingStage};
use crate::build::Builder;
use crate::tile::{Operand, Reg};
use oplus_dsl::ir::Unary;

/// The registers that a walking warpgroup keeps from rows to rows.
struct KeptRegisters {
    sums: Sums,
    packed: Vec<Option<PackedRegisters>>,
    /// The tiles of columns before the rows.
    tiles: Reg,
    /// The tiles of rows before.
    rows: Reg,
}

impl KeptRegisters {
    fn past(&self) -> Past {
        Past { tiles: Some(self.tiles), partial: None, rows: Some(self.rows) }
    }
}

impl FlashKernel<'_> {
    /// Copies all rows that the block has, assigns them, and copies their tiles of columns.
    pub(super) fn copy_all_rows(&self, b: &mut Builder) {
        let zero = Operand::i32(0);
        let [tiles, rows_done] = [0; 2].map(|_| b.var(zero));
        let partial = self.landed.map(|_| b.var(zero));
        let past = Past { tiles: Some(tiles), partial, rows: Some(rows_done) };
        BlockRows::each(b, &self.args, self.form, self.schedule, |b, rows| {
            let kernel = self.at_rows(rows);
            // The rows first: they come from memory, and are known before the columns that they see.
            let stage = kernel.empty_rows(b, past);
            kernel.fill_rows(b, &kernel.source_of_rows(), stage);
            kernel.in_tile_loop(b, past, |b, tile_loop, _| {
                kernel.copy_columns_of_rows(b, tile_loop, stage);
                let partial = partial.map(|partial| (partial, tile_loop.iterations.partial));
                let always = [(tiles, tile_loop.iterations.count), (rows_done, Operand::i32(1))];
                for (reg, more) in always.into_iter().chain(partial) {
                    let next = b.add(reg.into(), more);
                    b.assign(reg, next);
                }
            });
        });
        let stage = self.empty_rows(b, past);
        self.assign_nothing(b, stage);
    }

    /// Assigns some rows, whose copies into a stage have been started, and copies their tiles of columns.
    fn copy_columns_of_rows(&self, b: &mut Builder, tile_loop: &TileLoop, stage: Operand) {
        self.copy_tiles(b, tile_loop, &self.rings(true), Operand::i32(0));
        self.assign_rows(b, tile_loop, stage);
        self.copy_columns(b, tile_loop);
    }

    /// The next stage of rows, once it has been left.
    fn empty_rows(&self, b: &mut Builder, past: Past) -> Operand {
        let filled = self.rows_stage(b, past);
        let left = filled.before(b);
        b.wait(self.rows_empty, left);
        filled.index
    }

    /// Walks the tiles of all rows that are assigned. From one iteration of the loop to the next the weights of the first tile of some rows are packed.
    pub(super) fn walk_all_rows(&self, b: &mut Builder) {
        let kept = KeptRegisters {
            sums: self.sums(b, self.thread_tile()),
            packed: self.packed_registers(b),
            tiles: b.var(Operand::i32(0)),
            rows: b.var(Operand::i32(0)),
        };
        let at = self.rows_stage(b, kept.past());
        let exists = self.wait_for_assignment(b, at);
        b.if_(exists, |b| {
            self.begin_rows(b, &kept, at, None);
            b.loop_(|b| {
                self.walk_later(b, &kept);
                let at = self.rows_stage(b, kept.past());
                let exists = self.wait_for_assignment(b, at);
                let is_past = b.unary(Unary::Not, exists);
                b.break_if(is_past);
                let last = self.start_last(b, &kept);
                self.begin_rows(b, &kept, at, Some(last));
            });
            self.start_last(b, &kept);
            self.finish_all_but(b, &kept.sums, 0);
            self.store_before(b, &kept);
        });
    }

    /// Starts the products of the last tile of the rows before; gives its stage.
    fn start_last(&self, b: &mut Builder, kept: &KeptRegisters) -> RingStage {
        let last = b.sub(kept.tiles.into(), 1);
        let last = self.ring().at(b, last);
        self.start_packed(b, &kept.sums, &kept.packed, last);
        last
    }

    /// Walks the tiles of columns of the rows behind the first one.
    fn walk_later(&self, b: &mut Builder, kept: &KeptRegisters) {
        let at = self.rows_stage(b, kept.past());
        let Assignment { rows, tiles, unseen } = self.assignment(b, at.index);
        let count = tiles.count;
        self.at_rows(rows).on_walk(b, kept, tiles, |kernel, b, walk| {
            kernel.later_tiles(b, walk, unseen, &kept.packed);
        });
        for (reg, more) in [(kept.tiles, count), (kept.rows, Operand::i32(1))] {
            let next = b.add(reg.into(), more);
            b.assign(reg, next);
        }
    }

    /// Walks assigned tiles of columns by `body`.
    fn on_walk(
        &self,
        b: &mut Builder,
        kept: &KeptRegisters,
        tiles: Tiles,
        body: impl FnOnce(&Self, &mut Builder, &Walk),
    ) {
        self.on_tiles(
            b,
            kept.past(),
            |_, _, _| tiles,
            |b, tile_loop, mut values| {
                values.fast = true;
                self.hoist(b, &mut values, tile_loop.thread_tile);
                let lanes = (self.contracted_lanes(b), self.weighted_lanes(b));
                let source = tile_loop.source;
                body(self, b, &Walk { tile_loop, source, values: &values, lanes: Some(&lanes), sums: &kept.sums });
            },
        );
    }

    /// Starts the contraction of the first tile of some rows that is seen, and packs its weights. While it runs the outputs of the rows
    /// before are stored, the products of whose last tile, in stage `last`, have been started.
    fn begin_rows(&self, b: &mut Builder, kept: &KeptRegisters, at: RingStage, last: Option<RingStage>) {
        let Assignment { rows, tiles, unseen } = self.assignment(b, at.index);
        self.at_rows(rows).on_walk(b, kept, tiles, |kernel, b, walk| {
            kernel.leave_unseen(b, walk, unseen, last);
            let products = kernel.start_first(b, walk, unseen, at);
            if let Some(last) = last {
                kernel.finish_all_but(b, &kept.sums, 1);
                let stays = b.eq(unseen, 0);
                b.if_(stays, |b| kernel.leave_rings(b, last));
                kernel.store_before(b, kept);
                kept.sums.clear(b);
            }
            kernel.weigh_first(b, kept, walk, &products, unseen);
        });
    }

    /// Leaves the tiles that the warpgroup's rows do not see. They may need the stage of the last tile of the rows before.
    fn leave_unseen(&self, b: &mut Builder, walk: &Walk, unseen: Operand, last: Option<RingStage>) {
        let some = b.ge(unseen, 1);
        b.if_(some, |b| {
            if let Some(last) = last {
                finish_all(b, vec![], 0);
                self.leave_rings(b, last);
            }
            b.for_(Operand::i32(0), unseen, 1, |b, iteration| self.leave_out(b, walk, iteration));
        });
    }

    /// Starts the contraction of the first tile that is seen, once it has been copied, and the rows.
    fn start_first(&self, b: &mut Builder, walk: &Walk, first: Operand, at: RingStage) -> Vec<Grid> {
        let filled = self.filled(b, walk.tile_loop, first);
        self.row_tiles.iter().for_each(|tile| b.wait(tile.full, at));
        self.wait_for(b, &self.contracted(), filled, &mut vec![]);
        self.take_turn(b, walk, first);
        let products = self.start_contractions(b, walk, filled.index);
        self.pass_turn(b);
        products
    }

    /// Evaluates the weights of the first tile that is seen, and packs them.
    fn weigh_first(&self, b: &mut Builder, kept: &KeptRegisters, walk: &Walk, products: &[Grid], first: Operand) {
        let filled = self.filled(b, walk.tile_loop, first);
        let is_partial = b.lt(first, walk.tile_loop.iterations.partial);
        let weigh = |b: &mut Builder, partial: bool| {
            self.first_weights(b, walk, products, FilledTile { filled, iteration: first }, &kept.packed, partial);
        };
        b.if_else(is_partial, |b| weigh(b, true), |b| weigh(b, false));
    }

    /// Says that the warpgroup has read a stage of the payloads' tiles.
    fn leave_rings(&self, b: &mut Builder, filled: RingStage) {
        self.rings(false).into_iter().for_each(|ring| self.leave_ring(b, ring, filled.index));
    }

    /// Stores the outputs of the rows before, and leaves their stage.
    fn store_before(&self, b: &mut Builder, kept: &KeptRegisters) {
        let before = b.sub(kept.rows.into(), 1);
        let stage = Ring::of(self.schedule.row_stages()).stage(b, before);
        let rows = self.assignment(b, stage).rows;
        let free = b.mul(stage, self.row_tiles[0].len());
        let kernel = FlashKernel { free_rows: Some(free), ..self.at_rows(rows) };
        let mut values = kernel.row_values(b, kernel.thread_tile());
        if let Some(gauge) = &self.form.gauge {
            kernel.settle(b, gauge, &mut values, &kept.sums);
        }
        kernel.finals(b, values, kernel.thread_tile(), &kept.sums);
        b.arrive(self.rows_empty, stage);
    }
}
