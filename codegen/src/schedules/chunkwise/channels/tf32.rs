//! Decays per channel beside products in `tf32`.

use super::scaling::{Scale, Scaling};
use crate::block::matmul::{Blocks, Factor, block_numbers};
use crate::block::tf32::{HALF, Sums, multiply_by};
use crate::build::Builder;
use crate::schedules::chunkwise::state::State;
use crate::schedules::chunkwise::{COLUMNS, ChunkwiseKernel, ROWS, zeros};
use crate::tile::{Operand, Stmt};
use oplus_dsl::Elem;

impl ChunkwiseKernel<'_> {
    /// The reads of the state before the chunk, by queries.
    pub(super) fn read_tf32_state(&self, b: &mut Builder, queries: Factor, states: Factor) -> Blocks {
        let mut y: Blocks = vec![zeros(); (self.schedule.width() / COLUMNS) as usize];
        multiply_by(b, &mut y, queries.tile, states, |b, step| self.scaled_rows(b, queries, step, None));
        y
    }

    /// The scores of the warp's queries and the keys of an earlier sub-chunk, divided by the time before the warp's.
    pub(super) fn tf32_scores(
        &self,
        b: &mut Builder,
        queries: Factor,
        keys: Factor,
        earlier: Operand,
        before: Operand,
    ) -> Blocks {
        let keys = self.sixteen_later(b, keys, earlier);
        let first = b.mul(earlier, ROWS);
        let row = b.add(first, self.fragment.group);
        let times = [0, COLUMNS].map(|by| b.add(row, by));
        let scaling = self.scaling();
        let rows = |b: &mut Builder, step| self.scaled_rows(b, queries, step, Some(before));
        let columns = |b: &mut Builder, step| scaling.right(b, keys, step, times, Scale::Until(before));
        scaling.product(b, self.schedule.depth / keys.tile.step(), rows, columns)
    }

    /// The state at the chunk's end.
    pub(super) fn advanced_tf32(&self, b: &mut Builder, state: &State, left: &[[Operand; 4]], keys: Factor) -> Blocks {
        let at_once = Sums::at_once(self.elem(), state.blocks.len());
        let mut all = vec![];
        for (group, blocks) in (0..).zip(state.blocks.chunks(at_once)) {
            let first = group * at_once as u32;
            let mut sums = self.left_of_state(b, first, blocks);
            let is_deep = self.schedule.depth > 64;
            let is_scarce = is_deep && (self.schedule.vector == 1 || self.is_walk_in_parts());
            if is_scarce || self.elem() == Elem::F32 && self.adds_apart() {
                self.rematerialiser
                    .apart(b, &mut sums, block_numbers, |b, sums| self.add_tf32(b, sums, first, left, keys));
            } else {
                self.add_tf32(b, &mut sums, first, left, keys);
            }
            all.extend(sums);
        }
        all
    }

    /// Adds products of values and scaled keys to blocks of the state from a number on.
    fn add_tf32(&self, b: &mut Builder, sums: &mut Blocks, first: u32, left: &[[Operand; 4]], keys: Factor) {
        let mut own = Sums::of(self.elem(), sums);
        // High and low parts of the left factor would be kept for all groups.
        let half = self.rematerialiser.of_bits(b, HALF);
        let scale = if self.form.reverse { Scale::Start } else { Scale::Until(self.last_time()) };
        let column = self.fragment.column(b);
        for (sixteen, left) in (0..).zip(left.chunks(2)) {
            let left = [left[0], left[1]].map(|left| own.left(b, left, half));
            for pair in 0..sums.len() as u32 / 2 {
                // Loads for later products, moved up, would take registers, of which the state of the greatest depth
                // has a quarter.
                if pair == 0 || self.schedule.depth > 64 {
                    b.push(Stmt::SyncWarp);
                }
                let of_all = first / 2 + pair;
                let time = b.add(column, sixteen * ROWS);
                let channel = b.add(self.fragment.group, of_all * ROWS);
                let columns = self.scaling().in_time(b, keys, [sixteen, of_all], [time, channel], scale);
                for (block, columns) in (2 * pair..).zip(columns) {
                    for (left, columns) in left.iter().zip(columns) {
                        own.add(b, block as usize, left, columns);
                    }
                }
            }
        }
        own.finish(b, sums);
    }

    /// A step of the warp's queries as fragments of a left factor, times what is left since a time, or since the chunk's start.
    fn scaled_rows(&self, b: &mut Builder, queries: Factor, step: u32, since: Option<Operand>) -> Vec<[Operand; 4]> {
        let row = self.first_row(b);
        let rows = [0, COLUMNS].map(|by| b.add(row, by));
        self.scaling().left(b, queries, step, rows, since.map_or(Scale::Start, Scale::Since))
    }

    /// Whether chunks of `f32`, whose products are in parts, are walked for a gradient.
    fn is_walk_in_parts(&self) -> bool {
        self.stage.kind().matrices_back().is_ok() && self.has_rounding_errors()
    }

    fn scaling(&self) -> Scaling {
        Scaling { sums: self.channel_sums(), fragment: self.fragment }
    }
}
