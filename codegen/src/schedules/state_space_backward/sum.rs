//! The last pass: the sums over rows of all blocks, added in the order of the blocks, and the totals of all segments.
//!
//! A thread takes four steps of a state of a point, of one sum; further threads take a total each. Where the rows are
//! taken piece by piece, a piece goes on from the sums of those before it; only the last one writes them.

use super::StateSpaceBackward;
use super::scratch::Scratch;
use super::segments::{SegmentLayout, Total, totals_per_row};
use crate::abi::{Piece, Tensor};
use crate::block::args::Args;
use crate::build::{Builder, operands, zero};
use crate::schedules::Strategy;
use crate::schedules::state_space::CHUNK;
use crate::stage::Stage;
use crate::stage::kind::{BackwardScan, Given};
use crate::tile::{Memory, Operand, Special};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Axis, Binary};

/// Blocks or segments whose sums are loaded at once.
const LOADED_AT_ONCE: u32 = 8;

/// Emits the kernel's body.
pub(super) fn body(b: &mut Builder, stage: &Stage, form: &BackwardScan, schedule: &StateSpaceBackward) {
    let args = Args::declare(b, stage, schedule.abi(stage));
    let scratch = Scratch::sizes(b, &args, form, schedule);
    let (block, thread) = (b.special(Special::Block), b.special(Special::Thread));
    let [block, thread] = [block, thread].map(|x| b.convert(Ty::I64, x));
    let before = b.mul(block, schedule.threads());
    let number = b.add(before, thread);
    let chunks = b.binary(Binary::Div, scratch.steps, CHUNK);
    let row_len = scratch.room.row_len;
    let all = b.mul(scratch.points, row_len);
    let all = b.mul(all, chunks);
    let [sum, within] = b.div_rem(number, all);
    let [row, chunk] = b.div_rem(within, chunks);
    let step = b.mul(chunk, CHUNK);
    let [point, state] = b.div_rem(row, row_len);
    let inside = [(state, args.size(form.state)), (step, args.size(form.time))];
    let exists = inside.into_iter().fold(Operand::bool(true), |all, (x, end)| {
        let own = b.lt(x, end);
        b.and(all, own)
    });
    let [continues, goes_on] = pieces(b, &args);
    let sums = Sums { args: &args, form, schedule, scratch: &scratch, continues };
    for i in 0..form.row_sums.len() {
        let own = b.eq(sum, i);
        let own = b.and(own, exists);
        b.if_(own, |b| {
            let total = sums.total(b, i, point, state, step);
            let keep = |b: &mut Builder| {
                let at = sums.so_far(b, i, point, state, step);
                b.store(Memory::Global(args.scratch[2]), at, &total, None);
            };
            b.if_else(goes_on, keep, |b| sums.write(b, i, point, state, step, &total));
        });
    }
    if let Some(each) = args.segment_tiles {
        let before = b.mul(all, form.row_sums.len());
        let number = b.sub(number, before);
        let steps = b.mul(each, schedule.steps);
        let above = b.add(args.size(form.time), steps);
        let above = b.sub(above, 1);
        let segments = b.binary(Binary::Div, above, steps);
        sums.totals(b, number, segments);
    }
}

/// Whether there are pieces of the rows before this one, and after it.
fn pieces(b: &mut Builder, args: &Args) -> [Operand; 2] {
    let piece = args.piece.unwrap_or(Operand::i64(0));
    [Piece::CONTINUES, Piece::GOES_ON].map(|bit| {
        let own = b.binary(Binary::And, piece, bit);
        b.eq(own, bit)
    })
}

struct Sums<'a> {
    args: &'a Args,
    form: &'a BackwardScan,
    schedule: &'a StateSpaceBackward,
    scratch: &'a Scratch,
    /// Whether there are sums so far.
    continues: Operand,
}

impl Sums<'_> {
    /// Four steps of a sum over all blocks.
    fn total(&self, b: &mut Builder, sum: usize, point: Operand, state: Operand, step: Operand) -> Vec<Operand> {
        let scratch = self.scratch;
        let first = scratch.sums(b, sum);
        let within = self.within(b, point, state, step);
        let first = b.add(first, within);
        let apart = self.points(b);
        let before = self.so_far(b, sum, point, state, step);
        let before = b.load(Memory::Global(self.args.scratch[2]), before, CHUNK, Some(self.continues), zero(Ty::F32));
        let total = b.vars(&before);
        b.for_(Operand::i64(0), scratch.groups, LOADED_AT_ONCE, |b, group| {
            let mut loads = vec![];
            for k in 0..LOADED_AT_ONCE {
                let own = b.add(group, k);
                let exists = b.lt(own, scratch.groups);
                let at = b.mul(own, apart);
                let at = b.add(first, at);
                loads.push(b.load(Memory::Global(self.args.scratch[1]), at, CHUNK, Some(exists), zero(Ty::F32)));
            }
            for values in loads {
                for (reg, value) in total.iter().zip(values) {
                    let next = b.add((*reg).into(), value);
                    b.assign(*reg, next);
                }
            }
        });
        operands(&total)
    }

    /// The numbers of a sum of all points.
    fn points(&self, b: &mut Builder) -> Operand {
        let states = b.mul(self.scratch.points, self.scratch.room.row_len);
        b.mul(states, self.scratch.steps)
    }

    /// The index of a step among the numbers of a sum.
    fn within(&self, b: &mut Builder, point: Operand, state: Operand, step: Operand) -> Operand {
        let row = b.mul(point, self.scratch.room.row_len);
        let row = b.add(row, state);
        let row = b.mul(row, self.scratch.steps);
        b.add(row, step)
    }

    /// The index of a sum over the pieces before this one.
    fn so_far(&self, b: &mut Builder, sum: usize, point: Operand, state: Operand, step: Operand) -> Operand {
        let points = self.points(b);
        let before = b.mul(points, sum);
        let within = self.within(b, point, state, step);
        b.add(before, within)
    }

    /// Adds the number-th total over all segments, where there is one.
    fn totals(&self, b: &mut Builder, number: Operand, segments: Operand) {
        let layout = SegmentLayout::find(b, self.args, self.form, self.scratch.room.row_len);
        if totals_per_row(self.form, 1) == 0 {
            return;
        }
        let (below, above) = (b.lt(number, layout.apart), b.ge(number, 0));
        let exists = b.and(below, above);
        b.if_(exists, |b| {
            let total = self.over_segments(b, number, segments, layout.apart);
            let states = (0..self.form.state_totals.len()).map(Total::States);
            for sum in states.chain((0..self.form.row_totals.len()).map(Total::Rows)) {
                self.write_total(b, &layout, sum, number, total);
            }
        });
    }

    fn over_segments(&self, b: &mut Builder, number: Operand, segments: Operand, apart: Operand) -> Operand {
        let total = b.var(zero(Ty::F32));
        b.for_(Operand::i64(0), segments, LOADED_AT_ONCE, |b, segment| {
            let mut loads = vec![];
            for k in 0..LOADED_AT_ONCE {
                let own = b.add(segment, k);
                let exists = b.lt(own, segments);
                let at = b.mul(own, apart);
                let at = b.add(number, at);
                loads.extend(b.load(Memory::Global(self.args.scratch[4]), at, 1, Some(exists), zero(Ty::F32)));
            }
            for value in loads {
                let next = b.add(total.into(), value);
                b.assign(total, next);
            }
        });
        total.into()
    }

    /// Writes a total to the output that has it, if its number is one of that sum.
    fn write_total(&self, b: &mut Builder, layout: &SegmentLayout, sum: Total, number: Operand, total: Operand) {
        let first = layout.sum(b, self.form, sum);
        let (given, width) = match sum {
            Total::States(i) => (Given::States(i), layout.row_len),
            Total::Rows(i) => (Given::Steps(i), Operand::i64(1)),
        };
        let within = b.sub(number, first);
        let [row, state] = b.div_rem(within, width);
        let inside = [b.ge(within, 0), b.lt(row, layout.rows), b.lt(state, self.args.size(self.form.state))];
        let inside = inside.into_iter().reduce(|all, own| b.and(all, own));
        let mut at: Vec<(Axis, Operand)> = self.args.row_indices(b, row);
        at.push((self.form.state, state));
        for k in (0..self.form.given.len()).filter(|k| self.form.given[*k] == given) {
            let tensor = Tensor::Output(k as u32);
            let offset = self.args.offset(b, tensor, &at);
            b.store(Memory::Global(self.args.pointer(tensor)), offset, &[total], inside);
        }
    }

    /// Writes four steps of a sum to the output that has it.
    fn write(&self, b: &mut Builder, sum: usize, point: Operand, state: Operand, step: Operand, total: &[Operand]) {
        let axes = self.form.others();
        let mut indices: Vec<(Axis, Operand)> = self.args.indices(b, point, axes);
        indices.push((self.form.state, state));
        let outputs = (0..self.form.given.len()).filter(|k| self.form.given[*k] == Given::Rows(sum));
        for k in outputs {
            let tensor = Tensor::Output(k as u32);
            let memory = Memory::Global(self.args.pointer(tensor));
            let width = self.schedule.vector.min(CHUNK);
            for (access, values) in total.chunks(width as usize).enumerate() {
                let own = b.add(step, access as u32 * width);
                let exists = b.lt(own, self.args.size(self.form.time));
                let at: Vec<(Axis, Operand)> = indices.iter().copied().chain([(self.form.time, own)]).collect();
                let offset = self.args.offset(b, tensor, &at);
                b.store(memory, offset, values, Some(exists));
            }
        }
    }
}
