//! Walks that only find the ends of segments, beside warps that copy.
//!
//! No queries read the state, so that nothing of a chunk waits for it but its own product: the values of the next chunk are scaled while
//! that product is under way.

use super::ChunkwiseKernel;
use super::walk::{Running, Walk};
use crate::block::matmul::finish;
use crate::block::ring::Ring;
use crate::build::Builder;
use crate::tile::{Operand, Stmt};

impl ChunkwiseKernel<'_> {
    /// Whether the products of chunks overlap the scaling of the next ones.
    pub(super) fn overlaps_ends(&self) -> bool {
        self.schedule.ends && self.handover.is_some() && !self.is_split()
    }

    /// Scales the values of a chunk, and starts its product when that of the chunk before has ended.
    pub(super) fn iteration_of_ends(&self, b: &mut Builder, walk: &Walk, iteration: Operand) {
        let Running { state, logs } = walk.running;
        let filled = Ring::of(self.schedule.stages).at(b, iteration);
        let first = self.first_time(b, iteration, walk.iterations);
        self.wait_filled(b, filled);
        // Makes the copied tiles visible to warpgroups.
        b.push(Stmt::FenceAsync);
        let lanes = self.lanes(b);
        let chunk = self.tiles_of(b, &lanes, iteration, first, filled.index);
        let decays = self.decays(b, iteration);
        let factors = self.factors(b, &decays);
        let (left, whole) = self.factors_to_advance(b, state, &decays, &factors, &chunk);
        finish(b, &state.blocks, 0);
        self.free_before(b, iteration);
        self.renew(b, state, decays.numbers);
        self.follow(b, state, &decays);
        self.start_advance(b, state, whole, &left, chunk.keys_in_time);
        let sum = b.add(logs.into(), decays.end);
        b.assign(logs, sum);
    }

    /// Reports that the stage of the chunk before an iteration's is read no more.
    fn free_before(&self, b: &mut Builder, iteration: Operand) {
        let is_later = b.lt(Operand::i32(0), iteration);
        b.if_(is_later, |b| {
            let before = b.sub(iteration, 1);
            let read = Ring::of(self.schedule.stages).at(b, before);
            self.free(b, read);
        });
    }
}
