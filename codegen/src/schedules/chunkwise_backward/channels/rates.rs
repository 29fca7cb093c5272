//! The cotangents of the logarithms of decays of channels.

use super::{Arrays, row};
use crate::abi::Tensor;
use crate::block::pair::{Coordinates, Values};
use crate::build::{Builder, f32, zero};
use crate::schedules::chunkwise::COLUMNS;
use crate::schedules::chunkwise_backward::{ChunkwiseBackwardKernel, ROWS, TIMES};
use crate::stage::kind::Cotangent;
use crate::tile::{Memory, Operand};
use oplus_dsl::Ty;

/// A decay that leaves nothing has a logarithm below this one: logarithms are at least −160, less the rounding errors of their sums.
const NOTHING: f64 = -150.0;

/// The cotangents of a channel at the warp's times.
struct ChannelCotangents {
    /// The output that they go to.
    output: usize,
    /// The first time of the chunk, `i64`.
    first: Operand,
    channel: Operand,
    /// The number that is added to the sums of all times.
    constant: Operand,
}

impl ChunkwiseBackwardKernel<'_> {
    /// Sums S·D of each thread's channels over 16 places of the width; the sums of a slice are added to those of the slices before.
    /// `duals` is the index of D in memory where its tile has S by now.
    pub(super) fn channel_energies(
        &self,
        b: &mut Builder,
        arrays: &Arrays,
        slice: Option<Operand>,
        duals: Option<Operand>,
    ) {
        if !self.has_channels() {
            return;
        }
        for item in self.items(b) {
            let first = b.mul(item.block, ROWS);
            let [piece, within] = self.place_of_channel(b, item.channel);
            let sum = b.var(zero(Ty::F32));
            b.if_(item.exists, |b| {
                let mut all = zero(Ty::F32);
                for k in 0..ROWS {
                    let place = b.add(first, k);
                    let index = self.states.piece_index(b, place, piece);
                    let index = b.add(index, within);
                    let state = b.load1(Memory::Shared(self.states.array), index);
                    let dual = match duals {
                        None => b.load1(Memory::Shared(self.duals.array), index),
                        Some(first) => {
                            let index = b.convert(Ty::I64, index);
                            let index = b.add(first, index);
                            b.load1(Memory::Global(self.args.scratch[1]), index)
                        }
                    };
                    all = b.fma(state, dual, all);
                }
                b.assign(sum, all);
            });
            let at = b.mul(item.block, self.schedule.depth);
            let at = b.add(at, item.channel);
            let energies = Memory::Shared(arrays.energies);
            let all = match slice {
                None => sum.into(),
                Some(slice) => {
                    let has_before = b.ne(slice, 0);
                    let has_before = b.and(has_before, item.exists);
                    let before = b.load(energies, at, 1, Some(has_before), zero(Ty::F32))[0];
                    b.add(before, sum)
                }
            };
            b.store(energies, at, &[all], Some(item.exists));
        }
    }

    /// The piece of a channel in rows of S and D, and its place in it.
    fn place_of_channel(&self, b: &mut Builder, channel: Operand) -> [Operand; 2] {
        let piece = self.states.piece();
        if self.states.elem == self.keys.elem {
            return b.div_rem(channel, piece);
        }
        // States beside `f16` have places 2t of the depth before places 2t + 1.
        let [eight, within] = b.div_rem(channel, COLUMNS);
        let [within, odd] = b.div_rem(within, 2);
        let first = b.mul(eight, COLUMNS / piece);
        [b.add(first, odd), within]
    }

    /// Sums the numbers of each thread's channels from every time of the warp's block on, and writes the totals.
    pub(super) fn sum_later_channels(&self, b: &mut Builder, arrays: &Arrays) {
        if !self.has_channels() {
            return;
        }
        self.own_channels(b, |b, channel| {
            let first = self.border(b, 0);
            let from = self.channel_index(b, first, channel);
            let apart = row(self.schedule.depth);
            let mut later = zero(Ty::F32);
            for (k, own) in (0..ROWS).zip(self.of_times(b, self.key_sums, from, apart)).rev() {
                later = b.add(later, own);
                let at = b.add(from, k * apart);
                b.store(Memory::Shared(self.key_sums), at, &[later], None);
            }
            if let Some(array) = arrays.later {
                let at = b.mul(self.block, self.schedule.depth);
                let at = b.add(at, channel);
                b.store(Memory::Shared(array), at, &[later], None);
            }
        });
    }

    /// Stores the cotangents at the warp's times and the channels of its half.
    pub(super) fn store_channels(&self, b: &mut Builder, arrays: &Arrays, values: &Values, first: Operand) {
        if !self.has_channels() {
            return;
        }
        let outputs = self.form.outputs.iter().enumerate().filter(|(_, kind)| **kind == Cotangent::Channels);
        for (output, _) in outputs {
            self.own_channels(b, |b, channel| {
                let constant = self.behind_block(b, arrays, channel);
                self.store_times(b, arrays, values.clone(), &ChannelCotangents { output, first, channel, constant });
            });
        }
    }

    /// What a channel's cotangents at all of the warp's times have of pairs that reach over the end of its block.
    fn behind_block(&self, b: &mut Builder, arrays: &Arrays, channel: Operand) -> Operand {
        let [energies, end_terms] = [arrays.energies, arrays.end_terms].map(Memory::Shared);
        let borders = arrays.borders.as_ref();
        let blocks = match (borders, arrays.later) {
            (Some(borders), _) => self.over_end(b, borders, channel),
            (None, later) => later.map_or(f32(0.0), |later| {
                self.total_of(b, Memory::Shared(later), channel, |b, other| b.lt(self.block, other))
            }),
        };
        let all = |_: &mut Builder, _| Operand::bool(true);
        let energy = self.total_of(b, energies, channel, all);
        let end_terms = self.total_of(b, end_terms, channel, |b, other| match borders {
            None => Operand::bool(true),
            Some(_) => b.lt(Operand::i32(other as i32), self.block),
        });
        let end = arrays.sums.at(b, Operand::i32(TIMES as i32), channel, 1)[0];
        let whole = end.power(b);
        let constant = b.fma(whole, energy, end_terms);
        b.add(constant, blocks)
    }

    /// Stores the sums of a channel at the warp's times, plus a constant.
    fn store_times(&self, b: &mut Builder, arrays: &Arrays, mut values: Values, cotangents: &ChannelCotangents) {
        let ChannelCotangents { output, first, channel, constant } = *cotangents;
        let (depth, tensor) = (self.form.states.depth, Tensor::Output(output as u32));
        let value = self.stage.program.outputs[output].value;
        let block = self.border(b, 0);
        let from = self.channel_index(b, block, channel);
        let time = b.add(first, block);
        let place = self.index_along(b, channel, depth);
        values.set_inner(0, depth, place);
        let apart = row(self.schedule.depth);
        let has_same_rows = arrays.sums.row() == apart;
        let of_sums = if has_same_rows { from } else { arrays.sums.index(b, block, channel) };
        let mut before = arrays.sums.load(b, of_sums, 1)[0].sum;
        let after = b.add(of_sums, arrays.sums.row());
        let sums = self.sums_of_times(b, arrays, after);
        let later = self.of_times(b, self.key_sums, from, apart);
        for (k, (sum, own)) in (0..).zip(sums.into_iter().zip(later)) {
            // The cotangent of a decay that leaves nothing is 0, not the rounding error of the sums.
            let log = b.sub(sum.sum, before);
            let is_nothing = b.lt(log, f32(NOTHING));
            before = sum.sum;
            let at = b.add(time, k);
            let place = self.index_along(b, at, self.form.states.time);
            values.set_row(k, place);
            let coordinates = Coordinates { row: Some(k), column: None, inner: Some(0) };
            let sum = b.add(own, constant);
            let sum = b.select(is_nothing, f32(0.0), sum);
            values.set(value, coordinates, sum);
            let (indices, exists) = values.indices(b, coordinates);
            let stored = values.value(b, value, coordinates);
            let offset = self.args.offset(b, tensor, &indices);
            b.store(Memory::Global(self.args.pointer(tensor)), offset, &[stored], Some(exists));
        }
    }
}
