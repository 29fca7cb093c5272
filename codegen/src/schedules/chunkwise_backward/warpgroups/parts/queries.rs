//! The role of query' in two parts.

use super::{InFlight, WarpgroupSweep};
use crate::block::layout::right_rows;
use crate::block::matmul::{block_values, finish, load_four};
use crate::block::parts::Parts;
use crate::build::Builder;
use crate::schedules::chunkwise::COLUMNS;
use crate::schedules::chunkwise_backward::partials::{Partials, accumulate};
use crate::schedules::chunkwise_backward::{ROWS, TIMES};
use crate::stage::kind::Cotangent;
use crate::tile::{Operand, Reg};

impl WarpgroupSweep<'_> {
    /// Computes query' of a chunk, and each head's ⟨query, first term of query'⟩.
    pub(in super::super) fn queries_role_of_parts(&self, b: &mut Builder) {
        let chunk = self.rematerialised_chunk(b);
        self.fill_parts(b, &self.queries, &chunk);
        let sums = Self::sums(b, self.schedule.depth);
        self.each_head(b, &chunk, |own, b, head| own.add_parts_to_queries(b, head, &sums));
        self.wait_pairs(b);
        if !self.needs(Cotangent::Queries) {
            return;
        }
        let own = self.at_stage(b, Operand::i32(0));
        let pairs = own.pair_columns(b);
        own.start_pairs(b, &sums, &pairs, &own.keys);
        finish(b, &sums, 0);
        let chunk = own.rematerialised_chunk(b);
        own.store_sums(b, &chunk, Cotangent::Queries, &sums);
    }

    /// Adds the first term of query' of a head, panel by panel.
    fn add_parts_to_queries(&self, b: &mut Builder, head: &InFlight, sums: &[[Reg; 4]]) {
        let decays = &head.decays;
        let scales = [0, 1].map(|h| b.mul(decays.from_start[h], decays.rows[h][2]));
        let mut shares = [None; 2];
        let per_panel = self.states.depth / COLUMNS;
        self.each_panel(b, head, |b, panel| {
            let found = self.start_over_width(b, &self.cotangents, head.stage, &self.states, panel);
            finish(b, &found, 0);
            for (k, found) in (panel.number * per_panel..).zip(&block_values(&found)) {
                self.load_late(b);
                let queries = self.has_decay().then(|| self.own_block(b, &self.queries, Operand::i32(0), k));
                for r in 0..4 {
                    let sum = sums[k as usize][r];
                    let more = b.fma(found[r], scales[r / 2], sum.into());
                    b.assign(sum, more);
                    if let Some(queries) = &queries {
                        accumulate(b, &mut shares[r / 2], [found[r], queries[r]]);
                    }
                }
            }
        });
        if !self.has_decay() {
            return;
        }
        let queries = [0, 1].map(|h: usize| shares[h].map(|share| b.mul(share, scales[h])));
        self.store_partials(b, &Partials { queries, ..Partials::default() });
    }

    /// E, summed over heads and transposed back, as left factors over the earlier times.
    fn pair_columns(&self, b: &mut Builder) -> Vec<Parts> {
        let (row, half) = right_rows(b, self.thread.lane);
        let lanes = self.weights.lanes_at(b, row, half, self.block);
        let low = self.weights.low_part();
        (0..TIMES / ROWS)
            .map(|sixteen| {
                let index = b.add(lanes, sixteen * ROWS * TIMES);
                let high = load_four(b, &self.weights, index, true);
                Parts::of(high, low.as_ref().map(|low| load_four(b, low, index, true)))
            })
            .collect()
    }
}
