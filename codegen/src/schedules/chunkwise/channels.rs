//! Decays per channel of the depth: sub-chunks of 16 times within chunks.
//!
//! Such a decay belongs into the products over the depth. With s\[t, n\] the running sums of the logarithms of channel n,
//!
//! ```text
//! y[i]   = Σ_n 2^s[i,n]·query[i,n]·S[n] + Σ_{j ≤ i} (Σ_n 2^(s[i,n] − s[j,n])·query[i,n]·key[j,n])·gain[j]·value[j]
//! S_next = 2^s[end]·S + Σ_j gain[j]·value[j]⊗(2^(s[end] − s[j])·key[j])
//! ```
//!
//! The inner sum is no product of a matrix of queries and one of keys, as 2^(−s[j]) may be infinite. But the queries of a
//! sub-chunk, a warp's 16 times, and the keys of an earlier one can be scaled to the border r between them: 2^(s[i] − s[r])
//! and 2^(s[r] − s[j]) are at most 1. Pairs of times within a sub-chunk are summed channel by channel in `f32`. Yang et
//! al., "Gated linear attention transformers with hardware-efficient training", 2023, §4.3.

mod scaling;
mod sums;
mod tf32;

pub(crate) use scaling::{Scale, Scaling};
pub(crate) use sums::{ChannelSums, Log, PAD, numbers, sums_len, sums_row};

use super::state::State;
use super::walk::ReadFactors;
use super::{COLUMNS, ChunkwiseKernel, ROWS, zeros};
use crate::block::matmul::{
    Blocks, Factor, PairPlace, assign_blocks, block_values, block_vars, map_left, map_right, map_transposed, mma_two,
};
use crate::build::{Builder, f32, zero};
use crate::tile::{Memory, Operand, Reg};
use oplus_dsl::Ty;
use oplus_dsl::ir::Binary;

impl ChunkwiseKernel<'_> {
    /// The sums over depth of query·S at the chunk's times.
    pub(super) fn read_channels(&self, b: &mut Builder, factors: &ReadFactors) -> Blocks {
        let ReadFactors { queries, keys, values: in_time, states } = *factors;
        let y = match self.is_tf32 {
            true => self.read_tf32_state(b, queries, states),
            false => self.read_state(b, queries, states),
        };
        let y = block_vars(b, &y);
        let not_first = b.ne(self.thread.warp, 0);
        b.if_(not_first, |b| {
            let first = b.mul(self.thread.warp, ROWS);
            let before = b.sub(first, 1);
            // In `tf32` scaled queries would take twice as many registers; there they are scaled again for every sub-chunk.
            let sixteens = if self.is_tf32 { 0 } else { self.schedule.depth / ROWS };
            let left: Blocks =
                (0..sixteens).map(|sixteen| self.scaled_queries(b, queries, sixteen, Some(before))).collect();
            b.for_(Operand::i32(0), self.thread.warp, 1, |b, earlier| {
                let scores = match self.is_tf32 {
                    true => self.tf32_scores(b, queries, keys, earlier, before),
                    false => self.scores_of_earlier(b, &left, keys, earlier, before),
                };
                self.add_weighted(b, &y, scores, in_time, earlier);
            });
        });
        let scores = self.scores_of_own(b, queries, keys);
        self.add_weighted(b, &y, scores, in_time, self.thread.warp);
        block_values(&y)
    }

    /// The reads of the state before the chunk, by queries.
    fn read_state(&self, b: &mut Builder, queries: Factor, states: Factor) -> Blocks {
        let mut y: Blocks = vec![zeros(); (self.schedule.width() / COLUMNS) as usize];
        for sixteen in 0..self.schedule.depth / ROWS {
            let left = self.scaled_queries(b, queries, sixteen, None);
            for pair in 0..y.len() / 2 {
                let columns = states.four(b, pair as u32 * ROWS, sixteen, false);
                mma_two(b, self.elem(), &mut y[2 * pair..], left, columns);
            }
        }
        y
    }

    /// The warp's queries of 16 channels as a left factor, times the decay since a time, or since the chunk's start.
    fn scaled_queries(&self, b: &mut Builder, queries: Factor, sixteen: u32, since: Option<Operand>) -> [Operand; 4] {
        let packed = queries.four(b, 0, sixteen, false);
        let first = PairPlace { row: self.first_row(b), column: self.fragment.column(b) };
        map_left(b, packed, first, sixteen, |b, pair, time, channel| {
            let mut exponents = self.sums_at(b, time, channel, 2);
            if let Some(since) = since {
                let from = self.sums_at(b, since, channel, 2);
                exponents = exponents.iter().zip(from).map(|(sum, from)| sum.since(b, from)).collect();
            }
            self.scaled(b, pair, &exponents)
        })
    }

    /// The scores of the warp's queries and the keys of an earlier sub-chunk.
    fn scores_of_earlier(
        &self,
        b: &mut Builder,
        left: &Blocks,
        keys: Factor,
        earlier: Operand,
        before: Operand,
    ) -> Blocks {
        let keys = self.sixteen_later(b, keys, earlier);
        let first = b.mul(earlier, ROWS);
        let first = PairPlace { row: b.add(first, self.fragment.group), column: self.fragment.column(b) };
        let mut scores: Blocks = vec![zeros(); 2];
        for (sixteen, left) in (0..).zip(left) {
            let packed = keys.four(b, 0, sixteen, false);
            let columns = map_right(b, packed, first, sixteen, |b, pair, time, channel| {
                let exponents = self.sums_at(b, before, channel, 2);
                let own = self.sums_at(b, time, channel, 2);
                let exponents: Vec<Log> = exponents.iter().zip(own).map(|(sum, own)| sum.since(b, own)).collect();
                self.scaled(b, pair, &exponents)
            });
            mma_two(b, self.elem(), &mut scores, *left, columns);
        }
        scores
    }

    /// The scores of the warp's queries and its own keys up to each, channel by channel.
    fn scores_of_own(&self, b: &mut Builder, queries: Factor, keys: Factor) -> Blocks {
        let (row, column) = (self.first_row(b), self.fragment.column(b));
        let first = b.mul(self.thread.warp, ROWS);
        let column = b.add(first, column);
        let rows = [0, COLUMNS].map(|by| b.add(row, by));
        let columns = [0, 1, COLUMNS, COLUMNS + 1].map(|by| b.add(column, by));
        let scores = [0; 8].map(|_| b.var(zero(Ty::F32)));
        let elements = queries.tile.piece();
        let pieces = Operand::i32((self.schedule.depth / elements) as i32);
        b.for_(Operand::i32(0), pieces, 1, |b, piece| {
            let place = |b: &mut Builder, factor: Factor, time: Operand| {
                let index = factor.tile.piece_index(b, time, piece);
                b.add(index, factor.start)
            };
            let (of_rows, of_columns) =
                (rows.map(|time| place(b, queries, time)), columns.map(|time| place(b, keys, time)));
            let channel = b.mul(piece, elements);
            for pair in (0..elements).step_by(2) {
                let channel = b.add(channel, pair);
                let two = |b: &mut Builder, factor: Factor, index: Operand| {
                    let index = b.add(index, pair);
                    b.load(Memory::Shared(factor.tile.array), index, 2, None, zero(Ty::F32))
                };
                let (q, k) = (of_rows.map(|at| two(b, queries, at)), of_columns.map(|at| two(b, keys, at)));
                let [from, to] = [&columns[..], &rows[..]]
                    .map(|times| times.iter().map(|time| self.sums_at(b, *time, channel, 2)).collect::<Vec<_>>());
                for (at, score) in scores.iter().enumerate() {
                    let (row, column) = (at % 4 / 2, at / 4 * 2 + at % 2);
                    for c in 0..2 {
                        let decay = to[row][c].since(b, from[column][c]).power(b);
                        let product = b.mul(q[row][c], k[column][c]);
                        let sum = b.fma(product, decay, (*score).into());
                        b.assign(*score, sum);
                    }
                }
            }
        });
        let seen = |b: &mut Builder, at: usize| {
            let earlier = b.binary(Binary::Le, columns[at / 4 * 2 + at % 2], rows[at % 4 / 2]);
            b.select(earlier, scores[at].into(), zero(Ty::F32))
        };
        [0, 4].map(|block| [0, 1, 2, 3].map(|r| seen(b, block + r))).to_vec()
    }

    /// Adds scores·gain·value of a sub-chunk to the outputs.
    fn add_weighted(&self, b: &mut Builder, y: &[[Reg; 4]], scores: Blocks, in_time: Factor, sub_chunk: Operand) {
        let first = b.mul(sub_chunk, ROWS);
        let column = self.fragment.column(b);
        let column = b.add(first, column);
        let weights: Blocks = (0..)
            .zip(scores)
            .map(|(block, scores)| {
                let at = b.add(column, block * COLUMNS);
                let gains = b.load(Memory::Shared(self.gains), at, 2, None, zero(Ty::F32));
                let mut r = 0;
                scores.map(|score| {
                    r += 1;
                    b.mul(score, gains[(r - 1) % 2])
                })
            })
            .collect();
        let left = self.packed(b, weights);
        let in_time = self.sixteen_later(b, in_time, sub_chunk);
        let mut sums = block_values(y);
        self.multiply_in_time(b, &mut sums, &left, in_time);
        assign_blocks(b, y, &sums);
    }

    /// A factor from its sub-chunk of a number on.
    fn sixteen_later<'f>(&self, b: &mut Builder, factor: Factor<'f>, sub_chunk: Operand) -> Factor<'f> {
        let by = b.mul(sub_chunk, ROWS * factor.tile.panel());
        Factor { start: b.add(factor.start, by), ..factor }
    }

    /// The two elements of a packed pair times two to the power of two exponents.
    fn scaled(&self, b: &mut Builder, pair: Operand, exponents: &[Log]) -> Operand {
        let both = b.unpack(self.elem(), pair);
        let mut scaled = |k: usize| {
            let power = exponents[k].power(b);
            b.mul(both[k], power)
        };
        let [low, high] = [scaled(0), scaled(1)];
        b.pack(self.elem(), low, high)
    }

    /// The gains at the thread's two columns of a block.
    pub(super) fn gains_of(&self, b: &mut Builder, block: u32) -> [Operand; 2] {
        let column = self.fragment.column(b);
        let at = b.add(column, block * COLUMNS);
        let two = b.load(Memory::Shared(self.gains), at, 2, None, f32(0.0));
        [two[0], two[1]]
    }

    /// Advances the state: S_next = decay·S + Σ value⊗scaled key, both scaled to the chunk's end; in reverse, to before its first time.
    pub(super) fn advance_channels(&self, b: &mut Builder, state: &State, left: &[[Operand; 4]], keys: Factor) {
        let sums = match self.is_tf32 {
            true => self.advanced_tf32(b, state, left, keys),
            false => self.advanced(b, state, left, keys),
        };
        assign_blocks(b, &state.blocks, &sums);
    }

    /// The state scaled to the chunk's end, for blocks from a number on.
    fn left_of_state(&self, b: &mut Builder, first: u32, blocks: &[[Reg; 4]]) -> Blocks {
        let column = self.fragment.column(b);
        let left = (first..).zip(blocks).map(|(k, block)| {
            let channel = b.add(column, k * COLUMNS);
            let whole = self.sums_at(b, self.last_time(), channel, 2);
            let whole: Vec<Operand> = whole.into_iter().map(|sum| sum.power(b)).collect();
            [0, 1, 2, 3].map(|r| b.mul(block[r].into(), whole[r % 2]))
        });
        left.collect()
    }

    /// The chunk's last time.
    fn last_time(&self) -> Operand {
        Operand::i32(self.schedule.times() as i32 - 1)
    }

    /// The state at the chunk's end.
    fn advanced(&self, b: &mut Builder, state: &State, left: &[[Operand; 4]], keys: Factor) -> Blocks {
        let mut sums = self.left_of_state(b, 0, &state.blocks);
        let column = self.fragment.column(b);
        for pair in 0..sums.len() / 2 {
            let channel = b.add(self.fragment.group, pair as u32 * ROWS);
            let channels = [0, COLUMNS].map(|by| b.add(channel, by));
            let end_logs = channels.map(|channel| self.sums_at(b, self.last_time(), channel, 1)[0]);
            for (sixteen, left) in (0..).zip(left) {
                let packed = keys.four(b, sixteen * ROWS, pair as u32, true);
                let columns = map_transposed(b, packed, |b, pair, block, time| {
                    let exponents = [0, 1].map(|k| {
                        let time = b.add(column, sixteen * ROWS + time + k);
                        let own = self.sums_at(b, time, channels[block], 1)[0];
                        if self.form.reverse { own } else { end_logs[block].since(b, own) }
                    });
                    self.scaled(b, pair, &exponents)
                });
                mma_two(b, self.elem(), &mut sums[2 * pair..], *left, columns);
            }
        }
        sums
    }
}
