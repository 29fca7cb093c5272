//! The role of pairs of times: M and E, and the weights of G, which the role of keys multiplies with cotangents.

use super::super::partials::Partials;
use super::{InFlight, PAIRS, WarpgroupSweep};
use crate::block::layout::TileStage;
use crate::block::matmul::{block_values, finish, start};
use crate::block::ring::RingStage;
use crate::build::Builder;
use crate::schedules::chunkwise_backward::TIMES;
use crate::schedules::chunkwise_backward::parameters::GROUP;
use crate::tile::{Operand, Reg, Stmt};

impl WarpgroupSweep<'_> {
    /// Computes the weights of all heads of a chunk, and E summed over them.
    pub(super) fn pairs_role(&self, b: &mut Builder) {
        if self.panel_ring.is_some() {
            return self.pairs_role_of_parts(b);
        }
        let chunk = self.chunk(b);
        self.score(b);
        let sums = Self::sums(b, TIMES);
        self.each_head(b, &chunk, |own, b, head| own.weigh_head(b, head, &sums));
        let last = RingStage::only(b, chunk.heads).before(b);
        b.wait(self.weights_free, last);
        self.pairs_in_range(b, &sums);
        self.store_weights(b, &block_values(&sums));
        b.arrive(self.pairs_summed, Operand::i32(0));
    }

    /// Computes G, and keeps it.
    pub(super) fn score(&self, b: &mut Builder) {
        b.wait(self.begun, RingStage::FIRST);
        b.push(Stmt::FenceAsync);
        let none = Operand::i32(0);
        let scores = match self.panel_ring {
            Some(_) => self.scores_of_parts(b),
            None => {
                let [keys, queries] = [&self.keys, &self.queries].map(|tile| TileStage::of(b, tile, none));
                start(b, keys, queries)
            }
        };
        finish(b, &scores, 0);
        let scores = block_values(&scores);
        for (block, scores) in (0..).zip(&scores) {
            self.store_own(b, self.scores, block, scores);
        }
        self.write_largest_scores(b, &scores);
        // Each thread reads what it has written itself.
        b.push(Stmt::Barrier { id: PAIRS, threads: GROUP });
    }

    /// Adds E of a head to the sums, and hands its weights over.
    fn weigh_head(&self, b: &mut Builder, head: &InFlight, sums: &[[Reg; 4]]) {
        let [values, cotangents] = [&self.values, &self.cotangents].map(|tile| TileStage::of(b, tile, head.stage));
        let products = start(b, values, cotangents);
        let mut partials = Partials::default();
        finish(b, &products, 0);
        let scores = |b: &mut Builder, block: usize| self.own(b, self.scores, block as u32);
        let decays = self.decays_of_weights(b, &head.decays);
        let decays = decays.as_ref().unwrap_or(&head.decays);
        let weights = self.weigh_pairs(b, decays, sums, &mut partials, &block_values(&products), scores);
        let read = RingStage::only(b, head.iteration).before(b);
        b.wait(self.weights_free, read);
        self.store_weights(b, &weights);
        b.push(Stmt::FenceAsync);
        b.arrive(self.weights_full, Operand::i32(0));
        self.store_partials(b, &partials);
    }
}
