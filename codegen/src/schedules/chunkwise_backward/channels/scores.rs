//! Weights of pairs of times: A, and M with its gains.

use super::{Arrays, Steps};
use crate::block::layout::{Tile, right_rows};
use crate::block::matmul::{Blocks, Factor, mma_two, multiply};
use crate::block::tf32::rounded;
use crate::build::{Builder, zero};
use crate::schedules::chunkwise::channels::{Log, Scale};
use crate::schedules::chunkwise::{COLUMNS, zeros};
use crate::schedules::chunkwise_backward::{BLOCKS, ChunkwiseBackwardKernel, ROWS, TIMES};
use crate::tile::{Memory, Operand};
use oplus_dsl::ir::Binary;
use oplus_dsl::{Elem, Ty};

impl ChunkwiseBackwardKernel<'_> {
    /// Computes A of the warp's times j and every other later block, the next one for the first half.
    pub(super) fn score_earlier(&self, b: &mut Builder, own: &Steps) {
        if self.is_tf32 {
            return self.score_tf32(b, own);
        }
        let left = self.scaled_left(b, own, own.end);
        let (row, piece) = right_rows(b, self.thread.lane);
        let lanes = self.queries.lanes(b, row, piece);
        let next = b.add(self.block, 1);
        let from = b.add(next, self.half);
        b.for_(from, BLOCKS, 2, |b, later| {
            let first = b.mul(later, ROWS);
            let start = b.mul(first, self.queries.panel());
            let right = Factor { tile: &self.queries, lanes: &lanes, start };
            let mut scores: Blocks = vec![zeros(); 2];
            for (sixteen, left) in (0..).zip(&left) {
                let packed = right.four(b, 0, sixteen, false);
                let scale = Scale::Since(own.end);
                let columns = self.scaled_right(b, own.arrays, packed, first, sixteen, scale);
                mma_two(b, right.tile.elem, &mut scores, *left, columns);
            }
            for (block, scores) in (0..).zip(&scores) {
                let first = b.add(first, block * COLUMNS);
                self.store_scores(b, first, scores);
            }
        });
    }

    /// Writes A of the warp's times j and eight times from a place on, with the gains of these.
    pub(super) fn store_scores(&self, b: &mut Builder, first: Operand, scores: &[Operand; 4]) {
        let column = self.fragment.column(b);
        let at = b.add(first, column);
        let gains = b.load(Memory::Shared(self.rates[2]), at, 2, None, zero(Ty::F32));
        let elements = self.weights.piece();
        // Of `f32` eight times are two pieces.
        let [piece, within] = match self.is_tf32 {
            true => b.div_rem(at, elements),
            false => [b.binary(Binary::Div, first, elements), column],
        };
        let row = self.first_row(b);
        for h in 0..2 {
            let row = b.add(row, h * COLUMNS);
            let index = self.weights.piece_index(b, row, piece);
            let index = b.add(index, within);
            let two = [0, 1].map(|c: usize| b.mul(scores[2 * h as usize + c], gains[c]));
            let is_rounded = self.is_tf32 && self.keys.elem != Elem::F32;
            let two = if is_rounded { two.map(|x| rounded(b, x)) } else { two };
            b.store(Memory::Shared(self.weights.array), index, &two, None);
        }
    }

    /// Computes A of the warp's times j and eight of the same block, channel by channel: the first eight for the first half.
    pub(super) fn score_own(&self, b: &mut Builder) {
        let Some(arrays) = &self.channels else { return };
        let first = self.border(b, 0);
        let eight = b.mul(self.half, COLUMNS);
        let first = b.add(first, eight);
        let (row, column) = (self.first_row(b), self.fragment.column(b));
        let earlier = [0, COLUMNS].map(|by| b.add(row, by));
        let column = b.add(first, column);
        let later = [0, 1].map(|by| b.add(column, by));
        let scores = [0; 4].map(|_| b.var(zero(Ty::F32)));
        let elements = self.keys.piece();
        let pieces = Operand::i32((self.schedule.depth / elements) as i32);
        b.for_(Operand::i32(0), pieces, 1, |b, piece| {
            let of = |b: &mut Builder, tile: &Tile, time: Operand| tile.piece_index(b, time, piece);
            let of_keys = earlier.map(|time| of(b, &self.keys, time));
            let of_queries = later.map(|time| of(b, &self.queries, time));
            let channel = b.mul(piece, elements);
            for pair in (0..elements).step_by(2) {
                let two = |b: &mut Builder, tile: &Tile, index: Operand| {
                    let index = b.add(index, pair);
                    b.load(Memory::Shared(tile.array), index, 2, None, zero(Ty::F32))
                };
                let keys = of_keys.map(|at| two(b, &self.keys, at));
                let queries = of_queries.map(|at| two(b, &self.queries, at));
                let channel = b.add(channel, pair);
                let [from, to] =
                    [earlier, later].map(|times| times.map(|time| self.sums_after(b, arrays, time, channel)));
                for (r, score) in scores.iter().enumerate() {
                    for c in 0..2 {
                        let decay = to[r % 2][c].since(b, from[r / 2][c]).power(b);
                        let product = b.mul(queries[r % 2][c], keys[r / 2][c]);
                        let sum = b.fma(product, decay, (*score).into());
                        b.assign(*score, sum);
                    }
                }
            }
        });
        // The power of times that are no pair may be infinite.
        let seen = [0, 1, 2, 3].map(|r: usize| {
            let is_pair = b.ge(later[r % 2], earlier[r / 2]);
            b.select(is_pair, scores[r].into(), zero(Ty::F32))
        });
        self.store_scores(b, first, &seen);
    }

    /// The sums of two neighbouring channels up to and with a time.
    fn sums_after(&self, b: &mut Builder, arrays: &Arrays, time: Operand, channel: Operand) -> Vec<Log> {
        let row = b.add(time, 1);
        arrays.sums.at(b, row, channel, 2)
    }

    /// Computes M of the warp's times j and the times i of its half, with all gains.
    pub(super) fn weigh_pairs(&self, b: &mut Builder, own: &Steps) {
        let mut products: Blocks = vec![zeros(); (TIMES / 2 / COLUMNS) as usize];
        self.add_pairs(b, own, &mut products);
        self.store_weighed(b, own.arrays, products);
    }

    /// Adds the products of values and cotangents.
    pub(super) fn add_pairs(&self, b: &mut Builder, own: &Steps, products: &mut Blocks) {
        let none = Operand::i32(0);
        let left = own.views.wide.halves.left(b, &self.values, none);
        let right = own.views.wide.halves.right(b, &self.cotangents, self.stage_of_cotangents(none));
        multiply(b, products, left, right);
    }

    /// Writes M from these products.
    pub(super) fn store_weighed(&self, b: &mut Builder, arrays: &Arrays, mut products: Blocks) {
        let (row, half, column) = (self.first_row(b), self.half_of(b, TIMES), self.fragment.column(b));
        let column = b.add(half, column);
        let [gains, back] = [self.rates[1], self.rates[2]].map(Memory::Shared);
        let gains = [0, COLUMNS].map(|by| {
            let at = b.add(row, by);
            b.load1(gains, at)
        });
        for (block, products) in (0..).zip(&mut products) {
            let first = b.add(column, block * COLUMNS);
            let back = b.load(back, first, 2, None, zero(Ty::F32));
            for (r, product) in products.iter_mut().enumerate() {
                let i = b.add(first, r % 2);
                let j = b.add(row, (r / 2) as i32 * COLUMNS as i32);
                let gain = b.mul(gains[r / 2], back[r % 2]);
                let weighed = b.mul(*product, gain);
                let is_pair = b.ge(i, j);
                *product = b.select(is_pair, weighed, zero(Ty::F32));
            }
        }
        self.store_pairs(b, &arrays.pairs, &products);
    }
}
