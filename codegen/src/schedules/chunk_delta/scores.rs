//! Products over pairs of times: the triangular system, and the weights of keys for queries.

use oplus_dsl::ir::Binary;

use super::rates::{BEFORE, READ, SUMS};
use super::{COLUMNS, DeltaKernel, ELEMENTS, PITCH, ROWS};
use crate::block::layout::Tile;
use crate::block::matmul::{Blocks, Factor, mma_two, zeros};
use crate::build::Builder;
use crate::schedules::chunkwise::decay::f32;
use crate::tile::{Expr, Memory, Operand};
use oplus_dsl::Ty;

/// The places of a warp in the products: its number, known while code is emitted.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    pub warp: u32,
    /// The index of the chunk's rates.
    pub from: Operand,
}

impl DeltaKernel<'_> {
    /// The products of the warp's 16 rows of a left factor and all keys up to them.
    pub(super) fn products(&self, b: &mut Builder, left: Factor, keys: Factor, rows: Rows) -> Blocks {
        let mut sums: Blocks = vec![zeros(); 2 * (rows.warp as usize + 1)];
        for sixteen in 0..self.schedule.depth / ROWS {
            let own = left.four(b, rows.warp * ROWS, sixteen, false);
            for (pair, sums) in (0..).zip(sums.chunks_exact_mut(2)) {
                let columns = keys.four(b, pair * ROWS, sixteen, false);
                mma_two(b, self.keys.elem, sums, own, columns);
            }
        }
        sums
    }

    /// Writes the warp's rows of the system: 16 × 16 on the diagonal in `f32`, what is left of them rounded.
    pub(super) fn store_system(&self, b: &mut Builder, products: &Blocks, rows: Rows) {
        let (before, read) = (self.of_rows(b, BEFORE, rows), self.of_rows(b, READ, rows));
        let diagonal = 2 * rows.warp;
        for (block, products) in (0..).zip(products) {
            let decayed = self.decayed(b, products, before, (block, rows), false);
            let scaled = ELEMENTS.map(|(h, c)| b.mul(decayed[2 * h + c], read[h]));
            if block < diagonal {
                self.store_block(b, &self.system, rows, block, scaled);
            } else {
                self.store_diagonal(b, rows, block - diagonal, scaled);
            }
        }
    }

    /// Writes the warp's rows of the weights.
    pub(super) fn store_weights(&self, b: &mut Builder, products: &Blocks, rows: Rows) {
        let sums = self.of_rows(b, SUMS, rows);
        for (block, products) in (0..).zip(products) {
            let decayed = self.decayed(b, products, sums, (block, rows), true);
            self.store_block(b, &self.weights, rows, block, decayed);
        }
    }

    /// The rates of a kind at the thread's two rows.
    fn of_rows(&self, b: &mut Builder, kind: usize, rows: Rows) -> [Operand; 2] {
        [0, COLUMNS].map(|by| {
            let row = b.add(self.group, Operand::i32((rows.warp * ROWS + by) as i32));
            self.rate(b, kind, rows.from, row)
        })
    }

    /// A block of products times the decays from column to row; nothing of later columns.
    fn decayed(
        &self,
        b: &mut Builder,
        products: &[Operand; 4],
        logs: [Operand; 2],
        (block, rows): (u32, Rows),
        with_own: bool,
    ) -> [Operand; 4] {
        let is_whole = block < 2 * rows.warp;
        let sums = self.two_rates(b, SUMS, rows.from, block);
        let column = self.first_column(b);
        ELEMENTS.map(|(h, c)| {
            let product = if self.form.decays() {
                let apart = b.sub(logs[h], sums[c]);
                let decay = b.let_(Ty::F32, Expr::Exp2Fast(apart));
                b.mul(products[2 * h + c], decay)
            } else {
                products[2 * h + c]
            };
            if is_whole {
                return product;
            }
            let row = b.add(self.group, Operand::i32(h as i32 * COLUMNS as i32));
            let column = b.add(column, Operand::i32(((block - 2 * rows.warp) * COLUMNS) as i32 + c as i32));
            let earlier = b.binary(if with_own { Binary::Le } else { Binary::Lt }, column, row);
            b.select(earlier, product, f32(0.0))
        })
    }

    fn store_block(&self, b: &mut Builder, tile: &Tile, rows: Rows, block: u32, elements: [Operand; 4]) {
        let column = self.first_column(b);
        for h in 0..2 {
            let row = b.add(self.group, Operand::i32((rows.warp * ROWS + h as u32 * COLUMNS) as i32));
            let index = self.element(b, tile, row, block, column);
            b.store(Memory::Shared(tile.array), index, &elements[2 * h..2 * h + 2], None);
        }
    }

    fn store_diagonal(&self, b: &mut Builder, rows: Rows, block: u32, elements: [Operand; 4]) {
        let column = self.first_column(b);
        for h in 0..2 {
            let row = b.add(self.group, Operand::i32((rows.warp * ROWS + h as u32 * COLUMNS) as i32));
            let index = b.mul(row, Operand::i32(PITCH as i32));
            let index = b.add(index, column);
            let index = b.add(index, Operand::i32((block * COLUMNS) as i32));
            b.store(Memory::Shared(self.diagonal), index, &elements[2 * h..2 * h + 2], None);
        }
    }
}
