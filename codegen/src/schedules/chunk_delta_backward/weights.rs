//! The weights of pairs of times: products of rows, decayed from the earlier time to the later, with the factors of both.

use super::TIMES;
use super::gradients::{Gradients, Sums};
use super::lanes::Views;
use super::rates::{ADDED, BEFORE, GIVEN, READ, SUMS};
use crate::block::layout::Tile;
use crate::block::matmul::{Blocks, COLUMNS, multiply, piece_index, zeros};
use crate::build::Builder;
use crate::schedules::chunk_delta::ELEMENTS;
use crate::schedules::chunkwise::decay::f32;
use crate::tile::{Expr, Memory, Operand};
use oplus_dsl::Ty;
use oplus_dsl::ir::Binary;

impl Gradients<'_> {
    /// Writes the weights of the warp's times and the earlier times of its half.
    pub(super) fn store_weights(&self, b: &mut Builder, views: &Views, sums: &Sums) {
        let [after, before, read, given] = [SUMS, BEFORE, READ, GIVEN].map(|kind| self.of_rows(b, kind));
        let [given_keys, given_queries, moved_keys, moved_columns] = &self.tiles.weights;
        let mut shares = self.no_pair_shares();
        let scores = self.scores(b, views, &self.tiles.queries);
        for (block, products) in (0..).zip(&sums.given) {
            let added = self.of_columns(b, ADDED, block);
            let decayed = self.decayed(b, products, after, (block, Binary::Le));
            let of_keys = ELEMENTS.map(|(h, c)| b.mul(decayed[2 * h + c], added[c]));
            let of_queries = ELEMENTS.map(|(h, c)| b.mul(decayed[2 * h + c], given[h]));
            self.store_pairs(b, given_keys, block, of_keys);
            self.store_pairs(b, given_queries, block, of_queries);
            if let Some(scores) = &scores {
                let weights = ELEMENTS.map(|(h, c)| b.mul(of_keys[2 * h + c], given[h]));
                self.add_pair_shares(b, &mut shares, (0, block as usize), (weights, &scores[block as usize]));
            }
        }
        let scores = self.scores(b, views, self.tiles.columns());
        for (block, products) in (0..).zip(&sums.moved) {
            let added = self.of_columns(b, ADDED, block);
            let decayed = self.decayed(b, products, before, (block, Binary::Lt));
            let of_keys = ELEMENTS.map(|(h, c)| b.mul(decayed[2 * h + c], added[c]));
            let of_columns = ELEMENTS.map(|(h, c)| b.mul(decayed[2 * h + c], read[h]));
            self.store_pairs(b, moved_keys, block, of_keys);
            self.store_pairs(b, moved_columns, block, of_columns);
            if let Some(scores) = &scores {
                let weights = ELEMENTS.map(|(h, c)| b.mul(of_keys[2 * h + c], read[h]));
                self.add_pair_shares(b, &mut shares, (1, block as usize), (weights, &scores[block as usize]));
            }
        }
        if scores.is_some() {
            self.store_pair_shares(b, &shares);
        }
    }

    /// The products of the warp's times of a tile with keys at the times of its half, where the energy needs them.
    fn scores(&self, b: &mut Builder, views: &Views, tile: &Tile) -> Option<Blocks> {
        self.needs_energy().then(|| {
            let mut scores: Blocks = vec![zeros(); (TIMES / 2 / COLUMNS) as usize];
            multiply(b, &mut scores, views.left(tile), views.right(&self.tiles.keys));
            scores
        })
    }

    /// A block of products times the decays from column to row; nothing of columns that are not `earlier`.
    fn decayed(
        &self,
        b: &mut Builder,
        products: &[Operand; 4],
        logs: [Operand; 2],
        (block, earlier): (u32, Binary),
    ) -> [Operand; 4] {
        let sums = self.of_columns(b, SUMS, block);
        let (row, half, column) = (self.first_row(b), self.half_of(b, TIMES), self.first_column(b));
        let column = b.add(half, column);
        ELEMENTS.map(|(h, c)| {
            let mut product = products[2 * h + c];
            if self.form.states.decays() {
                let apart = b.sub(logs[h], sums[c]);
                let decay = b.let_(Ty::F32, Expr::Exp2Fast(apart));
                product = b.mul(product, decay);
            }
            let row = b.add(row, Operand::i32(h as i32 * COLUMNS as i32));
            let column = b.add(column, Operand::i32((block * COLUMNS) as i32 + c as i32));
            let is_earlier = b.binary(earlier, column, row);
            b.select(is_earlier, product, f32(0.0))
        })
    }

    fn store_pairs(&self, b: &mut Builder, tile: &Tile, block: u32, elements: [Operand; 4]) {
        let (row, column) = (self.first_row(b), self.first_column(b));
        let half = self.half_of(b, TIMES / COLUMNS);
        let piece = b.add(half, Operand::i32(block as i32));
        for h in 0..2 {
            let row = b.add(row, Operand::i32((h as u32 * COLUMNS) as i32));
            let index = piece_index(b, tile, row, piece);
            let index = b.add(index, column);
            b.store(Memory::Shared(tile.array), index, &elements[2 * h..2 * h + 2], None);
        }
    }
}
