//! Decays of their own for the channels of the depth: chunks of 16 times within chunks.
//!
//! Such a decay belongs into the products over the depth. With s\[t, n\] the running sums of the logarithms of channel n,
//!
//! ```text
//! y[i]   = Σ_n 2^s[i,n]·query[i,n]·S[n] + Σ_{j ≤ i} (Σ_n 2^(s[i,n] − s[j,n])·query[i,n]·key[j,n])·gain[j]·value[j]
//! S_next = 2^s[end]·S + Σ_j gain[j]·value[j]⊗(2^(s[end] − s[j])·key[j])
//! ```
//!
//! The inner sum is no product of a matrix of queries and one of keys, as 2^(−s[j]) may be infinite. But a warp's 16 times, a
//! sub-chunk, and an earlier one are divided by the time r before the warp's: 2^(s[i] − s[r]) of the queries and 2^(s[r] − s[j])
//! of the keys are at most 1. Pairs of times within a sub-chunk are summed channel by channel in `f32`. Yang et al., "Gated
//! linear attention transformers with hardware-efficient training", 2023, §4.3.

use super::decay::{f32, gain, logarithm_at};
use super::products::{Blocks, Factor, mma, multiply_in_time, pack, piece_index};
use super::state::State;
use super::{COLUMNS, ChunksKernel, ROWS, zeros};
use crate::build::{Builder, zero};
use crate::lower::pairs::values::{Spot, Values};
use crate::schedule::Chunks;
use crate::tile::{Expr, Memory, Operand, Reg};
use oplus_dsl::Ty;
use oplus_dsl::ir::Binary;

/// Times whose decays a thread loads at once.
const LOADS: u32 = 16;
/// Elements between rows of sums beside those of the depth, so that rows begin in different banks.
pub(super) const PAD: u32 = 8;

/// Elements from the sums of a time to those of the next.
fn sums_row(depth: u32) -> u32 {
    depth + PAD
}

/// Elements of all sums: those of a chunk's times, and those of the segment so far.
pub(super) fn sums_len(schedule: &Chunks) -> u32 {
    (schedule.times() + 1) * sums_row(schedule.depth)
}

impl ChunksKernel<'_> {
    /// Every thread sums the logarithms of its channels along the chunk's times; the first threads evaluate the gains.
    pub(super) fn sum_channels(&self, b: &mut Builder, values: &Values, first: Operand) {
        let times = self.schedule.times();
        self.own_channels(b, |b, channel| {
            let mut values = values.clone();
            let place = self.place(b, channel, self.form.depth);
            values.set_place(0, self.form.depth, place);
            let sum = b.var(zero(Ty::F32));
            b.for_(Operand::i32(0), Operand::i32(times as i32), Operand::i32(LOADS as i32), |b, from| {
                self.sum_times(b, values, (first, from, channel), sum);
            });
            let index = self.log_index(b, channel);
            let before = b.load1(Memory::Shared(self.sums), index);
            let all = b.add(before, sum.into());
            b.store(Memory::Shared(self.sums), index, &[all], None);
        });
        let has_time = b.lt(self.thread, Operand::i32(times as i32));
        b.if_(has_time, |b| {
            let mut values = values.clone();
            let at = b.add(first, self.thread);
            let place = self.place(b, at, self.form.time);
            values.set_row(0, place);
            let gain = gain(b, &mut values, &self.form.gain, 0);
            b.store(Memory::Shared(self.gains), self.thread, &[gain], None);
        });
    }

    /// The place of a channel's sum over the segment so far, which is its thread's.
    fn log_index(&self, b: &mut Builder, channel: Operand) -> Operand {
        self.sum_index(b, Operand::i32(self.schedule.times() as i32), channel)
    }

    /// Every thread lets the sums over the segment of its channels be 0.
    pub(super) fn clear_logs(&self, b: &mut Builder) {
        self.own_channels(b, |b, channel| {
            let index = self.log_index(b, channel);
            b.store(Memory::Shared(self.sums), index, &[f32(0.0)], None);
        });
    }

    /// Every thread writes the sums over the segment of its channels to memory from a place on.
    pub(super) fn store_logs(&self, b: &mut Builder, memory: Memory, from: Operand) {
        self.own_channels(b, |b, channel| {
            let index = self.log_index(b, channel);
            let log = b.load1(Memory::Shared(self.sums), index);
            let channel = b.convert(Ty::I64, channel);
            let at = b.add(from, channel);
            b.store(memory, at, &[log], None);
        });
    }

    /// Goes through the thread's channels.
    fn own_channels(&self, b: &mut Builder, body: impl FnOnce(&mut Builder, Operand)) {
        let (depth, threads) = (self.schedule.depth as i32, self.schedule.threads() as i32);
        b.for_(self.thread, Operand::i32(depth), Operand::i32(threads), body);
    }

    /// Adds the logarithms of a channel at some times from number `from` of the chunk on.
    fn sum_times(
        &self,
        b: &mut Builder,
        mut values: Values,
        (first, from, channel): (Operand, Operand, Operand),
        sum: Reg,
    ) {
        let time = b.add(first, from);
        let mut log = |b: &mut Builder, k: u32| {
            let at = b.add(time, Operand::i32(k as i32));
            let place = self.place(b, at, self.form.time);
            values.set_row(k, place);
            let spot = Spot { row: Some(k), column: None, place: Some(0) };
            logarithm_at(b, &mut values, self.form.decay, spot)
        };
        let logs: Vec<Operand> = (0..LOADS).map(|k| log(b, k)).collect();
        let index = self.sum_index(b, from, channel);
        for (k, log) in (0..).zip(logs) {
            let next = b.add(sum.into(), log);
            b.assign(sum, next);
            let at = b.add(index, Operand::i32((k * sums_row(self.schedule.depth)) as i32));
            b.store(Memory::Shared(self.sums), at, &[next], None);
        }
    }

    /// The place of a time's sum of a channel.
    fn sum_index(&self, b: &mut Builder, time: Operand, channel: Operand) -> Operand {
        let row = b.mul(time, Operand::i32(sums_row(self.schedule.depth) as i32));
        b.add(row, channel)
    }

    /// The sums of some neighbouring channels at a time.
    fn sums_at(&self, b: &mut Builder, time: Operand, channel: Operand, count: u32) -> Vec<Operand> {
        let index = self.sum_index(b, time, channel);
        b.load(Memory::Shared(self.sums), index, count, None, zero(Ty::F32))
    }

    /// The sums over depth of query·S at the chunk's times.
    pub(super) fn read_channels(
        &self,
        b: &mut Builder,
        (queries, keys, in_time, states): (Factor, Factor, Factor, Factor),
    ) -> Blocks {
        let mut y: Blocks = vec![zeros(); (self.schedule.width() / COLUMNS) as usize];
        for sixteen in 0..self.schedule.depth / ROWS {
            let left = self.scaled_queries(b, queries, sixteen, None);
            for pair in 0..y.len() / 2 {
                let [a, c, d, e] = states.four(b, pair as u32 * ROWS, sixteen, false);
                mma(b, self.elem(), &mut y[2 * pair], left, [a, c]);
                mma(b, self.elem(), &mut y[2 * pair + 1], left, [d, e]);
            }
        }
        let y: Vec<[Reg; 4]> = y.into_iter().map(|block| block.map(|sum| b.var(sum))).collect();
        let not_first = b.ne(self.warp, Operand::i32(0));
        b.if_(not_first, |b| {
            let first = b.mul(self.warp, Operand::i32(ROWS as i32));
            let before = b.sub(first, Operand::i32(1));
            let left: Blocks = (0..self.schedule.depth / ROWS)
                .map(|sixteen| self.scaled_queries(b, queries, sixteen, Some(before)))
                .collect();
            b.for_(Operand::i32(0), self.warp, Operand::i32(1), |b, earlier| {
                let scores = self.scores_of_earlier(b, &left, keys, (earlier, before));
                self.add_weighted(b, &y, scores, (in_time, earlier));
            });
        });
        let scores = self.scores_of_own(b, queries, keys);
        self.add_weighted(b, &y, scores, (in_time, self.warp));
        y.into_iter().map(|block| block.map(Operand::Reg)).collect()
    }

    /// The warp's queries of 16 channels as a left factor, times what is left since a time, or since the chunk's start.
    fn scaled_queries(&self, b: &mut Builder, queries: Factor, sixteen: u32, since: Option<Operand>) -> [Operand; 4] {
        let words = queries.four(b, 0, sixteen, false);
        let (row, column) = (self.first_row(b), self.first_column(b));
        let mut register = 0;
        words.map(|word| {
            // Registers 0 and 2 have the first eight rows, 2 and 3 the channels from the eighth on.
            let (rows, channels) = (register % 2 * COLUMNS, register / 2 * COLUMNS + sixteen * ROWS);
            register += 1;
            let time = b.add(row, Operand::i32(rows as i32));
            let channel = b.add(column, Operand::i32(channels as i32));
            let mut exponents = self.sums_at(b, time, channel, 2);
            if let Some(since) = since {
                let from = self.sums_at(b, since, channel, 2);
                exponents = exponents.iter().zip(from).map(|(sum, from)| b.sub(*sum, from)).collect();
            }
            self.scaled(b, word, &exponents)
        })
    }

    /// The scores of the warp's queries and the keys of an earlier sub-chunk.
    fn scores_of_earlier(
        &self,
        b: &mut Builder,
        left: &Blocks,
        keys: Factor,
        (earlier, before): (Operand, Operand),
    ) -> Blocks {
        let keys = self.sixteen_later(b, keys, earlier);
        let first = b.mul(earlier, Operand::i32(ROWS as i32));
        let (row, column) = (b.add(first, self.group), self.first_column(b));
        let mut scores: Blocks = vec![zeros(); 2];
        for (sixteen, left) in (0..).zip(left) {
            let words = keys.four(b, 0, sixteen, false);
            let mut register = 0;
            let [a, c, d, e] = words.map(|word| {
                // Registers 0 and 1 have the first eight keys, 1 and 3 the channels from the eighth on.
                let (rows, channels) = (register / 2 * COLUMNS, register % 2 * COLUMNS + sixteen * ROWS);
                register += 1;
                let time = b.add(row, Operand::i32(rows as i32));
                let channel = b.add(column, Operand::i32(channels as i32));
                let exponents = self.sums_at(b, before, channel, 2);
                let own = self.sums_at(b, time, channel, 2);
                let exponents: Vec<Operand> = exponents.iter().zip(own).map(|(sum, own)| b.sub(*sum, own)).collect();
                self.scaled(b, word, &exponents)
            });
            mma(b, self.elem(), &mut scores[0], *left, [a, c]);
            mma(b, self.elem(), &mut scores[1], *left, [d, e]);
        }
        scores
    }

    /// The scores of the warp's queries and its own keys up to each, channel by channel.
    fn scores_of_own(&self, b: &mut Builder, queries: Factor, keys: Factor) -> Blocks {
        let (row, column) = (self.first_row(b), self.first_column(b));
        let first = b.mul(self.warp, Operand::i32(ROWS as i32));
        let column = b.add(first, column);
        let rows = [0, COLUMNS].map(|by| b.add(row, Operand::i32(by as i32)));
        let columns = [0, 1, COLUMNS, COLUMNS + 1].map(|by| b.add(column, Operand::i32(by as i32)));
        let scores = [0; 8].map(|_| b.var(zero(Ty::F32)));
        let pieces = Operand::i32((self.schedule.depth / COLUMNS) as i32);
        b.for_(Operand::i32(0), pieces, Operand::i32(1), |b, piece| {
            let place = |b: &mut Builder, factor: Factor, time: Operand| {
                let index = piece_index(b, factor.tile, time, piece);
                b.add(index, factor.start)
            };
            let (of_rows, of_columns) =
                (rows.map(|time| place(b, queries, time)), columns.map(|time| place(b, keys, time)));
            let channel = b.mul(piece, Operand::i32(COLUMNS as i32));
            for pair in (0..COLUMNS).step_by(2) {
                let channel = b.add(channel, Operand::i32(pair as i32));
                let two = |b: &mut Builder, factor: Factor, index: Operand| {
                    let index = b.add(index, Operand::i32(pair as i32));
                    b.load(Memory::Shared(factor.tile.array), index, 2, None, zero(Ty::F32))
                };
                let (q, k) = (of_rows.map(|at| two(b, queries, at)), of_columns.map(|at| two(b, keys, at)));
                let [from, to] = [&columns[..], &rows[..]]
                    .map(|times| times.iter().map(|time| self.sums_at(b, *time, channel, 2)).collect::<Vec<_>>());
                for (at, score) in scores.iter().enumerate() {
                    let (row, column) = (at % 4 / 2, at / 4 * 2 + at % 2);
                    for c in 0..2 {
                        let apart = b.sub(to[row][c], from[column][c]);
                        let decay = b.let_(Ty::F32, Expr::Exp2Fast(apart));
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
    fn add_weighted(&self, b: &mut Builder, y: &[[Reg; 4]], scores: Blocks, (in_time, sub_chunk): (Factor, Operand)) {
        let first = b.mul(sub_chunk, Operand::i32(ROWS as i32));
        let column = self.first_column(b);
        let column = b.add(first, column);
        let weights: Blocks = (0..)
            .zip(scores)
            .map(|(block, scores)| {
                let at = b.add(column, Operand::i32((block * COLUMNS) as i32));
                let gains = b.load(Memory::Shared(self.gains), at, 2, None, zero(Ty::F32));
                let mut r = 0;
                scores.map(|score| {
                    r += 1;
                    b.mul(score, gains[(r - 1) % 2])
                })
            })
            .collect();
        let left = pack(b, self.elem(), &weights);
        let in_time = self.sixteen_later(b, in_time, sub_chunk);
        let mut sums: Blocks = y.iter().map(|block| block.map(Operand::Reg)).collect();
        multiply_in_time(b, &mut sums, (left, in_time), 0);
        for (block, sums) in y.iter().zip(sums) {
            block.iter().zip(sums).for_each(|(reg, sum)| b.assign(*reg, sum));
        }
    }

    /// A factor from its sub-chunk of a number on.
    fn sixteen_later<'f>(&self, b: &mut Builder, factor: Factor<'f>, sub_chunk: Operand) -> Factor<'f> {
        let by = b.mul(sub_chunk, Operand::i32((ROWS * factor.tile.panel()) as i32));
        Factor { start: b.add(factor.start, by), ..factor }
    }

    /// The two elements of a word times two to the power of two exponents.
    fn scaled(&self, b: &mut Builder, word: Operand, exponents: &[Operand]) -> Operand {
        let both = b.unpack(self.elem(), word);
        let mut scaled = |k: usize| {
            let power = b.let_(Ty::F32, Expr::Exp2Fast(exponents[k]));
            b.mul(both[k], power)
        };
        let [low, high] = [scaled(0), scaled(1)];
        b.pack(self.elem(), low, high)
    }

    /// The gains at the thread's two columns of a block.
    pub(super) fn gains_of(&self, b: &mut Builder, block: u32) -> [Operand; 2] {
        let column = self.first_column(b);
        let at = b.add(column, Operand::i32((block * COLUMNS) as i32));
        let two = b.load(Memory::Shared(self.gains), at, 2, None, f32(0.0));
        [two[0], two[1]]
    }

    /// S_next = decay·S + Σ value⊗scaled key, of which is left what is so at the chunk's end; in reverse, before its first time.
    pub(super) fn advance_channels(&self, b: &mut Builder, state: &State, (left, keys): (&[[Operand; 4]], Factor)) {
        let column = self.first_column(b);
        let end = Operand::i32(self.schedule.times() as i32 - 1);
        let mut sums: Blocks = vec![];
        for (k, block) in (0..).zip(&state.blocks) {
            let channel = b.add(column, Operand::i32(k * COLUMNS as i32));
            let whole = self.sums_at(b, end, channel, 2);
            let whole: Vec<Operand> = whole.into_iter().map(|sum| b.let_(Ty::F32, Expr::Exp2Fast(sum))).collect();
            sums.push([0, 1, 2, 3].map(|r| b.mul(block[r].into(), whole[r % 2])));
        }
        for pair in 0..sums.len() / 2 {
            let channel = b.add(self.group, Operand::i32((pair as u32 * ROWS) as i32));
            let channels = [0, COLUMNS].map(|by| b.add(channel, Operand::i32(by as i32)));
            let ends = channels.map(|channel| self.sums_at(b, end, channel, 1)[0]);
            for (sixteen, left) in (0..).zip(left) {
                let words = keys.four(b, sixteen * ROWS, pair as u32, true);
                let mut register = 0;
                let [a, c, d, e] = words.map(|word| {
                    // Registers 0 and 1 have the first eight channels, 1 and 3 the times from the eighth on.
                    let (of, times) = (register / 2, (register % 2) as u32 * COLUMNS + sixteen * ROWS);
                    register += 1;
                    let exponents = [0, 1].map(|k| {
                        let time = b.add(column, Operand::i32((times + k) as i32));
                        let own = self.sums_at(b, time, channels[of], 1)[0];
                        if self.form.reverse { own } else { b.sub(ends[of], own) }
                    });
                    self.scaled(b, word, &exponents)
                });
                mma(b, self.elem(), &mut sums[2 * pair], *left, [a, c]);
                mma(b, self.elem(), &mut sums[2 * pair + 1], *left, [d, e]);
            }
        }
        for (block, sums) in state.blocks.iter().zip(sums) {
            block.iter().zip(sums).for_each(|(reg, sum)| b.assign(*reg, sum));
        }
    }
}
