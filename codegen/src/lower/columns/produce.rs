//! The producers: tickets, and copies of a tile's rows into the ring, 16 bytes per thread where the layout allows.

use super::cells::Stream;
use super::ring::{LOOKERS, PRODUCERS, Ring, Tile};
use crate::abi::Tensor;
use crate::build::Builder;
use crate::tile::{Mbarrier, Memory, Operand, Reg, Stmt};
use oplus_dsl::Ty;
use oplus_dsl::ir::Binary;

/// The named barrier of the producers.
const BARRIER: u32 = 1;

/// Rows that a thread copies per turn of the loop: with all of them unrolled the multiples of the stride, which do not
/// change from tile to tile, fill the registers.
const PASSES: u32 = 4;

impl Ring<'_> {
    /// One thread draws tickets, one tile ahead; all copy.
    pub(super) fn produce_role(&self, b: &mut Builder, ticket: Reg) {
        let at = self.block.cursor(b, 1);
        let schedule = self.layout.schedule;
        let first = Operand::i32((schedule.warps + schedule.reduce_warps) as i32);
        let warp = b.sub(self.block.warp, first);
        let thread = b.mul(warp, Operand::i32(32));
        let thread = b.add(thread, self.block.lane);
        let leads = b.eq(thread, Operand::i32(0));
        b.loop_(|b| {
            let again = b.ge(at.count.into(), Operand::i32(schedule.stages as i32));
            b.if_(again, |b| self.block.wait(b, self.block.empty, at.stage.into(), at.phase.into()));
            b.if_(leads, |b| self.announce(b, ticket, at.count.into(), at.stage.into()));
            b.push(Stmt::Barrier { id: BARRIER, threads: PRODUCERS * 32 });
            let tile = b.load1(Memory::Shared(self.block.stage_tile), at.stage.into());
            let ends = b.lt(tile, Operand::i32(0));
            b.if_(ends, |b| self.block.arrive(b, self.block.full, at.stage.into()));
            b.break_if(ends);
            let place = self.tile(b, tile);
            for stream in self.layout.streams.list.iter().filter(|s| s.ring) {
                self.copy(b, stream, &place, at.stage.into(), thread);
            }
            b.push(Stmt::CopyAsyncArrive(Mbarrier { array: self.block.full, index: at.stage.into() }));
            self.block.advance(b, &at);
        });
    }

    /// Writes the next tile's number, or −1, and draws the ticket after it. The end of the stream is passed to every
    /// look-back warp: it takes as many slots.
    fn announce(&self, b: &mut Builder, ticket: Reg, count: Operand, stage: Operand) {
        let tile = b.convert(Ty::I32, ticket.into());
        let done = b.ge(tile, self.block.tiles);
        let number = b.select(done, Operand::i32(-1), tile);
        b.store(Memory::Shared(self.block.stage_tile), stage, &[number], None);
        self.block.arrive(b, self.block.full, stage);
        self.block.announce(b, count, number);
        b.if_else(
            done,
            |b| {
                for more in 1..LOOKERS {
                    let count = b.add(count, Operand::i32(more as i32));
                    self.block.announce(b, count, number);
                }
                self.block.retire(b, tile);
            },
            |b| self.block.draw(b, ticket),
        );
    }

    /// The rows of a tile with those before and after; zeros where there are none.
    fn copy(&self, b: &mut Builder, stream: &Stream, tile: &Tile, stage: Operand, thread: Operand) {
        let schedule = self.layout.schedule;
        let height = schedule.tile_rows() + stream.before + stream.after;
        let width = schedule.tile_columns();
        let shift = schedule.lanes.trailing_zeros() as i32;
        let first_row = b.binary(Binary::Shr, thread, Operand::i32(shift));
        let column = b.binary(Binary::And, thread, Operand::i32(schedule.lanes as i32 - 1));
        let column = b.mul(column, Operand::i32(schedule.vector as i32));
        let pass_rows = PRODUCERS * 32 / schedule.lanes;
        let wide_column = b.convert(Ty::I64, column);
        let lane_index = b.add(tile.column, wide_column);
        let exists = b.lt(lane_index, self.layout.width);
        let wide_row = b.convert(Ty::I64, first_row);
        let time = b.add(tile.time, wide_row);
        let time = b.sub(time, Operand::i64(i64::from(stream.before)));
        let tensor = Tensor::Param(stream.param);
        let mut indices = tile.outer.clone();
        indices.extend([(self.layout.lane, lane_index), (self.layout.scan.axis, time)]);
        let from = self.layout.args.offset(b, tensor, &indices);
        let stride = self.layout.args.stride(tensor, self.layout.scan.axis);
        let held = b.mul(stage, Operand::i32((height * width) as i32));
        let row = b.mul(first_row, Operand::i32(width as i32));
        let to = b.add(held, row);
        let to = b.add(to, column);
        let chunk = PASSES * pass_rows;
        b.for_(Operand::i32(0), Operand::i32(height as i32), Operand::i32(chunk as i32), |b, base| {
            let wide_base = b.convert(Ty::I64, base);
            let time = b.add(time, wide_base);
            let further = b.mul(stride, wide_base);
            let from = b.add(from, further);
            let row = b.add(first_row, base);
            let further = b.mul(base, Operand::i32(width as i32));
            let to = b.add(to, further);
            for rows in (0..chunk).step_by(pass_rows as usize) {
                let time = b.add(time, Operand::i64(i64::from(rows)));
                let above = b.ge(time, Operand::i64(0));
                let below = b.lt(time, self.layout.len);
                let inside = b.and(above, below);
                let guard = b.and(inside, exists);
                let further = b.mul(stride, Operand::i64(i64::from(rows)));
                let copy = Stmt::CopyAsync {
                    to: self.arrays[&stream.param],
                    to_index: b.add(to, Operand::i32((rows * width) as i32)),
                    from: self.layout.args.pointer(tensor),
                    from_index: b.add(from, further),
                    elements: schedule.vector,
                    guard: Some(guard),
                };
                let row = b.add(row, Operand::i32(rows as i32));
                let held = if height.is_multiple_of(chunk) {
                    Operand::bool(true)
                } else {
                    b.lt(row, Operand::i32(height as i32))
                };
                b.if_(held, |b| b.push(copy));
            }
        });
    }
}
