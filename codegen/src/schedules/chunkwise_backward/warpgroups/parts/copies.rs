//! The warpgroup that copies, where factors are in two parts: all its warps divide values and cotangents, of which the first also evaluates
//! decays and gains, the second starts the copies of S and D, and the last stores the outputs over time of heads that are done.

use super::WarpgroupSweep;
use crate::block::copy::Source;
use crate::block::ring::Ring;
use crate::build::Builder;
use crate::schedules::ChunkwiseBackward;
use crate::schedules::chunkwise::origin_at;
use crate::schedules::chunkwise_backward::parameters::{GROUP, ROLES};
use crate::schedules::chunkwise_backward::walk::{Chunk, HeadSlice};
use crate::schedules::chunkwise_backward::{MOST_DEPTH, TIMES};
use crate::target::WARP;
use crate::tile::{Operand, Stmt};
use oplus_dsl::ir::Axis;

/// The warps that evaluate decays and gains, start the copies of S and D, and store outputs over time.
const OF_RATES: u32 = 0;
const OF_STATES: u32 = 1;
const OF_STEPS: u32 = GROUP / WARP - 1;

impl WarpgroupSweep<'_> {
    /// Brings the tiles of all heads to shared memory, and stores their outputs over time as many heads later as are in flight.
    pub(in super::super) fn copy_role_of_parts(&self, b: &mut Builder) {
        let own = self.of_group(b, ROLES);
        let heads = own.rematerialised_chunk(b).heads;
        if !own.has_steps() {
            return b.for_(Operand::i32(0), heads, 1, |b, iteration| own.copy_head(b, iteration));
        }
        let in_flight = own.schedule.heads();
        let all = b.add(heads, in_flight);
        b.for_(Operand::i32(0), all, 1, |b, iteration| {
            let behind = b.sub(iteration, in_flight);
            let is_own = b.eq(own.thread.warp, OF_STEPS);
            let is_there = b.ge(behind, 0);
            let stores = b.and(is_own, is_there);
            b.if_(stores, |b| own.store_head_steps(b, behind));
            let exists = b.lt(iteration, heads);
            b.if_(exists, |b| own.copy_head(b, iteration));
        });
    }

    /// The source of copies by all threads of a warpgroup.
    pub(super) fn source_of_group<'a>(&'a self, outer: &'a [(Axis, Operand)]) -> Source<'a> {
        Source { threads: GROUP, ..self.source(outer) }
    }

    /// Whether a tile is read when the one before it is written, not meanwhile: conditions of elements that may be missing take
    /// registers, as does where a sequence lies.
    fn reads_tiles_apart(&self) -> bool {
        let ChunkwiseBackward { padded, wide, depth, .. } = *self.schedule;
        (padded && wide || self.tile.is_some()) && depth == MOST_DEPTH && self.has_steps()
    }

    /// Brings the tiles of a head to shared memory when those of an earlier one have been left.
    fn copy_head(&self, b: &mut Builder, iteration: Operand) {
        let chunk = &self.rematerialised_chunk(b);
        let to = self.ring().at(b, iteration);
        let head = self.head(b, chunk, iteration);
        let own = self.at_stage(b, to.index);
        let source = own.source_of_group(&head.outer);
        let place = head.slice.map(|slice| b.mul(slice, TIMES));
        for (number, tile) in [&own.values, &own.cotangents].into_iter().enumerate() {
            let origin = origin_at(b, tile, &source, place);
            let read = tile.read(b, &source, origin, chunk.first);
            // Later statements are not to be moved up between the reads.
            b.push(Stmt::SyncWarp);
            if number == 0 {
                let left = to.before(b);
                b.wait(own.free, left);
            }
            let first = b.mul(to.index, tile.len());
            tile.write_parts(b, read, first);
            if number == 0 && own.reads_tiles_apart() {
                b.push(Stmt::SyncWarp);
            }
        }
        b.push(Stmt::FenceAsync);
        let evaluates = b.eq(own.thread.warp, OF_RATES);
        b.if_(evaluates, |b| {
            let rates = own.rates(b, &head.outer, chunk.first);
            let at = own.own_rates(b, iteration);
            own.store_split_rates(b, &rates, at);
        });
        b.arrive(own.full, to.index);
        let copies = b.eq(own.thread.warp, OF_STATES);
        b.if_(copies, |b| own.load_panels(b, &head, chunk, iteration));
    }

    /// Starts the copies of all panels of S and D of a head, each when an earlier one has been left.
    fn load_panels(&self, b: &mut Builder, head: &HeadSlice, chunk: &Chunk, iteration: Operand) {
        let Some(ring) = self.panel_ring else { return };
        let first = b.mul(iteration, self.panels());
        let is_first = b.eq(self.thread.lane, 0);
        for panel in 0..self.panels() {
            let own = b.add(first, panel);
            let to = Ring::of(ring.stages).at(b, own);
            let left = to.before(b);
            b.wait(ring.free, left);
            b.if_(is_first, |b| self.load_panel(b, head, chunk, panel, ring.full, to.index));
        }
    }

    /// Stores the outputs over time of a head, when its partial sums are complete.
    fn store_head_steps(&self, b: &mut Builder, iteration: Operand) {
        let chunk = &self.rematerialised_chunk(b);
        let at = self.ring().at(b, iteration);
        let head = self.head(b, chunk, iteration);
        let own = self.at_stage(b, at.index);
        let values = own.read_steps(b, &head, chunk);
        b.wait(self.summed, at);
        let decays = own.decays(b, iteration);
        own.store_over_time(b, &values, &decays, head.slice.map(|slice| (slice, chunk)));
        b.arrive(self.free, at.index);
    }
}
