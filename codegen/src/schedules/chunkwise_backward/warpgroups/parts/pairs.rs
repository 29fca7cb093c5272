//! The role of pairs of times, and of value', in two parts.

use super::{InFlight, WarpgroupSweep};
use crate::block::matmul::{Blocks, block_values, finish, new_sums};
use crate::block::parts::Parts;
use crate::block::two_parts::{Order, Step, start};
use crate::build::Builder;
use crate::schedules::chunkwise::ROWS;
use crate::schedules::chunkwise_backward::TIMES;
use crate::schedules::chunkwise_backward::partials::Partials;
use crate::schedules::chunkwise_backward::walk::Chunk;
use crate::tile::{Left, Operand, Reg};
use oplus_dsl::Elem;

impl WarpgroupSweep<'_> {
    /// Computes value' of all heads of a chunk, and E summed over them.
    pub(in super::super) fn pairs_role_of_parts(&self, b: &mut Builder) {
        let chunk = self.rematerialised_chunk(b);
        self.score(b);
        let sums = Self::sums(b, TIMES);
        self.each_head(b, &chunk, |own, b, head| own.weigh_head_of_parts(b, head, &sums));
        self.wait_first_stage(b, &chunk);
        self.at_stage(b, Operand::i32(0)).store_weights(b, &block_values(&sums));
        b.arrive(self.pairs_summed, Operand::i32(0));
    }

    /// Waits until nothing of the first stage is read any more, after all heads.
    fn wait_first_stage(&self, b: &mut Builder, chunk: &Chunk) {
        let last = b.sub(chunk.heads, 1);
        let before = self.ring().stage(b, last);
        let uses = b.sub(last, before);
        let next = b.add(uses, self.schedule.heads());
        let left = self.ring().at(b, next).before(b);
        b.wait(self.free, left);
    }

    /// G of the chunk.
    pub(in super::super) fn scores_of_parts(&self, b: &mut Builder) -> Vec<[Reg; 4]> {
        let none = Operand::i32(0);
        self.start_over_depth(b, &self.keys, none, &self.queries, none)
    }

    /// Computes value' of a head and stores it, and adds its E to the sums.
    fn weigh_head_of_parts(&self, b: &mut Builder, head: &InFlight, sums: &[[Reg; 4]]) {
        let products = self.start_over_depth(b, &self.values, head.stage, &self.cotangents, head.stage);
        finish(b, &products, 0);
        let mut partials = Partials::default();
        let scores = |b: &mut Builder, block: usize| self.own(b, self.scores, block as u32);
        let weights = self.weigh_pairs(b, &head.decays, sums, &mut partials, &block_values(&products), scores);
        let left: Vec<Parts> = weights.chunks(2).map(|two| Parts::of_blocks(b, Elem::F32, two)).collect();
        let first = b.mul(head.stage, self.cotangents.len());
        let steps = Step::over_rows(b, &left, &self.cotangents, first);
        let found = new_sums(b, self.cotangents.depth);
        start(b, &found, true, &steps, Order::SmallestFirst, true);
        self.store_partials(b, &partials);
        finish(b, &found, 0);
        // The other term comes after: beside the weights its sums would have too few registers.
        let mut partials = Partials::default();
        let through_duals = self.through_duals_of_parts(b, head);
        let mut all = self.to_end(b, (head.stage, &head.decays), &block_values(&through_duals), &mut partials);
        for (sums, found) in all.iter_mut().zip(block_values(&found)) {
            *sums = [0, 1, 2, 3].map(|r: usize| b.add(sums[r], found[r]));
        }
        self.store_partials(b, &partials);
        self.store_head_values(b, head, &all);
    }

    /// D·key of a head.
    fn through_duals_of_parts(&self, b: &mut Builder, head: &InFlight) -> Vec<[Reg; 4]> {
        let found = new_sums(b, self.duals.rows);
        // Rematerialised: the addresses of keys would stay in registers from head to head.
        let none = self.rematerialiser.of(b, Operand::i32(0));
        let sixteens = self.duals.depth / ROWS;
        self.each_panel(b, head, |b, panel| {
            let first = b.mul(panel.stage, self.duals.len());
            let steps: Vec<Step> = (0..sixteens)
                .map(|sixteen| Step {
                    left: self
                        .keys
                        .panels_of_parts(b, none, Operand::i32(0), panel.number * sixteens + sixteen)
                        .map(Left::Shared),
                    right: self.duals.panels_of_parts(b, first, Operand::i32(0), sixteen),
                })
                .collect();
            start(b, &found, panel.number == 0, &steps, Order::SmallestFirst, false);
            finish(b, &found, 0);
        });
        found
    }

    /// Stores value' of a head.
    fn store_head_values(&self, b: &mut Builder, head: &InFlight, found: &Blocks) {
        let chunk = self.rematerialised_chunk(b);
        let own = self.head(b, &chunk, head.iteration);
        let kernel = WarpgroupSweep { sweep: self.sweep.with_strides_of_gains(b), ..self.clone() };
        let rows = kernel.read_rows(b, &own.outer, &chunk);
        let place = own.slice.map(|slice| b.mul(slice, TIMES));
        kernel.store_values(b, &rows, head.stage, place, found);
    }
}
