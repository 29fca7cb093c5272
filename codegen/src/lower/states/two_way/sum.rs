//! The last pass: the sums over rows of all blocks, added in the order of the blocks.
//!
//! A thread takes four steps of a state of a point, of every sum.

use super::parts::{Given, Parts};
use super::scratch::Scratch;
use crate::abi::Tensor;
use crate::build::{Builder, zero};
use crate::lower::args::Args;
use crate::lower::states::CHUNK;
use crate::lower::states::saved::others;
use crate::schedule::{Schedule, TwoWay};
use crate::tile::{Memory, Operand, Special};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Axis, Binary};

/// Blocks whose sums are loaded together.
const TOGETHER: u32 = 4;

/// The kernel's body.
pub(super) fn body(b: &mut Builder, parts: &Parts, schedule: &TwoWay) {
    let args = Args::declare(b, &parts.stage, &Schedule::TwoWay(*schedule));
    let steps = Operand::i64(i64::from(schedule.steps));
    let up = b.add(args.size(parts.time), Operand::i64(i64::from(schedule.steps) - 1));
    let tiles = b.binary(Binary::Div, up, steps);
    let scratch = Scratch::sizes(b, &args, parts, schedule, tiles);
    let (block, thread) = (b.special(Special::Block), b.special(Special::Thread));
    let [block, thread] = [block, thread].map(|x| b.convert(Ty::I64, x));
    let before = b.mul(block, Operand::i64(i64::from(schedule.threads())));
    let number = b.add(before, thread);
    let chunks = b.binary(Binary::Div, scratch.steps, Operand::i64(i64::from(CHUNK)));
    let row = b.binary(Binary::Div, number, chunks);
    let chunk = b.binary(Binary::Rem, number, chunks);
    let step = b.mul(chunk, Operand::i64(i64::from(CHUNK)));
    let capacity = Operand::i64(i64::from(schedule.capacity()));
    let (point, state) = (b.binary(Binary::Div, row, capacity), b.binary(Binary::Rem, row, capacity));
    let inside = [(point, scratch.points), (state, args.size(parts.state)), (step, args.size(parts.time))];
    let exists = inside.into_iter().fold(Operand::bool(true), |all, (x, end)| {
        let own = b.lt(x, end);
        b.and(all, own)
    });
    let sums = Sums { args: &args, parts, schedule, scratch: &scratch };
    b.if_(exists, |b| {
        for i in 0..parts.row_sums.len() {
            let total = sums.total(b, i, (point, state, step));
            sums.write(b, i, (point, state, step), &total);
        }
    });
}

struct Sums<'a> {
    args: &'a Args,
    parts: &'a Parts,
    schedule: &'a TwoWay,
    scratch: &'a Scratch,
}

impl Sums<'_> {
    /// Four steps of a sum over all blocks.
    fn total(&self, b: &mut Builder, sum: usize, (point, state, step): (Operand, Operand, Operand)) -> Vec<Operand> {
        let scratch = self.scratch;
        let first = scratch.sums(b, self.schedule, sum);
        let capacity = Operand::i64(i64::from(self.schedule.capacity()));
        let row = b.mul(point, capacity);
        let row = b.add(row, state);
        let row = b.mul(row, scratch.steps);
        let first = b.add(first, row);
        let first = b.add(first, step);
        let apart = b.mul(scratch.points, capacity);
        let apart = b.mul(apart, scratch.steps);
        let total: Vec<_> = (0..CHUNK).map(|_| b.var(zero(Ty::F32))).collect();
        b.for_(Operand::i64(0), scratch.groups, Operand::i64(i64::from(TOGETHER)), |b, group| {
            let mut loads = vec![];
            for k in 0..TOGETHER {
                let own = b.add(group, Operand::i64(i64::from(k)));
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
        total.into_iter().map(Operand::Reg).collect()
    }

    /// Writes them where an output has that sum.
    fn write(&self, b: &mut Builder, sum: usize, (point, state, step): (Operand, Operand, Operand), total: &[Operand]) {
        let axes = others(&self.parts.stage, self.parts.row);
        let mut indices: Vec<(Axis, Operand)> = self.args.indices(b, point, axes);
        indices.push((self.parts.state, state));
        let outputs = (0..self.parts.given.len()).filter(|k| self.parts.given[*k] == Given::Rows(sum));
        for k in outputs {
            let tensor = Tensor::Output(k as u32);
            let memory = Memory::Global(self.args.pointer(tensor));
            let width = self.schedule.vector.min(CHUNK);
            for (part, values) in total.chunks(width as usize).enumerate() {
                let own = b.add(step, Operand::i64(i64::from(part as u32 * width)));
                let exists = b.lt(own, self.args.size(self.parts.time));
                let at: Vec<(Axis, Operand)> = indices.iter().copied().chain([(self.parts.time, own)]).collect();
                let offset = self.args.offset(b, tensor, &at);
                b.store(memory, offset, values, Some(exists));
            }
        }
    }
}
