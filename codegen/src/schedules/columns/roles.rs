//! The reducers and the scanners.

use super::cells::Cells;
use super::partial_sums::RowSums;
use super::ring::{Ring, Tile};
use super::{CellRow, Layout};
use crate::block::carry::{Fields, WarpAxis};
use crate::block::persistent::{load_fields, store_fields};
use crate::block::point::Point;
use crate::block::ring::RingStage;
use crate::block::steps::Steps;
use crate::build::{Builder, operands};
use crate::tile::{Memory, Operand, Reg};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Binary, Unary};
use std::collections::HashMap;

/// The rows of a span that a thread holds.
struct ThreadRows<'p> {
    /// The points of every row, one a column.
    points: Vec<Vec<Point<'p>>>,
    elements: Vec<Vec<Fields>>,
    /// The elements of each column, combined.
    totals: Vec<Fields>,
}

impl Ring<'_> {
    /// Reducer w takes the spans of scan warps w, w + reducers, … of each tile.
    pub(super) fn reduce_role(&self, b: &mut Builder) {
        let schedule = self.layout.schedule;
        self.block.reduce_tiles(b, schedule.warps, |b, tile, own, (stage, slot)| {
            let place = self.tile(b, tile);
            let step = Operand::i32(schedule.reduce_warps as i32);
            b.for_(own, schedule.warps, step, |b, span| {
                self.reduce_span(b, &place, span, stage, slot);
            });
        });
    }

    fn reduce_span(&self, b: &mut Builder, tile: &Tile, span: Operand, stage: Operand, slot: Operand) {
        let (place, ring) = self.place(b, tile, span, stage);
        let cells = Cells::load(b, self.layout, place, Some(&ring), false);
        let totals = self.thread_rows(b, &cells).totals;
        let lanes = self.time_lanes(b);
        let totals: Vec<Fields> = totals.into_iter().map(|t| self.layout.monoid.warp_reduce(b, t, &lanes)).collect();
        let first = b.eq(lanes.position, 0);
        let base = self.span_columns(b, slot, span);
        b.if_(first, |b| {
            for (v, total) in totals.iter().enumerate() {
                let column = b.add(ring.column, v);
                let index = b.add(base, column);
                store_fields(b, &self.spans, index, total);
            }
        });
    }

    fn thread_rows(&self, b: &mut Builder, cells: &Cells) -> ThreadRows<'_> {
        let layout = self.layout;
        let (mut points, mut elements) = (vec![], vec![]);
        for row in 0..layout.schedule.steps {
            let mut row_points: Vec<Point> = (0..layout.vector()).map(|_| layout.point()).collect();
            elements.push(layout.elements(b, cells, row, &mut row_points));
            points.push(row_points);
        }
        let totals = (0..layout.vector() as usize).map(|v| {
            let column: Vec<Fields> =
                layout.scan.in_order(layout.schedule.steps).map(|row| elements[row as usize][v].clone()).collect();
            layout.monoid.fold(b, &column)
        });
        let totals = totals.collect();
        ThreadRows { points, elements, totals }
    }

    pub(super) fn scan_role(&self, b: &mut Builder) {
        self.block.scan_tiles(b, |b, tile, at| {
            let place = self.tile(b, tile);
            let slot = self.block.slot(b, at.count.into());
            self.scan_tile(b, &place, at.ring.stage.into(), slot);
        });
    }

    fn scan_tile(&self, b: &mut Builder, tile: &Tile, stage: Operand, slot: RingStage) {
        let layout = self.layout;
        let (place, ring) = self.place(b, tile, self.block.warp, stage);
        let cells = Cells::load(b, layout, place, Some(&ring), true);
        b.arrive(self.block.empty, stage);
        let ThreadRows { mut points, elements, totals } = self.thread_rows(b, &cells);
        let lanes = self.time_lanes(b);
        let prefixes: Vec<Fields> = totals.into_iter().map(|t| self.lane_prefix(b, t, &lanes)).collect();
        b.wait(self.block.published, slot);
        b.wait(self.block.carried, slot);
        let slot = slot.index;
        let mut states = vec![];
        for (v, prefix) in prefixes.iter().enumerate() {
            let column = b.add(ring.column, v);
            let base = self.slot_columns(b, slot);
            let index = b.add(base, column);
            let carry = load_fields(b, &self.carry, index);
            let base = self.span_columns(b, slot, self.block.warp);
            let index = b.add(base, column);
            let before = load_fields(b, &self.spans, index);
            let state = layout.monoid.apply(b, &carry, &before);
            states.push(layout.monoid.apply(b, &state, prefix));
        }
        let mut states = self.found_again(b, slot, states);
        let mut sums = RowSums::new(layout);
        for row in layout.scan.in_order(layout.schedule.steps) {
            let r = row as usize;
            let own = CellRow { cells: &cells, row, elements: &elements[r] };
            states = layout.step(b, own, &mut points[r], states, &mut sums);
        }
    }

    /// The states before a thread's rows, column by column; one that is lost is found again by steps from the state before the tile.
    fn found_again(&self, b: &mut Builder, slot: Operand, states: Vec<Fields>) -> Vec<Fields> {
        let mut all = Operand::bool(true);
        for state in &states {
            let there = self.layout.monoid.are_states(b, state);
            all = b.and(all, there);
        }
        if all == Operand::bool(true) {
            return states;
        }
        let states: Vec<Vec<Reg>> = states.iter().map(|state| b.vars(state)).collect();
        let lost = b.unary(Unary::Not, all);
        b.if_(lost, |b| {
            b.for_(Operand::i32(0), states.len(), 1, |b, v| {
                self.find_column(b, slot, v, &states);
            });
        });
        states.iter().map(|state| operands(state)).collect()
    }

    /// The state before a thread's rows in its column number `v` (`i32`), by steps if it is lost.
    fn find_column(&self, b: &mut Builder, slot: Operand, v: Operand, states: &[Vec<Reg>]) {
        let tile = self.drawn_tile(b, slot);
        let first = self.lane_column(b);
        let column = b.add(first, v);
        let base = self.slot_columns(b, slot);
        let index = b.add(base, column);
        let carry = load_fields(b, &self.carry, index);
        let own = |b: &mut Builder, k: usize| b.eq(v, k);
        let mut found = Operand::bool(true);
        for (k, state) in states.iter().enumerate() {
            let state = operands(state);
            let (own, there) = (own(b, k), self.layout.monoid.are_states(b, &state));
            let other = b.unary(Unary::Not, own);
            let there = b.binary(Binary::Or, other, there);
            found = b.and(found, there);
        }
        let lost = b.unary(Unary::Not, found);
        let was = self.layout.monoid.has_states(b, &carry);
        let lost = b.and(lost, was);
        b.if_(lost, |b| {
            let stepped = b.vars(&carry);
            let (place, _) = self.place(b, &tile, self.block.warp, Operand::i32(0));
            let behind = b.add(place.time, self.layout.schedule.steps);
            let tile_end = b.add(tile.time, self.layout.schedule.tile_rows());
            let range = if self.layout.scan.reverse { behind..tile_end } else { tile.time..place.time };
            self.steps(b, &tile, column).walk(b, &stepped, range, |_, _| Operand::bool(false));
            for (k, state) in states.iter().enumerate() {
                let own = own(b, k);
                for (state, stepped) in state.iter().zip(&stepped) {
                    let next = b.select(own, (*stepped).into(), (*state).into());
                    b.assign(*state, next);
                }
            }
        });
    }

    /// Where the tile of a slot lies: computed in branches that are seldom taken, so that no register holds it meanwhile.
    pub(super) fn drawn_tile(&self, b: &mut Builder, slot: Operand) -> Tile {
        let tile = b.load1(Memory::Shared(self.block.drawn_tile), slot);
        self.tile(b, tile)
    }

    /// A column (`i32`) of a tile, whose elements are read one by one.
    pub(super) fn steps(&self, b: &mut Builder, tile: &Tile, column: Operand) -> Steps<'_> {
        let Layout { stage, scan, monoid, args, lane, width, .. } = self.layout;
        let column = b.convert(Ty::I64, column);
        let column = b.add(tile.column, column);
        let exists = b.lt(column, *width);
        let mut indices = tile.outer.clone();
        indices.push((*lane, column));
        Steps { stage, scan, monoid, args, indices, bases: HashMap::new(), exists }
    }

    /// The combination of the lanes earlier in time.
    fn lane_prefix(&self, b: &mut Builder, total: Fields, lanes: &WarpAxis) -> Fields {
        if lanes.count == 1 {
            return self.layout.monoid.identity();
        }
        let inclusive = self.layout.monoid.warp_scan(b, total, lanes);
        self.layout.monoid.warp_shift(b, &inclusive, lanes)
    }
}
