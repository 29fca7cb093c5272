//! Warps that read the state, beside those that advance it.
//!
//! Where a kernel has [prepared](super::prepared) the parts of queries and keys, copies are no longer what a chunk waits for: the warpgroup that multiplies
//! is. Here one warpgroup advances the state, and another multiplies queries with keys and with the state, and stores outputs. They hand
//! the state over in shared memory: the first writes it before each chunk, when the second has read the one before.

use super::parts::advance;
use super::segments::Iterations;
use super::walk::{Running, Walk};
use super::{COPIERS, Chunkwise, ChunkwiseKernel, KeyParts};
use crate::block::matmul::{block_values, finish};
use crate::block::ring::{Ring, RingStage};
use crate::block::thread::Thread;
use crate::build::Builder;
use crate::stage::Stage;
use crate::stage::kind::MatrixRecurrence;
use crate::target::WARP;
use crate::tile::{Operand, SharedId, SharedKind};

/// Warps that read the state, where there are any: a warpgroup.
pub(super) const READERS: u32 = 4;

/// The mbarriers by which the state in shared memory is handed over, once for each chunk.
#[derive(Clone, Copy)]
pub(crate) struct StateHandover {
    /// Completes when the state before a chunk is written.
    written: SharedId,
    /// Completes when it has been read.
    read: SharedId,
}

impl StateHandover {
    /// Declares the mbarriers.
    pub(super) fn declare(b: &mut Builder) -> StateHandover {
        let [written, read] = ["written", "read"].map(|name| b.shared(name, SharedKind::Mbarrier, 1));
        StateHandover { written, read }
    }
}

/// Whether blocks may have warps that read the state: where parts of queries and keys are prepared, and outputs have no gate.
pub(super) fn are_possible(stage: &Stage, form: &MatrixRecurrence, schedule: &Chunkwise) -> bool {
    schedule.readers == READERS
        && schedule.copiers == COPIERS
        && schedule.key_parts == KeyParts::Prepared
        && ChunkwiseKernel::gate_of(stage, form, schedule).is_none()
}

impl ChunkwiseKernel<'_> {
    /// Initialises the mbarriers of the state, by one thread.
    pub(super) fn init_readers(&self, b: &mut Builder) {
        if let Some(StateHandover { written, read }) = self.state_handover {
            b.init_mbarriers(written, 1, self.schedule.walkers());
            b.init_mbarriers(read, 1, self.schedule.readers * WARP);
        }
    }

    /// Divides the warps that multiply in those that advance the state and those that read it.
    pub(super) fn walk_or_read(&self, b: &mut Builder, iterations: Iterations, before: Operand) {
        let warps = self.schedule.warps;
        let advances = b.lt(self.thread.warp, warps);
        b.if_else(
            advances,
            |b| self.walk(b, &[], iterations, before),
            |b| {
                let Thread { number, warp, lane } = self.thread;
                let thread = Thread { number: b.sub(number, warps * WARP), warp: b.sub(warp, warps), lane };
                ChunkwiseKernel { thread, ..self.clone() }.read_all(b, iterations);
            },
        );
    }

    /// Reads the state before every chunk of the segment, and stores the chunk's outputs.
    fn read_all(&self, b: &mut Builder, iterations: Iterations) {
        b.for_(Operand::i32(0), iterations.count, 1, |b, iteration| {
            let (filled, first) = self.wait_chunk(b, iteration, iterations);
            self.wait_state(b, iteration);
            let lanes = self.lanes(b);
            let chunk = self.tiles_of(b, &lanes, iteration, first, filled.index);
            let started = self.start_chunk(b, &chunk);
            let decays = self.decays(b, iteration);
            if let Some((started, queries)) = started.zip(chunk.queries) {
                let y = self.read_parts(b, &decays, chunk.values, started);
                finish(b, &y, 0);
                let values = self.values(b);
                self.store_outputs(b, values, &chunk, queries, &block_values(&y));
            }
            self.free(b, filled);
        });
    }

    /// Advances the state over a chunk that others read.
    pub(super) fn advance_alone(&self, b: &mut Builder, walk: &Walk, iteration: Operand) {
        let Running { state, logs } = walk.running;
        self.hand_state_over(b, iteration, |b| self.store_state(b, state));
        let (filled, first) = self.wait_chunk(b, iteration, walk.iterations);
        let lanes = self.lanes(b);
        let chunk = self.tiles_of(b, &lanes, iteration, first, filled.index);
        let decays = self.decays(b, iteration);
        let left = self.scaled_parts(b, &decays, &chunk);
        let added = self.start_added(b, &left, &chunk);
        finish(b, &added, 0);
        self.free(b, filled);
        advance(b, state, &decays, &added);
        let sum = b.add(logs.into(), decays.end);
        b.assign(logs, sum);
    }

    /// Waits until an iteration's stage has its tiles; gives the stage, and the first time of the chunk.
    fn wait_chunk(&self, b: &mut Builder, iteration: Operand, iterations: Iterations) -> (RingStage, Operand) {
        let filled = Ring::of(self.schedule.stages).at(b, iteration);
        let first = self.first_time(b, iteration, iterations);
        self.wait_filled(b, filled);
        b.wait(self.keys.full, filled);
        (filled, first)
    }

    /// Writes the state before a chunk when the one before has been read.
    fn hand_state_over(&self, b: &mut Builder, iteration: Operand, store: impl FnOnce(&mut Builder)) {
        let Some(StateHandover { written, read }) = self.state_handover else { return };
        let here = RingStage::only(b, iteration);
        let before = here.before(b);
        b.wait(read, before);
        store(b);
        b.arrive(written, here.index);
    }

    /// Waits until the state before a chunk is written.
    fn wait_state(&self, b: &mut Builder, iteration: Operand) {
        let Some(StateHandover { written, .. }) = self.state_handover else { return };
        let here = RingStage::only(b, iteration);
        b.wait(written, here);
    }

    /// Reports that the state has been read, where other warps advance it.
    pub(super) fn state_is_read(&self, b: &mut Builder) {
        if let Some(StateHandover { read, .. }) = self.state_handover {
            b.arrive(read, Operand::i32(0));
        }
    }
}
