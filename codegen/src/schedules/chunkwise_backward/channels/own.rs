//! Pairs of times of one block, channel by channel.

use super::Arrays;
use crate::block::layout::Tile;
use crate::build::{Builder, zero};
use crate::schedules::chunkwise::channels::Log;
use crate::schedules::chunkwise_backward::{ChunkwiseBackwardKernel, ROWS};
use crate::target::WARP;
use crate::tile::{Memory, Operand, SharedId};
use oplus_dsl::Ty;
use oplus_dsl::ir::Binary;

impl ChunkwiseBackwardKernel<'_> {
    /// Computes the sums that pairs of the warp's block add to query' and key', at the channels of its half.
    pub(super) fn pairs_of_own(&self, b: &mut Builder, arrays: &Arrays) {
        self.own_channels(b, |b, channel| {
            let first = self.border(b, 0);
            let after = b.add(first, 1);
            let sums = arrays.sums.index(b, after, channel);
            let sums = self.sums_of_times(b, arrays, sums);
            let queries = self.of_tile(b, &self.queries, first, channel);
            let keys = self.of_tile(b, &self.keys, first, channel);
            let mut to_queries = vec![zero(Ty::F32); ROWS as usize];
            let to = self.channel_index(b, first, channel);
            for (j, key) in keys.into_iter().enumerate() {
                let weights = self.weights_of(b, arrays, first, j as u32);
                let mut to_key = zero(Ty::F32);
                for i in j..ROWS as usize {
                    let decay = sums[i].since(b, sums[j]).power(b);
                    let weight = b.mul(weights[i], decay);
                    to_queries[i] = b.fma(weight, key, to_queries[i]);
                    to_key = b.fma(weight, queries[i], to_key);
                }
                let at = b.add(to, j as u32 * super::row(self.schedule.depth));
                b.store(Memory::Shared(self.key_sums), at, &[to_key], None);
            }
            for (i, sum) in (0..).zip(to_queries) {
                let at = b.add(to, i * super::row(self.schedule.depth));
                b.store(Memory::Shared(arrays.own_queries), at, &[sum], None);
            }
        });
    }

    /// Goes through the thread's channels of its warp's half.
    pub(super) fn own_channels(&self, b: &mut Builder, body: impl FnOnce(&mut Builder, Operand)) {
        let half = self.schedule.depth / 2;
        let first = self.half_of(b, self.schedule.depth);
        b.for_(self.thread.lane, half, WARP, |b, own| {
            let channel = b.add(first, own);
            body(b, channel);
        });
    }

    /// The numbers of 16 times that lie `apart` elements from each other.
    pub(super) fn of_times(&self, b: &mut Builder, array: SharedId, first: Operand, apart: u32) -> Vec<Operand> {
        let one = |k: u32| {
            let at = b.add(first, k * apart);
            b.load1(Memory::Shared(array), at)
        };
        (0..ROWS).map(one).collect()
    }

    /// The sums of a channel in 16 rows, of which the first one is at an index.
    pub(super) fn sums_of_times(&self, b: &mut Builder, arrays: &Arrays, first: Operand) -> Vec<Log> {
        let one = |k: u32| {
            let at = b.add(first, k * arrays.sums.row());
            arrays.sums.load(b, at, 1)[0]
        };
        (0..ROWS).map(one).collect()
    }

    /// A channel of a tile at 16 times.
    fn of_tile(&self, b: &mut Builder, tile: &Tile, first: Operand, channel: Operand) -> Vec<Operand> {
        let [piece, within] = b.div_rem(channel, tile.piece());
        let one = |k: u32| {
            let time = b.add(first, k);
            let index = tile.piece_index(b, time, piece);
            let index = b.add(index, within);
            b.load1(Memory::Shared(tile.array), index)
        };
        (0..ROWS).map(one).collect()
    }

    /// M with its gains of time number j of a block and the block's times; those of the first pieces only where they may be
    /// later.
    fn weights_of(&self, b: &mut Builder, arrays: &Arrays, first: Operand, j: u32) -> Vec<Operand> {
        let row = b.add(first, j);
        let elements = arrays.pairs.piece();
        let piece = b.binary(Binary::Div, first, elements);
        let mut weights = vec![zero(Ty::F32); ROWS as usize];
        for number in j / elements..ROWS / elements {
            let piece = b.add(piece, number);
            let index = arrays.pairs.piece_index(b, row, piece);
            let own = b.load(Memory::Shared(arrays.pairs.array), index, elements, None, zero(Ty::F32));
            weights.splice((number * elements) as usize..((number + 1) * elements) as usize, own);
        }
        weights
    }
}
