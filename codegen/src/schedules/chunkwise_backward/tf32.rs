//! Products in `tf32` of the third sweep.
//!
//! S, D and the weights of pairs are in `f32`, beside `f16` rounded to `tf32`, but where S and D are in [`f16`](super::half_states); a left factor over the rows of another is two
//! neighbours of a row, as [packed pairs](unpacked) of `f16` have them. Sums of a product are scaled afterwards, so that factors from
//! memory are multiplied as they are, exact or split.

use super::partials::{Partials, QueryBlock};
use super::rates::Decays;
use super::walk::{Head, OperandViews, Sums};
use super::{COLUMNS, ChunkwiseBackwardKernel, GradientSweep, ROWS};
use crate::block::layout::{Lanes, Tile};
use crate::block::matmul::{Blocks, Factor};
use crate::block::tf32::{blocks_at_once, first_transposed, product_in_time, rounded, transposed, unpacked};
use crate::block::thread::FragmentPlace;
use crate::build::{Builder, zero};
use crate::tile::{Memory, Operand, Stmt};
use oplus_dsl::{Elem, Ty};

/// A left factor by rows.
#[derive(Clone, Copy)]
pub(super) struct Left<'a> {
    pub factor: Factor<'a>,
    /// The lanes by which its rows are read.
    pub views: &'a OperandViews,
}

impl ChunkwiseBackwardKernel<'_> {
    /// Computes all sums of a head in phases. Each product rematerialises its decays and coordinates, and writes its shares: kept, these
    /// numbers were a third of the registers.
    pub(super) fn in_phases(
        &self,
        b: &mut Builder,
        sums: &Sums,
        iteration: Operand,
        stage: Operand,
    ) -> (Blocks, Decays) {
        self.phase(b, sums, iteration, stage, |own, b, head, partials| {
            let weights = own.weigh(b, head, partials);
            own.store_weights(b, &weights);
        });
        self.phase(b, sums, iteration, stage, |own, b, head, _| own.add_keys(b, head));
        self.phase(b, sums, iteration, stage, |own, b, head, partials| own.add_queries(b, head, partials));
        let mut found =
            self.phase(b, sums, iteration, stage, |own, b, head, partials| own.through_duals(b, head, partials));
        self.share_energy(b, stage);
        // The weights of all warps are complete.
        b.barrier();
        self.phase(b, sums, iteration, stage, |own, b, head, _| own.through_pairs(b, head, &mut found));
        (found, self.decays(b, iteration))
    }

    fn phase<T>(
        &self,
        b: &mut Builder,
        sums: &Sums,
        iteration: Operand,
        stage: Operand,
        product: impl FnOnce(&Self, &mut Builder, &Head, &mut Partials) -> T,
    ) -> T {
        b.push(Stmt::SyncWarp);
        let rematerialised = self.rematerialised(b);
        let own = rematerialised.as_ref().unwrap_or(self);
        let iteration = self.rematerialiser.of(b, iteration);
        let (decays, views) = (own.decays(b, iteration), own.all_views(b));
        let mut partials = Partials::default();
        let found = product(own, b, &Head { views: &views, stage, decays: &decays, sums }, &mut partials);
        own.store_partials(b, &partials);
        found
    }

    /// The lanes that read elements of a right factor over rows, in rows 2t, from a piece on.
    pub(super) fn elements(&self, b: &mut Builder, tile: &Tile, piece: Operand) -> Lanes {
        let own = self.rematerialised_fragment(b);
        let from = b.mul(piece, tile.piece());
        // States beside `f16` have places 2t of the depth before places 2t + 1.
        let column = if self.keys.elem == Elem::F32 {
            own.group
        } else {
            let [even, odd] = b.div_rem(own.group, 2);
            let odd = b.mul(odd, COLUMNS / 2);
            b.add(even, odd)
        };
        let (row, column) = (own.column(b), b.add(from, column));
        tile.lanes_of_elements(b, row, column)
    }

    /// The lanes that read two neighbours of a row of the warp's block.
    pub(super) fn neighbours(&self, b: &mut Builder, tile: &Tile) -> Lanes {
        let own = self.rematerialised_fragment(b);
        let of_block = b.mul(self.block, ROWS);
        let (row, column) = (b.add(own.group, of_block), own.column(b));
        tile.lanes_of_elements(b, row, column)
    }

    /// The lane's place in fragments, rematerialised.
    fn rematerialised_fragment(&self, b: &mut Builder) -> FragmentPlace {
        let lane = self.rematerialiser.of(b, self.thread.lane);
        FragmentPlace::of(b, lane)
    }

    /// The warp's rows of a left factor, in 16 columns: two factors of eight.
    pub(super) fn rows_of(&self, b: &mut Builder, left: Left, sixteen: u32) -> [[Operand; 4]; 2] {
        let Some(lanes) = &left.views.neighbours else {
            let packed = left.factor.four(b, 0, sixteen, false);
            return unpacked(b, left.factor.tile.elem, packed);
        };
        [0, 1].map(|k| {
            let [above, below] = [0, COLUMNS].map(|row| {
                let index = left.factor.tile.index(b, lanes, row, 2 * sixteen + k);
                let index = b.add(index, left.factor.start);
                let two = b.load(Memory::Shared(left.factor.tile.array), index, 2, None, zero(Ty::F32));
                [two[0], two[1]]
            });
            [above[0], below[0], above[1], below[1]].map(|x| b.bits(Ty::U32, x))
        })
    }

    /// Adds left·right over the rows of the right factor.
    pub(super) fn add_rows(&self, b: &mut Builder, sums: &mut Blocks, left: Left, right: Factor) {
        self.add_products(b, sums, |b, sixteen| self.rows_of(b, left, sixteen), right);
    }

    /// Adds left·right over the columns of the weights, transposed.
    pub(super) fn add_columns(&self, b: &mut Builder, sums: &mut Blocks, right: Factor) {
        let place = first_transposed(b, &self.weights, self.fragment, self.block);
        let left = Factor { tile: &self.weights, start: Operand::i32(0), ..right };
        let columns_of = |b: &mut Builder, sixteen: u32| {
            let columns = transposed(b, left, place, sixteen);
            columns.map(|own| [(0, 0), (1, 0), (0, 1), (1, 1)].map(|(h, c): (usize, usize)| b.bits(Ty::U32, own[h][c])))
        };
        self.add_products(b, sums, columns_of, right);
    }

    fn add_products(
        &self,
        b: &mut Builder,
        sums: &mut Blocks,
        left: impl Fn(&mut Builder, u32) -> [[Operand; 4]; 2],
        right: Factor,
    ) {
        let each = blocks_at_once(sums.len() as u32);
        for (first, sums) in (0..).step_by(each as usize).zip(sums.chunks_mut(each as usize)) {
            let found = product_in_time(b, self.keys.elem, first, each, &left, right);
            for (sums, found) in sums.iter_mut().zip(found) {
                *sums = std::array::from_fn(|r| b.add(sums[r], found[r]));
            }
        }
    }

    /// The sums of left·right over the rows of S or D, for so many blocks of its columns from a number on.
    fn through_saved(&self, b: &mut Builder, (first, count): (u32, u32), left: Left, right: Factor) -> Blocks {
        if right.tile.elem == Elem::F32 {
            let rows = |b: &mut Builder, sixteen| self.rows_of(b, left, sixteen);
            return product_in_time(b, self.keys.elem, first, count, rows, right);
        }
        self.through_half(b, (first, count), left.factor, right)
    }

    /// Adds the first term of key' of a head, whose rows are scaled.
    pub(super) fn add_tf32_keys(&self, b: &mut Builder, scales: [Operand; 2], left: Left, right: Factor) {
        let each = blocks_at_once(self.deep_blocks());
        for first in (0..self.deep_blocks()).step_by(each as usize) {
            let found = self.through_saved(b, (first, each), left, right);
            for (block, found) in (first..).zip(found) {
                let kept = self.own(b, self.key_sums, block);
                let sums = std::array::from_fn(|r| b.fma(found[r], scales[r / 2], kept[r]));
                self.store_own(b, self.key_sums, block, &sums);
            }
        }
    }

    /// Adds the first term of query' of a head, whose rows are scaled.
    pub(super) fn add_tf32_queries(
        &self,
        b: &mut Builder,
        head: &Head,
        scales: [Operand; 2],
        partials: &mut Partials,
        left: Left,
        right: Factor,
    ) {
        let each = blocks_at_once(self.deep_blocks());
        for first in (0..self.deep_blocks()).step_by(each as usize) {
            let found = self.through_saved(b, (first, each), left, right);
            for (number, found) in (first..).zip(found) {
                let queries = self.own_block(b, &self.queries, Operand::i32(0), number);
                self.add_query(b, head.sums, partials, QueryBlock { number, found, scales, queries });
            }
        }
    }
}

impl GradientSweep<'_> {
    /// Writes weights to a tile of `f32`; beside `f16` rounded.
    pub(super) fn store_tf32_pairs(&self, b: &mut Builder, tile: &Tile, weights: &Blocks) {
        let (row, column) = (self.first_row(b), self.fragment.column(b));
        let [of_piece, within] = b.div_rem(column, tile.piece());
        let half = self.half_of(b, tile.depth / tile.piece());
        let piece = b.add(half, of_piece);
        for h in 0..2 {
            let row = b.add(row, h as u32 * COLUMNS);
            for (k, block) in (0..).zip(weights) {
                let piece = b.add(piece, k * COLUMNS / tile.piece());
                let index = tile.piece_index(b, row, piece);
                let index = b.add(index, within);
                let two = [block[2 * h], block[2 * h + 1]];
                let two = if self.keys.elem == Elem::F32 { two } else { two.map(|x| rounded(b, x)) };
                b.store(Memory::Shared(tile.array), index, &two, None);
            }
        }
    }
}
