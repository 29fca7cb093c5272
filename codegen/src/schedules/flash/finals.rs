//! The outputs of a block's rows.

use super::sums::{PayloadSums, Sums};
use super::weigh::over_group;
use super::{COLUMNS, FlashKernel, ThreadTile};
use crate::abi::{Tensor, axes};
use crate::block::pair::{Coordinates, Index, Values};
use crate::build::{Builder, zero};
use crate::tile::{Memory, Operand};
use oplus_dsl::ir::{Axis, Binary};
use oplus_dsl::{Elem, Ty};
use std::ops::Range;

/// A place of the thread along an axis within columns.
#[derive(Clone, Copy)]
pub(super) struct InnerPlace {
    /// The thread's row.
    pub row: u32,
    /// The block of eight places, and which of the thread's two columns in it.
    pub block: u32,
    pub column: u32,
    pub axis: Axis,
}

/// An output whose rows have an axis within columns.
#[derive(Clone, Copy)]
pub(super) struct WideOutput {
    pub output: usize,
    pub axis: Axis,
}

impl FlashKernel<'_> {
    /// Stores the outputs of the thread's rows.
    pub(super) fn finals(&self, b: &mut Builder, mut values: Values, thread_tile: ThreadTile, sums: &Sums) {
        self.set_totals(b, &mut values, sums);
        // Where registers are scarce, all rows of an output are stored in succession: their offsets are then needed for one output alone.
        // Where outputs are staged, both rows that the thread has of 16 are stored at once.
        let at_once = match self.free_rows {
            Some(_) => 2,
            None if self.is_scarce() => thread_tile.rows,
            None => 1,
        };
        for first in (0..thread_tile.rows).step_by(at_once as usize) {
            for output in (0..self.stage.program.outputs.len()).filter(|output| self.is_of_rows(*output)) {
                self.store(b, &mut values, sums, first..first + at_once, output);
            }
        }
    }

    /// Whether an output is one of the block's rows.
    pub(super) fn is_of_rows(&self, output: usize) -> bool {
        axes(self.stage, Tensor::Output(output as u32)).contains(&self.form.row)
    }

    /// Stores an output of some of the thread's rows.
    pub(super) fn store(&self, b: &mut Builder, values: &mut Values, sums: &Sums, rows: Range<u32>, output: usize) {
        let own = axes(self.stage, Tensor::Output(output as u32));
        match own.iter().copied().find(|a| self.form.inner.contains(a)) {
            Some(axis) if self.stores_whole(output, axis) && self.can_stage(axis) => {
                let wide = WideOutput { output, axis };
                rows.step_by(2).for_each(|row| self.store_staged(b, values, sums, row, wide));
            }
            Some(axis) if self.stores_whole(output, axis) => {
                let wide = WideOutput { output, axis };
                rows.for_each(|row| self.store_whole(b, values, sums, row, wide));
            }
            Some(axis) => self.store_places(b, values, sums, rows, WideOutput { output, axis }),
            None if self.free_rows.is_some() => {
                rows.step_by(2).for_each(|row| self.store_two_rows(b, values, row, output));
            }
            None => rows.for_each(|row| self.store_row(b, values, row, output)),
        }
    }

    /// The fields of the row's totals that have no axis within columns.
    fn set_totals(&self, b: &mut Builder, values: &mut Values, sums: &Sums) {
        let coordinates = |row: usize| Coordinates { row: Some(row as u32), ..Coordinates::default() };
        if let Some(gauge) = &self.form.gauge {
            for (row, reg) in sums.maximum.iter().enumerate() {
                let maximum = self.maximum(b, values, *reg);
                values.set_state(gauge.state, coordinates(row), maximum);
            }
        }
        for (payload, sums) in self.form.payloads.iter().zip(&sums.payloads) {
            let PayloadSums::Rows(rows) = sums else { continue };
            for (row, reg) in rows.iter().enumerate() {
                let total = over_group(b, Binary::Add, (*reg).into());
                let total = values.product(b, Some(total), &payload.outside, coordinates(row));
                values.set_state(payload.state, coordinates(row), total.unwrap_or(zero(Ty::F32)));
            }
        }
    }

    /// An output with one element per row: by the first lane of its group.
    fn store_row(&self, b: &mut Builder, values: &mut Values, row: u32, output: usize) {
        let value = self.row_value(b, values, row, output);
        let first = b.eq(self.fragment.member, 0);
        self.store_element(b, values.row(row), output, value, first);
    }

    /// An output with one element per row, of two rows: by the first lane of their group and by the second one, so that both are computed at
    /// once.
    fn store_two_rows(&self, b: &mut Builder, values: &Values, row: u32, output: usize) {
        let (mut values, both) = (values.clone(), self.thread_tile().rows);
        let second = b.eq(self.fragment.member, 1);
        values.select_row(b, both, [row, row + 1], second);
        let value = self.row_value(b, &mut values, both, output);
        let stores = b.lt(self.fragment.member, 2);
        self.store_element(b, values.row(both), output, value, stores);
    }

    /// The element of an output at a row.
    fn row_value(&self, b: &mut Builder, values: &mut Values, row: u32, output: usize) -> Operand {
        let value = self.stage.program.outputs[output].value;
        values.value(b, value, Coordinates { row: Some(row), ..Coordinates::default() })
    }

    /// Stores the element of a row where a condition holds.
    fn store_element(&self, b: &mut Builder, index: Index, output: usize, value: Operand, stores: Operand) {
        let guard = b.and(index.exists, stores);
        let offset = self.offset(b, output, index.at);
        let pointer = self.args.pointer(Tensor::Output(output as u32));
        b.store(Memory::Global(pointer), offset, &[value], Some(guard));
    }

    /// The offset of a row of an output.
    pub(super) fn offset(&self, b: &mut Builder, output: usize, row: Operand) -> Operand {
        let mut indices = self.outer.clone();
        indices.push((self.form.row, row));
        self.args.offset(b, Tensor::Output(output as u32), &indices)
    }

    /// Stores the elements that the thread holds of some rows of an output.
    fn store_places(&self, b: &mut Builder, values: &Values, sums: &Sums, rows: Range<u32>, wide: WideOutput) {
        let WideOutput { output, axis } = wide;
        let tensor = Tensor::Output(output as u32);
        let origins: Vec<Operand> = rows.clone().map(|row| self.offset(b, output, values.row(row).at)).collect();
        let (stride, size) = (self.args.stride(tensor, axis), self.args.size(axis));
        let value = self.stage.program.outputs[output].value;
        let memory = Memory::Global(self.args.pointer(tensor));
        let twice = self.fragment.column(b);
        let twice = b.convert(Ty::I64, twice);
        // Where registers are scarce, the thread's own coordinate belongs to the origin: what is added to that is part of
        // the access.
        let own = self.rematerialiser.filter(|_| self.elem() != Elem::F32).map(|_| b.mul(twice, stride));
        let mut of_thread = |from: &Operand| own.map_or(*from, |own| b.add(*from, own));
        let origins: Vec<Operand> = origins.iter().map(&mut of_thread).collect();
        let blocks = 0..self.depth_of(axis) / COLUMNS;
        for (block, (row, from)) in blocks.flat_map(|block| rows.clone().zip(&origins).map(move |row| (block, row))) {
            let mut values = values.clone();
            let index = values.row(row);
            let mut two = vec![];
            for c in 0..2 {
                let at = b.add(twice, block * COLUMNS + c);
                let inside = if self.schedule.padded { b.lt(at, size) } else { Operand::bool(true) };
                let exists = b.and(index.exists, inside);
                values.set_inner(c, axis, Index { at, exists });
                let coordinates = Coordinates { row: Some(row), column: None, inner: Some(c) };
                self.set_sums(b, &mut values, sums, InnerPlace { row, block, column: c, axis });
                let at = if own.is_some() { Operand::i64(i64::from(block * COLUMNS + c)) } else { at };
                let at = b.mul(at, stride);
                let offset = b.add(*from, at);
                two.push((values.value(b, value, coordinates), offset, exists));
            }
            let [(x, offset, exists), (y, further, also)] = two[..] else { continue };
            if self.schedule.vector > 1 {
                b.store(memory, offset, &[x, y], Some(exists));
            } else {
                b.store(memory, offset, &[x], Some(exists));
                b.store(memory, further, &[y], Some(also));
            }
        }
    }

    /// Makes the sums with a leaf known to the evaluator, at one coordinate along the leaf's axis that the thread has.
    pub(super) fn set_sums(&self, b: &mut Builder, values: &mut Values, sums: &Sums, place: InnerPlace) {
        let InnerPlace { row, block, column, axis } = place;
        for (payload, sums) in self.form.payloads.iter().zip(&sums.payloads) {
            if let (PayloadSums::Blocks(blocks), Some((param, own))) = (sums, payload.leaf)
                && own == axis
            {
                let sum = blocks.get(b, self.sum_of_thread(param, row, block, column));
                let coordinates = Coordinates { row: Some(row), column: None, inner: Some(column) };
                if payload.outside.is_empty() {
                    values.set_early_state(payload.state, coordinates, sum);
                    continue;
                }
                let sum = values.late_factor(coordinates).map_or(sum, |factor| b.mul(sum, factor));
                let total = values.product(b, Some(sum), &payload.outside, coordinates);
                values.set_state(payload.state, coordinates, total.unwrap_or(zero(Ty::F32)));
            }
        }
    }

    /// The length of tiles along an axis within columns.
    pub(super) fn depth_of(&self, axis: Axis) -> u32 {
        if self.form.inner.first() == Some(&axis) { self.schedule.depth } else { self.schedule.width }
    }
}
