//! The producer: start-up of a launch, tickets, and the copies that fill the ring.

use super::{LookBackKernel, SLOTS, Tile};
use crate::abi::Tensor;
use crate::build::Builder;
use crate::tile::{Mbarrier, Memory, Operand, ParamId, Reg, SharedId, Special, Stmt};
use oplus_dsl::Ty;
use oplus_dsl::ir::Binary;

/// Control word of the ticket counter.
const TICKET: u32 = 0;
/// Control word of the launch's tag.
const TAG: u32 = 1;

impl LookBackKernel<'_> {
    fn control(&self) -> ParamId {
        self.args.control.expect("the ABI of a schedule that looks back has control words")
    }

    /// One thread prepares the block: it draws the first ticket, initialises the mbarriers and starts the first copy,
    /// so that the copy is under way when the roles begin. Returns the register of the ticket.
    pub(super) fn start(&self, b: &mut Builder) -> Reg {
        let ticket = b.var(Operand::u32(0));
        let producer = Operand::i32(((self.schedule.scan_warps + self.schedule.reduce_warps) * 32) as i32);
        let thread = b.special(Special::Thread);
        let chosen = b.eq(thread, producer);
        b.if_(chosen, |b| {
            let tag = b.reg(Ty::U32);
            b.push(Stmt::ControlLoad { dst: tag, control: self.control(), word: TAG });
            self.draw(b, ticket);
            self.init_mbarriers(b);
            b.store(Memory::Shared(self.shared.tag), Operand::i32(0), &[tag.into()], None);
            let tile = b.convert(Ty::I32, ticket.into());
            let exists = b.lt(tile, self.tiles);
            b.if_(exists, |b| self.issue(b, tile, Operand::i32(0)));
        });
        b.barrier();
        ticket
    }

    fn init_mbarriers(&self, b: &mut Builder) {
        let schedule = self.schedule;
        let readers = schedule.scan_warps + schedule.reduce_warps;
        let mut init = |array: SharedId, n: u32, arrivals: u32| {
            for i in 0..n {
                b.push(Stmt::MbarrierInit(Mbarrier { array, index: Operand::i32(i as i32) }, arrivals));
            }
        };
        init(self.shared.full, schedule.stages, 1);
        init(self.shared.empty, schedule.stages, readers);
        init(self.shared.reduced, SLOTS, schedule.reduce_warps);
        init(self.shared.published, SLOTS, 1);
        init(self.shared.carried, SLOTS, 1);
        b.push(Stmt::FenceInit);
    }

    fn draw(&self, b: &mut Builder, ticket: Reg) {
        b.push(Stmt::AtomicAdd { dst: ticket, control: self.control(), word: TICKET, value: Operand::u32(1) });
    }

    /// Puts a tile into a stage of the ring: its number, and the copies of its elements if it is whole.
    fn issue(&self, b: &mut Builder, tile: Operand, stage: Operand) {
        b.store(Memory::Shared(self.shared.stage_tile), stage, &[tile], None);
        if !self.bulk() {
            return self.arrive(b, self.shared.full, stage);
        }
        let place = self.tile(b, tile);
        b.if_else(place.whole, |b| self.copy(b, &place, stage), |b| self.arrive(b, self.shared.full, stage));
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
        let mbarrier = Mbarrier { array: self.shared.full, index: stage };
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

    /// Draws tickets one tile ahead until there are none. Every block draws exactly one that fails, so the launch's
    /// last draw is known by its number: its owner makes the control words ready for the next launch.
    pub(super) fn produce_role(&self, b: &mut Builder, ticket: Reg) {
        self.elected(b, |b| {
            let at = self.cursor(b, 1);
            b.loop_(|b| {
                let again = b.ge(at.count.into(), Operand::i32(self.schedule.stages as i32));
                b.if_(again, |b| self.wait(b, self.shared.empty, at.stage.into(), at.phase.into()));
                let tile = b.convert(Ty::I32, ticket.into());
                let done = b.ge(tile, self.tiles);
                b.if_(done, |b| self.finish(b, tile, at.stage.into()));
                b.break_if(done);
                let later = b.binary(Binary::Gt, at.count.into(), Operand::i32(0));
                b.if_(later, |b| self.issue(b, tile, at.stage.into()));
                self.draw(b, ticket);
                self.advance(b, &at);
            });
        });
    }

    /// Ends the stream of tiles; after the launch's last draw, resets the control words.
    fn finish(&self, b: &mut Builder, tile: Operand, stage: Operand) {
        b.store(Memory::Shared(self.shared.stage_tile), stage, &[Operand::i32(-1)], None);
        self.arrive(b, self.shared.full, stage);
        let blocks = b.special(Special::Blocks);
        let draws = b.add(self.tiles, blocks);
        let last = b.sub(draws, Operand::i32(1));
        let last = b.eq(tile, last);
        b.if_(last, |b| {
            let tag = self.tag(b);
            let next = b.add(tag, Operand::u32(1));
            b.push(Stmt::ControlStore { control: self.control(), word: TICKET, value: Operand::u32(0) });
            b.push(Stmt::ControlStore { control: self.control(), word: TAG, value: next });
        });
    }
}
