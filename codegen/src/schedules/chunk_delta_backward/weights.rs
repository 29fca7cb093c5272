//! The weights of pairs of times: products of rows, decayed from the earlier time to the later, with the factors of both.

use super::TIMES;
use super::gradients::{Gradients, ONLY, Sixteen, Sums};
use super::rates::{ADDED, BEFORE, GIVEN, READ, SUMS};
use super::steps::PairShares;
use crate::block::layout::Tile;
use crate::block::matmul::{Blocks, COLUMNS, Factor, ROWS, zeros};
use crate::block::split_tile::{BlockIndex, piece_of_eight, place_of_two, store_block};
use crate::build::Builder;
use crate::schedules::chunk_delta::{ELEMENTS, PairBlock, PairLogs};
use crate::tile::Operand;
use oplus_dsl::ir::Binary;

/// The pairs of times that queries weigh, or the vectors that the state is read by.
struct Kind<'a> {
    /// Rows of later times, whose products with e the weights are.
    rows: &'a Tile,
    /// These products over the parts of a wide state.
    sums: &'a Blocks,
    /// The vectors whose products with keys the weights meet.
    scored: &'a Tile,
    /// The logarithms at the thread's two later times.
    logs: [Operand; 2],
    /// How an earlier time is told.
    earlier: Binary,
    /// The factors of the later times.
    scales: [Operand; 2],
    /// The weights of keys, and of the vectors z.
    weights: [&'a Tile; 2],
}

impl Gradients<'_> {
    /// Writes the weights of the warp's times and the earlier times of its half, 16 of these after the other.
    pub(super) fn store_weights(&self, b: &mut Builder, sums: &Sums) {
        let mut shares = self.no_pair_shares();
        for number in 0..2 {
            for pair in 0..TIMES / 2 / ROWS {
                self.fence(b);
                self.rematerialised(b).store_pair(b, sums, number, pair, &mut shares);
            }
        }
        if self.needs_energy() {
            self.rematerialised(b).store_pair_shares(b, &shares);
        }
    }

    /// The pairs that queries weigh, or columns do (`number` 0 or 1).
    fn kind<'a>(&'a self, b: &mut Builder, sums: &'a Sums, number: usize) -> Kind<'a> {
        let tiles = &self.tiles;
        let [given_keys, given_queries, moved_keys, moved_columns] = &tiles.weights;
        if number == 0 {
            let [logs, scales] = [SUMS, GIVEN].map(|kind| self.of_rows(b, kind));
            let (rows, scored, sums) = (&tiles.cotangents, &tiles.queries, &sums.given);
            return Kind {
                rows,
                sums,
                scored,
                logs,
                earlier: Binary::Le,
                scales,
                weights: [given_keys, given_queries],
            };
        }
        let [logs, scales] = [BEFORE, READ].map(|kind| self.of_rows(b, kind));
        let (rows, scored, sums) = (&tiles.products, tiles.columns(), &sums.moved);
        Kind { rows, sums, scored, logs, earlier: Binary::Lt, scales, weights: [moved_keys, moved_columns] }
    }

    /// Writes the weights of 16 earlier times, and adds to sums of pairs.
    fn store_pair(&self, b: &mut Builder, sums: &Sums, number: usize, pair: u32, shares: &mut PairShares) {
        let tiles = &self.tiles;
        let kind = self.kind(b, sums, number);
        let [wide, deep] = [&tiles.errors, &tiles.keys].map(|tile| self.views(b, tile));
        let products = match self.keeps_sums {
            true => [0, 1].map(|k| kind.sums[2 * pair as usize + k]),
            false => {
                let (rows, errors) = (wide.left(b, kind.rows, ONLY), wide.right(b, &tiles.errors, ONLY));
                self.pair_products(b, rows, errors, pair)
            }
        };
        let needs_energy = self.needs_energy();
        let scores = needs_energy.then(|| {
            let (scored, keys) = (deep.left(b, kind.scored, ONLY), deep.right(b, &tiles.keys, ONLY));
            self.pair_products(b, scored, keys, pair)
        });
        for (k, products) in products.iter().enumerate() {
            let block = 2 * pair as usize + k;
            let weights = self.store_block(b, &kind, block as u32, products);
            if let Some(scores) = &scores {
                self.add_pair_shares(b, shares, number, block, weights, &scores[k]);
            }
        }
    }

    /// The products of a left factor and 16 rows of the warp's half of a right one.
    fn pair_products(&self, b: &mut Builder, left: Factor, right: Factor, pair: u32) -> Sixteen {
        let mut sums = [zeros(); 2];
        for sixteen in 0..left.tile.depth / ROWS {
            let rows = left.parts(b, 0, sixteen, false);
            let columns = right.parts(b, pair * ROWS, sixteen, false);
            rows.multiply(b, left.tile.elem, &mut sums, columns);
        }
        sums
    }

    /// Writes a block of weights; gives the weights with the factors of both times.
    fn store_block(&self, b: &mut Builder, kind: &Kind<'_>, block: u32, products: &[Operand; 4]) -> [Operand; 4] {
        let added = self.of_columns(b, ADDED, block);
        let decayed = self.decayed(b, products, kind.logs, block, kind.earlier);
        let of_keys = ELEMENTS.map(|(h, c)| b.mul(decayed[2 * h + c], added[c]));
        let of_scored = ELEMENTS.map(|(h, c)| b.mul(decayed[2 * h + c], kind.scales[h]));
        self.store_pairs(b, kind.weights[0], block, of_keys);
        self.store_pairs(b, kind.weights[1], block, of_scored);
        ELEMENTS.map(|(h, c)| b.mul(of_keys[2 * h + c], kind.scales[h]))
    }

    /// A block of products times the decays from column to row; nothing of columns that are not `earlier`.
    fn decayed(
        &self,
        b: &mut Builder,
        products: &[Operand; 4],
        logs: [Operand; 2],
        block: u32,
        earlier: Binary,
    ) -> [Operand; 4] {
        let sums = self.of_columns(b, SUMS, block);
        let (row, half, column) = (self.first_row(b), self.half_of(b, TIMES), self.fragment.column(b));
        let column = b.add(half, column);
        let decays = self.form.states.decays().then_some(PairLogs { rows: logs, columns: sums });
        PairBlock { row, column, block, earlier }.decayed(b, products, decays)
    }

    fn store_pairs(&self, b: &mut Builder, tile: &Tile, block: u32, elements: [Operand; 4]) {
        let (row, column) = (self.first_row(b), self.fragment.column(b));
        let half = self.half_of(b, TIMES / COLUMNS);
        let eight = b.add(half, Operand::i32(block as i32));
        let (piece, column) = (piece_of_eight(b, tile, eight), place_of_two(b, tile, column));
        store_block(b, tile, BlockIndex { row, piece, within: column }, elements);
    }
}
