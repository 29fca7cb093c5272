//! Warps that read the state, beside those that advance it.
//!
//! Where a kernel has [prepared](super::prepared) the parts of queries and keys, copies are no longer what a chunk waits for: the warpgroup that multiplies
//! is. Here one warpgroup advances the state, and another multiplies queries with keys and with the state, and stores outputs. They hand
//! the state over in shared memory: the first writes it before each chunk, when the second has read the one before.

use super::parts::{advance, parts_over_depth};
use super::read::Started;
use super::segments::Iterations;
use super::walk::{Running, Walk};
use super::{COPIERS, Chunkwise, ChunkwiseKernel, KeyParts, ROWS};
use crate::block::matmul::{block_values, finish, new_sums};
use crate::block::parts::Parts;
use crate::block::ring::{Ring, RingStage};
use crate::block::thread::Thread;
use crate::block::two_parts::start_over_depth_by;
use crate::build::Builder;
use crate::stage::Stage;
use crate::stage::kind::MatrixRecurrence;
use crate::target::WARP;
use crate::tile::{Operand, Reg, SharedId, SharedKind};
use oplus_dsl::Ty;
use oplus_dsl::ir::Binary;

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

/// What warps that read the state have of the next chunk.
struct Ahead {
    /// The registers of its queries, in two parts for every 16 places of the depth.
    queries: Vec<[[Reg; 4]; 2]>,
    /// Its products of queries with keys.
    scores: Vec<[Reg; 4]>,
}

impl Ahead {
    fn new(b: &mut Builder, schedule: &Chunkwise) -> Ahead {
        let queries = (0..schedule.depth / ROWS).map(|_| [0; 2].map(|_| [0; 4].map(|_| b.reg(Ty::U32)))).collect();
        Ahead { queries, scores: new_sums(b, schedule.times()) }
    }

    /// The queries as left factors.
    fn queries(&self) -> Vec<Parts> {
        let of = |[high, low]: &[[Reg; 4]; 2]| Parts::of_registers(high.map(Operand::Reg), Some(low.map(Operand::Reg)));
        self.queries.iter().map(of).collect()
    }
}

/// Writes left factors to registers.
fn assign_parts(b: &mut Builder, regs: &[[[Reg; 4]; 2]], parts: &[Parts]) {
    for ([high, low], parts) in regs.iter().zip(parts) {
        let both = high.iter().zip(parts.high()).chain(low.iter().zip(parts.low().unwrap_or(parts.high())));
        both.for_each(|(reg, part)| b.assign(*reg, part));
    }
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
        let any = b.lt(Operand::i32(0), iterations.count);
        b.if_(any, |b| {
            let ahead = Ahead::new(b, self.schedule);
            self.start_scores(b, &ahead, Operand::i32(0), iterations);
            finish(b, &ahead.scores, 0);
            let last = b.sub(iterations.count, 1);
            b.for_(Operand::i32(0), iterations.count, 1, |b, iteration| {
                let next = b.add(iteration, 1);
                let next = b.binary(Binary::Min, next, last);
                self.read_chunk(b, &ahead, iteration, next, iterations);
            });
        });
    }

    /// Waits for a chunk, reads its queries to registers and starts their product with keys.
    fn start_scores(&self, b: &mut Builder, ahead: &Ahead, iteration: Operand, iterations: Iterations) {
        let (filled, first) = self.wait_chunk(b, iteration, iterations);
        let lanes = self.lanes(b);
        let chunk = self.tiles_of(b, &lanes, iteration, first, filled.index);
        let Some(queries) = chunk.queries else { return };
        let parts = parts_over_depth(b, queries);
        assign_parts(b, &ahead.queries, &parts);
        start_over_depth_by(b, &ahead.scores, &ahead.queries(), chunk.keys.stage());
    }

    /// Reads the state before a chunk, whose scores have been started, and stores the chunk's outputs. The next chunk's scores are computed while
    /// outputs are stored; after the last chunk these are its own once more, which nothing reads.
    fn read_chunk(&self, b: &mut Builder, ahead: &Ahead, iteration: Operand, next: Operand, iterations: Iterations) {
        let filled = Ring::of(self.schedule.stages).at(b, iteration);
        let first = self.first_time(b, iteration, iterations);
        self.wait_state(b, iteration);
        let lanes = self.lanes(b);
        let chunk = self.tiles_of(b, &lanes, iteration, first, filled.index);
        let Some((queries, states)) = chunk.queries.zip(chunk.states) else { return };
        let y = new_sums(b, states.tile.rows);
        start_over_depth_by(b, &y, &ahead.queries(), states.stage());
        let decays = self.decays(b, iteration);
        let y = self.read_parts(b, &decays, chunk.values, Started { scores: ahead.scores.clone(), y });
        self.start_scores(b, ahead, next, iterations);
        finish(b, &y, 1);
        let values = self.values(b);
        self.store_outputs(b, values, &chunk, queries, &block_values(&y));
        self.free(b, filled);
        // No product is under way from one chunk to the next: the assembler would run all of them one after the other.
        finish(b, &ahead.scores, 0);
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
