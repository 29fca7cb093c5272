//! The role of query': Sᵀ·cotangent and ⟨S, D⟩ of every head, and at the end E, summed over heads, times keys.

use super::super::partials::{Partials, accumulate};
use super::parts::DepthRole;
use super::range::multiply;
use super::{InFlight, WarpgroupSweep};
use crate::block::layout::{TileStage, right_rows};
use crate::block::matmul::{block_values, finish, load_four, start_in_time, start_panel};
use crate::build::{Builder, f32};
use crate::schedules::chunkwise::COLUMNS;
use crate::schedules::chunkwise_backward::{ROWS, TIMES};
use crate::stage::kind::Cotangent;
use crate::tile::{Operand, Reg};

impl WarpgroupSweep<'_> {
    /// Computes query' of a chunk, and each head's ⟨query, first term of query'⟩ and ⟨S, D⟩.
    pub(super) fn queries_role(&self, b: &mut Builder) {
        if self.panel_ring.is_some() {
            return self.depth_role_of_parts(b, DepthRole::Queries);
        }
        let chunk = self.chunk(b);
        let sums = Self::sums(b, self.schedule.depth);
        self.each_head(b, &chunk, |own, b, head| {
            // First: sums that products are yet to be added to and fragments of S and D would take too many registers together.
            own.share_energy_by_products(b, head.stage);
            own.add_head_to_queries(b, head, &sums);
        });
        self.wait_pairs(b);
        if !self.needs(Cotangent::Queries) {
            return;
        }
        let undone = self.multiply_by_power_of_pairs(b, &sums, f32(1.0));
        let pairs = self.pairs_as_left(b);
        let keys = TileStage::of(b, &self.keys, Operand::i32(0));
        start_in_time(b, &sums, &pairs, keys);
        finish(b, &sums, 0);
        undone.into_iter().for_each(|by| multiply(b, &sums, [by; 2]));
        self.store_sums(b, &chunk, Cotangent::Queries, &sums);
    }

    /// Adds the first term of query' of a head. Where decays have a cotangent, which needs the term itself, a panel of the depth after the
    /// other.
    fn add_head_to_queries(&self, b: &mut Builder, head: &InFlight, sums: &[[Reg; 4]]) {
        let has_decay = self.needs(Cotangent::Decay);
        let decays = &head.decays;
        let scales = [0, 1].map(|h| b.mul(decays.from_start[h], decays.rows[h][2]));
        let undone = self.head_numbers(b).map(|numbers| numbers.undone_states);
        let scales = undone.map_or(scales, |undone| scales.map(|scale| b.mul(scale, undone)));
        if !has_decay && undone.is_none() {
            self.start_scaled(b, head, &self.cotangents, scales, &self.states, sums);
            return finish(b, sums, 0);
        }
        let left = TileStage::of(b, &self.cotangents, head.stage);
        let right = TileStage::of(b, &self.states, head.stage);
        let panels = self.schedule.depth.div_ceil(self.states.panel());
        let mut shares = [None; 2];
        let per_panel = self.states.panel() / COLUMNS;
        // One after the other: the products of two panels would leave too few registers.
        for panel in 0..panels {
            let found = start_panel(b, left, right, panel);
            finish(b, &found, 0);
            let own = &sums[(panel * per_panel) as usize..];
            if !has_decay {
                // The products of the next panel would otherwise begin before these are added.
                self.rematerialiser.apart(
                    b,
                    &mut (),
                    |()| vec![],
                    |b, ()| add_scaled(b, own, &block_values(&found), scales),
                );
                continue;
            }
            for (k, found) in (panel * per_panel..).zip(&block_values(&found)) {
                let queries = self.own_block(b, &self.queries, Operand::i32(0), k);
                for r in 0..4 {
                    let sum = sums[k as usize][r];
                    let more = b.fma(found[r], scales[r / 2], sum.into());
                    b.assign(sum, more);
                    accumulate(b, &mut shares[r / 2], [found[r], queries[r]]);
                }
            }
        }
        let mut queries = [None; 2];
        for h in 0..2 {
            queries[h] = shares[h].map(|share| b.mul(share, scales[h]));
        }
        self.store_partials(b, &Partials { queries, ..Partials::default() });
    }

    /// E, summed over heads and transposed back, as left factors over the earlier times.
    fn pairs_as_left(&self, b: &mut Builder) -> Vec<[Operand; 4]> {
        let (row, half) = right_rows(b, self.thread.lane);
        let lanes = self.weights.lanes_at(b, row, half, self.block);
        let sixteens = 0..TIMES / ROWS;
        sixteens
            .map(|sixteen| {
                let index = b.add(lanes, sixteen * ROWS * TIMES);
                load_four(b, &self.weights, index, true)
            })
            .collect()
    }
}

/// Adds products to sums, with a factor for each of the thread's two rows.
fn add_scaled(b: &mut Builder, sums: &[[Reg; 4]], found: &[[Operand; 4]], scales: [Operand; 2]) {
    for (sums, found) in sums.iter().zip(found) {
        for r in 0..4 {
            let more = b.fma(found[r], scales[r / 2], sums[r].into());
            b.assign(sums[r], more);
        }
    }
}
