//! The third sweep of a wide state with decays per channel: its slices one after the other.
//!
//! A does not depend on the slice. Sums over the width, which are M and the first terms of query' and key', stay in
//! registers, and in the shared memory that pairs of one block use later. Where tiles lie over one another, S and D have that memory
//! until all slices are summed, and all of these sums stay in registers; a single slice is then taken in the same way.
//! In `f32` S then has no place but that of D: it is copied there when all threads have read D, and what needs it comes last.

use super::{Arrays, Steps};
use crate::block::matmul::{Blocks, assign_blocks, block_numbers, block_values};
use crate::block::pair::Values;
use crate::block::ring::RingStage;
use crate::build::{Builder, zero};
use crate::schedules::chunkwise::COLUMNS;
use crate::schedules::chunkwise::zeros;
use crate::schedules::chunkwise_backward::walk::{Chunk, Head, HeadSlice, Sums};
use crate::schedules::chunkwise_backward::{ChunkwiseBackwardKernel, TIMES};
use crate::stage::kind::Cotangent;
use crate::tile::{Operand, Reg, SharedId};
use oplus_dsl::Ty;

/// Sums of blocks over slices.
enum SliceSums {
    Registers(Vec<[Reg; 4]>),
    Shared(SharedId),
}

/// The sums over slices: M, and the first terms of the cotangents of keys and of queries.
struct AllSums {
    pairs: Vec<[Reg; 4]>,
    keys: SliceSums,
    queries: SliceSums,
}

impl ChunkwiseBackwardKernel<'_> {
    /// Computes all that follows the sums of channels: A, the slices, and the terms that need the sums of all slices.
    pub(super) fn all_slices(
        &self,
        b: &mut Builder,
        arrays: &Arrays,
        chunk: &Chunk,
        head: &HeadSlice,
        values: &Values,
    ) {
        let none = Operand::i32(0);
        for tile in [&self.keys, &self.queries] {
            b.wait(tile.full, RingStage::FIRST);
        }
        let [keys, queries] = [self.key_sums, arrays.own_queries].map(|array| self.slice_sums(b, array));
        // From here on all threads see sums and rates.
        b.barrier();
        let views = self.all_views(b);
        let own = self.steps(b, arrays, &views);
        self.score_earlier(b, &own);
        self.score_own(b);
        let pairs = blocks_of_zeros(b, TIMES / 2 / COLUMNS);
        let sums = AllSums { pairs, keys, queries };
        b.for_(none, chunk.slices, 1, |b, slice| {
            self.for_step(b).as_ref().unwrap_or(self).slice(b, arrays, chunk, head, &sums, slice);
        });
        self.for_step(b).as_ref().unwrap_or(self).after_slices(b, arrays, chunk, &sums, values);
    }

    /// Computes the terms that need the sums of all slices.
    fn after_slices(&self, b: &mut Builder, arrays: &Arrays, chunk: &Chunk, sums: &AllSums, values: &Values) {
        let pairs = block_values(&sums.pairs);
        self.store_weighed(b, arrays, pairs);
        let [keys, queries] = [&sums.keys, &sums.queries].map(|sums| self.summed(b, sums));
        // M is complete, and no thread reads the sums any more.
        b.barrier();
        let views = self.all_views(b);
        let own = self.steps(b, arrays, &views);
        let Some(chunk) = self.chunk_again(b) else {
            return self.after_pairs(b, &own, Some((keys, queries)), values, chunk.first);
        };
        let axes = [self.form.states.time, self.form.states.width];
        let values = Values::new(self.stage, &self.args, axes, chunk.shared.clone());
        self.after_pairs(b, &own, Some((keys, queries)), &values, chunk.first);
    }

    /// Sums over slices, which begin at 0: in an array, or in registers where that has other numbers meanwhile.
    fn slice_sums(&self, b: &mut Builder, array: SharedId) -> SliceSums {
        if self.schedule.overlaid {
            return SliceSums::Registers(blocks_of_zeros(b, self.deep_blocks()));
        }
        (0..self.deep_blocks()).for_each(|block| self.store_own(b, array, block, &zeros()));
        SliceSums::Shared(array)
    }

    /// The sums over the slices so far.
    fn summed(&self, b: &mut Builder, sums: &SliceSums) -> Blocks {
        match sums {
            SliceSums::Registers(blocks) => block_values(blocks),
            SliceSums::Shared(array) => self.kept(b, *array, self.deep_blocks()),
        }
    }

    /// Computes one slice: value' at its places, and its terms of the sums.
    fn slice(&self, b: &mut Builder, arrays: &Arrays, chunk: &Chunk, head: &HeadSlice, sums: &AllSums, slice: Operand) {
        let none = Operand::i32(0);
        // The weights of all warps are complete, and no thread reads the sums over the width of the slice before.
        b.barrier();
        let filled = RingStage::only(b, slice);
        let of_several = self.schedule.wide.then_some(slice);
        let is_late = self.shares_tiles();
        let tiles = [&self.values, &self.cotangents, &self.states, &self.duals];
        for tile in tiles.into_iter().filter(|tile| !is_late || tile.full != self.states.full) {
            b.wait(tile.full, filled);
        }
        if !is_late {
            self.channel_energies(b, arrays, of_several, None);
        }
        let views = self.all_views(b);
        let own = self.steps(b, arrays, &views);
        let mut products = block_values(&sums.pairs);
        self.add_pairs(b, &own, &mut products);
        assign_blocks(b, &sums.pairs, &products);
        self.add_to(b, &own, &sums.keys, Cotangent::Keys);
        if !is_late {
            self.add_to(b, &own, &sums.queries, Cotangent::Queries);
        }
        let early = (!self.has_fewest_registers()).then(|| self.early(b, head, chunk.first));
        let decays = self.decays(b, none);
        let no_sums = Sums { pairs: vec![], queries: vec![] };
        let one = Head { views: &views, stage: none, decays: &decays, sums: &no_sums };
        let found = self.channel_values(b, &own, &one, |b| self.replace_duals(b, chunk, slice));
        let again = early.is_none().then(|| self.with_rematerialised(b));
        let (rows, steps) = early.unwrap_or_else(|| again.as_ref().unwrap_or(self).late(b));
        let first = of_several.map(|slice| b.mul(slice, TIMES));
        self.store_values(b, &rows, none, first, &found);
        if is_late {
            b.wait(self.states.full, filled);
            self.for_step(b).as_ref().unwrap_or(self).read_before(b, arrays, chunk, &sums.queries, slice);
        }
        // No thread reads the tiles of this slice any more.
        b.barrier();
        if let Some(slice) = of_several {
            let next = b.add(slice, 1);
            let again = self.chunk_again(b);
            let chunk = again.as_ref().unwrap_or(chunk);
            match self.copies_states_ahead() {
                true => self.for_slice(b, chunk, next, |b, own| self.fetch_values(b, own, chunk, none)),
                false => self.fetch(b, chunk, next),
            }
        }
        self.store_steps(b, &steps, &decays, of_several.map(|slice| (slice, chunk)));
    }

    /// Reads the parameters that outputs need when a slice is all but computed, and finds the chunk again: where registers are fewest.
    fn late(&self, b: &mut Builder) -> (Values<'_>, Values<'_>) {
        let chunk = self.rematerialised_chunk(b);
        let head = self.head(b, &chunk, Operand::i32(0));
        self.early(b, &head, chunk.first)
    }

    /// Starts the copies of S to the place of D, where it has no other; else those of S and D of the next slice to the places of this one's,
    /// which go on while A is multiplied by cotangents and value' is stored.
    fn replace_duals(&self, b: &mut Builder, chunk: &Chunk, slice: Operand) {
        if self.shares_tiles() {
            // All threads have read D.
            b.barrier();
            let again = self.chunk_again(b);
            let chunk = again.as_ref().unwrap_or(chunk);
            let own = self.head(b, chunk, slice);
            self.fetch_before(b, &own, chunk);
        } else if self.copies_states_ahead() {
            // All threads have read S and D.
            b.barrier();
            let next = b.add(slice, 1);
            self.for_slice(b, chunk, next, |b, own| self.fetch_states(b, own, chunk, Operand::i32(0)));
        }
    }

    /// Whether S and D of the next slice are copied before value' is complete: these are the last to be read of a slice, but where S comes
    /// later.
    fn copies_states_ahead(&self) -> bool {
        self.schedule.overlaid && self.schedule.wide && !self.shares_tiles()
    }

    /// Emits what a slice needs, if there is one of this number.
    fn for_slice(&self, b: &mut Builder, chunk: &Chunk, slice: Operand, emit: impl FnOnce(&mut Builder, &HeadSlice)) {
        let exists = b.lt(slice, chunk.heads);
        b.if_(exists, |b| {
            let own = self.head(b, chunk, slice);
            emit(b, &own);
        });
    }

    /// Adds the terms of a slice that need S, in the place of D.
    fn read_before(&self, b: &mut Builder, arrays: &Arrays, chunk: &Chunk, queries: &SliceSums, slice: Operand) {
        let again = self.chunk_again(b);
        let chunk = again.as_ref().unwrap_or(chunk);
        let own = self.head(b, chunk, slice);
        let duals = self.saved(b, &own, chunk);
        self.channel_energies(b, arrays, self.schedule.wide.then_some(slice), Some(duals));
        let views = self.all_views(b);
        let own = self.steps(b, arrays, &views);
        self.add_to(b, &own, queries, Cotangent::Queries);
    }

    /// Adds the product of a slice to the first term of key' or query'.
    fn add_to(&self, b: &mut Builder, own: &Steps, sums: &SliceSums, kind: Cotangent) {
        let mut found = self.summed(b, sums);
        if self.has_few_registers() {
            // Products would go on beside what follows a single slice, and take registers there.
            let add = |b: &mut Builder, found: &mut Blocks| self.add_states(b, own, kind, found);
            self.rematerialiser.apart(b, &mut found, block_numbers, add);
        } else {
            self.add_states(b, own, kind, &mut found);
        }
        match sums {
            SliceSums::Registers(blocks) => assign_blocks(b, blocks, &found),
            SliceSums::Shared(array) => {
                for (block, found) in (0..).zip(&found) {
                    self.store_own(b, *array, block, found);
                }
            }
        }
    }
}

/// So many blocks of sums in registers, which begin at 0.
fn blocks_of_zeros(b: &mut Builder, count: u32) -> Vec<[Reg; 4]> {
    (0..count).map(|_| [0; 4].map(|_| b.var(zero(Ty::F32)))).collect()
}
