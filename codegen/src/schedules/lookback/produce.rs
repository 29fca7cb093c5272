//! The producer: start-up of a launch, tickets, and the copies that fill the ring.

use super::streams::Stream;
use super::{Form, LookBackKernel, Tile};
use crate::abi::Tensor;
use crate::block::persistent::Arrivals;
use crate::build::{Builder, zero};
use crate::tile::{Mbarrier, Memory, Operand, Reg, Stmt};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Axis, Binary};

/// The most elements that an access takes; 16 bytes may hold twice as many flags.
const WIDEST: u32 = 8;

/// The place and the length of a stream of a tile, in elements; `i32` except `source`.
struct Copy {
    /// The tile's first element in the ring.
    ring: Operand,
    /// The tile's first element in global memory, `i64`.
    source: Operand,
    /// Halo before it.
    before: Operand,
    /// Elements from there to the end of the row, at most those that a stage holds.
    left: Operand,
    /// As many of them as make whole pieces of 16 bytes.
    units: Operand,
    /// The extent of a copy: `before` and `units`.
    count: Operand,
}

impl LookBackKernel<'_> {
    /// Start-up; returns the register of the first ticket.
    pub(super) fn start(&self, b: &mut Builder) -> Reg {
        let schedule = self.schedule;
        let readers = schedule.scan_warps + schedule.reduce_warps;
        let arrivals = Arrivals { full: 1, empty: readers, reduced: schedule.reduce_warps, carried: 1 };
        self.block.start(b, readers * 32, &arrivals, |b, tile| {
            if self.starts_early() {
                self.issue(b, tile, Operand::i32(0), Operand::i32(0));
            }
        })
    }

    /// Whether copies of the first tile start before the roles begin, for which their code is emitted twice.
    fn starts_early(&self) -> bool {
        self.form == Form::Fast
    }

    /// Puts tile number `count` of the block into a stage of the ring: its number, and the copies of its elements.
    fn issue(&self, b: &mut Builder, tile: Operand, count: Operand, stage: Operand) {
        self.block.announce(b, count, tile);
        b.store(Memory::Shared(self.block.stage_tile), stage, &[tile], None);
        if !self.bulk() {
            return b.arrive(self.block.full, stage);
        }
        let place = self.tile(b, tile);
        let indices = self.args.row_indices(b, place.row);
        let copies: Vec<Copy> =
            (0..self.streams.list.len()).map(|k| self.copy(b, k, &place, &indices, stage)).collect();
        self.fill_ends(b, &place, &copies);
        let mbarrier = Mbarrier { array: self.block.full, index: stage };
        let mut bytes = Operand::i32(0);
        for (stream, copy) in self.streams.list.iter().zip(&copies) {
            let each = b.mul(copy.count, stream.elem.bytes().unwrap_or(0));
            bytes = b.add(bytes, each);
        }
        b.push(Stmt::MbarrierExpect(mbarrier, bytes));
        for (k, (stream, copy)) in self.streams.list.iter().zip(&copies).enumerate() {
            let (to, from) = (self.shared.ring[k], self.args.pointer(Tensor::Param(stream.param)));
            let to_index = b.sub(copy.ring, copy.before);
            let back = b.convert(Ty::I64, copy.before);
            let from_index = b.sub(copy.source, back);
            let count = copy.count;
            let some = b.binary(Binary::Gt, count, 0);
            b.if_(some, |b| b.push(Stmt::BulkLoad { to, to_index, from, from_index, count, mbarrier }));
        }
    }

    /// The range of a stream that the copy engine takes for a tile: whole 16 bytes, with the halo that there is.
    fn copy(&self, b: &mut Builder, k: usize, tile: &Tile, indices: &[(Axis, Operand)], stage: Operand) -> Copy {
        let stream = &self.streams.list[k];
        let (size, unit) = (self.schedule.tile() as i32, stream.unit() as i32);
        let held = b.mul(stage, stream.before as i32 + size + stream.after as i32);
        let ring = b.add(held, stream.before);
        let base = self.args.offset(b, Tensor::Param(stream.param), indices);
        let source = b.add(base, tile.start);
        let starts = b.eq(tile.start, 0);
        let before = b.select(starts, Operand::i32(0), Operand::i32(stream.before as i32));
        let left = b.sub(self.len, tile.start);
        let left = b.binary(Binary::Min, left, i64::from(size) + i64::from(stream.after));
        let left = b.convert(Ty::I32, left);
        let units = b.binary(Binary::And, left, -unit);
        let count = b.add(units, before);
        Copy { ring, source, before, left, units, count }
    }

    /// Writes the elements that the copy engine does not bring: zeros before a row's first tile; at the end of a row the rest of its
    /// elements, then zeros.
    fn fill_ends(&self, b: &mut Builder, tile: &Tile, copies: &[Copy]) {
        let streams = || self.streams.list.iter().zip(copies).zip(&self.shared.ring);
        let starts = b.eq(tile.start, 0);
        let behind = streams().any(|((stream, _), _)| stream.before > 0);
        let starts = b.and(starts, Operand::bool(behind));
        b.if_(starts, |b| {
            for ((stream, copy), ring) in streams() {
                let zeros = vec![zero(stream.elem.value()); stream.unit().min(WIDEST) as usize];
                for place in (0..stream.before).step_by(zeros.len()) {
                    let index = b.sub(copy.ring, stream.before as i32 - place as i32);
                    b.store(Memory::Shared(*ring), index, &zeros, None);
                }
            }
            b.push(Stmt::FenceAsync);
        });
        let mut ends = Operand::bool(false);
        for ((stream, copy), _) in streams() {
            let short = b.lt(copy.units, self.schedule.tile() + stream.after);
            ends = b.binary(Binary::Or, ends, short);
        }
        b.if_(ends, |b| {
            for ((stream, copy), ring) in streams() {
                self.fill_end(b, stream, copy, Memory::Shared(*ring));
            }
            b.push(Stmt::FenceAsync);
        });
    }

    fn fill_end(&self, b: &mut Builder, stream: &Stream, copy: &Copy, ring: Memory) {
        let held = Operand::i32((self.schedule.tile() + stream.after) as i32);
        let from = self.args.memory(Tensor::Param(stream.param));
        let first = b.convert(Ty::I64, copy.units);
        let first = b.add(copy.source, first);
        let values: Vec<(Operand, Operand)> = (0..stream.unit() + stream.after)
            .map(|k| {
                let place = b.add(copy.units, k);
                let exists = b.lt(place, copy.left);
                let index = b.add(first, k);
                (place, b.load(from, index, 1, Some(exists), zero(stream.elem.value()))[0])
            })
            .collect();
        for (place, value) in values {
            let inside = b.lt(place, held);
            let index = b.add(copy.ring, place);
            b.store(ring, index, &[value], Some(inside));
        }
    }

    /// Draws tickets one tile ahead until there are none.
    pub(super) fn produce_role(&self, b: &mut Builder, ticket: Reg) {
        self.block.elected(b, |b| {
            let at = self.block.cursor(b, 1);
            b.loop_(|b| {
                let again = b.ge(at.count.into(), self.schedule.stages);
                b.if_(again, |b| b.wait(self.block.empty, at.ring.here()));
                let tile = b.convert(Ty::I32, ticket.into());
                let done = b.ge(tile, self.block.tiles);
                b.if_(done, |b| self.finish(b, tile, at.count.into(), at.ring.stage.into()));
                b.break_if(done);
                let early = b.eq(at.count.into(), 0);
                let early = b.and(early, Operand::bool(self.starts_early()));
                b.if_else(early, |_| {}, |b| self.issue(b, tile, at.count.into(), at.ring.stage.into()));
                self.block.draw(b, ticket);
                self.block.advance(b, &at);
            });
        });
    }

    /// Ends the stream of tiles.
    fn finish(&self, b: &mut Builder, tile: Operand, count: Operand, stage: Operand) {
        self.block.announce(b, count, Operand::i32(-1));
        b.store(Memory::Shared(self.block.stage_tile), stage, &[Operand::i32(-1)], None);
        b.arrive(self.block.full, stage);
        self.block.retire(b, tile);
    }
}
