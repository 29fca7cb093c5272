//! Warps that read the state for queries: each is the partner of a warp that walks and takes the outputs of its chunks.
//!
//! For each chunk the warp that walks hands over the state before the chunk and the rows that its steps add, as left factors: each lane
//! writes 16 bytes for four of its registers, and the partner's lane of the same number reads them. There is a slot for every chunk of the tiles whose
//! products over pairs of times are in shared memory. A tile counts as walked when both warps have gone through it, so a slot is free when the
//! products of a later tile are there, and the warp that walks does not wait for its partner's chunks.
//!
//! The warp that walks reads and computes what its next products take before it hands a chunk over: no access to shared memory is moved across
//! the arrival at an mbarrier.

use super::ahead::{TilePlace, Tiles};
use super::rates::FROM_START;
use super::solve::{AddedRows, Early};
use super::walk::AllLanes;
use super::{DeltaKernel, ELEMENTS, ROWS, TIMES, WARPS};
use crate::block::matmul::{Blocks, Factor};
use crate::block::parts::Parts;
use crate::block::ring::RingStage;
use crate::build::{Builder, zero};
use crate::target::WARP;
use crate::tile::{Memory, Operand, SharedId, SharedKind};
use oplus_dsl::{Elem, Ty};

/// Registers of a fragment that a thread has.
const REGISTERS: u32 = 4;

/// The slots in which factors are handed over.
#[derive(Clone, Copy)]
pub(in crate::schedules) struct Handed {
    array: SharedId,
    /// An mbarrier for each slot, at which warps that walk arrive.
    full: SharedId,
    /// Fragments of the state, and of all in a slot.
    states: u32,
    fragments: u32,
}

/// A slot, as a thread of a walking warp or of its partner has it.
#[derive(Clone, Copy)]
struct Slot {
    /// The thread's first register in the slot.
    index: Operand,
    /// Its mbarrier.
    stage: RingStage,
}

/// A place where fragments are written or read, one after the other.
struct Cursor {
    array: SharedId,
    index: Operand,
    fragment: u32,
}

/// Queries of a chunk in registers.
struct Query {
    /// Their fragments, 16 places of the depth each.
    vectors: Vec<Parts>,
    /// The decays from the chunk's start, where there are any.
    decays: [Option<[Operand; 2]>; 2],
    /// The weights of the rows that steps add.
    weights: Vec<Parts>,
}

impl Handed {
    /// The slots of a kernel whose queries have warps of their own.
    pub(super) fn declare(b: &mut Builder, kernel: &DeltaKernel<'_>) -> Option<Handed> {
        let schedule = kernel.schedule;
        let parts = if kernel.elem() == Elem::F32 { 2 } else { 1 };
        let states = parts * schedule.depth / ROWS;
        let rows = parts * (1 + u32::from(kernel.of_values.is_some()));
        let fragments = states + rows;
        let slots = schedule.walkers() * schedule.pairs() * WARPS;
        schedule.readers.then(|| Handed {
            array: b.shared("handed", SharedKind::Elem(Elem::U32), slots * fragments * WARP * REGISTERS),
            full: b.shared("handed_full", SharedKind::Mbarrier, slots),
            states,
            fragments,
        })
    }

    /// Initialises the mbarriers.
    pub(super) fn start(self, b: &mut Builder, kernel: &DeltaKernel<'_>) {
        let slots = kernel.schedule.walkers() * kernel.schedule.pairs() * WARPS;
        b.init_mbarriers(self.full, slots, WARP);
    }

    /// The slot of a chunk.
    fn slot(self, b: &mut Builder, kernel: &DeltaKernel<'_>, place: &TilePlace, chunk: u32) -> Slot {
        let of_warp = b.mul(kernel.thread.warp, kernel.schedule.pairs());
        let tile = b.add(of_warp, place.pairs.index);
        let first = b.mul(tile, WARPS);
        let number = b.add(first, chunk);
        let start = b.mul(first, self.fragments * WARP * REGISTERS);
        let own = b.mul(kernel.thread.lane, REGISTERS);
        let index = b.add(start, own);
        let index = b.add(index, chunk * self.fragments * WARP * REGISTERS);
        Slot { index, stage: RingStage { index: number, parity: place.pairs.parity } }
    }

    /// Writes the state before a chunk to its slot.
    pub(super) fn write_state(
        self,
        b: &mut Builder,
        kernel: &DeltaKernel<'_>,
        state: &[Parts],
        place: &TilePlace,
        chunk: u32,
    ) {
        let slot = self.slot(b, kernel, place, chunk);
        let mut cursor = Cursor { array: self.array, index: slot.index, fragment: 0 };
        state.iter().for_each(|parts| cursor.write(b, *parts));
    }

    /// Writes the rows that the steps of a chunk add to its slot, behind the state.
    pub(super) fn write_rows(
        self,
        b: &mut Builder,
        kernel: &DeltaKernel<'_>,
        added: &[AddedRows<'_>],
        place: &TilePlace,
        chunk: u32,
    ) {
        let slot = self.slot(b, kernel, place, chunk);
        let mut cursor = Cursor { array: self.array, index: slot.index, fragment: self.states };
        added.iter().for_each(|added| cursor.write(b, added.rows));
    }

    /// Hands the slot of a chunk over.
    pub(super) fn hand_over(self, b: &mut Builder, kernel: &DeltaKernel<'_>, place: &TilePlace, chunk: u32) {
        let slot = self.slot(b, kernel, place, chunk);
        b.arrive(self.full, slot.stage.index);
    }
}

impl Cursor {
    fn here(&mut self, b: &mut Builder) -> Operand {
        self.fragment += 1;
        b.add(self.index, (self.fragment - 1) * WARP * REGISTERS)
    }

    fn write(&mut self, b: &mut Builder, parts: Parts) {
        for registers in [parts.high()].into_iter().chain(parts.low()) {
            let index = self.here(b);
            b.store(Memory::Shared(self.array), index, &registers, None);
        }
    }

    fn read(&mut self, b: &mut Builder, elem: Elem) -> Parts {
        let mut four = |b: &mut Builder| {
            let index = self.here(b);
            let all = b.load(Memory::Shared(self.array), index, REGISTERS, None, zero(Ty::U32));
            [all[0], all[1], all[2], all[3]]
        };
        let high = four(b);
        Parts::of_registers(high, (elem == Elem::F32).then(|| four(b)))
    }
}

impl DeltaKernel<'_> {
    /// Divides the warps that have places of the width: the first ones walk, and their partners, where they have any, read.
    pub(super) fn in_pairs(
        &self,
        b: &mut Builder,
        walk: impl FnOnce(&mut Builder),
        read: impl FnOnce(&mut Builder, &Self, Handed),
    ) {
        let Some(handed) = self.handed else { return walk(b) };
        let walkers = self.schedule.walkers();
        let walks = b.lt(self.thread.warp, walkers);
        b.if_else(walks, walk, |b| {
            let own = self.behind_warps(b, walkers);
            read(b, &own, handed);
        });
    }

    /// Goes through the tiles behind the partner, and stores the outputs of each chunk.
    pub(super) fn read_behind(&self, b: &mut Builder, tiles: Tiles, lanes: &AllLanes, handed: Handed) {
        self.walk(b, tiles, |b, place| {
            let Some(queries) = self.walked_factors(b, lanes, self.walked_stage(place)).queries else { return };
            let first = b.mul(place.number, TIMES);
            let mut next = self.query(b, queries, lanes, place, 0);
            for chunk in 0..WARPS {
                let slot = handed.slot(b, self, place, chunk);
                b.wait(handed.full, slot.stage);
                let mut cursor = Cursor { array: handed.array, index: slot.index, fragment: 0 };
                let state: Vec<Parts> = next.vectors.iter().map(|_| cursor.read(b, self.elem())).collect();
                let rows: Vec<Parts> = next.weights.iter().map(|_| cursor.read(b, self.elem())).collect();
                let reads = self.outputs_of(b, &next, &state, &rows);
                if chunk + 1 < WARPS {
                    // Read before the outputs of this chunk are stored.
                    next = self.query(b, queries, lanes, place, chunk + 1);
                }
                let first = b.add(first, chunk * ROWS);
                self.store_outputs(b, &reads, first);
            }
        });
    }

    /// Reads the queries of a chunk and their weights.
    fn query(&self, b: &mut Builder, queries: Factor, lanes: &AllLanes, place: &TilePlace, chunk: u32) -> Query {
        let sixteens = self.schedule.depth / ROWS;
        let vectors = (0..sixteens).map(|sixteen| queries.parts(b, chunk * ROWS, sixteen, false)).collect();
        let of_values = self.of_values.as_ref().map(|[_, queried]| queried);
        let tiles = [&self.weights].into_iter().chain(of_values);
        let weights = tiles.map(|tile| {
            let factor = Factor::of(b, tile, &lanes.pairs, place.pairs.index);
            factor.parts(b, chunk * ROWS, 0, false)
        });
        let weights = weights.collect();
        let decays = [0, 1].map(|eight| self.two_decays(b, FROM_START, place.rates, 2 * chunk + eight));
        Query { vectors, decays, weights }
    }

    /// The outputs of each step of a chunk, as [`Self::reads`] gives them.
    fn outputs_of(&self, b: &mut Builder, query: &Query, state: &[Parts], rows: &[Parts]) -> Blocks {
        let mut sums = self.read_columns(b, state, |_, sixteen| query.vectors[sixteen as usize]);
        for (sums, decays) in sums.iter_mut().zip(query.decays) {
            if let Some(decays) = decays {
                *sums = ELEMENTS.map(|(h, c)| b.mul(sums[2 * h + c], decays[c]));
            }
        }
        for (rows, weights) in rows.iter().zip(&query.weights) {
            rows.multiply(b, self.elem(), &mut sums, *weights);
        }
        sums
    }

    /// Factors of the products of rows and vectors, where rows are handed over before products take them.
    pub(super) fn early(
        &self,
        b: &mut Builder,
        rows: Parts,
        vectors: Factor,
        place: &TilePlace,
        chunk: u32,
    ) -> Option<Early> {
        self.handed?;
        let sixteens = self.schedule.depth / ROWS;
        let vectors = (0..sixteens).map(|sixteen| vectors.parts(b, chunk * ROWS, sixteen, true)).collect();
        Some(Early { rows: self.to_end(b, rows, chunk, place.rates), vectors })
    }

    /// Adds the products of rows and vectors.
    pub(super) fn multiply_early(&self, b: &mut Builder, sums: &mut [[Operand; 4]], early: &Early) {
        for (columns, sums) in early.vectors.iter().zip(sums.chunks_exact_mut(2)) {
            early.rows.multiply(b, self.elem(), sums, *columns);
        }
    }
}
