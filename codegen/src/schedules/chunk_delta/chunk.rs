//! One tile of times: four chunks.

use super::ahead::TilePlace;
use super::solve::AddedRows;
use super::state::State;
use super::walk::{AllLanes, WalkedTile};
use super::{DeltaKernel, ROWS, TIMES, WARPS, is_scarce};
use crate::block::layout::Tile;
use crate::block::matmul::{Blocks, Factor, block_numbers, zeros};
use crate::block::parts::Parts;
use crate::build::Builder;
use crate::tile::Operand;

/// The factors of a tile, in shared memory.
pub(in crate::schedules) struct Factors<'a> {
    /// Keys, vectors that the state is read by, and queries, as right factors over the depth.
    pub(in crate::schedules) keys: Factor<'a>,
    pub(in crate::schedules) columns: Factor<'a>,
    pub(in crate::schedules) queries: Option<Factor<'a>>,
    /// The vectors that are added times what the state gives: the keys, or vectors of their own.
    pub(in crate::schedules) rows: Factor<'a>,
}

impl DeltaKernel<'_> {
    /// The stage of the factors that the walk takes.
    pub(in crate::schedules) fn walked_stage(&self, place: &TilePlace) -> Operand {
        if self.channels.is_some() { place.pairs.index } else { place.deep.index }
    }

    /// The factors of a tile that the walk takes.
    pub(in crate::schedules) fn walked_factors<'a>(
        &'a self,
        b: &mut Builder,
        lanes: &'a AllLanes,
        stage: Operand,
    ) -> Factors<'a> {
        let Some(channels) = &self.channels else { return self.factors(b, lanes, stage) };
        let mut factor = |tile: &'a Tile| Factor::of(b, tile, &lanes.right, stage);
        let keys = factor(&channels.keys);
        let columns = channels.columns.as_ref().map_or(keys, &mut factor);
        let rows = channels.rows.as_ref().map_or(keys, &mut factor);
        Factors { keys, columns, queries: channels.queries.as_ref().map(factor), rows }
    }

    pub(in crate::schedules) fn factors<'a>(
        &'a self,
        b: &mut Builder,
        lanes: &'a AllLanes,
        stage: Operand,
    ) -> Factors<'a> {
        let keys = Factor::of(b, &self.keys, &lanes.right, stage);
        let columns = self.columns.as_ref().map_or(keys, |tile| Factor::of(b, tile, &lanes.right, stage));
        let queries = self.queries.as_ref().map(|tile| Factor::of(b, tile, &lanes.right, stage));
        let rows = self.rows.as_ref().map_or(keys, |tile| Factor::of(b, tile, &lanes.right, stage));
        Factors { keys, columns, queries, rows }
    }

    /// The products over pairs of times of the warp's chunk.
    pub(in crate::schedules) fn pairs(&self, b: &mut Builder, lanes: &AllLanes, place: &TilePlace) {
        let factors = self.factors(b, lanes, place.deep.index);
        let [keys, rows] = [factors.keys, factors.rows].map(|factor| self.own_chunk(b, factor));
        let columns = self.own_chunk(b, Factor { lanes: &lanes.left, ..factors.columns });
        let products = self.products(b, columns, rows);
        self.store_system(b, &products, place);
        if let Some([read, _]) = &self.of_values {
            let products = self.products(b, columns, keys);
            self.store_read_weights(b, read, &products, place);
        }
        if let Some(queries) = factors.queries {
            let queries = self.own_chunk(b, Factor { lanes: &lanes.left, ..queries });
            let products = self.products(b, queries, rows);
            self.store_weights(b, &self.weights, &products, place);
            if let Some([_, queried]) = &self.of_values {
                let products = self.products(b, queries, keys);
                self.store_weights(b, queried, &products, place);
            }
        }
    }

    /// All chunks at the warp's places of the width: outputs, and the state after the tile.
    pub(super) fn chunks(&self, b: &mut Builder, state: &State, tile: &WalkedTile<'_>) {
        let WalkedTile { lanes, place, .. } = *tile;
        let factors = self.walked_factors(b, lanes, tile.deep);
        let first = b.mul(place.number, Operand::i32(TIMES as i32));
        let start = lanes.values;
        let from = place.rates;
        let mut pairs = |of| Factor::of(b, of, &lanes.pairs, tile.pairs);
        let inverses = self.inverses.as_ref().map(&mut pairs);
        let weights = pairs(&self.weights);
        let of_values = self.of_values.as_ref().map(|[read, queried]| [pairs(read), pairs(queried)]);
        let [keys, rows] = [factors.keys, factors.rows].map(|factor| Factor { lanes: &lanes.in_time, ..factor });
        for chunk in 0..WARPS {
            let left = self.left_of(b, state);
            let system = inverses.map(|inverses| (self.read(b, &left, factors.columns, chunk), inverses));
            if let Some(handed) = self.handed {
                handed.write_state(b, self, &left, place, chunk);
            }
            let own_queries = factors.queries.filter(|_| self.handed.is_none());
            let queried = own_queries.map(|queries| self.read_apart(b, &left, queries, chunk));
            let decayed = self.handed.map(|_| self.decayed_state(b, state, place, chunk));
            let values = self.values_of(b, start, chunk);
            let solution = match (system, of_values) {
                (None, _) => self.scaled_values(b, &values, from, chunk),
                (Some((read, inverses)), None) => self.solve(b, &read, &values, inverses, from, chunk),
                (Some((read, inverses)), Some([of_values, _])) => {
                    let sums = self.read_with_values(b, &read, &values, of_values, from, chunk);
                    self.solved(b, sums, inverses, chunk)
                }
            };
            let early = self.early(b, solution, rows, place, chunk);
            let mut all = vec![AddedRows { rows: solution, vectors: rows, weights, early }];
            if let Some([_, queried]) = of_values {
                let rows = self.scaled_values(b, &values, from, chunk);
                let early = self.early(b, rows, keys, place, chunk);
                all.push(AddedRows { rows, vectors: keys, weights: queried, early });
            }
            if let Some(handed) = self.handed {
                handed.write_rows(b, self, &all, place, chunk);
            }
            let decayed = decayed.unwrap_or_else(|| self.decayed_state(b, state, place, chunk));
            self.advance(b, state, decayed, &all, place, chunk);
            if let Some(handed) = self.handed {
                handed.hand_over(b, self, place, chunk);
            }
            if let Some(queried) = queried {
                let reads = self.reads(b, queried, &all, from, chunk);
                let first = b.add(first, Operand::i32((chunk * ROWS) as i32));
                self.store_outputs(b, &reads, first);
            }
        }
    }

    /// The products of the state with the queries of a chunk, [apart](crate::block::rematerialise::Rematerialiser::apart) from others where
    /// registers are scarce.
    fn read_apart(&self, b: &mut Builder, state: &[Parts], queries: Factor, chunk: u32) -> Blocks {
        let has_many_factors = self.is_deep_in_two_parts() && self.form.has_two_keys();
        let apart = self.rematerialiser.filter(|_| is_scarce(self.schedule) || has_many_factors);
        let Some(rematerialiser) = apart else { return self.read(b, state, queries, chunk) };
        let mut sums: Blocks = vec![zeros(); 2];
        rematerialiser.apart(b, &mut sums, block_numbers, |b, sums| *sums = self.read(b, state, queries, chunk));
        sums
    }
}
