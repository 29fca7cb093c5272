//! The outputs over the width, over the depth, and over time alone.

use super::super::common::Place;
use super::sixteen::each;
use super::{ChannelGradients, SLICE, times};
use crate::block::lane_sum::over_lanes;
use crate::block::layout::TileStage;
use crate::block::matmul::COLUMNS;
use crate::block::output::{store_one, store_two};
use crate::block::pair::{Coordinates, Values};
use crate::block::split_tile::block_of;
use crate::build::{Builder, f32};
use crate::schedules::chunk_delta::Fragment;
use crate::schedules::chunk_delta_backward::TIMES;
use crate::stage::kind::{DeltaCotangent, DeltaSum};
use crate::tile::{Memory, Operand, Reg};
use oplus_dsl::ir::Binary;

impl ChannelGradients<'_> {
    /// Sets a sum at all of the thread's elements.
    pub(super) fn set_all(&self, b: &mut Builder, values: &mut Values, sum: DeltaSum, elements: &Fragment) {
        each(|r, c, here| self.third().set_sum(b, values, sum, elements[r][c], here));
    }

    /// Stores the outputs over the width, which are maps of the products of the states' cotangents with keys. The warps of a chunk have
    /// neighbouring places of the width.
    pub(super) fn store_wide(&self, b: &mut Builder, values: &Values, part: Operand) {
        let (width, depth) = (self.form.states.width, self.form.states.depth);
        // Where nothing else needs these products, the walk has stored them.
        let Some(products) = &self.products else { return };
        if self.form.outputs_of(DeltaCotangent::OverWidth).next().is_none() {
            return;
        }
        let blocks = TIMES / COLUMNS * SLICE / self.schedule.depth;
        let (row, column) = (self.first_row(b), self.fragment.column(b));
        let first_piece = b.mul(self.slice, blocks);
        let first = b.mul(part, TIMES);
        let of_pieces = b.mul(first_piece, COLUMNS);
        let first = b.add(first, of_pieces);
        let first = b.add(first, column);
        for block in 0..blocks {
            let mut values = values.clone();
            for c in 0..2 {
                let at = b.add(first, block * COLUMNS + c);
                values.set_column(c, self.index_along(b, at, width));
            }
            let piece = b.add(first_piece, block);
            let own = |b: &mut Builder, tile| block_of(b, TileStage::only(tile), row, piece, column);
            let [products, given] = [products, &self.cotangents].map(|tile| own(b, tile));
            let of_values = self.of_values.as_ref().map(|[_, products]| own(b, products));
            for h in 0..2 {
                let two = [0, 1].map(|c| Coordinates { row: Some(h), column: Some(c), inner: None });
                for (c, here) in two.into_iter().enumerate() {
                    values.set_param(self.cotangents.param, here, given[2 * h as usize + c]);
                    self.third().set_sum(b, &mut values, DeltaSum::Rows, products[2 * h as usize + c], here);
                    if let Some(products) = of_values {
                        self.third().set_sum(b, &mut values, DeltaSum::ValueRows, products[2 * h as usize + c], here);
                    }
                }
                for output in self.form.outputs_of(DeltaCotangent::OverWidth) {
                    store_two(b, &mut values, &self.third().stored(output, width, depth), two);
                }
            }
        }
    }

    /// Stores the maps of sums over the width at 16 places of the depth, and adds to totals.
    pub(super) fn store_deep(&self, b: &mut Builder, values: &mut Values, totals: &[[Reg; 2]]) {
        let (width, depth) = (self.form.states.width, self.form.states.depth);
        each(|r, _, here| {
            for ((_, element), share) in self.form.totals.iter().zip(totals) {
                let (_, exists) = values.indices(b, here);
                let term = values.value(b, *element, here);
                let term = b.select(exists, term, f32(0.0));
                let sum = b.add(share[r % 2].into(), term);
                b.assign(share[r % 2], sum);
            }
        });
        for eight in 0..2 {
            for h in 0..2 {
                let two = [0, 1].map(|c| Coordinates { row: Some(h), column: None, inner: Some(2 * eight + c) });
                for output in self.form.outputs_of(DeltaCotangent::OverDepth) {
                    store_two(b, values, &self.third().stored(output, depth, width), two);
                }
            }
        }
    }

    /// Writes the warp's shares of totals.
    pub(super) fn store_totals(&self, b: &mut Builder, totals: &[[Operand; 2]]) {
        let (split, times) = (self.schedule.depth / SLICE, times(self.schedule.depth));
        let own = b.eq(self.fragment.member, 0);
        let row = self.first_row(b);
        let of_slice = b.mul(self.slice, times);
        let at = b.add(row, of_slice);
        for (k, total) in (0..).zip(totals) {
            for (h, share) in (0..).zip(total) {
                let sum = over_lanes(b, Binary::Add, *share, &[1, 2]);
                let at = b.add(at, k * split * times + h * COLUMNS);
                b.store(Memory::Shared(self.parts), at, &[sum], Some(own));
            }
        }
    }

    /// Stores the outputs over time alone, a time for each of the first threads.
    pub(super) fn store_steps(&self, b: &mut Builder, values: &Values, place: &Place) {
        if !self.form.outputs.contains(&DeltaCotangent::OverTime) {
            return;
        }
        let (split, times) = (self.schedule.depth / SLICE, times(self.schedule.depth));
        b.barrier();
        let is_own = b.lt(self.thread.number, times);
        b.if_(is_own, |b| {
            let mut values = values.clone();
            let at = b.add(place.first, self.thread.number);
            values.set_row(2, self.index_along(b, at, self.form.states.time));
            let here = Coordinates { row: Some(2), ..Coordinates::default() };
            for (k, (node, _)) in (0..).zip(&self.form.totals) {
                let mut part = |slice: u32| {
                    let at = b.add(self.thread.number, (k * split + slice) * times);
                    b.load1(Memory::Shared(self.parts), at)
                };
                let first = part(0);
                let others: Vec<Operand> = (1..split).map(part).collect();
                let sum = others.into_iter().fold(first, |sum, own| b.add(sum, own));
                values.set(*node, here, sum);
            }
            for output in self.form.outputs_of(DeltaCotangent::OverTime) {
                store_one(b, &mut values, self.stage, &self.args, output, here);
            }
        });
    }
}
