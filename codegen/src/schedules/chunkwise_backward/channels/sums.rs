//! The running sums of the logarithms of a chunk's channels.

use super::{Arrays, row};
use crate::block::pair::{Coordinates, Values};
use crate::build::{Builder, f32, zero};
use crate::schedules::chunkwise::decay::{logarithm_at, split_sum};
use crate::schedules::chunkwise_backward::{BLOCKS, ChunkwiseBackwardKernel, ROWS};
use crate::tile::{Memory, Operand};
use oplus_dsl::{Elem, Ty};

/// A channel's times in a block: the work of one thread in a sum.
pub(super) struct Item {
    /// The block of times, or of the width, `i32`.
    pub block: Operand,
    pub channel: Operand,
    /// Whether there is such a block.
    pub exists: Operand,
}

impl ChunkwiseBackwardKernel<'_> {
    /// The channels and blocks that the thread sums.
    pub(super) fn items(&self, b: &mut Builder) -> Vec<Item> {
        let (depth, threads) = (self.schedule.depth, self.schedule.threads());
        let items = 0..(BLOCKS * depth).div_ceil(threads);
        let item = |n: u32| {
            let number = b.add(self.thread.number, n * threads);
            let [block, channel] = b.div_rem(number, depth);
            let exists = b.lt(block, BLOCKS);
            Item { block, channel, exists }
        };
        items.map(item).collect()
    }

    /// Sums the logarithms of each thread's channels along the times of a block, and adds the sums of blocks before.
    pub(super) fn sum_channels(&self, b: &mut Builder, arrays: &Arrays, values: &Values, first: Operand) {
        if arrays.sums.elem == Elem::F32 {
            return self.sum_exactly(b, arrays, values, first);
        }
        let items = self.items(b);
        let sums: Vec<Vec<Operand>> =
            items.iter().map(|item| self.sum_times(b, values, item, first, Ty::F32)).collect();
        let depth = Operand::i32(self.schedule.depth as i32);
        let totals = Memory::Shared(arrays.totals);
        for (item, sums) in items.iter().zip(&sums) {
            let at = b.mul(item.block, depth);
            let at = b.add(at, item.channel);
            b.store(totals, at, &sums[sums.len() - 1..], Some(item.exists));
        }
        b.barrier();
        for (item, sums) in items.iter().zip(&sums) {
            let before =
                self.total_of(b, totals, item.channel, |b, other| b.lt(Operand::i32(other as i32), item.block));
            let first = b.mul(item.block, ROWS);
            let index = arrays.sums.index(b, first, item.channel);
            for (k, sum) in (1..).zip(sums) {
                let sum = b.add(before, *sum);
                let at = b.add(index, k * arrays.sums.row());
                b.store(Memory::Shared(arrays.sums.array), at, &[sum], Some(item.exists));
            }
            let is_first = b.eq(item.block, 0);
            b.store(Memory::Shared(arrays.sums.array), item.channel, &[zero(Ty::F32)], Some(is_first));
        }
    }

    /// Sums in `f64`, written as two numbers: beside factors of `f32` a rounding error of sums would be larger than those of products.
    fn sum_exactly(&self, b: &mut Builder, arrays: &Arrays, values: &Values, first: Operand) {
        let items = self.items(b);
        let sums: Vec<Vec<Operand>> =
            items.iter().map(|item| self.sum_times(b, values, item, first, Ty::F64)).collect();
        let totals = Memory::Shared(arrays.totals);
        let of_total = |b: &mut Builder, block: Operand, channel: Operand| {
            let at = b.mul(block, self.schedule.depth);
            let at = b.add(at, channel);
            b.mul(at, 2)
        };
        for (item, sums) in items.iter().zip(&sums) {
            let at = of_total(b, item.block, item.channel);
            let two = split_sum(b, sums[sums.len() - 1]);
            b.store(totals, at, &two, Some(item.exists));
        }
        b.barrier();
        for (item, sums) in items.iter().zip(&sums) {
            let mut before = zero(Ty::F64);
            for block in 0..BLOCKS as i32 {
                let at = of_total(b, Operand::i32(block), item.channel);
                let two = b.load(totals, at, 2, None, zero(Ty::F32));
                let [high, low] = [two[0], two[1]].map(|x| b.convert(Ty::F64, x));
                let own = b.add(high, low);
                let counts = b.lt(Operand::i32(block), item.block);
                let own = b.select(counts, own, zero(Ty::F64));
                before = b.add(before, own);
            }
            let first = b.mul(item.block, ROWS);
            let index = arrays.sums.index(b, first, item.channel);
            for (k, sum) in (1..).zip(sums) {
                let sum = b.add(before, *sum);
                let two = split_sum(b, sum);
                let at = b.add(index, k * arrays.sums.row());
                b.store(Memory::Shared(arrays.sums.array), at, &two, Some(item.exists));
            }
            let is_first = b.eq(item.block, 0);
            let at = arrays.sums.index(b, Operand::i32(0), item.channel);
            b.store(Memory::Shared(arrays.sums.array), at, &[zero(Ty::F32); 2], Some(is_first));
        }
    }

    /// The sum over those blocks for which `counts` holds of a channel's numbers.
    pub(super) fn total_of(
        &self,
        b: &mut Builder,
        memory: Memory,
        channel: Operand,
        counts: impl Fn(&mut Builder, u32) -> Operand,
    ) -> Operand {
        (0..BLOCKS).fold(f32(0.0), |sum, block| {
            let at = b.add(channel, block * self.schedule.depth);
            let own = b.load1(memory, at);
            let counts = counts(b, block);
            let own = b.select(counts, own, f32(0.0));
            b.add(sum, own)
        })
    }

    /// The sums of an item's logarithms up to each of its times, in a type.
    fn sum_times(&self, b: &mut Builder, values: &Values, item: &Item, first: Operand, ty: Ty) -> Vec<Operand> {
        let mut values = values.clone();
        let place = self.index_along(b, item.channel, self.form.states.depth);
        values.set_inner(0, self.form.states.depth, place);
        let own = b.mul(item.block, ROWS);
        let time = b.add(first, own);
        let mut sums: Vec<Operand> = vec![];
        for k in 0..ROWS {
            let at = b.add(time, k);
            let place = self.index_along(b, at, self.form.states.time);
            values.set_row(k, place);
            let coordinates = Coordinates { row: Some(k), column: None, inner: Some(0) };
            let log = logarithm_at(b, &mut values, self.form.states.decay, coordinates);
            let log = b.convert(ty, log);
            sums.push(sums.last().map_or(log, |sum| b.add(*sum, log)));
        }
        sums
    }

    /// The index of a channel in a row of numbers.
    pub(super) fn channel_index(&self, b: &mut Builder, of: Operand, channel: Operand) -> Operand {
        let from = b.mul(of, row(self.schedule.depth));
        b.add(from, channel)
    }
}
