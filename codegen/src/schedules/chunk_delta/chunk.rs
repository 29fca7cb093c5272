//! One chunk.

use super::scores::Rows;
use super::solve::HALF;
use super::state::State;
use super::walk::AllLanes;
use super::{DeltaKernel, ROWS, TIMES, WARPS};
use crate::block::matmul::Factor;
use crate::block::pair::Values;
use crate::block::ring::Ring;
use crate::build::Builder;
use crate::tile::Operand;

/// The factors of a chunk, in shared memory.
struct Factors<'a> {
    /// Keys, vectors that the state is read by, and queries, as right factors over the depth.
    keys: Factor<'a>,
    columns: Factor<'a>,
    queries: Option<Factor<'a>>,
}

impl DeltaKernel<'_> {
    /// Computes a chunk, and the rates of the next one.
    pub(super) fn chunk(&self, b: &mut Builder, values: &Values, state: &State, lanes: &AllLanes, chunk: Operand) {
        let at = Ring::of(self.schedule.stages).at(b, chunk);
        self.tiles().for_each(|tile| b.wait(tile.full, at));
        let factors = self.factors(b, lanes, at.index);
        let from = self.rates_from(b, chunk);
        let next = b.add(chunk, Operand::i32(1));
        let after = b.mul(next, Operand::i32(TIMES as i32));
        let rates = self.rates(b, values, after);
        self.by_warp(b, |b, warp| self.pairs_of(b, &factors, lanes, Rows { warp, from }));
        self.store_rates(b, &rates, next);
        b.barrier();
        let first = b.mul(chunk, Operand::i32(TIMES as i32));
        self.places_of(b, (values, state, lanes), &factors, (at.index, from, first));
        b.barrier();
    }

    fn factors<'a>(&'a self, b: &mut Builder, lanes: &'a AllLanes, stage: Operand) -> Factors<'a> {
        let keys = Factor::of(b, &self.keys, &lanes.right, stage);
        let columns = self.columns.as_ref().map_or(keys, |tile| Factor::of(b, tile, &lanes.right, stage));
        let queries = self.queries.as_ref().map(|tile| Factor::of(b, tile, &lanes.right, stage));
        Factors { keys, columns, queries }
    }

    /// Code for each warp: products end at the warp's rows.
    fn by_warp(&self, b: &mut Builder, code: impl Fn(&mut Builder, u32)) {
        for warp in 0..WARPS {
            let is_own = b.eq(self.warp, Operand::i32(warp as i32));
            b.if_(is_own, |b| code(b, warp));
        }
    }

    /// The warp's rows of the products over pairs of times.
    fn pairs_of(&self, b: &mut Builder, factors: &Factors<'_>, lanes: &AllLanes, rows: Rows) {
        let columns = Factor { lanes: &lanes.left, ..factors.columns };
        let products = self.products(b, columns, factors.keys, rows);
        self.store_system(b, &products, rows);
        self.invert(b, rows);
        if let Some(queries) = factors.queries {
            let queries = Factor { lanes: &lanes.left, ..queries };
            let products = self.products(b, queries, factors.keys, rows);
            self.store_weights(b, &products, rows);
        }
    }

    /// All times at the warp's places of the width: outputs, and the state after the chunk.
    fn places_of(
        &self,
        b: &mut Builder,
        (values, state, lanes): (&Values, &State, &AllLanes),
        factors: &Factors<'_>,
        (stage, from, first): (Operand, Operand, Operand),
    ) {
        let left = self.left_of(b, state);
        let start = b.mul(stage, Operand::i32(self.values.len() as i32));
        let start = b.add(lanes.values, start);
        let [system, weights] =
            [&self.system, &self.weights].map(|tile| Factor { tile, lanes: &lanes.pairs, start: Operand::i32(0) });
        let mut added = vec![];
        for half in 0..WARPS / HALF {
            let read = self.read(b, &left, factors.columns, half);
            let right = self.right_side(b, read, (&self.values, start), (from, half));
            self.solve(b, &right, system, &mut added);
            if let Some(queries) = factors.queries {
                let reads = self.read(b, &left, queries, half);
                let reads = self.reads(b, reads, (&added, weights), (from, half));
                let first = b.add(first, Operand::i32((half * HALF * ROWS) as i32));
                self.store_outputs(b, values, &reads, first);
            }
        }
        let keys = Factor { lanes: &lanes.in_time, ..factors.keys };
        self.advance(b, state, &added, (keys, from));
    }
}
