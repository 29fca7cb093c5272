//! The products with a part of the width, and with pairs of times.

use super::BLOCKS;
use super::common::Place;
use super::gradients::{Gradients, ONLY, Part, Sixteen, Sums};
use super::rates::{BEFORE, SUMS};
use crate::block::halves::HalfViews;
use crate::block::layout::{TileStage, right_rows};
use crate::block::matmul::{Factor, ROWS, zeros};
use crate::block::parts::Parts;
use crate::block::split_tile::{add_products, index_of_sixteen};
use crate::build::Builder;
use crate::tile::{Expr, Operand, Stmt};
use oplus_dsl::{Elem, Ty};
use std::ops::Range;

/// The lanes by which a warp reads weights of pairs and the vectors that these weigh.
pub(super) struct PairViews {
    of_pairs: HalfViews,
    deep: HalfViews,
    /// The index of the warp's times in weights whose rows are later times.
    later: Operand,
}

impl Gradients<'_> {
    /// Adds the products of a part of the width, and stores the part's outputs over the width.
    pub(super) fn part(&self, b: &mut Builder, place: &Place, part: Part, sums: &mut Sums) {
        if self.keeps_sums {
            self.add_part(b, part.stage, sums);
        }
        sums.energy = self.add_energy(b, part.stage, sums.energy);
        self.store_wide(b, place, part);
    }

    /// Computes sums [apart](crate::block::rematerialise::Rematerialiser::apart) where addresses of single elements leave few registers.
    pub(super) fn apart<S>(
        &self,
        b: &mut Builder,
        sums: &mut S,
        numbers: fn(&mut S) -> Vec<&mut Operand>,
        add: impl FnOnce(&mut Builder, &mut S),
    ) {
        if self.schedule.vector > 1 { add(b, sums) } else { self.rematerialiser.apart(b, sums, numbers, add) }
    }

    /// Keeps the assembler from reading factors before products need them, where addresses of single elements leave few registers.
    pub(super) fn load_late(&self, b: &mut Builder) {
        if self.schedule.vector == 1 {
            b.push(Stmt::SyncWarp);
        }
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

    /// Adds the products over pairs of times to the sums at 16 places of the depth of the warp's half.
    pub(super) fn add_pairs(&self, b: &mut Builder, pair: u32, sums: &mut [Sixteen; 3]) {
        let views = self.pair_views(b);
        let [queries, columns, keys] = sums;
        for sixteen in 0..BLOCKS {
            self.add_earlier(b, &views, sixteen, pair..pair + 1, [queries, columns]);
            self.add_later(b, &views, sixteen, pair..pair + 1, keys);
        }
    }

    /// The lanes by which the warp reads weights of pairs and the vectors that these weigh.
    pub(super) fn pair_views(&self, b: &mut Builder) -> PairViews {
        let [of_pairs, deep] = [&self.tiles.errors, &self.tiles.states].map(|tile| self.views(b, tile));
        let (row, half) = right_rows(b, self.thread.lane);
        let later = index_of_sixteen(b, &self.tiles.weights[0], row, half, self.block);
        PairViews { of_pairs, deep, later }
    }

    /// Adds what 16 earlier times give: their keys, to sums of queries and columns at some 16 places of the depth.
    pub(super) fn add_earlier(
        &self,
        b: &mut Builder,
        views: &PairViews,
        sixteen: u32,
        pairs: Range<u32>,
        sums: [&mut [[Operand; 4]]; 2],
    ) {
        let [given_keys, _, moved_keys, _] = &self.tiles.weights;
        let keys = views.deep.in_time(b, &self.tiles.keys, ONLY);
        let keys = rights(b, keys, sixteen, pairs);
        for (sums, tile) in sums.into_iter().zip([given_keys, moved_keys]) {
            let left = views.of_pairs.left(b, tile, ONLY);
            let left = left.parts(b, 0, sixteen, false);
            multiply(b, self.tiles.keys.elem, sums, left, &keys);
        }
    }

    /// Adds what 16 later times give: their queries and columns, to sums of keys at some 16 places of the depth.
    pub(super) fn add_later(
        &self,
        b: &mut Builder,
        views: &PairViews,
        sixteen: u32,
        pairs: Range<u32>,
        sums: &mut [[Operand; 4]],
    ) {
        let tiles = &self.tiles;
        let [_, given_queries, _, moved_columns] = &tiles.weights;
        // Rows of weights are later times.
        let index = b.add(views.later, Operand::i32((sixteen * ROWS * given_queries.panel()) as i32));
        for (weights, tile) in [(given_queries, &tiles.queries), (moved_columns, tiles.columns())] {
            let left = Parts::at(b, weights, index, true);
            let factor = views.deep.in_time(b, tile, ONLY);
            let rights = rights(b, factor, sixteen, pairs.clone());
            multiply(b, tiles.keys.elem, sums, left, &rights);
        }
    }
}

/// The fragments of 16 rows of a right factor, at some 16 columns.
fn rights(b: &mut Builder, factor: Factor, sixteen: u32, pairs: Range<u32>) -> Vec<Parts> {
    pairs.map(|pair| factor.parts(b, sixteen * ROWS, pair, true)).collect()
}

/// Adds the products of a left factor with fragments of 16 columns to the sums of these.
fn multiply(b: &mut Builder, elem: Elem, sums: &mut [[Operand; 4]], left: Parts, rights: &[Parts]) {
    for (sums, right) in sums.chunks_exact_mut(2).zip(rights) {
        left.multiply(b, elem, sums, *right);
    }
}
