//! Segments: few long recurrences are divided in time, a block for each segment.
//!
//! A first kernel computes the state at the end of every segment but the last, from 0 at its start, and the sum of the
//! logarithms of its decays; a block of the second applies those of the segments before its own, in their order, and goes on.
//! The grid says how many segments a recurrence has: as many as it has blocks. A segment has the same number of chunks as
//! the others, the last ones may have fewer.

use super::state::State;
use super::{COLUMNS, Chunkwise, ChunkwiseKernel};
use crate::block::args::Args;
use crate::build::{Builder, f32};
use crate::tile::{Expr, Memory, Operand, Reg, Special};
use oplus_dsl::Ty;
use oplus_dsl::ir::{AxisSet, Binary};

/// The length of the sums after a segment's state: one sum of logarithms, or one for every channel; a state stays aligned.
fn sums(depth: u32) -> u32 {
    depth.next_multiple_of(8)
}

/// The recurrence and the segment of a block.
#[derive(Clone, Copy)]
pub(crate) struct Segment {
    /// The recurrence's number, or that of one of its slices, `i64`.
    pub row: Operand,
    /// The segment's number and how many there are, `i32`.
    pub number: Operand,
    count: Operand,
}

/// The iterations of a segment: the first, `i32`, how many there are, and those of all segments.
#[derive(Clone, Copy)]
pub(super) struct Iterations {
    pub first: Operand,
    pub count: Operand,
    pub all: Operand,
}

/// The length of the segment carries of a recurrence of so many segments.
pub(super) fn segment_carries_len(segments: u64, width: u32, depth: u32) -> u64 {
    segments.saturating_sub(1).saturating_mul(u64::from(width * depth + sums(depth)))
}

impl Segment {
    /// The segment of the block. Without the last segment the grid has one block fewer for each recurrence.
    pub(super) fn of(
        b: &mut Builder,
        args: &Args,
        outer: AxisSet,
        slices: Option<Operand>,
        schedule: &Chunkwise,
    ) -> Segment {
        let rows = args.rows(b, outer);
        let rows = slices.map_or(rows, |slices| b.mul(rows, slices));
        // A block's first recurrence; the others follow it.
        let rows = if schedule.heads > 1 { b.binary(Binary::Div, rows, i64::from(schedule.heads)) } else { rows };
        let [block, blocks] = [Special::Block, Special::Blocks].map(|special| {
            let number = b.special(special);
            b.convert(Ty::I64, number)
        });
        let own = b.binary(Binary::Div, blocks, rows);
        let [row, number] = b.div_rem(block, own);
        let [number, own] = [number, own].map(|x| b.convert(Ty::I32, x));
        let row = if schedule.heads > 1 { b.mul(row, i64::from(schedule.heads)) } else { row };
        let count = b.add(own, i32::from(schedule.ends));
        Segment { row, number, count }
    }

    /// The segment's share of all iterations.
    pub(super) fn iterations(self, b: &mut Builder, all: Operand) -> Iterations {
        let before = b.sub(self.count, 1);
        let up = b.add(all, before);
        let each = b.binary(Binary::Div, up, self.count);
        let first = b.mul(self.number, each);
        let left = b.sub(all, first);
        let count = b.binary(Binary::Min, left, each);
        Iterations { first, count, all }
    }

    /// Whether the segment is the last.
    pub(super) fn is_last(self, b: &mut Builder) -> Operand {
        let next = b.add(self.number, 1);
        b.eq(next, self.count)
    }
}

impl ChunkwiseKernel<'_> {
    /// The index of a segment's first number among the carries.
    fn carries_of(&self, b: &mut Builder, segment: Operand) -> Operand {
        let before = b.sub(self.segment.count, 1);
        let [before, segment] = [before, segment].map(|x| b.convert(Ty::I64, x));
        let first = b.mul(self.segment.row, before);
        let number = b.add(first, segment);
        b.mul(number, self.state_len() + sums(self.schedule.depth))
    }

    /// The length of a state.
    fn state_len(&self) -> u32 {
        self.schedule.width() * self.schedule.depth
    }

    /// The indices of the thread's pairs of numbers of a state, of every block in its two rows, from the state's first number on.
    fn pairs(&self, b: &mut Builder, from: Operand) -> [Operand; 2] {
        let (row, column) = (self.first_row(b), self.fragment.column(b));
        [0, COLUMNS].map(|by| {
            let row = b.add(row, by);
            let of_row = b.mul(row, self.schedule.depth);
            let within = b.add(of_row, column);
            let within = b.convert(Ty::I64, within);
            b.add(from, within)
        })
    }

    /// Applies the carries of so many segments.
    pub(super) fn join(&self, b: &mut Builder, state: &State, before: Operand) {
        let carries = Memory::Global(self.segment_carries);
        b.for_(Operand::i32(0), before, 1, |b, before| {
            let from = self.carries_of(b, before);
            let pairs = self.pairs(b, from);
            let sum = b.add(from, self.state_len());
            let decays = self.decays_of_end(b, sum);
            for (block, regs) in (0..).zip(&state.blocks) {
                let decays = decays[block as usize % decays.len()];
                for (h, pair) in pairs.into_iter().enumerate() {
                    let at = b.add(pair, block * COLUMNS);
                    let end = b.load(carries, at, 2, None, f32(0.0));
                    for ((reg, end), decay) in regs[2 * h..].iter().zip(end).zip(decays) {
                        let sum = b.fma((*reg).into(), decay, end);
                        b.assign(*reg, sum);
                    }
                }
            }
        });
    }

    /// The decays of a segment at the thread's two columns of every block, or of all, from its sums on.
    fn decays_of_end(&self, b: &mut Builder, sums: Operand) -> Vec<[Operand; 2]> {
        let carries = Memory::Global(self.segment_carries);
        let power = |b: &mut Builder, sum| b.let_(Ty::F32, Expr::Exp2Fast(sum));
        if !self.form.channels {
            let sum = b.load1(carries, sums);
            return vec![[power(b, sum); 2]];
        }
        let column = self.fragment.column(b);
        let column = b.convert(Ty::I64, column);
        let own = b.add(sums, column);
        let blocks = 0..self.schedule.depth / COLUMNS;
        let decays = blocks.map(|block| {
            let at = b.add(own, block * COLUMNS);
            let two = b.load(carries, at, 2, None, f32(0.0));
            [power(b, two[0]), power(b, two[1])]
        });
        decays.collect()
    }

    /// Writes the segment's end: the state, and the sums of logarithms.
    pub(super) fn store_carries(&self, b: &mut Builder, state: &State, logs: Reg) {
        let carries = Memory::Global(self.segment_carries);
        let from = self.carries_of(b, self.segment.number);
        let pairs = self.pairs(b, from);
        for (block, numbers) in (0..).zip(state.whole_blocks(b)) {
            for (h, pair) in pairs.into_iter().enumerate() {
                let at = b.add(pair, block * COLUMNS);
                b.store(carries, at, &[numbers[2 * h], numbers[2 * h + 1]], None);
            }
        }
        let sum = b.add(from, self.state_len());
        if self.form.channels {
            return self.store_logs(b, carries, sum);
        }
        let own = b.eq(self.thread.number, 0);
        b.store(carries, sum, &[logs.into()], Some(own));
    }
}
