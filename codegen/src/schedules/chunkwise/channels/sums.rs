//! The running sums of the logarithms of channels: in shared memory, a row for every time of a chunk.
//!
//! Beside factors of `f32` every sum is two numbers side by side, a sum and its rounding error, as those of heads are. Rows begin in different
//! banks by their padding; where there is no room for that, channels of a row are [swizzled](ChannelSums::index).

use crate::block::pair::{Coordinates, Values};
use crate::build::{Builder, f32, zero};
use crate::schedules::Chunkwise;
use crate::schedules::chunkwise::ChunkwiseKernel;
use crate::schedules::chunkwise::decay::{gain, logarithm_at, split_sum};
use crate::tile::{Expr, Memory, Operand, Reg, SharedId};
use oplus_dsl::ir::Binary;
use oplus_dsl::{Elem, Ty};

/// Times whose decays a thread loads at once.
const LOADS: u32 = 16;
/// The most channels.
const DEEPEST: u32 = 128;
/// Channels of a row that stay neighbours where they are swizzled.
const TOGETHER: u32 = 8;
/// The padding of a row of sums, so that rows begin in different banks.
pub(crate) const PAD: u32 = 8;

/// The numbers that a sum is stored as, beside factors of a type.
pub(crate) fn numbers(elem: Elem) -> u32 {
    if elem == Elem::F32 { 2 } else { 1 }
}

/// The distance between the sums of a time and those of the next, in numbers.
pub(crate) fn sums_row(elem: Elem, depth: u32) -> u32 {
    numbers(elem) * depth + PAD
}

/// The length of all sums: those of a chunk's times, and those of the segment so far.
pub(crate) fn sums_len(elem: Elem, schedule: &Chunkwise, saves: bool) -> u32 {
    match are_swizzled(elem, schedule, saves) {
        true => schedule.times() * schedule.depth,
        false => (schedule.times() + 1) * sums_row(elem, schedule.depth),
    }
}

/// Whether rows of sums have no padding, and none is behind them: in walks of the most depth that save states in `f32` beside factors of `f16`. Then
/// two blocks have room on a multiprocessor. These walks store no ends of segments, so that the row of sums over a segment is not needed.
fn are_swizzled(elem: Elem, schedule: &Chunkwise, saves: bool) -> bool {
    saves && elem == Elem::F16 && schedule.depth == DEEPEST
}

/// A running sum of logarithms.
#[derive(Clone, Copy)]
pub(crate) struct Log {
    pub sum: Operand,
    /// The rounding error of the sum, where sums are two numbers.
    rounding_error: Option<Operand>,
}

/// The running sums of channels, beside factors of a type and a depth.
#[derive(Clone, Copy)]
pub(crate) struct ChannelSums {
    pub array: SharedId,
    pub elem: Elem,
    pub depth: u32,
    /// Whether channels of a row are swizzled instead of rows padded.
    pub swizzled: bool,
}

impl ChannelSums {
    /// The distance between the sums of a row and those of the next, in numbers.
    pub(crate) fn row(self) -> u32 {
        if self.swizzled { self.depth } else { sums_row(self.elem, self.depth) }
    }

    /// The index of a row's sum of a channel.
    pub(crate) fn index(self, b: &mut Builder, row: Operand, channel: Operand) -> Operand {
        let place = match self.swizzled {
            true => {
                let [pair, _] = b.div_rem(row, 2);
                self.place(b, channel, pair)
            }
            false => channel,
        };
        self.index_of_place(b, row, place)
    }

    /// The place of a channel in both rows of a pair of rows. Every fourth pair has the same places. Where channels are swizzled, eight neighbours
    /// stay together, and each of four pairs of rows has its own banks.
    pub(crate) fn place(self, b: &mut Builder, channel: Operand, pair: Operand) -> Operand {
        if !self.swizzled {
            return channel;
        }
        let by = b.binary(Binary::And, pair, 3);
        let by = b.mul(by, TOGETHER);
        b.binary(Binary::Xor, channel, by)
    }

    fn index_of_place(self, b: &mut Builder, row: Operand, place: Operand) -> Operand {
        let row = b.mul(row, self.row());
        let own = b.mul(place, numbers(self.elem));
        b.add(row, own)
    }

    /// The sum at a place of a row.
    pub(crate) fn at_place(self, b: &mut Builder, row: Operand, place: Operand) -> Log {
        let index = self.index_of_place(b, row, place);
        self.load(b, index, 1)[0]
    }

    /// The sums of some neighbouring channels in a row.
    pub(crate) fn at(self, b: &mut Builder, row: Operand, channel: Operand, count: u32) -> Vec<Log> {
        let index = self.index(b, row, channel);
        self.load(b, index, count)
    }

    /// The sums of some neighbouring channels from an index on.
    pub(crate) fn load(self, b: &mut Builder, index: Operand, count: u32) -> Vec<Log> {
        let numbers = numbers(self.elem);
        let all = b.load(Memory::Shared(self.array), index, numbers * count, None, zero(Ty::F32));
        let log = |own: &[Operand]| Log { sum: own[0], rounding_error: own.get(1).copied() };
        all.chunks(numbers as usize).map(log).collect()
    }
}

impl Log {
    /// The sum of what lies between an earlier time and this one.
    pub(crate) fn since(self, b: &mut Builder, earlier: Log) -> Log {
        let sum = b.sub(self.sum, earlier.sum);
        Log {
            sum,
            rounding_error: self.rounding_error.zip(earlier.rounding_error).map(|(own, earlier)| b.sub(own, earlier)),
        }
    }

    /// Two to the power of the sum.
    pub(crate) fn power(self, b: &mut Builder) -> Operand {
        let all = self.rounding_error.map_or(self.sum, |rounding_error| b.add(self.sum, rounding_error));
        b.let_(Ty::F32, Expr::Exp2Fast(all))
    }
}

impl ChunkwiseKernel<'_> {
    /// Sums the logarithms of each thread's channels along the chunk's times; the first threads evaluate the gains.
    pub(crate) fn sum_channels(&self, b: &mut Builder, values: &Values, first: Operand) {
        let times = self.schedule.times();
        self.own_channels(b, |b, channel| {
            let mut values = values.clone();
            let place = self.index_along(b, channel, self.form.depth);
            values.set_inner(0, self.form.depth, place);
            let sum = b.var(zero(self.ty_of_sums()));
            b.for_(Operand::i32(0), times, LOADS, |b, from| {
                self.sum_times(b, values, first, from, channel, sum);
            });
            if self.channel_sums().swizzled {
                return;
            }
            let index = self.log_index(b, channel);
            let before = b.load1(Memory::Shared(self.sums), index);
            let own = b.convert(Ty::F32, sum.into());
            let all = b.add(before, own);
            b.store(Memory::Shared(self.sums), index, &[all], None);
        });
        let has_time = b.lt(self.thread.number, times);
        b.if_(has_time, |b| {
            let mut values = values.clone();
            let at = b.add(first, self.thread.number);
            let place = self.index_along(b, at, self.form.time);
            values.set_row(0, place);
            let gain = gain(b, &mut values, &self.form.gain, 0);
            b.store(Memory::Shared(self.gains), self.thread.number, &[gain], None);
        });
    }

    /// The type in which logarithms are summed.
    fn ty_of_sums(&self) -> Ty {
        if self.has_rounding_errors() { Ty::F64 } else { Ty::F32 }
    }

    /// The index of a channel's sum over the segment so far, which belongs to its thread.
    fn log_index(&self, b: &mut Builder, channel: Operand) -> Operand {
        self.sum_index(b, Operand::i32(self.schedule.times() as i32), channel)
    }

    /// Sets the sums over the segment of each thread's channels to 0.
    pub(crate) fn clear_logs(&self, b: &mut Builder) {
        if self.channel_sums().swizzled {
            return;
        }
        self.own_channels(b, |b, channel| {
            let index = self.log_index(b, channel);
            b.store(Memory::Shared(self.sums), index, &[f32(0.0)], None);
        });
    }

    /// Writes the sums over the segment of each thread's channels to memory from an index on.
    pub(crate) fn store_logs(&self, b: &mut Builder, memory: Memory, from: Operand) {
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
        b.for_(self.thread.number, depth, threads, body);
    }

    /// Adds the logarithms of a channel at some times from number `from` of the chunk on.
    fn sum_times(
        &self,
        b: &mut Builder,
        mut values: Values,
        first: Operand,
        from: Operand,
        channel: Operand,
        sum: Reg,
    ) {
        let time = b.add(first, from);
        let mut log = |b: &mut Builder, k: u32| {
            let at = b.add(time, k);
            let place = self.index_along(b, at, self.form.time);
            values.set_row(k, place);
            let coordinates = Coordinates { row: Some(k), column: None, inner: Some(0) };
            logarithm_at(b, &mut values, self.form.decay, coordinates)
        };
        let logs: Vec<Operand> = (0..LOADS).map(|k| log(b, k)).collect();
        let sums = self.channel_sums();
        let first = sums.index_of_place(b, from, channel);
        for (k, log) in (0..).zip(logs) {
            let log = b.convert(self.ty_of_sums(), log);
            let next = b.add(sum.into(), log);
            b.assign(sum, next);
            let first = match sums.swizzled {
                true => {
                    let place = sums.place(b, channel, Operand::i32((k / 2) as i32));
                    sums.index_of_place(b, from, place)
                }
                false => first,
            };
            let at = b.add(first, k * sums.row());
            let numbers = if self.has_rounding_errors() { split_sum(b, next).to_vec() } else { vec![next] };
            b.store(Memory::Shared(self.sums), at, &numbers, None);
        }
    }

    /// The sums of all times, and those of the segment so far behind them.
    pub(super) fn channel_sums(&self) -> ChannelSums {
        let swizzled = are_swizzled(self.elem(), self.schedule, self.saved.is_some());
        ChannelSums { array: self.sums, elem: self.elem(), depth: self.schedule.depth, swizzled }
    }

    /// The index of a time's sum of a channel.
    fn sum_index(&self, b: &mut Builder, time: Operand, channel: Operand) -> Operand {
        self.channel_sums().index(b, time, channel)
    }

    /// The sums of some neighbouring channels at a time.
    pub(super) fn sums_at(&self, b: &mut Builder, time: Operand, channel: Operand, count: u32) -> Vec<Log> {
        self.channel_sums().at(b, time, channel, count)
    }
}
