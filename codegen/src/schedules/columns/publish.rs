//! The publisher: per column, the exclusive scan of the spans' aggregates and the tile's aggregate.

use super::ring::Ring;
use crate::block::carry::{Fields, to_words};
use crate::block::persistent::{load_fields, store_fields};
use crate::build::Builder;
use crate::tile::{Operand, Stmt};

impl Ring<'_> {
    pub(super) fn publish_role(&self, b: &mut Builder) {
        self.block.publish_tiles(b, |b, tile, slot| self.publish_tile(b, tile, slot));
    }

    fn publish_tile(&self, b: &mut Builder, tile: Operand, slot: Operand) {
        let place = self.tile(b, tile);
        let tag = self.block.tag(b);
        self.each_column(b, |b, column| {
            let total = self.scan_spans(b, slot, column);
            let base = self.slot_columns(b, slot);
            let index = b.add(base, column);
            store_fields(b, &self.totals, index, &total);
            let values = to_words(b, &total);
            let index = if self.layout.schedule.group == 1 {
                self.group_message(b, place.scan, place.order, column)
            } else {
                self.aggregate_message(b, place.scan, place.order, column)
            };
            b.push(Stmt::Publish { messages: self.block.messages, index, values, tag, guard: None });
        });
    }

    /// The lanes take the columns of a tile in turn.
    pub(super) fn each_column(&self, b: &mut Builder, mut body: impl FnMut(&mut Builder, Operand)) {
        let columns = self.layout.schedule.tile_columns();
        for batch in 0..columns.div_ceil(32) {
            let column = b.add(self.block.lane, 32 * batch as i32);
            let exists = if columns.is_multiple_of(32) { Operand::bool(true) } else { b.lt(column, columns) };
            b.if_(exists, |b| body(b, column));
        }
    }

    /// Replaces a column's spans by their exclusive scan; gives the total.
    fn scan_spans(&self, b: &mut Builder, slot: Operand, column: Operand) -> Fields {
        let warps = self.layout.schedule.warps;
        let entry = b.mul(slot, warps);
        let mut sum = self.layout.monoid.identity();
        for span in 0..warps {
            let entry = b.add(entry, span);
            let base = self.slot_columns(b, entry);
            let index = b.add(base, column);
            let own = load_fields(b, &self.spans, index);
            store_fields(b, &self.spans, index, &sum);
            sum = if span == 0 { own } else { self.layout.monoid.combine(b, &sum, &own) };
        }
        sum
    }
}
