//! The reducers and the scanners.

use super::Layout;
use super::cells::Cells;
use super::parts::RowSums;
use super::ring::{Ring, Tile};
use crate::block::carry::{Fields, WarpAxis};
use crate::block::persistent::{load_fields, store_fields};
use crate::block::point::Point;
use crate::block::steps::Steps;
use crate::build::Builder;
use crate::tile::{Operand, Reg};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Binary, Unary};

impl Ring<'_> {
    /// Reducer w takes the spans of scan warps w, w + reducers, … of each tile.
    pub(super) fn reduce_role(&self, b: &mut Builder) {
        let schedule = self.layout.schedule;
        self.block.reduce_tiles(b, schedule.warps, |b, tile, own, (stage, slot)| {
            let place = self.tile(b, tile);
            let step = Operand::i32(schedule.reduce_warps as i32);
            b.for_(own, Operand::i32(schedule.warps as i32), step, |b, span| {
                self.reduce_span(b, &place, span, stage, slot);
            });
        });
    }

    fn reduce_span(&self, b: &mut Builder, tile: &Tile, span: Operand, stage: Operand, slot: Operand) {
        let (place, ring) = self.place(b, tile, span, stage);
        let cells = Cells::load(b, self.layout, place, Some(&ring), false);
        let (_, _, totals) = self.thread_totals(b, &cells);
        let lanes = self.time_lanes(b);
        let totals: Vec<Fields> = totals.into_iter().map(|t| self.layout.monoid.warp_reduce(b, t, &lanes)).collect();
        let first = b.eq(lanes.position, Operand::i32(0));
        let base = self.span_columns(b, slot, span);
        b.if_(first, |b| {
            for (v, total) in totals.iter().enumerate() {
                let column = b.add(ring.column, Operand::i32(v as i32));
                let index = b.add(base, column);
                store_fields(b, &self.spans, index, total);
            }
        });
    }

    /// The points and elements of every row, and per column what they combine to.
    fn thread_totals(&self, b: &mut Builder, cells: &Cells) -> (Vec<Vec<Point<'_>>>, Vec<Vec<Fields>>, Vec<Fields>) {
        let layout = self.layout;
        let (mut points, mut elements) = (vec![], vec![]);
        for row in 0..layout.schedule.steps {
            let mut row_points: Vec<Point> = (0..layout.vector()).map(|_| layout.point()).collect();
            elements.push(layout.elements(b, cells, row, &mut row_points));
            points.push(row_points);
        }
        let totals = (0..layout.vector() as usize).map(|v| {
            let column: Vec<Fields> =
                layout.in_order(layout.schedule.steps).map(|row| elements[row as usize][v].clone()).collect();
            layout.monoid.fold(b, &column)
        });
        let totals = totals.collect();
        (points, elements, totals)
    }

    pub(super) fn scan_role(&self, b: &mut Builder) {
        self.block.scan_tiles(b, |b, tile, at| {
            let place = self.tile(b, tile);
            let slot = self.block.slot(b, at.count.into());
            self.scan_tile(b, &place, at.stage.into(), slot);
        });
    }

    fn scan_tile(&self, b: &mut Builder, tile: &Tile, stage: Operand, (slot, parity): (Operand, Operand)) {
        let layout = self.layout;
        let (place, ring) = self.place(b, tile, self.block.warp, stage);
        let cells = Cells::load(b, layout, place, Some(&ring), true);
        self.block.arrive_warp(b, self.block.empty, stage);
        let (mut points, elements, totals) = self.thread_totals(b, &cells);
        let lanes = self.time_lanes(b);
        let prefixes: Vec<Fields> = totals.into_iter().map(|t| self.lane_prefix(b, t, &lanes)).collect();
        self.block.wait(b, self.block.published, slot, parity);
        self.block.wait(b, self.block.carried, slot, parity);
        let (mut states, mut kept) = (vec![], vec![]);
        for (v, prefix) in prefixes.iter().enumerate() {
            let column = b.add(ring.column, Operand::i32(v as i32));
            let base = self.slot_columns(b, slot);
            let index = b.add(base, column);
            let carry = load_fields(b, &self.carry, index);
            let base = self.span_columns(b, slot, self.block.warp);
            let index = b.add(base, column);
            let before = load_fields(b, &self.spans, index);
            let state = layout.monoid.apply(b, &carry, &before);
            let state = layout.monoid.apply(b, &state, prefix);
            kept.push(layout.monoid.keeps(b, &carry, &state));
            states.push(state);
        }
        let mut sums = RowSums::new(layout);
        for row in layout.in_order(layout.schedule.steps) {
            let r = row as usize;
            states = layout.step(b, &cells, row, &mut points[r], &elements[r], (states, &mut sums));
        }
        self.step_if_lost(b, tile, slot, &kept);
    }

    /// Where the state before a thread's rows is lost in a column, steps through the column's tile up to the end of these rows and
    /// stores its outputs there.
    fn step_if_lost(&self, b: &mut Builder, tile: &Tile, slot: Operand, kept: &[Operand]) {
        let all = kept.iter().fold(Operand::bool(true), |all, kept| b.and(all, *kept));
        if all == Operand::bool(true) {
            return;
        }
        let lost = b.unary(Unary::Not, all);
        b.if_(lost, |b| {
            let mut columns = Operand::i32(0);
            for (v, kept) in kept.iter().enumerate() {
                let own = b.select(*kept, Operand::i32(0), Operand::i32(1 << v));
                columns = b.binary(Binary::Or, columns, own);
            }
            b.for_(Operand::i32(0), Operand::i32(kept.len() as i32), Operand::i32(1), |b, v| {
                let own = b.binary(Binary::Shr, columns, v);
                let own = b.binary(Binary::And, own, Operand::i32(1));
                let own = b.ne(own, Operand::i32(0));
                b.if_(own, |b| self.step_column(b, tile, slot, v));
            });
        });
    }

    fn step_column(&self, b: &mut Builder, tile: &Tile, slot: Operand, v: Operand) {
        let schedule = self.layout.schedule;
        let first = self.lane_column(b);
        let column = b.add(first, v);
        let base = self.slot_columns(b, slot);
        let index = b.add(base, column);
        let carry = load_fields(b, &self.carry, index);
        let state: Vec<Reg> = carry.into_iter().map(|x| b.var(x)).collect();
        let (place, _) = self.place(b, tile, self.block.warp, Operand::i32(0));
        let end = b.add(place.time, Operand::i64(i64::from(schedule.steps)));
        let tile_end = b.add(tile.time, Operand::i64(i64::from(schedule.tile_rows())));
        let range = if self.layout.reverse() { (place.time, tile_end) } else { (tile.time, end) };
        self.steps(b, tile, column).walk(b, &state, range, |b, index| {
            let (above, below) = (b.ge(index, place.time), b.lt(index, end));
            b.and(above, below)
        });
    }

    /// A column (`i32`) of a tile, whose elements are read one by one.
    pub(super) fn steps(&self, b: &mut Builder, tile: &Tile, column: Operand) -> Steps<'_> {
        let Layout { stage, scan, monoid, args, lane, width, .. } = self.layout;
        let column = b.convert(Ty::I64, column);
        let column = b.add(tile.column, column);
        let exists = b.lt(column, *width);
        let mut indices = tile.outer.clone();
        indices.push((*lane, column));
        Steps { stage, scan, monoid, args, indices, exists }
    }

    /// What the lanes earlier in time combine to.
    fn lane_prefix(&self, b: &mut Builder, total: Fields, lanes: &WarpAxis) -> Fields {
        if lanes.count == 1 {
            return self.layout.monoid.identity();
        }
        let inclusive = self.layout.monoid.warp_scan(b, total, lanes);
        self.layout.monoid.warp_shift(b, &inclusive, lanes)
    }
}
