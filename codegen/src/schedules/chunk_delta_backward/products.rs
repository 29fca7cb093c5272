//! The products with a part of the width, and with pairs of times.

use super::gradients::{Gradients, Place, Sums};
use super::lanes::Views;
use super::rates::{BEFORE, SUMS};
use super::{BLOCKS, TIMES};
use crate::block::layout::{Tile, right_rows};
use crate::block::matmul::{Blocks, Factor, ROWS, load_four, multiply, multiply_in_time};
use crate::block::pair::Values;
use crate::build::{Builder, zero};
use crate::tile::{Expr, Memory, Operand};
use oplus_dsl::Ty;

impl Gradients<'_> {
    /// Adds the products of a part of the width, and stores what it has of outputs over the width.
    pub(super) fn part(
        &self,
        b: &mut Builder,
        values: &Values,
        place: &Place,
        (part, mut sums): (Operand, Sums),
    ) -> Sums {
        let tiles = &self.tiles;
        let (wide, deep) = (self.views(b, &tiles.errors), self.views(b, &tiles.states));
        let [given, moved, errors] = [&tiles.cotangents, &tiles.products, &tiles.errors].map(|tile| wide.left(tile));
        let [states, duals] = [&tiles.states, &tiles.duals].map(|tile| deep.in_time(tile));
        self.add_in_time(b, &mut sums.queries, given, states);
        self.add_in_time(b, &mut sums.columns, moved, states);
        self.add_in_time(b, &mut sums.keys, errors, duals);
        multiply(b, &mut sums.given, given, wide.right(&tiles.errors));
        multiply(b, &mut sums.moved, moved, wide.right(&tiles.errors));
        sums.energy = self.add_energy(b, sums.energy);
        self.store_wide(b, values, place, part);
        sums
    }

    /// Adds left·right over all rows of the right factor.
    fn add_in_time(&self, b: &mut Builder, sums: &mut Blocks, left: Factor, right: Factor) {
        for sixteen in 0..left.tile.depth / ROWS {
            let left = left.four(b, 0, sixteen, false);
            multiply_in_time(b, sums, (left, right), sixteen);
        }
    }

    /// Adds the thread's share of ⟨S, D⟩: both tiles have the same layout.
    fn add_energy(&self, b: &mut Builder, mut sum: Operand) -> Operand {
        if !self.needs_energy() {
            return sum;
        }
        let tile = &self.tiles.states;
        let piece = tile.piece();
        let own = b.mul(self.thread, Operand::i32(piece as i32));
        for by in (0..tile.len()).step_by((self.schedule.threads() * piece) as usize) {
            let at = b.add(own, Operand::i32(by as i32));
            let [states, duals] = [tile, &self.tiles.duals]
                .map(|tile| b.load(Memory::Shared(tile.array), at, piece, None, zero(Ty::F32)));
            for (x, y) in states.into_iter().zip(duals) {
                sum = b.fma(x, y, sum);
            }
        }
        sum
    }

    /// Decays what states before the times and cotangents after them give.
    pub(super) fn scale(&self, b: &mut Builder, sums: &mut Sums) {
        if !self.form.states.decays() {
            return;
        }
        let end = self.end(b);
        let [from_start, before] = [SUMS, BEFORE].map(|kind| self.of_rows(b, kind));
        let to_end = from_start.map(|sum| b.sub(end, sum));
        for (blocks, logs) in [(&mut sums.queries, from_start), (&mut sums.columns, before), (&mut sums.keys, to_end)] {
            let decays = logs.map(|log| b.let_(Ty::F32, Expr::Exp2Fast(log)));
            for block in blocks {
                let mut r = 0;
                *block = block.map(|x| {
                    r += 1;
                    b.mul(x, decays[(r - 1) / 2])
                });
            }
        }
    }

    /// Adds what pairs of times give.
    pub(super) fn add_pairs(&self, b: &mut Builder, views: &Views, sums: &mut Sums) {
        let tiles = &self.tiles;
        let [given_keys, given_queries, moved_keys, moved_columns] = &tiles.weights;
        let of_pairs = self.views(b, given_keys);
        self.add_in_time(b, &mut sums.queries, of_pairs.left(given_keys), views.in_time(&tiles.keys));
        self.add_in_time(b, &mut sums.columns, of_pairs.left(moved_keys), views.in_time(&tiles.keys));
        self.add_over_later(b, &mut sums.keys, given_queries, views.in_time(&tiles.queries));
        self.add_over_later(b, &mut sums.keys, moved_columns, views.in_time(tiles.columns()));
    }

    /// Adds weightsᵀ·right over the later times, which rows of weights are of.
    fn add_over_later(&self, b: &mut Builder, sums: &mut Blocks, weights: &Tile, right: Factor) {
        let (row, half) = right_rows(b, self.lane);
        let lanes = weights.lanes_at(b, row, half, self.block);
        for sixteen in 0..BLOCKS {
            let index = b.add(lanes, Operand::i32((sixteen * ROWS * TIMES) as i32));
            let left = load_four(b, weights, index, true);
            multiply_in_time(b, sums, (left, right), sixteen);
        }
    }
}
