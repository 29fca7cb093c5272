//! The walk that only finds the ends of segments, beside warps that only copy: the values of a chunk are scaled while the product of the chunk
//! before is under way.
//!
//! Nothing but the state goes from chunk to chunk, and no thread reads what another has written, so no barrier is needed.

use super::segments::Iterations;
use super::walk::{AllLanes, Running};
use super::{ChunkwiseKernel, ROWS};
use crate::block::matmul::{Factor, finish, scaled_pair, start_in_time};
use crate::block::ring::Ring;
use crate::build::{Builder, f32};
use crate::tile::{Operand, Reg, Stmt};
use oplus_dsl::Elem;
use oplus_dsl::ir::Binary;

/// The numbers of a chunk whose product is next, in registers.
struct NextChunk {
    /// The warp's scaled values, a left factor for every 16 times.
    left: Vec<[Reg; 4]>,
    /// What the state before the chunk is multiplied by, where that is not 1.
    by: Reg,
    /// The sum of the logarithms, and that which the state is divided by after the chunk.
    end: Reg,
    base: Reg,
}

/// What has been read of a chunk.
struct ReadChunk {
    /// The scaled values, not yet packed: what products read may not be written while one is under way.
    left: Vec<[[Operand; 2]; 4]>,
    by: Operand,
    end: Operand,
    base: Operand,
}

impl NextChunk {
    fn of(b: &mut Builder, elem: Elem, read: &ReadChunk) -> NextChunk {
        let mut packed = |[x, y]: [Operand; 2]| {
            let pair = b.pack(elem, x, y);
            b.var(pair)
        };
        let left = read.left.iter().map(|four| four.map(&mut packed)).collect();
        NextChunk { left, by: b.var(read.by), end: b.var(read.end), base: b.var(read.base) }
    }

    fn assign(&self, b: &mut Builder, elem: Elem, read: &ReadChunk) {
        for (reg, [x, y]) in self.left.iter().flatten().zip(read.left.iter().flatten()) {
            let pair = b.pack(elem, *x, *y);
            b.assign(*reg, pair);
        }
        for (reg, number) in [(self.by, read.by), (self.end, read.end), (self.base, read.base)] {
            b.assign(reg, number);
        }
    }
}

impl ChunkwiseKernel<'_> {
    /// Whether values are scaled a chunk ahead.
    pub(super) fn scales_ahead(&self) -> bool {
        self.schedule.ends && self.handover.is_some() && !self.is_split() && self.powers.is_none()
    }

    /// Walks the chunks of the segment.
    pub(super) fn walk_to_end(&self, b: &mut Builder, running: Running, iterations: Iterations) {
        let has_chunks = b.binary(Binary::Gt, iterations.count, 0);
        b.if_(has_chunks, |b| {
            let lanes = self.lanes(b);
            let first = self.read_chunk(b, &lanes, Operand::i32(0));
            let next = NextChunk::of(b, self.elem(), &first);
            b.for_(Operand::i32(0), iterations.count, 1, |b, iteration| {
                self.advance_ahead(b, running, &lanes, &next, iteration, iterations);
            });
        });
    }

    /// Adds a chunk that has been read to the state, and reads the next one meanwhile: after the last chunk, that one again.
    fn advance_ahead(
        &self,
        b: &mut Builder,
        running: Running,
        lanes: &AllLanes,
        next: &NextChunk,
        iteration: Operand,
        iterations: Iterations,
    ) {
        let Running { state, logs } = running;
        let is_scaled = b.ne(next.by.into(), f32(1.0));
        b.if_(is_scaled, |b| state.scale_by(b, next.by.into()));
        let stage = Ring::of(self.schedule.stages).at(b, iteration);
        let keys = Factor::of(b, &self.keys, &lanes.keys_in_time, stage.index);
        let left: Vec<[Operand; 4]> = next.left.iter().map(|four| four.map(Operand::Reg)).collect();
        start_in_time(b, &state.blocks, &left, keys.stage());
        let sum = b.add(logs.into(), next.end);
        b.assign(logs, sum);
        if let Some(base) = state.base {
            b.assign(base, next.base.into());
        }
        let (following, last) = (b.add(iteration, 1), b.sub(iterations.count, 1));
        let known = b.binary(Binary::Min, following, last);
        let read = self.read_chunk(b, lanes, known);
        finish(b, &state.blocks, 0);
        self.free(b, stage);
        next.assign(b, self.elem(), &read);
    }

    /// Waits for the chunk of an iteration, and reads it.
    fn read_chunk(&self, b: &mut Builder, lanes: &AllLanes, iteration: Operand) -> ReadChunk {
        let filled = Ring::of(self.schedule.stages).at(b, iteration);
        self.wait_filled(b, filled);
        b.push(Stmt::FenceAsync);
        let chunk = self.tiles_of(b, lanes, iteration, Operand::i32(0), filled.index);
        let decays = self.decays(b, iteration);
        let left = (0..self.schedule.times() / ROWS).map(|sixteen| {
            let packed = self.values_in_time(b, chunk.values, chunk.values_left, sixteen);
            let remaining = [0, 1].map(|half| self.remaining(b, &decays, 2 * sixteen + half));
            [0, 1, 2, 3].map(|r: usize| scaled_pair(b, self.elem(), packed[r], remaining[r / 2]))
        });
        let left = left.collect();
        let (by, base) = match decays.numbers {
            Some(numbers) => {
                let whole = b.select(numbers.is_near, f32(1.0), decays.whole);
                let sum = b.add(numbers.base, decays.end);
                (b.mul(numbers.renewal, whole), b.select(numbers.is_near, sum, f32(0.0)))
            }
            None => (decays.whole, f32(0.0)),
        };
        ReadChunk { left, by, end: decays.end, base }
    }
}
