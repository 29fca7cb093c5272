//! The roles of query' and of key' in two parts, whose sums have the depth as columns.
//!
//! Both divide the rows of their own tile in two parts, add the first term of each head to their sums, panel by panel, and at the end the
//! products of E, summed over heads, and the other tile.

use super::{InFlight, WarpgroupSweep};
use crate::block::layout::{Tile, left_rows, right_rows};
use crate::block::matmul::{block_values, finish};
use crate::block::parts::Parts;
use crate::block::two_parts::{Order, Step, start};
use crate::build::Builder;
use crate::schedules::chunkwise::COLUMNS;
use crate::schedules::chunkwise_backward::partials::{Partials, accumulate};
use crate::schedules::chunkwise_backward::rates::Decays;
use crate::schedules::chunkwise_backward::{ROWS, TIMES};
use crate::stage::kind::Cotangent;
use crate::tile::{Operand, Reg};

/// A role whose sums have the depth as columns.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum DepthRole {
    /// query' of a chunk, from Sᵀ·cotangent; and each head's ⟨query, first term of query'⟩.
    Queries,
    /// key' of a chunk, from Dᵀ·value; and each head's ⟨S, D⟩.
    Keys,
}

impl DepthRole {
    /// The cotangent that the sums are.
    fn cotangent(self) -> Cotangent {
        match self {
            DepthRole::Queries => Cotangent::Queries,
            DepthRole::Keys => Cotangent::Keys,
        }
    }

    /// The numbers by which the thread's two rows of a head's first term are multiplied.
    fn scales(self, b: &mut Builder, decays: &Decays) -> [Operand; 2] {
        [0, 1].map(|h| match self {
            DepthRole::Queries => b.mul(decays.from_start[h], decays.rows[h][2]),
            DepthRole::Keys => b.mul(decays.to_end[h], decays.rows[h][1]),
        })
    }
}

impl WarpgroupSweep<'_> {
    /// Computes the sums of a chunk, and stores them.
    pub(in super::super) fn depth_role_of_parts(&self, b: &mut Builder, role: DepthRole) {
        let chunk = self.rematerialised_chunk(b);
        let tile = match role {
            DepthRole::Queries => &self.queries,
            DepthRole::Keys => &self.keys,
        };
        self.fill_parts(b, tile, &chunk);
        let sums = Self::sums(b, self.schedule.depth);
        self.each_head(b, &chunk, |own, b, head| own.add_first_term(b, head, role, &sums));
        self.wait_pairs(b);
        if !self.needs(role.cotangent()) {
            return;
        }
        let own = self.at_stage(b, Operand::i32(0));
        let (pairs, other) = match role {
            DepthRole::Queries => (own.pair_columns(b), &own.keys),
            DepthRole::Keys => (own.pair_rows(b), &own.queries),
        };
        own.start_pairs(b, &sums, &pairs, other);
        finish(b, &sums, 0);
        let chunk = own.rematerialised_chunk(b);
        own.store_sums(b, &chunk, role.cotangent(), &sums);
    }

    /// Adds the first term of a head, panel by panel, and stores the role's shares of the cotangents of decays.
    fn add_first_term(&self, b: &mut Builder, head: &InFlight, role: DepthRole, sums: &[[Reg; 4]]) {
        let scales = role.scales(b, &head.decays);
        let [left, right] = match role {
            DepthRole::Queries => [&self.cotangents, &self.states],
            DepthRole::Keys => [&self.values, &self.duals],
        };
        let per_panel = self.states.depth / COLUMNS;
        let (mut shares, mut energy) = ([None; 2], None);
        self.each_panel(b, head, |b, panel| {
            if role == DepthRole::Keys && self.has_decay() {
                self.add_energy(b, panel.stage, &mut energy);
                self.load_late(b);
            }
            let found = self.start_over_width(b, left, head.stage, right, panel);
            finish(b, &found, 0);
            for (k, found) in (panel.number * per_panel..).zip(&block_values(&found)) {
                let queries = if role == DepthRole::Queries { self.queries_of_block(b, k) } else { None };
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
        match role {
            _ if !self.has_decay() => {}
            DepthRole::Queries => {
                let queries = [0, 1].map(|h: usize| shares[h].map(|share| b.mul(share, scales[h])));
                self.store_partials(b, &Partials { queries, ..Partials::default() });
            }
            DepthRole::Keys => self.store_energy(b, energy),
        }
    }

    /// The queries of a block of columns, where decays have a cotangent.
    fn queries_of_block(&self, b: &mut Builder, k: u32) -> Option<[Operand; 4]> {
        self.load_late(b);
        self.has_decay().then(|| self.own_block(b, &self.queries, Operand::i32(0), k))
    }

    /// The warp's rows of E, summed over heads, as left factors over the later times.
    fn pair_rows(&self, b: &mut Builder) -> Vec<Parts> {
        let (row, piece) = left_rows(b, self.thread.lane);
        let of_warp = b.mul(self.block, ROWS);
        let row = b.add(row, of_warp);
        let lanes = self.weights.lanes(b, row, piece);
        let sixteen = |sixteen: u32| {
            let index = self.weights.index(b, &lanes, 0, sixteen);
            Parts::at(b, &self.weights, index, false)
        };
        (0..self.weights.depth / ROWS).map(sixteen).collect()
    }

    /// E, summed over heads and transposed back, as left factors over the earlier times.
    fn pair_columns(&self, b: &mut Builder) -> Vec<Parts> {
        let (row, half) = right_rows(b, self.thread.lane);
        let lanes = self.weights.lanes_at(b, row, half, self.block);
        let sixteen = |sixteen: u32| {
            let index = b.add(lanes, sixteen * ROWS * TIMES);
            Parts::at(b, &self.weights, index, true)
        };
        (0..TIMES / ROWS).map(sixteen).collect()
    }

    /// Adds the products of E, summed over heads, and a tile of keys or queries to sums.
    fn start_pairs(&self, b: &mut Builder, sums: &[[Reg; 4]], pairs: &[Parts], tile: &Tile) {
        let steps = Step::over_rows(b, pairs, tile, Operand::i32(0));
        start(b, sums, false, &steps, Order::SmallestFirst, true);
    }
}
