//! Sums over the rows of a block: over the rows of a lane in registers, of a warp through a heap of its own in shared
//! memory, of the block by the copy warps, out of a ring of two halves of 16 steps.
//!
//! A warp puts the lane sums of a *batch* of states on its heap, 16 bytes for four steps, in groups (sum, state of the
//! batch, half of the sub-tile). Each lane then adds some of these numbers over the lanes that share a position.

use super::lane::Lane;
use super::{SUBTILE, StateSpaceBackwardKernel};
use crate::block::ring::Ring;
use crate::build::{Builder, zero};
use crate::schedules::StateSpaceBackward;
use crate::schedules::state_space::CHUNK;
use crate::stage::kind::BackwardScan;
use crate::target::WARP;
use crate::tile::{Memory, Operand, SharedId, SharedKind, Stmt};
use oplus_dsl::Ty;

/// Sub-tiles of a half of the ring.
pub(super) const HALF: u32 = 2;
/// The ring of two halves, each of which holds half a tile.
pub(super) const HALVES: Ring = Ring::of_power(2);

/// The place of a batch in the ring.
#[derive(Clone, Copy)]
pub(super) struct BatchPlace {
    /// The half of the ring, `i32`.
    pub half: Operand,
    /// The sub-tile in the half.
    pub subtile: u32,
    /// The batch of the lane's states.
    pub batch: u32,
}

/// The sums over rows of a kernel, and their shared memory.
pub(super) struct RowSums {
    /// The number of sums.
    count: u32,
    /// States of a batch, and batches of a lane.
    pub batch: u32,
    pub batches: u32,
    /// Positions, and lanes that share one.
    pub lanes: u32,
    heap: SharedId,
    pub ring: SharedId,
    /// The mbarriers of each half: one completes when all warps have filled it, the other when it has been taken.
    pub filled: SharedId,
    pub taken: SharedId,
}

impl RowSums {
    pub(super) fn declare(b: &mut Builder, form: &BackwardScan, schedule: &StateSpaceBackward) -> Option<RowSums> {
        let count = form.row_sums.len() as u32;
        if count == 0 {
            return None;
        }
        let groups = 2 * count * schedule.lanes;
        let batch = schedule.states.min(1 << (WARP / groups).max(1).ilog2());
        let batches = schedule.states / batch;
        let shape = RowShape { count, batch, lanes: schedule.lanes };
        let heap = b.shared_values("heap", Ty::F32, schedule.warps * shape.heap() * CHUNK);
        let ring = b.shared_values("ring", Ty::F32, 2 * HALF * batches * schedule.warps * shape.outputs() * CHUNK);
        let [filled, taken] = ["filled", "taken"].map(|name| b.shared(name, SharedKind::Mbarrier, 2));
        Some(RowSums { count, batch, batches, lanes: schedule.lanes, heap, ring, filled, taken })
    }

    /// The numbers of half a tile, of four steps each, that each warp puts into the ring; and those of one batch.
    pub(super) fn numbers(&self) -> [u32; 2] {
        let outputs = self.shape().outputs();
        [HALF * self.batches * outputs, outputs]
    }

    fn shape(&self) -> RowShape {
        RowShape { count: self.count, batch: self.batch, lanes: self.lanes }
    }
}

/// The numbers, of four steps each, that a warp ends a batch with.
struct RowShape {
    count: u32,
    batch: u32,
    lanes: u32,
}

impl RowShape {
    fn groups(&self) -> u32 {
        2 * self.count * self.batch
    }

    fn outputs(&self) -> u32 {
        self.groups() * self.lanes
    }

    /// The distance between groups on the heap: groups of lanes that read at once are in different banks.
    fn pitch(&self) -> u32 {
        WARP + self.lanes.min(8)
    }

    fn heap(&self) -> u32 {
        self.groups() * self.pitch()
    }
}

impl StateSpaceBackwardKernel<'_> {
    /// Puts a lane's sum of eight steps for a state of the batch on the heap.
    pub(super) fn heap(
        &self,
        b: &mut Builder,
        sums: &RowSums,
        lane: &Lane,
        sum: usize,
        state: u32,
        values: &[Operand],
    ) {
        let shape = sums.shape();
        let own = b.mul(lane.number, sums.lanes);
        let own = b.add(own, lane.position);
        let own = b.mul(own, CHUNK);
        let first = b.mul(self.base.frame.warp, shape.heap() * CHUNK);
        let own = b.add(own, first);
        for (half, values) in values.chunks(CHUNK as usize).enumerate() {
            let group = (sum as u32 * sums.batch + state) * 2 + half as u32;
            let at = b.add(own, group * shape.pitch() * CHUNK);
            b.store(Memory::Shared(sums.heap), at, values, None);
        }
    }

    /// Adds a batch over the lanes of each position, into the ring.
    pub(super) fn add_batch(&self, b: &mut Builder, sums: &RowSums, batch: BatchPlace) {
        let shape = sums.shape();
        b.push(Stmt::SyncWarp);
        for pass in 0..shape.outputs().div_ceil(WARP) {
            let number = b.add(self.base.frame.lane, pass * WARP);
            let whole = shape.outputs() >= (pass + 1) * WARP;
            let held = if whole { Operand::bool(true) } else { b.lt(number, shape.outputs()) };
            b.if_(held, |b| {
                let total = self.over_lanes(b, sums, number);
                let at = self.ring_element(b, sums, batch, self.base.frame.warp, number);
                b.store(Memory::Shared(sums.ring), at, &total, None);
            });
        }
        b.push(Stmt::SyncWarp);
    }

    /// The sum of four steps over the lanes that share a position: in the order of the lanes.
    fn over_lanes(&self, b: &mut Builder, sums: &RowSums, number: Operand) -> Vec<Operand> {
        let shape = sums.shape();
        let lanes = Operand::i32(sums.lanes as i32);
        let [group, position] = b.div_rem(number, lanes);
        let first = b.mul(self.base.frame.warp, shape.heap());
        let group = b.mul(group, shape.pitch());
        let at = b.add(first, group);
        let at = b.add(at, position);
        let at = b.mul(at, CHUNK);
        let load = |b: &mut Builder, j: u32| {
            let at = b.add(at, j * sums.lanes * CHUNK);
            b.load(Memory::Shared(sums.heap), at, CHUNK, None, zero(Ty::F32))
        };
        let terms: Vec<Vec<Operand>> = (0..WARP / sums.lanes).map(|j| load(b, j)).collect();
        added(b, terms)
    }

    /// The first of the four steps of a number of a warp's batch in the ring.
    fn ring_element(
        &self,
        b: &mut Builder,
        sums: &RowSums,
        BatchPlace { half, subtile, batch }: BatchPlace,
        warp: Operand,
        number: Operand,
    ) -> Operand {
        let outputs = sums.shape().outputs();
        let batches = (HALF * sums.batches) as i32;
        let at = b.mul(half, batches);
        let at = b.add(at, subtile * sums.batches + batch);
        let at = b.mul(at, self.schedule.warps);
        let at = b.add(at, warp);
        let at = b.mul(at, outputs);
        let at = b.add(at, number);
        b.mul(at, CHUNK)
    }

    // ---- the halves of the ring

    /// Waits until the half can be filled; gives it.
    pub(super) fn open_half(&self, b: &mut Builder, sums: &RowSums, number: Operand) -> Operand {
        let half = HALVES.at(b, number);
        let before = half.before(b);
        b.wait(sums.taken, before);
        b.push(Stmt::SyncWarp);
        half.index
    }

    /// Reports that the half has been filled.
    pub(super) fn close_half(&self, b: &mut Builder, sums: &RowSums, half: Operand) {
        b.arrive(sums.filled, half);
    }

    /// The index in its tile of the `number`-th sub-tile to be walked.
    pub(super) fn subtile(&self, b: &mut Builder, number: Operand) -> Operand {
        if self.base.scan.reverse {
            b.sub(Operand::i32((self.schedule.steps / SUBTILE) as i32 - 1), number)
        } else {
            number
        }
    }
}

/// Terms of several steps, added one after the other.
pub(super) fn added(b: &mut Builder, terms: Vec<Vec<Operand>>) -> Vec<Operand> {
    let add = |b: &mut Builder, sum: Vec<Operand>, term: Vec<Operand>| {
        sum.iter().zip(&term).map(|(x, y)| b.add(*x, *y)).collect::<Vec<_>>()
    };
    let mut terms = terms.into_iter();
    let first = terms.next().unwrap_or_default();
    terms.fold(first, |sum, term| add(b, sum, term))
}
