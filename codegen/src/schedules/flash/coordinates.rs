//! The coordinates of a thread: the lanes by which it reads factors, and the rows and columns that the evaluator knows.

use super::visible::Range;
use super::{COLUMNS, FlashKernel, ThreadTile};
use crate::block::layout::Lanes;
use crate::block::pair::{Coordinates, Index, Values};
use crate::build::Builder;
use crate::stage::kind::Contraction;
use crate::tile::Operand;

impl FlashKernel<'_> {
    /// An evaluator that knows the thread's rows.
    pub(super) fn row_values(&self, b: &mut Builder, thread_tile: ThreadTile) -> Values<'_> {
        let axes = [self.form.row, self.form.column];
        let mut values = Values::new(self.stage, &self.args, axes, self.outer.clone());
        self.set_rows(b, &mut values, thread_tile);
        values
    }

    /// The lanes of both factors of every contraction.
    pub(super) fn contracted_lanes(&self, b: &mut Builder) -> Vec<(Lanes, Lanes)> {
        let mut of = |c: &Contraction| {
            (self.left_lanes(b, self.row_tile(c.left)), self.right_lanes(b, self.column_tile(c.right)))
        };
        self.form.contractions.iter().map(&mut of).collect()
    }

    /// The lanes of the leaf of every payload.
    pub(super) fn weighted_lanes(&self, b: &mut Builder) -> Vec<Vec<Lanes>> {
        self.form.payloads.iter().map(|p| self.payload_lanes(b, p.leaf.map(|(param, _)| param))).collect()
    }

    /// Sets the indices of the thread's rows.
    pub(super) fn set_rows(&self, b: &mut Builder, values: &mut Values, thread_tile: ThreadTile) {
        let of_warp = self.first_row_of_warp(b);
        let own = b.add(of_warp, self.fragment.group);
        let first = b.add(self.first_row, own);
        for row in 0..thread_tile.rows {
            let at = b.add(first, row / 2 * self.row_step() + row % 2 * COLUMNS);
            values.set_row(row, Index::along(b, &self.args, at, self.form.row));
        }
    }

    /// Evaluates what does not depend on columns once.
    pub(super) fn hoist(&self, b: &mut Builder, values: &mut Values, thread_tile: ThreadTile) {
        for value in self.constant_values() {
            for row in 0..thread_tile.rows {
                values.value(b, value, Coordinates { row: Some(row), ..Coordinates::default() });
            }
        }
    }

    /// Sets the indices of the thread's columns of a tile, whose first one is given.
    pub(super) fn set_columns(&self, b: &mut Builder, values: &mut Values, thread_tile: ThreadTile, first: Operand) {
        let twice = self.fragment.column(b);
        let own = b.add(first, twice);
        for column in 0..thread_tile.columns {
            let at = b.add(own, column / 2 * COLUMNS + column % 2);
            values.set_column(column, Index::along(b, &self.args, at, self.form.column));
        }
    }

    /// Tells the evaluator where the elements of vectors are that came with a stage's tiles.
    pub(super) fn set_numbers(&self, b: &mut Builder, values: &mut Values, stage: Operand) {
        let twice = self.fragment.column(b);
        let start = b.mul(stage, self.schedule.columns);
        let first = b.add(start, twice);
        self.vectors.iter().for_each(|vector| values.set_numbers(vector.param, vector.array, first));
    }

    /// The range of seen columns of every row of the thread, counted from the thread's first column of a tile.
    pub(super) fn seen(&self, b: &mut Builder, ranges: &[Range], first: Operand) -> Vec<Range> {
        let twice = self.fragment.column(b);
        let own = b.add(first, twice);
        let mut shifted = |x| b.sub(x, own);
        ranges.iter().map(|r| Range { from: shifted(r.from), to: shifted(r.to) }).collect()
    }
}
