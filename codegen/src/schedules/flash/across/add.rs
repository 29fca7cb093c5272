//! The warps that add staged sums over rows to those of other blocks. Each takes every other step, so that the messages of one are under
//! way while the other waits for the block before.

use super::super::FlashKernel;
use super::ADDERS;
use super::work::{BlockWork, TileStep};
use crate::block::ring::{Ring, RingStage};
use crate::build::Builder;
use crate::tile::{Memory, Operand, PollEntry, Stmt};
use oplus_dsl::Ty;
use oplus_dsl::ir::Binary;

impl FlashKernel<'_> {
    /// Adds the sums of every other step, by one thread.
    pub(super) fn add_across(&self, b: &mut Builder) {
        let first = b.sub(self.thread.warp, self.schedule.warps + self.schedule.copiers - ADDERS);
        let tag = b.load1(Memory::Shared(self.arrays().launch), Operand::i32(1));
        let number = b.var(Operand::i32(0));
        self.each_point(b, |kernel, b, work, _| {
            kernel.each_step(b, work, number, |b, step| {
                let own = b.binary(Binary::Rem, step.number, ADDERS);
                let is_own = b.eq(own, first);
                b.if_(is_own, |b| kernel.add_step(b, work, step, tag));
            });
        });
    }

    fn add_step(&self, b: &mut Builder, work: &BlockWork, step: &TileStep, tag: Operand) {
        let arrays = self.arrays();
        let staged = Ring::of_power(super::STAGED).at(b, step.number);
        let number = self.tile_number(b, work, step);
        let blocks = b.convert(Ty::I64, work.blocks);
        let word = b.mul(number, blocks);
        let (is_first, before) = work.before(b, step.tile);
        b.wait(arrays.staged, RingStage { ..staged });
        b.push(Stmt::FenceAsync);
        let adds = b.eq(is_first, Operand::bool(false));
        b.if_else(
            adds,
            |b| {
                let before = b.convert(Ty::I64, before);
                let index = b.add(word, before);
                self.wait_for_block_before(b, index, tag);
                self.store_sums(b, staged.index, number, true);
            },
            |b| self.store_sums(b, staged.index, number, false),
        );
        b.push(Stmt::BulkWait { pending: 0, read: true });
        b.arrive(arrays.unstaged, staged.index);
        b.push(Stmt::BulkWait { pending: 0, read: false });
        b.push(Stmt::FenceDevice);
        let own = b.convert(Ty::I64, work.block);
        let index = b.add(word, own);
        let messages = self.args.messages.expect("the ABI of a kernel of both sums has message words");
        b.push(Stmt::Publish { messages, index, values: vec![Operand::u32(1)], tag, guard: None });
    }

    /// Waits until the block before has added its sums.
    fn wait_for_block_before(&self, b: &mut Builder, index: Operand, tag: Operand) {
        let messages = self.args.messages.expect("the ABI of a kernel of both sums has message words");
        let nothing = b.sub(tag, 1);
        let [value, found] = [b.var(Operand::u32(0)), b.var(nothing)];
        b.loop_(|b| {
            let entries = vec![PollEntry { index, values: vec![value], tags: vec![found] }];
            b.push(Stmt::Poll { messages, entries, tag });
            let is_there = b.eq(found.into(), tag);
            b.break_if(is_there);
        });
        b.push(Stmt::FenceDevice);
    }

    /// Starts to store or to add the staged sums of a tile.
    fn store_sums(&self, b: &mut Builder, stage: Operand, number: Operand, adds: bool) {
        let count = self.schedule.columns * self.schedule.depth;
        let to_index = b.mul(number, count);
        let from_index = b.mul(stage, count);
        let (to, from) = (self.args.scratch[0], self.arrays().sums);
        b.push(Stmt::BulkStore { to, to_index, from, from_index, count: Operand::i32(count as i32), adds });
    }
}
