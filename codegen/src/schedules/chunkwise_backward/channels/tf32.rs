//! Products in `tf32` whose factors are scaled channel by channel.

use super::{Arrays, Steps};
use crate::block::layout::Tile;
use crate::block::matmul::{Blocks, Factor};
use crate::block::tf32::{
    HALF, Sums, add_sixteen, blocks_at_once, first_transposed, multiply_by, product_in_time, transposed,
};
use crate::build::{Builder, zero};
use crate::schedules::chunkwise::COLUMNS;
use crate::schedules::chunkwise::channels::{Scale, Scaling};
use crate::schedules::chunkwise_backward::tf32::Left;
use crate::schedules::chunkwise_backward::walk::Head;
use crate::schedules::chunkwise_backward::{BLOCKS, ChunkwiseBackwardKernel, ROWS, TIMES};
use crate::tile::{Memory, Operand};
use oplus_dsl::Ty;
use oplus_dsl::ir::Binary;

impl ChunkwiseBackwardKernel<'_> {
    /// A of the warp's times j and every other later block, the next one for the first half. Scaled keys would take twice the
    /// registers of those of 16 bits: they are scaled again for every block.
    pub(super) fn score_tf32(&self, b: &mut Builder, own: &Steps) {
        let next = b.add(self.block, 1);
        let from = b.add(next, self.half);
        b.for_(from, BLOCKS, 2, |b, later| {
            let first = b.mul(later, ROWS);
            let scores = self.tf32_scores(b, own, first);
            for (block, scores) in (0..).zip(&scores) {
                let first = b.add(first, block * COLUMNS);
                self.store_scores(b, first, scores);
            }
        });
    }

    /// A of the warp's times j and 16 later ones from a time on.
    fn tf32_scores(&self, b: &mut Builder, own: &Steps, first: Operand) -> Blocks {
        let scaling = self.scaling(own.arrays);
        let left = own.views.deep.halves.left(b, &self.keys, Operand::i32(0));
        let right = own.views.deep.halves.right(b, &self.queries, Operand::i32(0));
        // The rows from a time on, not those of the warp's half.
        let start = b.mul(first, self.queries.panel());
        let right = Factor { start, ..right };
        let (earlier, later) = (self.first_row(b), b.add(first, self.fragment.group));
        let [of_keys, of_queries] = [earlier, later].map(|time| [1, 1 + COLUMNS].map(|by| b.add(time, by)));
        let rows = |b: &mut Builder, step| scaling.left(b, left, step, of_keys, Scale::Until(own.end));
        let columns = |b: &mut Builder, step| scaling.right(b, right, step, of_queries, Scale::Since(own.end));
        scaling.product(b, self.schedule.depth / self.keys.step(), rows, columns)
    }

    /// Adds the first term of value': keys, scaled to the chunk's end, by D.
    pub(super) fn add_tf32_duals(&self, b: &mut Builder, own: &Steps, found: &mut Blocks) {
        let scaling = self.scaling(own.arrays);
        let left = own.views.deep.halves.left(b, &self.keys, Operand::i32(0));
        let right = own.views.states().halves.right(b, &self.duals, Operand::i32(0));
        let row = self.first_row(b);
        let rows = [1, 1 + COLUMNS].map(|by| b.add(row, by));
        let end = Scale::Until(Operand::i32(TIMES as i32));
        multiply_by(b, found, &self.keys, right, |b, step| scaling.left(b, left, step, rows, end));
    }

    /// Adds the second term of value': A by cotangents of the warp's block and later ones.
    pub(super) fn add_tf32_cotangents(&self, b: &mut Builder, head: &Head, found: Blocks) -> Blocks {
        let stage = self.stage_of_cotangents(Operand::i32(0));
        let right = head.views.wide.halves.in_time(b, &self.cotangents, stage);
        let last = Operand::i32(BLOCKS as i32);
        self.through_blocks(b, found, self.block, last, |b, found, later| {
            let left = self.rows_in(b, &self.weights, later);
            let right = self.of_block(b, right, later);
            add_sixteen(b, self.keys.elem, found, &left, right);
        })
    }

    /// Adds the product of the warp's rows of a tile over the width, with gains, and S or D.
    pub(super) fn add_tf32_states(
        &self,
        b: &mut Builder,
        own: &Steps,
        left: Factor,
        states: &Tile,
        gains: [Operand; 2],
        found: &mut Blocks,
    ) {
        let left = Left { factor: left, views: &own.views.wide };
        let right = own.views.states().halves.in_time(b, states, Operand::i32(0));
        let each = blocks_at_once(self.deep_blocks());
        for (first, found) in (0..).step_by(each as usize).zip(found.chunks_mut(each as usize)) {
            let rows_of = |b: &mut Builder, sixteen| self.rows_of(b, left, sixteen);
            let products = product_in_time(b, self.keys.elem, first, each, rows_of, right);
            for (found, product) in found.iter_mut().zip(products) {
                *found = std::array::from_fn(|r| b.fma(product[r], gains[r / 2], found[r]));
            }
        }
    }

    /// Adds M·queries of later blocks to key', scaled to the end of the warp's times.
    pub(super) fn add_tf32_later(&self, b: &mut Builder, own: &Steps, through: Blocks) -> Blocks {
        let right = own.views.deep.halves.in_time(b, &self.queries, Operand::i32(0));
        let next = b.add(self.block, 1);
        let last = Operand::i32(BLOCKS as i32);
        self.through_blocks(b, through, next, last, |b, found, later| {
            let left = self.rows_in(b, &own.arrays.pairs, later);
            self.add_tf32_scaled(b, own, found, left, (right, later), Scale::Since(own.end));
        })
    }

    /// Adds M·keys of earlier blocks to query', scaled to the start of the warp's times.
    pub(super) fn add_tf32_earlier(&self, b: &mut Builder, own: &Steps, through: Blocks) -> Blocks {
        let right = own.views.deep.halves.in_time(b, &self.keys, Operand::i32(0));
        let place = first_transposed(b, &own.arrays.pairs, self.fragment, self.block);
        self.through_blocks(b, through, Operand::i32(0), self.block, |b, found, earlier| {
            self.store_passing(b, own, found, earlier);
            let start = b.mul(earlier, ROWS * own.arrays.pairs.panel());
            let pairs = Factor { tile: &own.arrays.pairs, start, ..right };
            let left = transposed(b, pairs, place, 0)
                .map(|own| [(0, 0), (1, 0), (0, 1), (1, 1)].map(|(h, c): (usize, usize)| b.bits(Ty::U32, own[h][c])));
            self.add_tf32_scaled(b, own, found, left, (right, earlier), Scale::Until(own.start));
        })
    }

    /// Adds weights·(queries or keys, scaled) of a block of times.
    fn add_tf32_scaled(
        &self,
        b: &mut Builder,
        own: &Steps,
        found: &mut Blocks,
        weights: [[Operand; 4]; 2],
        (factor, block): (Factor, Operand),
        scale: Scale,
    ) {
        let scaling = self.scaling(own.arrays);
        let right = self.of_block(b, factor, block);
        let first = b.mul(block, ROWS);
        let column = self.fragment.column(b);
        let row = b.add(first, column);
        let row = b.add(row, 1);
        let each = blocks_at_once(self.deep_blocks());
        for (number, found) in (0..).step_by(each as usize).zip(found.chunks_mut(each as usize)) {
            let mut sums = Sums::of(self.keys.elem, found);
            let weights = weights.map(|weights| sums.left(b, weights, HALF));
            for pair in 0..found.len() / 2 {
                let of_all = number / 2 + pair as u32;
                let (channel, _) = self.channels_of(b, 2 * of_all);
                let columns = scaling.in_time(b, right, [0, of_all], [row, channel], scale);
                for (block, columns) in (2 * pair..).zip(columns) {
                    weights.iter().zip(columns).for_each(|(weights, columns)| sums.add(b, block, weights, columns));
                }
            }
            sums.finish(b, found);
        }
    }

    /// The warp's rows of a tile over times, of `f32`, at a block of times: two left factors of eight columns.
    fn rows_in(&self, b: &mut Builder, tile: &Tile, block: Operand) -> [[Operand; 4]; 2] {
        let (row, column, first) = (self.first_row(b), self.fragment.column(b), b.mul(block, ROWS));
        let column = b.add(first, column);
        let [piece, within] = b.div_rem(column, tile.piece());
        let place = tile.piece_index(b, row, piece);
        let place = b.add(place, within);
        [0, COLUMNS].map(|by| {
            // With the swizzle, this is the place eight elements further.
            let above = b.binary(Binary::Xor, place, by);
            let below = b.add(above, COLUMNS * tile.panel());
            let [above, below] =
                [above, below].map(|at| b.load(Memory::Shared(tile.array), at, 2, None, zero(Ty::F32)));
            [above[0], below[0], above[1], below[1]].map(|x| b.bits(Ty::U32, x))
        })
    }

    /// The sums by which factors are scaled.
    fn scaling(&self, arrays: &Arrays) -> Scaling {
        Scaling { sums: arrays.sums, fragment: self.fragment }
    }
}
