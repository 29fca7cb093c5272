//! Factors of products that are scaled channel by channel.

use super::{Arrays, Steps};
use crate::block::matmul::{Blocks, PairPlace, map_left, map_right, map_transposed, scale_pair};
use crate::build::Builder;
use crate::schedules::chunkwise::COLUMNS;
use crate::schedules::chunkwise::channels::{Log, Scale};
use crate::schedules::chunkwise_backward::{ChunkwiseBackwardKernel, ROWS};
use crate::tile::Operand;

impl ChunkwiseBackwardKernel<'_> {
    /// The powers of two neighbouring channels at a time of the chunk.
    pub(super) fn powers(
        &self,
        b: &mut Builder,
        arrays: &Arrays,
        time: Operand,
        channel: Operand,
        scale: Scale,
    ) -> [Operand; 2] {
        let after = b.add(time, 1);
        let own = arrays.sums.at(b, after, channel, 2);
        let border = scale.border().map(|border| arrays.sums.at(b, border, channel, 2));
        [0, 1].map(|c| power(b, scale, own[c], border.as_ref().map(|border| border[c])))
    }

    /// The warp's keys as left factors over the depth, scaled up to a border.
    pub(super) fn scaled_left(&self, b: &mut Builder, own: &Steps, border: Operand) -> Blocks {
        let left = own.views.deep.halves.left(b, &self.keys, Operand::i32(0));
        let first = PairPlace { row: self.first_row(b), column: self.fragment.column(b) };
        let scale = Scale::Until(border);
        let sixteen = |sixteen: u32| {
            let packed = left.four(b, 0, sixteen, false);
            map_left(b, packed, first, sixteen, |b, pair, time, channel| {
                let powers = self.powers(b, own.arrays, time, channel, scale);
                scale_pair(b, self.keys.elem, pair, powers)
            })
        };
        (0..self.schedule.depth / ROWS).map(sixteen).collect()
    }

    /// Four matrices of a right factor over the depth, 16 times from one on, times their powers.
    pub(super) fn scaled_right(
        &self,
        b: &mut Builder,
        arrays: &Arrays,
        packed: [Operand; 4],
        first: Operand,
        sixteen: u32,
        scale: Scale,
    ) -> [Operand; 4] {
        let first = PairPlace { row: b.add(first, self.fragment.group), column: self.fragment.column(b) };
        map_right(b, packed, first, sixteen, |b, pair, time, channel| {
            let powers = self.powers(b, arrays, time, channel, scale);
            scale_pair(b, self.keys.elem, pair, powers)
        })
    }

    /// Four matrices of a right factor over 16 times from one on, times their powers; `channel` is the thread's.
    pub(super) fn scaled_in_time(
        &self,
        b: &mut Builder,
        arrays: &Arrays,
        packed: [Operand; 4],
        first: Operand,
        channel: Operand,
        scale: Scale,
    ) -> [Operand; 4] {
        let column = self.fragment.column(b);
        let time = b.add(first, column);
        let channels = [0, COLUMNS].map(|by| b.add(channel, by));
        let borders = channels.map(|channel| scale.border().map(|border| arrays.sums.at(b, border, channel, 1)[0]));
        map_transposed(b, packed, |b, pair, block, row| {
            let powers = [0, 1].map(|k| {
                let after = b.add(time, row + k + 1);
                let own = arrays.sums.at(b, after, channels[block], 1)[0];
                power(b, scale, own, borders[block])
            });
            scale_pair(b, self.keys.elem, pair, powers)
        })
    }
}

/// The power of two by which a row is scaled, from its sum and that of the border.
fn power(b: &mut Builder, scale: Scale, own: Log, border: Option<Log>) -> Operand {
    scale.log(b, own, border).power(b)
}
