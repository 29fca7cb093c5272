//! Chunks of `f32` by a warpgroup, whose factors are in [two parts](crate::block::two_parts).
//!
//! Warps that only copy read a chunk's rows to registers while the chunks before are computed, and write both parts when a stage is free.
//! The sum that a chunk adds to the state is added outside of the tensor cores, which would cut off its last bits.

use super::decay::Decays;
use super::read::{Started, from_start};
use super::state::State;
use super::walk::{Chunk, Running};
use super::{ChunkwiseKernel, ROWS};
use crate::block::copy::{Origin, ReadPiece, Source};
use crate::block::matmul::{Blocks, Factor, block_values, block_vars, finish, new_sums};
use crate::block::parts::Parts;
use crate::block::two_parts::{Order, Step, start, start_over_depth};
use crate::build::Builder;
use crate::schedules::{Chunkwise, Unit};
use crate::tile::{Operand, Reg, Stmt};
use oplus_dsl::Elem;

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
        // Later statements are not to be moved up between the reads.
        b.push(Stmt::SyncWarp);
        read
    }

    /// Writes both parts of rows that were read to a stage.
    pub(super) fn write_parts(&self, b: &mut Builder, read: Vec<Vec<ReadPiece>>, stage: Operand) {
        for (tile, pieces) in self.tiles().zip(read) {
            let start = b.mul(stage, tile.len());
            tile.write_parts(b, pieces, start);
        }
        b.push(Stmt::FenceAsync);
    }

    /// Starts the products of queries with keys and with the state.
    pub(super) fn start_read_parts(&self, b: &mut Builder, chunk: &Chunk) -> Option<Started> {
        let (queries, states) = chunk.queries.zip(chunk.states)?;
        let [scores, y] = [chunk.keys, states].map(|right| start_over_depth(b, queries.stage(), right.stage()));
        Some(Started { scores, y })
    }

    /// Computes the rest of a chunk, in order: outputs are stored while the state advances.
    pub(super) fn finish_parts(&self, b: &mut Builder, running: Running, chunk: &Chunk, started: Option<Started>) {
        let Running { state, logs } = running;
        let decays = self.decays(b, chunk.iteration);
        let y = started.map(|started| self.read_parts(b, &decays, chunk.values, started));
        let left = self.scaled_parts(b, &decays, chunk);
        if let Some(y) = &y {
            finish(b, y, 0);
        }
        let added = self.start_added(b, &left, chunk);
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
    pub(super) fn read_parts(
        &self,
        b: &mut Builder,
        decays: &Decays,
        values: Factor,
        started: Started,
    ) -> Vec<[Reg; 4]> {
        let Started { scores, y } = started;
        finish(b, &scores, 1);
        let weights = self.weighed(b, decays, &block_values(&scores));
        let left: Vec<Parts> = weights.chunks(2).map(|two| Parts::of_blocks(b, Elem::F32, two)).collect();
        finish(b, &y, 0);
        self.state_is_read(b);
        let y: Blocks = y.iter().map(|block| from_start(b, decays.from_start, &block.map(Operand::Reg))).collect();
        let y = block_vars(b, &y);
        start_in_time(b, &y, false, &left, values);
        y
    }

    /// Starts the product that adds a chunk to the state.
    pub(super) fn start_added(&self, b: &mut Builder, left: &[Parts], chunk: &Chunk) -> Vec<[Reg; 4]> {
        let added = new_sums(b, self.schedule.depth);
        start_in_time(b, &added, true, left, chunk.keys_in_time);
        added
    }

    /// The warp's values at the chunk's times, scaled to its end: a left factor for every 16 times.
    pub(super) fn scaled_parts(&self, b: &mut Builder, decays: &Decays, chunk: &Chunk) -> Vec<Parts> {
        let (values, lanes) = (chunk.values, chunk.values_left);
        let scaled = |sixteen: u32| {
            let rows = b.add(lanes, sixteen * ROWS * values.tile.depth);
            let index = b.add(rows, values.start);
            let values = Parts::at(b, values.tile, index, true);
            let remaining = [0, 1].map(|half| self.remaining(b, decays, 2 * sixteen + half));
            values.times_columns(b, Elem::F32, remaining)
        };
        (0..self.schedule.times() / ROWS).map(scaled).collect()
    }
}

/// The warp's rows of a left factor in registers, for every 16 places of its depth.
pub(super) fn parts_over_depth(b: &mut Builder, left: Factor) -> Vec<Parts> {
    let parts = |sixteen: u32| {
        let index = left.tile.index(b, left.lanes, 0, sixteen);
        let index = b.add(index, left.start);
        Parts::at(b, left.tile, index, false)
    };
    (0..left.tile.depth / ROWS).map(parts).collect()
}

/// Starts left·right over the rows of the right factor, added to sums unless these are cleared.
fn start_in_time(b: &mut Builder, sums: &[[Reg; 4]], clear: bool, left: &[Parts], right: Factor) {
    let steps = Step::over_rows(b, left, right.tile, right.start);
    start(b, sums, clear, &steps, Order::StepByStep, true);
}

/// Advances the state: S_next = decay·S + the sum that the chunk adds.
pub(super) fn advance(b: &mut Builder, state: &State, decays: &Decays, added: &[[Reg; 4]]) {
    for (reg, added) in state.blocks.iter().flatten().zip(added.iter().flatten()) {
        let sum = b.fma((*reg).into(), decays.whole, (*added).into());
        b.assign(*reg, sum);
    }
}
