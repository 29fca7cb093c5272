//! The products with a part of the width, and with pairs of times.

use super::BLOCKS;
use super::common::Place;
use super::gradients::{Gradients, ONLY, Part, Sums};
use super::rates::{BEFORE, SUMS};
use crate::block::halves::HalfViews;
use crate::block::layout::{TileStage, right_rows};
use crate::block::matmul::{Factor, ROWS, zeros};
use crate::block::pair::Values;
use crate::block::parts::Parts;
use crate::block::split_tile::{add_products, index_of_sixteen};
use crate::build::Builder;
use crate::tile::{Expr, Operand};
use oplus_dsl::Ty;
use std::ops::Range;

/// The thread's numbers at two neighbouring blocks of columns.
pub(super) type Sixteen = [[Operand; 4]; 2];

impl Gradients<'_> {
    /// Adds the products of a part of the width, and stores the part's outputs over the width.
    pub(super) fn part(&self, b: &mut Builder, values: &Values, place: &Place, part: Part, sums: &mut Sums) {
        if self.keeps_sums {
            self.add_part(b, part.stage, sums);
        }
        sums.energy = self.add_energy(b, part.stage, sums.energy);
        self.store_wide(b, values, place, part);
    }

    /// How many 16 places of the depth a half has.
    pub(super) fn pairs(&self) -> u32 {
        self.schedule.depth / 2 / ROWS
    }

    /// c·S, p·S and e·D at 16 places of the depth of the warp's half.
    pub(super) fn through_states(
        &self,
        b: &mut Builder,
        wide: &HalfViews,
        deep: &HalfViews,
        pair: u32,
    ) -> [Sixteen; 3] {
        let tiles = &self.tiles;
        let [given, moved, errors] =
            [&tiles.cotangents, &tiles.products, &tiles.errors].map(|tile| wide.left(b, tile, ONLY));
        let [states, duals] = [&tiles.states, &tiles.duals].map(|tile| deep.in_time(b, tile, ONLY));
        let mut found = [[zeros(); 2]; 3];
        for sixteen in 0..BLOCKS {
            let [states, duals] = [states, duals].map(|right| right.parts(b, sixteen * ROWS, pair, true));
            for ((found, left), right) in found.iter_mut().zip([given, moved, errors]).zip([states, states, duals]) {
                let left = left.parts(b, 0, sixteen, false);
                left.multiply(b, tiles.keys.elem, found, right);
            }
        }
        found
    }

    /// Adds the thread's share of ⟨S, D⟩: both tiles have the same layout.
    fn add_energy(&self, b: &mut Builder, stage: Operand, sum: Operand) -> Operand {
        if !self.needs_energy() {
            return sum;
        }
        let both = [&self.tiles.states, &self.tiles.duals].map(|tile| TileStage::of(b, tile, stage));
        add_products(b, both, self.thread.number, self.schedule.threads(), sum)
    }

    /// The decays from the state before the 64 times, and to the cotangent after them, at the thread's two times.
    pub(super) fn decays(&self, b: &mut Builder) -> Option<[[Operand; 2]; 3]> {
        self.form.states.decays().then(|| {
            let end = self.end(b);
            let [from_start, before] = [SUMS, BEFORE].map(|kind| self.of_rows(b, kind));
            let to_end = from_start.map(|sum| b.sub(end, sum));
            [from_start, before, to_end].map(|logs| logs.map(|log| b.let_(Ty::F32, Expr::Exp2Fast(log))))
        })
    }

    /// Adds the products over pairs of times to the sums at some 16 places of the depth of the warp's half.
    pub(super) fn add_pairs(
        &self,
        b: &mut Builder,
        of_pairs: &HalfViews,
        deep: &HalfViews,
        pairs: Range<u32>,
        mut sums: [&mut [[Operand; 4]]; 3],
    ) {
        let tiles = &self.tiles;
        let [given_keys, given_queries, moved_keys, moved_columns] = &tiles.weights;
        let [given, moved] = [given_keys, moved_keys].map(|tile| of_pairs.left(b, tile, ONLY));
        let [keys, queries, columns] =
            [&tiles.keys, &tiles.queries, tiles.columns()].map(|tile| deep.in_time(b, tile, ONLY));
        let (row, half) = right_rows(b, self.thread.lane);
        let later = index_of_sixteen(b, given_queries, row, half, self.block);
        for sixteen in 0..BLOCKS {
            if self.keeps_sums {
                self.fence(b);
            }
            let rights = |b: &mut Builder, factor: Factor| -> Vec<Parts> {
                pairs.clone().map(|pair| factor.parts(b, sixteen * ROWS, pair, true)).collect()
            };
            let multiply = |b: &mut Builder, sums: &mut [[Operand; 4]], left: Parts, rights: &[Parts]| {
                for (sums, right) in sums.chunks_exact_mut(2).zip(rights) {
                    left.multiply(b, tiles.keys.elem, sums, *right);
                }
            };
            let of_keys = rights(b, keys);
            for (sums, left) in sums.iter_mut().zip([given, moved]) {
                let left = left.parts(b, 0, sixteen, false);
                multiply(b, sums, left, &of_keys);
            }
            // Rows of weights are later times.
            let index = b.add(later, Operand::i32((sixteen * ROWS * given_queries.panel()) as i32));
            for (weights, factor) in [(given_queries, queries), (moved_columns, columns)] {
                let left = Parts::at(b, weights, index, true);
                let rights = rights(b, factor);
                multiply(b, sums[2], left, &rights);
            }
        }
    }
}
