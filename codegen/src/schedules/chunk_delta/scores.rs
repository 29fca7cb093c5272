//! Products over pairs of times of a chunk: its triangular system, and the weights of keys for queries. Every warp has a chunk.

use oplus_dsl::ir::{Binary, Unary};

use super::ahead::TilePlace;
use super::rates::{ADDED, BEFORE, READ, SUMS};
use super::{COLUMNS, DeltaKernel, ELEMENTS, PITCH, ROWS};
use crate::block::layout::Tile;
use crate::block::matmul::{Blocks, Factor, zeros};
use crate::block::split_tile::{BlockIndex, piece_of_eight, place_of_two, store_block};
use crate::build::{Builder, f32};
use crate::tile::{Expr, Memory, Operand};
use oplus_dsl::{Elem, Ty};

impl DeltaKernel<'_> {
    /// The factor from the first row of the warp's chunk on.
    pub(in crate::schedules) fn own_chunk<'a>(&self, b: &mut Builder, factor: Factor<'a>) -> Factor<'a> {
        let rows = b.mul(self.thread.warp, Operand::i32((ROWS * factor.tile.panel()) as i32));
        Factor { start: b.add(factor.start, rows), ..factor }
    }

    /// The products of a left factor and all keys of a chunk.
    pub(in crate::schedules) fn products(&self, b: &mut Builder, left: Factor, keys: Factor) -> Blocks {
        // Factors of `f16` become those of other products later.
        let elem = if self.copies_half() { Elem::F16 } else { left.tile.elem };
        let mut sums: Blocks = vec![zeros(); 2];
        for sixteen in 0..self.schedule.depth / ROWS {
            let rows = left.parts(b, 0, sixteen, false);
            let columns = keys.parts(b, 0, sixteen, false);
            rows.multiply(b, elem, &mut sums, columns);
        }
        sums
    }

    /// Writes the system of the warp's chunk.
    pub(super) fn store_system(&self, b: &mut Builder, products: &Blocks, place: &TilePlace) {
        let from = place.rates;
        let (before, read) = (self.of_rows(b, BEFORE, from), self.of_rows(b, READ, from));
        let (row, column) = (self.first_row(b), self.fragment.column(b));
        for (block, products) in (0..).zip(products) {
            let decayed = self.decayed(b, products, before, block, from, Binary::Lt);
            let scaled = ELEMENTS.map(|(h, c)| b.mul(decayed[2 * h + c], read[h]));
            self.store_system_block(b, block, scaled, row, column);
        }
    }

    /// Writes the system of the warp's chunk for gradients, whose solution is x less what each step reads of the state. Its elements have
    /// the number y of the time at which a row was added.
    pub(in crate::schedules) fn store_error_system(&self, b: &mut Builder, products: &Blocks, place: &TilePlace) {
        let from = place.rates;
        let (before, read) = (self.of_rows(b, BEFORE, from), self.of_rows(b, READ, from));
        let (row, column) = (self.first_row(b), self.fragment.column(b));
        let of_warp = b.mul(self.thread.warp, Operand::i32(ROWS as i32));
        let own = b.add(from, of_warp);
        for (block, products) in (0..).zip(products) {
            let decayed = self.decayed(b, products, before, block, from, Binary::Lt);
            let added = self.two_rates(b, ADDED, own, block).map(|added| b.unary(Unary::Neg, added));
            let scaled = ELEMENTS.map(|(h, c)| {
                let scale = b.mul(read[h], added[c]);
                b.mul(decayed[2 * h + c], scale)
            });
            self.store_system_block(b, block, scaled, row, column);
        }
    }

    fn store_system_block(&self, b: &mut Builder, block: u32, elements: [Operand; 4], row: Operand, column: Operand) {
        for h in 0..2 {
            let row = b.add(row, Operand::i32((h as u32 * COLUMNS) as i32));
            let index = b.mul(row, Operand::i32(PITCH as i32));
            let index = b.add(index, column);
            let index = b.add(index, Operand::i32((block * COLUMNS) as i32));
            b.store(Memory::Shared(self.systems), index, &elements[2 * h..2 * h + 2], None);
        }
    }

    /// Writes the weights of the warp's chunk for queries.
    pub(super) fn store_weights(&self, b: &mut Builder, tile: &Tile, products: &Blocks, place: &TilePlace) {
        let from = place.rates;
        let start = b.mul(place.pairs.index, Operand::i32(tile.len() as i32));
        let sums = self.of_rows(b, SUMS, from);
        for (block, products) in (0..).zip(products) {
            let decayed = self.decayed(b, products, sums, block, from, Binary::Le);
            self.store_block(b, tile, start, block, decayed);
        }
    }

    /// Writes the weights that values of the warp's chunk have in the products with the state of later steps.
    pub(super) fn store_read_weights(&self, b: &mut Builder, tile: &Tile, products: &Blocks, place: &TilePlace) {
        let from = place.rates;
        let start = b.mul(place.pairs.index, Operand::i32(tile.len() as i32));
        let (before, read) = (self.of_rows(b, BEFORE, from), self.of_rows(b, READ, from));
        for (block, products) in (0..).zip(products) {
            let decayed = self.decayed(b, products, before, block, from, Binary::Lt);
            let scaled = ELEMENTS.map(|(h, c)| b.mul(decayed[2 * h + c], read[h]));
            self.store_block(b, tile, start, block, scaled);
        }
    }

    /// The rates of a kind at the thread's two rows.
    fn of_rows(&self, b: &mut Builder, kind: usize, from: Operand) -> [Operand; 2] {
        let row = self.first_row(b);
        [0, COLUMNS].map(|by| {
            let row = b.add(row, Operand::i32(by as i32));
            self.rate(b, kind, from, row)
        })
    }

    /// A block of products times the decays from column to row; nothing of columns that are not `earlier`.
    fn decayed(
        &self,
        b: &mut Builder,
        products: &[Operand; 4],
        logs: [Operand; 2],
        block: u32,
        from: Operand,
        earlier: Binary,
    ) -> [Operand; 4] {
        let of_warp = b.mul(self.thread.warp, Operand::i32(ROWS as i32));
        let own = b.add(from, of_warp);
        let sums = self.two_rates(b, SUMS, own, block);
        let column = self.fragment.column(b);
        let decays = self.form.decays().then_some(PairLogs { rows: logs, columns: sums });
        PairBlock { row: self.fragment.group, column, block, earlier }.decayed(b, products, decays)
    }

    fn store_block(&self, b: &mut Builder, tile: &Tile, start: Operand, block: u32, elements: [Operand; 4]) {
        let (row, column) = (self.first_row(b), self.fragment.column(b));
        let column = place_of_two(b, tile, column);
        let within = b.add(start, column);
        let piece = piece_of_eight(b, tile, Operand::i32(block as i32));
        store_block(b, tile, BlockIndex { row, piece, within }, elements);
    }
}

/// The running sums of logarithms at the thread's two rows and at its two columns of a block of pairs of times.
pub(in crate::schedules) struct PairLogs {
    pub rows: [Operand; 2],
    pub columns: [Operand; 2],
}

/// A block of eight columns of pairs of times, as a thread has it.
pub(in crate::schedules) struct PairBlock {
    /// The first of the thread's two rows, and of its two columns in the first block.
    pub row: Operand,
    pub column: Operand,
    /// The number of the block.
    pub block: u32,
    /// The comparison of a column and a row that says whether the pair counts.
    pub earlier: Binary,
}

impl PairBlock {
    /// Products times the decays from column to row, if there are any; 0 where the column is not `earlier`.
    pub(in crate::schedules) fn decayed(
        &self,
        b: &mut Builder,
        products: &[Operand; 4],
        decays: Option<PairLogs>,
    ) -> [Operand; 4] {
        ELEMENTS.map(|(h, c)| {
            let mut product = products[2 * h + c];
            if let Some(logs) = &decays {
                let apart = b.sub(logs.rows[h], logs.columns[c]);
                let decay = b.let_(Ty::F32, Expr::Exp2Fast(apart));
                product = b.mul(product, decay);
            }
            let row = b.add(self.row, h as u32 * COLUMNS);
            let column = b.add(self.column, self.block * COLUMNS + c as u32);
            let is_earlier = b.binary(self.earlier, column, row);
            b.select(is_earlier, product, f32(0.0))
        })
    }
}
