//! The stores of the third sweep.

use super::{GradientSweep, TIMES};
use crate::block::matmul::Blocks;
use crate::block::output::{StoredOutput, store_two};
use crate::block::pair::{Coordinates, Values};
use crate::build::{Builder, f32};
use crate::schedules::chunkwise::COLUMNS;
use crate::stage::kind::Cotangent;
use crate::tile::{Operand, Stmt};
use oplus_dsl::ir::{Axis, AxisSet};

impl GradientSweep<'_> {
    /// Stores the maps of the sums over depth of a head, and the thread's shares of their sums over the width.
    pub(super) fn store_values(
        &self,
        b: &mut Builder,
        values: &Values,
        stage: Operand,
        slice: Option<Operand>,
        found: &Blocks,
    ) {
        let Some((tuple, factors)) = &self.form.contraction else { return };
        let (half, column) = (self.half_of(b, TIMES), self.fragment.column(b));
        let column = b.add(half, column);
        let column = slice.map_or(column, |first| b.add(first, column));
        let column = self.first_column(b, column);
        let mut shares: Vec<[Option<Operand>; 2]> = vec![];
        for (block, found) in found.iter().enumerate() {
            let column = self.column_of_values(b, column);
            let mut values = values.clone();
            for c in 0..2 {
                let at = b.add(column, block as u32 * COLUMNS + c);
                values.set_column(c, self.index_along(b, at, self.form.states.width));
            }
            let [own, cotangents] = [(&self.values, stage), (&self.cotangents, self.stage_of_cotangents(stage))]
                .map(|(tile, stage)| self.own_block(b, tile, stage, block as u32));
            for h in 0..2 {
                let coordinates = [0, 1].map(|c| Coordinates { row: Some(h), column: Some(c), inner: None });
                for (c, coordinates) in coordinates.into_iter().enumerate() {
                    let r = 2 * h as usize + c;
                    values.set_param(self.form.states.value, coordinates, own[r]);
                    values.set_param(self.form.cotangents.value, coordinates, cotangents[r]);
                    let sum = values.product(b, Some(found[r]), factors, coordinates).unwrap_or(found[r]);
                    values.set_state((*tuple, 0), coordinates, sum);
                }
                self.store_maps(b, &mut values, coordinates);
                self.add_shares(b, &mut values, coordinates, h as usize, &mut shares);
            }
        }
        for (number, shares) in shares.into_iter().enumerate() {
            self.store_width_sum(b, number as u32, shares.map(|share| share.unwrap_or(f32(0.0))));
        }
    }

    /// A column from which a block's are counted: where several sums leave the fewest registers, addresses of single elements of all blocks
    /// at once would take those.
    fn column_of_values(&self, b: &mut Builder, column: Operand) -> Operand {
        if self.schedule.vector > 1 || !self.has_fewest_registers() {
            return column;
        }
        b.push(Stmt::SyncWarp);
        self.rematerialiser.of(b, column)
    }

    /// Sets the indices of the thread's times among rows.
    pub(super) fn set_rows(&self, b: &mut Builder, values: &mut Values, first: Operand) {
        let row = self.first_row(b);
        let row = b.add(first, row);
        for h in 0..2 {
            let at = b.add(row, h * COLUMNS);
            values.set_row(h, self.index_along(b, at, self.form.states.time));
        }
    }

    /// An output that is stored two by two along an axis.
    fn stored(&self, output: usize, unit: Axis, other: AxisSet) -> StoredOutput<'_> {
        StoredOutput { stage: self.stage, args: &self.args, output, unit, other, vector: self.schedule.vector }
    }

    fn store_maps(&self, b: &mut Builder, values: &mut Values, coordinates: [Coordinates; 2]) {
        let (width, other) = (self.form.states.width, AxisSet::of(self.form.states.depth));
        for (output, _) in self.form.outputs.iter().enumerate().filter(|(_, kind)| **kind == Cotangent::Values) {
            let stored = self.stored(output, width, other);
            store_two(b, values, &stored, coordinates);
        }
    }

    /// Adds a pair of columns to the sums over the width.
    fn add_shares(
        &self,
        b: &mut Builder,
        values: &mut Values,
        coordinates: [Coordinates; 2],
        h: usize,
        shares: &mut Vec<[Option<Operand>; 2]>,
    ) {
        let sums = self.form.outputs.iter().filter_map(|kind| match kind {
            Cotangent::Sum(_, element) => Some(*element),
            _ => None,
        });
        for (number, element) in sums.enumerate() {
            shares.resize(shares.len().max(number + 1), [None; 2]);
            for coordinates in coordinates {
                let (_, exists) = values.indices(b, coordinates);
                let term = values.value(b, element, coordinates);
                let term = b.select(exists, term, f32(0.0));
                let share = &mut shares[number][h];
                *share = Some(share.map_or(term, |sum| b.add(sum, term)));
            }
        }
    }

    /// A number from which addresses are computed, rematerialised where addresses take registers before they are needed:
    /// those of single elements, and those beside products in `tf32`.
    fn late(&self, b: &mut Builder, number: Operand) -> Operand {
        let is_kept =
            (self.schedule.vector > 1 && !self.is_tf32) || self.form.states.channels && !self.has_few_registers();
        if is_kept { number } else { self.rematerialiser.of(b, number) }
    }

    /// Stores the sums over heads, over times and the depth.
    pub(super) fn store_depth(&self, b: &mut Builder, values: &Values, first: Operand, kind: Cotangent, sums: &Blocks) {
        let mut values = values.clone();
        let first = self.late(b, first);
        self.set_rows(b, &mut values, first);
        let (depth, other) = (self.form.states.depth, AxisSet::of(self.form.states.width));
        let (half, column) = (self.half_of(b, self.schedule.depth), self.fragment.column(b));
        let column = b.add(half, column);
        let column = self.late(b, column);
        let column = self.first_column(b, column);
        let outputs = self.form.outputs.iter().enumerate().filter(|(_, own)| **own == kind);
        for (output, _) in outputs {
            let value = self.stage.program.outputs[output].value;
            for (block, sums) in sums.iter().enumerate() {
                let mut values = values.clone();
                for c in 0..2 {
                    let at = b.add(column, block as u32 * COLUMNS + c);
                    values.set_inner(c, depth, self.index_along(b, at, depth));
                }
                for h in 0..2 {
                    let coordinates = [0, 1].map(|c| Coordinates { row: Some(h), column: None, inner: Some(c) });
                    for (c, coordinates) in coordinates.into_iter().enumerate() {
                        values.set(value, coordinates, sums[2 * h as usize + c]);
                    }
                    let stored = self.stored(output, depth, other);
                    store_two(b, &mut values, &stored, coordinates);
                }
            }
        }
    }
}
