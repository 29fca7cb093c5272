//! The role of pairs of times: M, E and the weights of G, and value' of every head.

use super::super::partials::Partials;
use super::{InFlight, PAIRS, WarpgroupSweep};
use crate::block::matmul::{Blocks, block_values, block_vars, finish, pack, start, start_in_time};
use crate::block::pair::Values;
use crate::block::ring::RingStage;
use crate::build::Builder;
use crate::schedules::chunkwise_backward::TIMES;
use crate::schedules::chunkwise_backward::parameters::GROUP;
use crate::schedules::chunkwise_backward::walk::Chunk;
use crate::tile::{Operand, Reg, Stmt};

impl WarpgroupSweep<'_> {
    /// Computes value' of all heads of a chunk, and E summed over them.
    pub(super) fn pairs_role(&self, b: &mut Builder) {
        let chunk = self.chunk(b);
        self.score(b);
        let sums = Self::sums(b, TIMES);
        self.each_head(b, &chunk, |own, b, head| {
            let chunk = own.rematerialised(b, &chunk);
            own.values_of_head(b, &chunk, head, &sums);
        });
        self.store_weights(b, &block_values(&sums));
        self.meet(b);
    }

    /// Computes G, and keeps it.
    fn score(&self, b: &mut Builder) {
        b.wait(self.begun, RingStage::FIRST);
        b.push(Stmt::FenceAsync);
        let none = Operand::i32(0);
        let (keys, queries) = (self.shared_factor(b, &self.keys, none), self.shared_factor(b, &self.queries, none));
        let scores = start(b, keys, queries);
        finish(b, &scores, 0);
        for (block, scores) in (0..).zip(&block_values(&scores)) {
            self.store_own(b, self.scores, block, scores);
        }
        // Each thread reads what it has written itself.
        b.push(Stmt::Barrier { id: PAIRS, threads: GROUP });
    }

    /// The constants of the block, rematerialised: what follows from them would stay in registers from head to head.
    fn rematerialised(&self, b: &mut Builder, chunk: &Chunk) -> Chunk {
        let shared = chunk.shared.iter().map(|(axis, index)| (*axis, self.rematerialiser.of_index(b, *index)));
        Chunk { shared: shared.collect(), first: self.rematerialiser.of(b, chunk.first), ..*chunk }
    }

    /// Computes value' of a head and stores it.
    fn values_of_head(&self, b: &mut Builder, chunk: &Chunk, head: &InFlight, sums: &[[Reg; 4]]) {
        let decays = &head.decays;
        let [values, cotangents, duals] =
            [&self.values, &self.cotangents, &self.duals].map(|tile| self.shared_factor(b, tile, head.stage));
        let first = self.rematerialiser.of(b, Operand::i32(0));
        let keys = self.shared_factor(b, &self.keys, first);
        let products = start(b, values, cotangents);
        let mut partials = Partials::default();
        finish(b, &products, 0);
        let scores = |b: &mut Builder, block: usize| self.own(b, self.scores, block as u32);
        let weights = self.weigh_pairs(b, decays, (sums, &mut partials), &block_values(&products), scores);
        let packed: Blocks = weights.chunks(2).map(|two| pack(b, self.weights.elem, two)).collect();
        // Not before M has left its registers.
        let through_duals = start(b, keys, duals);
        self.store_partials(b, &partials);
        let mut partials = Partials::default();
        let own = self.head(b, chunk, head.iteration);
        let rows = self.read_rows(b, &own.outer, chunk);
        finish(b, &through_duals, 0);
        let found = self.to_end(b, head, &block_values(&through_duals), &mut partials);
        let found = block_vars(b, &found);
        start_in_time(b, &found, &packed, cotangents);
        self.store_partials(b, &partials);
        finish(b, &found, 0);
        let place = own.slice.map(|slice| b.mul(slice, TIMES));
        self.store_values(b, &rows, head.stage, place, &block_values(&found));
    }

    /// Reads what outputs need beside the sums, at the thread's times.
    fn read_rows(&self, b: &mut Builder, outer: &[(oplus_dsl::ir::Axis, Operand)], chunk: &Chunk) -> Values<'_> {
        let (time, width) = (self.form.states.time, self.form.states.width);
        let mut rows = Values::new(self.stage, &self.args, [time, width], outer.to_vec());
        self.set_rows(b, &mut rows, chunk.first);
        (0..2).for_each(|row| rows.read_row(b, row));
        rows
    }

    /// The first term of value', from D·key.
    fn to_end(&self, b: &mut Builder, head: &InFlight, products: &Blocks, partials: &mut Partials) -> Blocks {
        let mut found = products.clone();
        for (k, block) in (0..).zip(&mut found) {
            let values = self.own_block(b, &self.values, head.stage, k);
            for (r, found) in block.iter_mut().enumerate() {
                *found = b.mul(*found, head.decays.to_end[r / 2]);
                partials.add_value(b, r / 2, [*found, values[r]]);
            }
        }
        partials.scale_values(b, &head.decays);
        found
    }
}
