//! A chunk by asynchronous warpgroup products, which run while decays are computed.
//!
//! Products of queries with keys and with the state before the chunk are under way while the decays are read and the chunk's
//! values are scaled to its end; the product that advances the state is under way while pairs of times are weighed.

use super::decay::{Decays, NumberedDecays};
use super::read::Started;
use super::state::State;
use super::walk::{Chunk, Running};
use super::{COLUMNS, ChunkwiseKernel};
use crate::block::matmul::{Factor, finish};
use crate::build::Builder;
use crate::tile::{Operand, Stmt};

impl ChunkwiseKernel<'_> {
    /// Starts the products that need no decays.
    pub(super) fn start_chunk(&self, b: &mut Builder, chunk: &Chunk) -> Option<Started> {
        // Makes the copied tiles visible to warpgroups, if the state has not been stored after them, with such a fence.
        if self.factored.is_none() || self.states.is_none() {
            b.push(Stmt::FenceAsync);
        }
        if self.is_split() { self.start_read_parts(b, chunk) } else { self.start_read(b, chunk) }
    }

    /// Computes the rest of the chunk.
    pub(super) fn finish_chunk(&self, b: &mut Builder, running: Running, chunk: &Chunk, started: Option<Started>) {
        if self.is_split() {
            return self.finish_parts(b, running, chunk, started);
        }
        let decays = self.decays(b, chunk.iteration);
        match (started, chunk.queries, decays.numbers) {
            (Some(started), Some(queries), Some(numbers)) => {
                let decays = NumberedDecays { decays: &decays, numbers };
                self.finish_overlapped(b, running, chunk, queries, decays, started);
            }
            (started, ..) => self.finish_in_order(b, running, chunk, started, &decays),
        }
    }

    /// Computes the rest of the chunk in a block with warps that only copy: pairs of times are weighed while queries read the state, and
    /// outputs are stored while the state advances.
    fn finish_overlapped(
        &self,
        b: &mut Builder,
        running: Running,
        chunk: &Chunk,
        queries: Factor,
        numbered: NumberedDecays,
        started: Started,
    ) {
        let decays = numbered.decays;
        let Running { state, logs } = running;
        let factors = self.factors(b, decays);
        let (left, whole) = self.factors_to_advance(b, state, decays, &factors, chunk);
        let (y, rows) = self.read_overlapped(b, numbered, &factors, state, chunk.values, started);
        self.start_advance(b, state, whole, &left, chunk.keys_in_time);
        let sum = b.add(logs.into(), decays.end);
        b.assign(logs, sum);
        finish(b, &y, 1);
        self.scale_rows_of(b, &y, rows);
        let y: Vec<_> = y.into_iter().map(|block| block.map(Into::into)).collect();
        let values = self.values(b);
        self.store_outputs(b, values, chunk, queries, &y);
        finish(b, &state.blocks, 0);
        self.wait_saved(b);
        // No thread reads the state before the chunk any more.
        self.walkers_barrier(b);
    }

    /// The warp's values scaled to the chunk's end, and the factor of the state before the chunk.
    fn factors_to_advance(
        &self,
        b: &mut Builder,
        state: &State,
        decays: &Decays,
        factors: &[[Operand; 2]],
        chunk: &Chunk,
    ) -> (Vec<[Operand; 4]>, Option<Operand>) {
        let scaled = self.next_power(b, state, decays);
        let remaining = |b: &mut Builder, block: u32| {
            let own = factors.get(block as usize).copied().unwrap_or_else(|| self.remaining(b, decays, block));
            scaled.map_or(own, |[_, power]| own.map(|gain| b.mul(gain, power)))
        };
        let left = self.scaled_values(b, remaining, chunk.values, chunk.values_left);
        let whole = match scaled {
            Some([by, _]) => Some(b.mul(decays.whole, by)),
            None => state.base.is_none().then_some(decays.whole),
        };
        (left, whole)
    }

    /// The [factors](super::factored) of all columns, where weights may be products.
    fn factors(&self, b: &mut Builder, decays: &Decays) -> Vec<[Operand; 2]> {
        let blocks = if self.factored.is_some() { self.schedule.times() / COLUMNS } else { 0 };
        (0..blocks).map(|block| self.remaining(b, decays, block)).collect()
    }

    fn finish_in_order(
        &self,
        b: &mut Builder,
        running: Running,
        chunk: &Chunk,
        started: Option<Started>,
        decays: &Decays,
    ) {
        let Running { state, logs } = running;
        let factors = self.factors(b, decays);
        let (left, whole) = self.factors_to_advance(b, state, decays, &factors, chunk);
        // The compiler forbids writes to a product's sums, here those of the state, while other products are under way.
        if let Some(started) = &started {
            self.finish_read(b, started);
        }
        self.follow(b, state, decays);
        self.start_advance(b, state, whole, &left, chunk.keys_in_time);
        let y = started.map(|started| self.read_asynchronously(b, decays, chunk.values, started));
        finish(b, &state.blocks, u32::from(y.is_some()));
        let sum = b.add(logs.into(), decays.end);
        b.assign(logs, sum);
        self.wait_saved(b);
        // No thread reads the state before the chunk any more.
        self.walkers_barrier(b);
        if let Some((y, queries)) = y.zip(chunk.queries) {
            finish(b, &y, 0);
            let y: Vec<_> = y.into_iter().map(|block| block.map(Into::into)).collect();
            let values = self.values(b);
            self.store_outputs(b, values, chunk, queries, &y);
        }
    }
}
