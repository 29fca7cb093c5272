//! Factors of `f32` for a warpgroup: a high part in `bf16`, rounded to nearest, and a low part, what is left, in tiles of their own.
//!
//! Warps that only copy read a chunk's rows to registers while the chunks before are computed, and write both parts when a stage is free. A
//! product is that of both high parts and of each low part with the other's high part; what is left out is below 2⁻¹⁶ of it. What a chunk
//! makes of the state is added to it outside of the tensor cores, which would cut off what they add.

use super::decay::Decays;
use super::low_parts::LowParts;
use super::read::{Started, from_start};
use super::state::State;
use super::walk::{Chunk, Running};
use super::{COLUMNS, ChunkwiseKernel, ROWS};
use crate::block::copy::{Origin, ReadPiece, Source};
use crate::block::layout::Tile;
use crate::block::matmul::{Blocks, Factor, block_of, block_values, block_vars, finish, load_four, pack};
use crate::block::parts::Parts;
use crate::block::two_parts::rests;
use crate::build::Builder;
use crate::schedules::{Chunkwise, Unit};
use crate::tile::{Left, Memory, Operand, Panels, Reg, Stmt};
use oplus_dsl::{Elem, Ty};

/// A factor in two parts.
type Pair<'a> = [Factor<'a>; 2];

/// Steps of a product of a warpgroup.
type Steps = Vec<(Left, Panels)>;

/// Whether factors of a type are in two parts under a schedule.
pub(super) fn are_split(elem: Elem, schedule: &Chunkwise) -> bool {
    elem == Elem::F32 && schedule.unit == Unit::Warpgroup
}

impl ChunkwiseKernel<'_> {
    /// Reads the rows of all tiles from a time on to registers.
    pub(super) fn read_rows(
        &self,
        b: &mut Builder,
        source: &Source,
        origins: &[Origin],
        first: Operand,
    ) -> Vec<Vec<ReadPiece>> {
        let read = self.tiles().zip(origins).map(|(tile, origin)| tile.read(b, source, *origin, first)).collect();
        // What comes next is not to be moved up between the reads.
        b.push(Stmt::SyncWarp);
        read
    }

    /// Writes both parts of rows that were read to a stage.
    pub(super) fn write_parts(&self, b: &mut Builder, low: &LowParts, read: Vec<Vec<ReadPiece>>, stage: Operand) {
        for ((high, low), pieces) in self.tiles().zip(low.copied()).zip(read) {
            let start = b.mul(stage, high.len());
            for ReadPiece { at, elements } in pieces {
                let index = b.add(start, at);
                b.store(Memory::Shared(high.array), index, &elements, None);
                let rest = rests(b, &elements);
                b.store(Memory::Shared(low.array), index, &rest, None);
            }
        }
        b.push(Stmt::FenceAsync);
    }

    /// Starts the products of queries with keys and with the state.
    pub(super) fn start_read_parts(&self, b: &mut Builder, low: &LowParts, chunk: &Chunk) -> Option<Started> {
        let (queries, states) = chunk.queries.zip(chunk.states)?;
        let queries = [queries, beside(queries, low.queries.as_ref()?)];
        let keys = [chunk.keys, beside(chunk.keys, &low.keys)];
        let states = [states, beside(states, low.states.as_ref()?)];
        let [scores, y] = [keys, states].map(|right| start(b, queries, right));
        Some(Started { scores, y })
    }

    /// Computes the rest of a chunk, in order: outputs are stored while the state advances.
    pub(super) fn finish_parts(
        &self,
        b: &mut Builder,
        low: &LowParts,
        running: Running,
        chunk: &Chunk,
        started: Option<Started>,
    ) {
        let Running { state, logs } = running;
        let decays = self.decays(b, chunk.iteration);
        let y = started.map(|started| self.read_parts(b, low, &decays, chunk.values, started));
        let left = self.scaled_parts(b, low, &decays, chunk);
        if let Some(y) = &y {
            finish(b, y, 0);
        }
        let keys = [chunk.keys_in_time, beside(chunk.keys_in_time, &low.keys)];
        let added = start_in_time(b, None, &left, keys, self.schedule.depth);
        if let Some((y, queries)) = y.zip(chunk.queries) {
            let values = self.values(b);
            self.store_outputs(b, values, chunk, queries, &block_values(&y));
        }
        finish(b, &added, 0);
        advance(b, state, &decays, &added);
        let sum = b.add(logs.into(), decays.end);
        b.assign(logs, sum);
        self.wait_saved(b);
        // No thread reads the state before the chunk any more.
        self.walkers_barrier(b);
    }

    /// Weighs pairs of times while the state is read, and starts their product with values, added to what was read.
    fn read_parts(
        &self,
        b: &mut Builder,
        low: &LowParts,
        decays: &Decays,
        values: Factor,
        started: Started,
    ) -> Vec<[Reg; 4]> {
        let Started { scores, y } = started;
        finish(b, &scores, 1);
        let weights = self.weighed(b, decays, &block_values(&scores));
        let left: Vec<Parts> = weights.chunks(2).map(|two| Parts::of_blocks(b, Elem::F32, two)).collect();
        finish(b, &y, 0);
        let y: Blocks = y.iter().map(|block| from_start(b, decays.from_start, &block.map(Operand::Reg))).collect();
        let y = block_vars(b, &y);
        start_in_time(b, Some(y), &left, [values, beside(values, &low.values)], self.schedule.width())
    }

    /// The warp's values at the chunk's times, scaled to its end: a left factor for every 16 times.
    fn scaled_parts(&self, b: &mut Builder, low: &LowParts, decays: &Decays, chunk: &Chunk) -> Vec<Parts> {
        let (high, lanes) = (chunk.values, chunk.values_left);
        let low = beside(high, &low.values);
        let scaled = |sixteen: u32| {
            let rows = b.add(lanes, sixteen * ROWS * high.tile.depth);
            let [high, low] = [high, low].map(|part| {
                let index = b.add(rows, part.start);
                load_four(b, part.tile, index, true)
            });
            let remaining = [0, 1].map(|half| self.remaining(b, decays, 2 * sixteen + half));
            let pairs = [0, 1, 2, 3].map(|r: usize| {
                let [high, low] = [high[r], low[r]].map(|pair| b.unpack(Elem::Bf16, pair));
                [0, 1].map(|c: usize| {
                    let value = b.add(high[c], low[c]);
                    b.mul(value, remaining[r / 2][c])
                })
            });
            Parts::of_pairs(b, Elem::F32, &pairs)
        };
        (0..self.schedule.times() / ROWS).map(scaled).collect()
    }

    /// The elements of values in a block, of both parts.
    pub(super) fn values_of(
        &self,
        b: &mut Builder,
        stage: Operand,
        row: Operand,
        piece: Operand,
        column: Operand,
    ) -> [Operand; 4] {
        let high = block_of(b, &self.values, stage, row, piece, column);
        let Some(low) = &self.low else { return high };
        let low = block_of(b, &low.values, stage, row, piece, column);
        [0, 1, 2, 3].map(|r: usize| b.add(high[r], low[r]))
    }

    /// Writes the low parts of two blocks of the state beside the high ones.
    pub(super) fn store_low_state(&self, b: &mut Builder, index: Operand, two: &Blocks) {
        if let Some(tile) = self.low.as_ref().and_then(|low| low.states.as_ref()) {
            let rest: Blocks = two.iter().map(|block| block_rests(b, block)).collect();
            let packed = pack(b, Elem::Bf16, &rest);
            b.store_matrix(tile.array, index, &packed, false);
        }
    }
}

/// The low parts of a block of numbers.
fn block_rests(b: &mut Builder, block: &[Operand; 4]) -> [Operand; 4] {
    let rests = rests(b, block);
    [rests[0], rests[1], rests[2], rests[3]]
}

/// The low part of a factor.
fn beside<'a>(high: Factor<'a>, tile: &'a Tile) -> Factor<'a> {
    Factor { tile, ..high }
}

/// Starts left·rightᵀ over the depth.
fn start(b: &mut Builder, left: Pair, right: Pair) -> Vec<[Reg; 4]> {
    let depth = right[0].tile.depth;
    let steps = [(1, 0), (0, 1), (0, 0)].into_iter().flat_map(|(l, r)| (0..depth / ROWS).map(move |at| (l, r, at)));
    let steps: Steps = steps
        .map(|(l, r, sixteen): (usize, usize, u32)| {
            let of = |b: &mut Builder, factor: Factor| factor.tile.panels(b, factor.start, Operand::i32(0), sixteen);
            (Left::Shared(of(b, left[l])), of(b, right[r]))
        })
        .collect();
    let sums = new_sums(b, right[0].tile.rows);
    b.push(Stmt::WarpgroupMma { elem: Elem::Bf16, sums: sums.concat(), clear: true, steps, transposed: false });
    sums
}

/// Starts left·right over the rows of the right factor, added to sums if there are any; the right factor has so many columns.
fn start_in_time(
    b: &mut Builder,
    sums: Option<Vec<[Reg; 4]>>,
    left: &[Parts],
    right: Pair,
    columns: u32,
) -> Vec<[Reg; 4]> {
    let clear = sums.is_none();
    let sums = sums.unwrap_or_else(|| new_sums(b, columns));
    let mut steps: Steps = vec![];
    for (sixteen, left) in (0..).zip(left) {
        let row = Operand::i32((sixteen * ROWS) as i32);
        let [high, low] = right.map(|part| part.tile.panels(b, part.start, row, 0));
        steps.extend(left.low().map(|low| (Left::Registers(low), high)));
        steps.push((Left::Registers(left.high()), low));
        steps.push((Left::Registers(left.high()), high));
    }
    b.push(Stmt::WarpgroupMma { elem: Elem::Bf16, sums: sums.concat(), clear, steps, transposed: true });
    sums
}

fn new_sums(b: &mut Builder, columns: u32) -> Vec<[Reg; 4]> {
    (0..columns / COLUMNS).map(|_| [0; 4].map(|_| b.reg(Ty::F32))).collect()
}

/// S_next = decay·S + what the chunk adds.
fn advance(b: &mut Builder, state: &State, decays: &Decays, added: &[[Reg; 4]]) {
    for (reg, added) in state.blocks.iter().flatten().zip(added.iter().flatten()) {
        let sum = b.fma((*reg).into(), decays.whole, (*added).into());
        b.assign(*reg, sum);
    }
}
