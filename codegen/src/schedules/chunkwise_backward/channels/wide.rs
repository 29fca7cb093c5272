//! The third sweep of a wide state with decays per channel: its slices one after the other.
//!
//! A does not depend on the slice. Sums over the width, which are M and the first terms of query' and key', stay in
//! registers, and in the shared memory that pairs of one block use later.

use super::{Arrays, Steps};
use crate::block::matmul::{assign_blocks, block_values};
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
        for array in [self.key_sums, arrays.own_queries] {
            (0..self.deep_blocks()).for_each(|block| self.store_own(b, array, block, &zeros()));
        }
        // From here on all threads see sums and rates.
        b.barrier();
        let views = self.all_views(b);
        let own = self.steps(b, arrays, &views);
        self.score_earlier(b, &own);
        self.score_own(b);
        let pairs: Vec<[Reg; 4]> = (0..TIMES / 2 / COLUMNS).map(|_| [0; 4].map(|_| b.var(zero(Ty::F32)))).collect();
        b.for_(none, chunk.slices, 1, |b, slice| self.slice(b, arrays, chunk, head, &pairs, slice));
        let pairs = block_values(&pairs);
        self.store_weighed(b, arrays, pairs);
        let [keys, queries] = [self.key_sums, arrays.own_queries].map(|array| self.kept(b, array, self.deep_blocks()));
        // M is complete, and no thread reads the sums any more.
        b.barrier();
        let views = self.all_views(b);
        let own = self.steps(b, arrays, &views);
        self.after_pairs(b, &own, Some((keys, queries)), values, chunk.first);
    }

    /// Computes one slice: value' at its places, and its terms of the sums.
    fn slice(
        &self,
        b: &mut Builder,
        arrays: &Arrays,
        chunk: &Chunk,
        head: &HeadSlice,
        pairs: &[[Reg; 4]],
        slice: Operand,
    ) {
        let none = Operand::i32(0);
        // The weights of all warps are complete, and no thread reads the sums over the width of the slice before.
        b.barrier();
        let filled = RingStage::only(b, slice);
        for tile in [&self.values, &self.cotangents, &self.states, &self.duals] {
            b.wait(tile.full, filled);
        }
        self.channel_energies(b, arrays, Some(slice));
        let views = self.all_views(b);
        let own = self.steps(b, arrays, &views);
        let mut products = block_values(pairs);
        self.add_pairs(b, &own, &mut products);
        assign_blocks(b, pairs, &products);
        for (array, kind) in [(self.key_sums, Cotangent::Keys), (arrays.own_queries, Cotangent::Queries)] {
            self.add_to(b, &own, array, kind);
        }
        let (rows, steps) = self.early(b, head, chunk.first);
        let decays = self.decays(b, none);
        let sums = Sums { pairs: vec![], queries: vec![] };
        let found = self.channel_values(b, &own, &Head { views: &views, stage: none, decays: &decays, sums: &sums });
        let first = b.mul(slice, TIMES);
        self.store_values(b, &rows, none, Some(first), &found);
        // No thread reads the tiles of this slice any more.
        b.barrier();
        let next = b.add(slice, 1);
        self.fetch(b, chunk, next);
        self.store_steps(b, &steps, &decays, Some((slice, chunk)));
    }

    /// Adds the product of a slice to the first term of key' or query'.
    fn add_to(&self, b: &mut Builder, own: &Steps, array: SharedId, kind: Cotangent) {
        let mut sums = self.kept(b, array, self.deep_blocks());
        self.add_states(b, own, kind, &mut sums);
        for (block, sums) in (0..).zip(&sums) {
            self.store_own(b, array, block, sums);
        }
    }
}
