//! The producers: tickets, and copies of a tile's rows into the ring, 16 bytes per thread where the layout allows.

use super::cells::Stream;
use super::ring::{LOOKERS, PRODUCERS, Ring, Tile};
use crate::abi::Tensor;
use crate::build::Builder;
use crate::tile::{Memory, Operand, Reg, Stmt};
use oplus_dsl::Ty;
use oplus_dsl::ir::Binary;

/// The named barrier of the producers.
const BARRIER: u32 = 1;

/// The most rows that a thread copies in an iteration of the loop. With all rows unrolled, the multiples of the stride, which do not
/// change from tile to tile, would fill the registers.
const PASSES: u32 = 8;

impl Ring<'_> {
    /// One thread draws tickets, one tile ahead; all copy.
    pub(super) fn produce_role(&self, b: &mut Builder, ticket: Reg) {
        let at = self.block.cursor(b, 1);
        let schedule = self.layout.schedule;
        let first = Operand::i32((schedule.warps + schedule.reduce_warps) as i32);
        let warp = b.sub(self.block.warp, first);
        let thread = b.mul(warp, 32);
        let thread = b.add(thread, self.block.lane);
        let leads = b.eq(thread, 0);
        b.loop_(|b| {
            let again = b.ge(at.count.into(), schedule.stages);
            b.if_(again, |b| b.wait(self.block.empty, at.ring.here()));
            b.if_(leads, |b| self.announce(b, ticket, at.count.into(), at.ring.stage.into()));
            b.push(Stmt::Barrier { id: BARRIER, threads: PRODUCERS * 32 });
            let tile = b.load1(Memory::Shared(self.block.stage_tile), at.ring.stage.into());
            let ends = b.lt(tile, 0);
            b.if_(ends, |b| b.arrive(self.block.full, at.ring.stage.into()));
            b.break_if(ends);
            let place = self.tile(b, tile);
            for stream in self.layout.streams.list.iter().filter(|s| s.ring) {
                self.copy(b, stream, &place, at.ring.stage.into(), thread);
            }
            b.arrive_with_copies(self.block.full, at.ring.stage.into());
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
        b.arrive(self.block.full, stage);
        self.block.announce(b, count, number);
        b.if_else(
            done,
            |b| {
                for more in 1..LOOKERS {
                    let count = b.add(count, more);
                    self.block.announce(b, count, number);
                }
                self.block.retire(b, tile);
            },
            |b| {
                self.block.draw(b, ticket);
            },
        );
    }

    /// The rows of a tile with those before and after; zeros where there are none.
    fn copy(&self, b: &mut Builder, stream: &Stream, tile: &Tile, stage: Operand, thread: Operand) {
        let schedule = self.layout.schedule;
        let height = schedule.tile_rows() + stream.before + stream.after;
        let pass_rows = PRODUCERS * 32 / schedule.lanes;
        let passes = height.div_ceil(pass_rows);
        let rows = self.rows(b, stream, tile, stage, thread);
        let whole = height / pass_rows;
        let chunk = (1..=PASSES).rev().find(|n| whole.is_multiple_of(*n)).unwrap_or(1);
        let step = Operand::i32((chunk * pass_rows) as i32);
        b.for_(Operand::i32(0), whole * pass_rows, step, |b, base| {
            let start = rows.further(b, base);
            for pass in 0..chunk {
                let copy = self.copy_row(b, stream, &start, pass * pass_rows);
                b.push(copy);
            }
        });
        for pass in whole..passes {
            let below = b.lt(rows.row, height - pass * pass_rows);
            let copy = self.copy_row(b, stream, &rows, pass * pass_rows);
            b.if_(below, |b| b.push(copy));
        }
    }

    /// The thread's first row of a stream.
    fn rows(&self, b: &mut Builder, stream: &Stream, tile: &Tile, stage: Operand, thread: Operand) -> Rows {
        let schedule = self.layout.schedule;
        let height = schedule.tile_rows() + stream.before + stream.after;
        let width = schedule.tile_columns() as i32;
        let row = b.binary(Binary::Shr, thread, schedule.lanes.trailing_zeros());
        let column = b.binary(Binary::And, thread, schedule.lanes as i32 - 1);
        let column = b.mul(column, schedule.vector);
        let [wide_row, wide_column] = [row, column].map(|x| b.convert(Ty::I64, x));
        let lane_index = b.add(tile.column, wide_column);
        let exists = b.lt(lane_index, self.layout.width);
        let time = b.add(tile.time, wide_row);
        let time = b.sub(time, stream.before);
        let (first, end) = self.existing(b, stream, time, exists);
        let tensor = Tensor::Param(stream.param);
        let mut indices = tile.outer.clone();
        indices.extend([(self.layout.lane, lane_index), (self.layout.scan.axis, time)]);
        let from = self.layout.args.offset(b, tensor, &indices);
        let stride = self.layout.args.stride(tensor, self.layout.scan.axis);
        let to = b.mul(stage, height as i32 * width);
        let own = b.mul(row, width);
        let to = b.add(to, own);
        let to = b.add(to, column);
        Rows { row, first, end, from, stride, to, width }
    }

    /// Which rows from `time` on exist, as numbers of 32 bits: from the first one to before the end.
    fn existing(&self, b: &mut Builder, stream: &Stream, time: Operand, exists: Operand) -> (Option<Operand>, Operand) {
        let narrow = |b: &mut Builder, n: Operand| {
            let n = b.binary(Binary::Min, n, 1 << 20);
            b.convert(Ty::I32, n)
        };
        let first = (stream.before > 0).then(|| {
            let first = b.sub(Operand::i64(0), time);
            let first = b.binary(Binary::Max, first, 0);
            narrow(b, first)
        });
        let end = b.sub(self.layout.len, time);
        let end = narrow(b, end);
        (first, b.select(exists, end, Operand::i32(0)))
    }

    /// The copy of the row `rows` rows later.
    fn copy_row(&self, b: &mut Builder, stream: &Stream, at: &Rows, rows: u32) -> Stmt {
        let number = Operand::i32(rows as i32);
        let mut guard = b.binary(Binary::Gt, at.end, number);
        if let Some(first) = at.first {
            let above = b.binary(Binary::Le, first, number);
            guard = b.and(guard, above);
        }
        let further = b.mul(at.stride, rows);
        Stmt::CopyAsync {
            to: self.arrays[&stream.param],
            to_index: b.add(at.to, rows as i32 * at.width),
            from: self.layout.args.pointer(Tensor::Param(stream.param)),
            from_index: b.add(at.from, further),
            elements: self.layout.schedule.vector,
            guard: Some(guard),
        }
    }
}

/// Where a thread copies rows of a stream: all further rows are counted from here.
struct Rows {
    /// The row in the tile, `i32`.
    row: Operand,
    /// The first row that exists (none where all before the end do) and the end, `i32`.
    first: Option<Operand>,
    end: Operand,
    /// The element in the tensor, and from one row to the next; `i64`.
    from: Operand,
    stride: Operand,
    /// The element in the ring, and from one row to the next.
    to: Operand,
    width: i32,
}

impl Rows {
    fn further(&self, b: &mut Builder, rows: Operand) -> Rows {
        let back = |b: &mut Builder, bound: Operand| b.sub(bound, rows);
        let wide = b.convert(Ty::I64, rows);
        let along = b.mul(self.stride, wide);
        let down = b.mul(rows, self.width);
        Rows {
            row: b.add(self.row, rows),
            first: self.first.map(|first| back(b, first)),
            end: back(b, self.end),
            from: b.add(self.from, along),
            to: b.add(self.to, down),
            ..*self
        }
    }
}
