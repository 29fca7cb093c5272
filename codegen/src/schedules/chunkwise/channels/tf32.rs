//! Decays per channel beside products in `tf32`: factors are scaled in `f32`, and rounded or split after that.
//!
//! Fragments have eight channels or times. A thread has two of these channels: of `f32` those four apart, of `f16`
//! the neighbours of a packed pair.

use super::sums::Log;
use crate::block::layout::Tile;
use crate::block::matmul::{Blocks, Factor, block_numbers};
use crate::block::tf32::HALF;
use crate::block::tf32::{Sums, eights, multiply_by, rows_of, tf32_bits};
use crate::build::Builder;
use crate::schedules::chunkwise::state::State;
use crate::schedules::chunkwise::{COLUMNS, ChunkwiseKernel, ROWS, zeros};
use crate::tile::{Memory, Operand, Stmt};
use oplus_dsl::{Elem, Ty};

impl ChunkwiseKernel<'_> {
    /// The reads of the state before the chunk, by queries.
    pub(super) fn read_tf32_state(&self, b: &mut Builder, queries: Factor, states: Factor) -> Blocks {
        let mut y: Blocks = vec![zeros(); (self.schedule.width() / COLUMNS) as usize];
        multiply_by(b, &mut y, queries.tile, states, |b, step| self.scaled_rows(b, queries, step, None));
        y
    }

    /// The scores of the warp's queries and the keys of an earlier sub-chunk, divided by the time before the warp's.
    pub(super) fn tf32_scores(
        &self,
        b: &mut Builder,
        queries: Factor,
        keys: Factor,
        earlier: Operand,
        before: Operand,
    ) -> Blocks {
        let keys = self.sixteen_later(b, keys, earlier);
        let first = b.mul(earlier, ROWS);
        let mut scores: Blocks = vec![zeros(); 2];
        let mut own = Sums::of(self.elem(), &scores);
        for step in 0..self.schedule.depth / keys.tile.step() {
            let rows = self.scaled_rows(b, queries, step, Some(before));
            let columns = self.scaled_columns(b, keys, step, first, before);
            for (rows, columns) in rows.into_iter().zip(columns) {
                let rows = own.left(b, rows, HALF);
                (0..).zip(columns).for_each(|(block, columns)| own.add(b, block, &rows, columns));
            }
            // Loads for later products, moved up, would take registers.
            b.push(Stmt::SyncWarp);
        }
        own.finish(b, &mut scores);
        scores
    }

    /// The state at the chunk's end.
    pub(super) fn advanced_tf32(&self, b: &mut Builder, state: &State, left: &[[Operand; 4]], keys: Factor) -> Blocks {
        let at_once = Sums::at_once(self.elem(), state.blocks.len());
        let mut all = vec![];
        for (group, blocks) in (0..).zip(state.blocks.chunks(at_once)) {
            let first = group * at_once as u32;
            let mut sums = self.left_of_state(b, first, blocks);
            if self.schedule.vector == 1 && self.schedule.depth > 64 {
                self.rematerialiser
                    .apart(b, &mut sums, block_numbers, |b, sums| self.add_tf32(b, sums, first, left, keys));
            } else {
                self.add_tf32(b, &mut sums, first, left, keys);
            }
            all.extend(sums);
        }
        all
    }

    /// Adds products of values and scaled keys to blocks of the state from a number on.
    fn add_tf32(&self, b: &mut Builder, sums: &mut Blocks, first: u32, left: &[[Operand; 4]], keys: Factor) {
        let mut own = Sums::of(self.elem(), sums);
        // High and low parts of the left factor would be kept for all groups.
        let half = self.rematerialiser.of_bits(b, HALF);
        for (sixteen, left) in (0..).zip(left.chunks(2)) {
            let left = [left[0], left[1]].map(|left| own.left(b, left, half));
            for pair in 0..sums.len() as u32 / 2 {
                // Loads for later products, moved up, would take registers, of which the state of the greatest depth
                // has a quarter.
                if pair == 0 || self.schedule.depth > 64 {
                    b.push(Stmt::SyncWarp);
                }
                let columns = self.keys_in_time(b, keys, sixteen, first / 2 + pair);
                for (block, columns) in (2 * pair..).zip(columns) {
                    for (left, columns) in left.iter().zip(columns) {
                        own.add(b, block as usize, left, columns);
                    }
                }
            }
        }
        own.finish(b, sums);
    }

    /// A step of the warp's queries as fragments of a left factor, times what is left since a time, or since the chunk's start.
    fn scaled_rows(&self, b: &mut Builder, queries: Factor, step: u32, since: Option<Operand>) -> Vec<[Operand; 4]> {
        let fragments = rows_of(b, queries, step);
        let row = self.first_row(b);
        let times = [0, COLUMNS].map(|by| b.add(row, by));
        let scale = |b: &mut Builder, (eight, fragment): (u32, [Operand; 4])| {
            let from = since.map(|since| self.logs_of_two(b, queries.tile, since, eight));
            let logs = times.map(|time| {
                let own = self.logs_of_two(b, queries.tile, time, eight);
                [0, 1].map(|c| from.map_or(own[c], |from| own[c].since(b, from[c])))
            });
            // Registers 0 and 2 have the first eight times, 2 and 3 the second channel.
            [0, 1, 2, 3].map(|r: usize| self.scaled_number(b, fragment[r], logs[r % 2][r / 2]))
        };
        (step * eights(queries.tile)..).zip(fragments).map(|own| scale(b, own)).collect()
    }

    /// A step of 16 keys as fragments of a right factor, two of eight keys for every eight channels, times what is left of them
    /// at a time.
    fn scaled_columns(
        &self,
        b: &mut Builder,
        keys: Factor,
        step: u32,
        first: Operand,
        at: Operand,
    ) -> Vec<[[Operand; 2]; 2]> {
        let packed = keys.four(b, 0, step, false);
        let row = b.add(first, self.fragment.group);
        let times = [0, COLUMNS].map(|by| b.add(row, by));
        let mut columns = vec![];
        for k in 0..eights(keys.tile) {
            let eight = step * eights(keys.tile) + k;
            let end_logs = self.logs_of_two(b, keys.tile, at, eight);
            columns.push([0, 1].map(|block| {
                let own = self.logs_of_two(b, keys.tile, times[block], eight);
                let two = match keys.tile.elem {
                    Elem::F32 => [packed[2 * block], packed[2 * block + 1]],
                    elem => b.unpack(elem, packed[2 * block + k as usize]).map(|x| b.bits(Ty::U32, x)),
                };
                [0, 1].map(|c| {
                    let log = end_logs[c].since(b, own[c]);
                    self.scaled_number(b, two[c], log)
                })
            }));
        }
        columns
    }

    /// Keys of 16 times and 16 channels as a right factor, times what is left of them at the chunk's end; in reverse, before its
    /// first time: for both eights of the channels, both of the times.
    fn keys_in_time(&self, b: &mut Builder, keys: Factor, sixteen: u32, pair: u32) -> [[[Operand; 2]; 2]; 2] {
        let own = self.key_elements(b, keys, sixteen, pair);
        let column = self.fragment.column(b);
        [0, 1].map(|block| {
            let channel = b.add(self.fragment.group, pair * ROWS + block * COLUMNS);
            let end = self.sums_at(b, self.last_time(), channel, 1)[0];
            [0, 1].map(|half| {
                [0, 1].map(|k| {
                    let time = sixteen * ROWS + half * COLUMNS + k;
                    let time = b.add(column, time);
                    let log = self.sums_at(b, time, channel, 1)[0];
                    let log = if self.form.reverse { log } else { end.since(b, log) };
                    self.scaled_number(b, own[block as usize][half as usize][k as usize], log)
                })
            })
        })
    }

    /// Keys of 16 times and 16 channels as they are in the tile.
    fn key_elements(&self, b: &mut Builder, keys: Factor, sixteen: u32, pair: u32) -> [[[Operand; 2]; 2]; 2] {
        if keys.tile.elem != Elem::F32 {
            let packed = keys.four(b, sixteen * ROWS, pair, true);
            let two = |b: &mut Builder, pair| b.unpack(keys.tile.elem, pair).map(|x| b.bits(Ty::U32, x));
            return [0, 2].map(|block| [0, 1].map(|half| two(b, packed[block + half])));
        }
        let below = keys.tile.lanes_below(b, keys.lanes);
        [0, 1].map(|block| {
            [0, 1].map(|half| {
                [keys.lanes, &below].map(|lanes| {
                    let index = keys.tile.index(b, lanes, sixteen * ROWS + half * COLUMNS, 2 * pair + block);
                    let index = b.add(index, keys.start);
                    let key = b.load1(Memory::Shared(keys.tile.array), index);
                    b.bits(Ty::U32, key)
                })
            })
        })
    }

    /// The sums of the thread's two channels of eight at a time.
    fn logs_of_two(&self, b: &mut Builder, tile: &Tile, time: Operand, eight: u32) -> [Log; 2] {
        let first = (eight * COLUMNS) as i32;
        if tile.elem != Elem::F32 {
            let column = self.fragment.column(b);
            let channel = b.add(column, first);
            let two = self.sums_at(b, time, channel, 2);
            return [two[0], two[1]];
        }
        [0, tile.piece()].map(|by| {
            let channel = b.add(self.fragment.member, first + by as i32);
            self.sums_at(b, time, channel, 1)[0]
        })
    }

    /// A register of a factor times 2 to the power of a sum.
    fn scaled_number(&self, b: &mut Builder, bits: Operand, log: Log) -> Operand {
        let (own, power) = (b.bits(Ty::F32, bits), log.power(b));
        let scaled = b.mul(own, power);
        tf32_bits(b, self.elem(), scaled)
    }
}
