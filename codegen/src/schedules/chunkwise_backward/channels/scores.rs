//! Weights of pairs of times: A, and M with its gains.

use super::factors::{Scale, ScaledFactor};
use super::{Arrays, Steps};
use crate::block::layout::{Tile, right_rows};
use crate::block::matmul::{Blocks, Factor, mma_two, multiply, piece_index};
use crate::build::{Builder, zero};
use crate::schedules::chunkwise::{COLUMNS, zeros};
use crate::schedules::chunkwise_backward::{BLOCKS, ChunkwiseBackwardKernel, ROWS, TIMES};
use crate::tile::{Expr, Memory, Operand};
use oplus_dsl::Ty;
use oplus_dsl::ir::Binary;

impl ChunkwiseBackwardKernel<'_> {
    /// Computes A of the warp's times j and every other later block, the next one for the first half.
    pub(super) fn score_earlier(&self, b: &mut Builder, own: &Steps) {
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
                let scale = Scale { factor: ScaledFactor::Query, border: own.end };
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
    fn store_scores(&self, b: &mut Builder, first: Operand, scores: &[Operand; 4]) {
        let column = self.fragment.column(b);
        let at = b.add(first, column);
        let gains = b.load(Memory::Shared(self.rates[2]), at, 2, None, zero(Ty::F32));
        let piece = b.binary(Binary::Div, first, COLUMNS);
        let row = self.first_row(b);
        for h in 0..2 {
            let row = b.add(row, h * COLUMNS);
            let index = piece_index(b, &self.weights, row, piece);
            let index = b.add(index, column);
            let two = [0, 1].map(|c: usize| b.mul(scores[2 * h as usize + c], gains[c]));
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
        let pieces = Operand::i32((self.schedule.depth / COLUMNS) as i32);
        b.for_(Operand::i32(0), pieces, 1, |b, piece| {
            let of = |b: &mut Builder, tile: &Tile, time: Operand| piece_index(b, tile, time, piece);
            let of_keys = earlier.map(|time| of(b, &self.keys, time));
            let of_queries = later.map(|time| of(b, &self.queries, time));
            let channel = b.mul(piece, COLUMNS);
            for pair in (0..COLUMNS).step_by(2) {
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
                        let apart = b.sub(to[r % 2][c], from[r / 2][c]);
                        let decay = b.let_(Ty::F32, Expr::Exp2Fast(apart));
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
    fn sums_after(&self, b: &mut Builder, arrays: &Arrays, time: Operand, channel: Operand) -> Vec<Operand> {
        let row = b.add(time, 1);
        self.sums_at(b, arrays, row, channel, 2)
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
        let right = own.views.wide.halves.right(b, &self.cotangents, none);
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
