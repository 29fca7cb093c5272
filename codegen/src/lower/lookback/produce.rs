//! The producer: start-up of a launch, tickets, and the copies that fill the ring.

use super::{LookBackKernel, Tile};
use crate::abi::Tensor;
use crate::build::Builder;
use crate::lower::persistent::Arrivals;
use crate::tile::{Mbarrier, Memory, Operand, Reg, Stmt};
use oplus_dsl::Ty;
use oplus_dsl::ir::Binary;

impl LookBackKernel<'_> {
    /// Start-up; returns the register of the first ticket.
    pub(super) fn start(&self, b: &mut Builder) -> Reg {
        let schedule = self.schedule;
        let readers = schedule.scan_warps + schedule.reduce_warps;
        let arrivals = Arrivals { full: 1, empty: readers, reduced: schedule.reduce_warps, carried: 1 };
        self.block.start(b, readers * 32, &arrivals, |b, tile| self.issue(b, tile, Operand::i32(0), Operand::i32(0)))
    }

    /// Puts tile number `count` of the block into a stage of the ring: its number, and the copies of its elements if it
    /// is whole.
    fn issue(&self, b: &mut Builder, tile: Operand, count: Operand, stage: Operand) {
        self.block.announce(b, count, tile);
        b.store(Memory::Shared(self.block.stage_tile), stage, &[tile], None);
        if !self.bulk() {
            return self.block.arrive(b, self.block.full, stage);
        }
        let place = self.tile(b, tile);
        b.if_else(place.whole, |b| self.copy(b, &place, stage), |b| self.block.arrive(b, self.block.full, stage));
    }

    /// The copies of a whole tile with what halo there is.
    fn copy(&self, b: &mut Builder, tile: &Tile, stage: Operand) {
        let indices = self.args.row_indices(b, tile.row);
        let size = i64::from(self.schedule.tile());
        let end = b.add(tile.start, Operand::i64(size));
        let (starts, ends) = (b.eq(tile.start, Operand::i64(0)), b.eq(end, self.len));
        let mut copies = vec![];
        let mut bytes = Operand::i32(0);
        for stream in &self.streams.list {
            let halo = |b: &mut Builder, edge, n: u32| b.select(edge, Operand::i32(0), Operand::i32(n as i32));
            let (before, after) = (halo(b, starts, stream.before), halo(b, ends, stream.after));
            let count = b.add(Operand::i32(size as i32), before);
            let count = b.add(count, after);
            let each = b.mul(count, Operand::i32(stream.elem.bytes().unwrap_or(0) as i32));
            bytes = b.add(bytes, each);
            copies.push((before, count));
        }
        let mbarrier = Mbarrier { array: self.block.full, index: stage };
        b.push(Stmt::MbarrierExpect(mbarrier, bytes));
        for (k, (stream, (before, count))) in self.streams.list.iter().zip(copies).enumerate() {
            let held = stream.before as i32 + size as i32 + stream.after as i32;
            let to_index = b.mul(stage, Operand::i32(held));
            let skipped = b.sub(Operand::i32(stream.before as i32), before);
            let to_index = b.add(to_index, skipped);
            let tensor = Tensor::Param(stream.param);
            let base = self.args.offset(b, tensor, &indices);
            let from_index = b.add(base, tile.start);
            let back = b.convert(Ty::I64, before);
            let from_index = b.sub(from_index, back);
            let (to, from) = (self.shared.ring[k], self.args.pointer(tensor));
            b.push(Stmt::BulkLoad { to, to_index, from, from_index, count, mbarrier });
        }
    }

    /// Draws tickets one tile ahead until there are none.
    pub(super) fn produce_role(&self, b: &mut Builder, ticket: Reg) {
        self.block.elected(b, |b| {
            let at = self.block.cursor(b, 1);
            b.loop_(|b| {
                let again = b.ge(at.count.into(), Operand::i32(self.schedule.stages as i32));
                b.if_(again, |b| self.block.wait(b, self.block.empty, at.stage.into(), at.phase.into()));
                let tile = b.convert(Ty::I32, ticket.into());
                let done = b.ge(tile, self.block.tiles);
                b.if_(done, |b| self.finish(b, tile, at.count.into(), at.stage.into()));
                b.break_if(done);
                let later = b.binary(Binary::Gt, at.count.into(), Operand::i32(0));
                b.if_(later, |b| self.issue(b, tile, at.count.into(), at.stage.into()));
                self.block.draw(b, ticket);
                self.block.advance(b, &at);
            });
        });
    }

    /// Ends the stream of tiles.
    fn finish(&self, b: &mut Builder, tile: Operand, count: Operand, stage: Operand) {
        self.block.announce(b, count, Operand::i32(-1));
        b.store(Memory::Shared(self.block.stage_tile), stage, &[Operand::i32(-1)], None);
        self.block.arrive(b, self.block.full, stage);
        self.block.retire(b, tile);
    }
}
