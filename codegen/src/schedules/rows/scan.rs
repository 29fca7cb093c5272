//! The scan of a tile.

use super::tile::{Place, RowTile};
use super::{Row, RowsKernel};
use crate::block::carry::{AroundStep, Fields, assign, select};
use crate::block::persistent::{load_fields, store_fields};
use crate::block::point::Point;
use crate::block::steps::Steps;
use crate::build::{Builder, operands};
use crate::tile::{Operand, Reg, Shuffle};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Binary, Unary};
use std::collections::HashMap;

/// A row's tile after the scans of its stretches.
struct Scanned {
    elements: HashMap<Place, Fields>,
    /// For each stretch, in the order of the scan: what the earlier lanes of the stretch combine to.
    before: Vec<Fields>,
    /// For each stretch, in the order of the scan: its total.
    totals: Vec<Fields>,
}

/// The outcome of a row's tile: whether all states before the lane's elements are kept, and the state behind the tile.
struct Moved {
    kept: Operand,
    after: Fields,
}

impl<'s> RowsKernel<'s> {
    /// One tile of a team's rows: outputs are stored, carries move on. `parity` is that of the tile's number.
    pub(super) fn tile(
        &self,
        b: &mut Builder,
        rows: &mut [Row<'s>],
        start: Operand,
        end: Operand,
        at: Operand,
        parity: Reg,
    ) {
        let tiles = self.load(b, rows, start);
        let mut points: Vec<_> = rows.iter().map(|row| self.points(row)).collect();
        let scanned: Vec<Scanned> = rows
            .iter()
            .zip(&tiles)
            .zip(&mut points)
            .map(|((row, tile), points)| {
                let elements = self.elements(b, row, tile, points);
                self.scan_stretches(b, elements)
            })
            .collect();
        let carried: Vec<Fields> = rows.iter().map(|row| operands(&row.carry)).collect();
        let exchanged = self.schedule.row_warps > 1;
        let passed = if exchanged { self.exchange(b, rows, &scanned, parity) } else { vec![] };
        let mut moved = vec![];
        for (k, row) in rows.iter().enumerate() {
            let (before, after) = passed.get(k).cloned().unwrap_or((carried[k].clone(), vec![]));
            let at = RowTile { row, tile: &tiles[k] };
            let (state, kept) = self.finish(b, at, &mut points[k], &scanned[k], before);
            let after = if exchanged { after } else { state };
            moved.push(Moved { kept, after });
        }
        self.step_if_lost(b, rows, end, at, &mut moved);
        for (row, moved) in rows.iter().zip(&moved) {
            assign(b, &row.carry, &moved.after);
        }
    }

    /// Where a state of a team's row is lost in this tile, the team steps through the tile.
    fn step_if_lost(&self, b: &mut Builder, rows: &[Row], end: Operand, at: Operand, moved: &mut [Moved]) {
        if self.takes_single_steps() || self.monoid.at_risk().is_empty() {
            return;
        }
        let mut all = Operand::bool(true);
        for moved in moved.iter_mut() {
            let carries = self.monoid.are_states(b, &moved.after);
            moved.kept = b.and(moved.kept, carries);
            all = b.and(all, moved.kept);
        }
        let after: Vec<Vec<Reg>> = moved.iter().map(|moved| b.vars(&moved.after)).collect();
        let all = b.all(all);
        let lost = b.unary(Unary::Not, all);
        b.if_(lost, |b| {
            // The tile's start is computed from another lane's number, so that no register holds it meanwhile.
            let at = b.shuffle(Shuffle::Index, at, Operand::i32(0));
            let start = self.start(b, end, at);
            for (k, (row, after)) in rows.iter().zip(&after).enumerate() {
                let lost = self.any_of_team(b, moved[k].kept);
                let before = operands(&row.carry);
                let was = self.monoid.has_states(b, &before);
                let lost = b.and(lost, was);
                b.if_(lost, |b| self.step_tile(b, row, start, &before, after));
            }
        });
        for (moved, after) in moved.iter_mut().zip(after) {
            moved.after = operands(&after);
        }
    }

    /// Whether the condition does not hold in some lane of the team's warp.
    fn any_of_team(&self, b: &mut Builder, condition: Operand) -> Operand {
        let mut lost = b.select(condition, Operand::i32(0), Operand::i32(1));
        let mut distance = 1;
        while distance < self.schedule.lanes {
            let other = b.shuffle(Shuffle::Xor, lost, Operand::i32(distance as i32));
            lost = b.binary(Binary::Or, lost, other);
            distance *= 2;
        }
        b.ne(lost, 0)
    }

    /// Steps through a row's tile and stores the outputs of the warp's span, each by the lane that has stored there before. The
    /// state behind the tile replaces the one in `after` if that is lost.
    fn step_tile(&self, b: &mut Builder, row: &Row, start: Operand, before: &[Operand], after: &[Reg]) {
        let state = b.vars(before);
        let end = b.add(start, self.schedule.tile());
        let (stage, scan, monoid, args) = (self.stage, &self.scan, &self.monoid, &self.args);
        let (indices, bases, exists) = (row.indices.clone(), row.bases.clone(), row.exists);
        let steps = Steps { stage, scan, monoid, args, indices, bases, exists };
        let writes = self.outputs(false).next().is_some();
        steps.walk(
            b,
            &state,
            start..end,
            |b, index| if writes { self.owns(b, index, start) } else { Operand::bool(false) },
        );
        let combined = operands(after);
        let carries = self.monoid.are_states(b, &combined);
        for (after, stepped) in after.iter().zip(state) {
            let next = b.select(carries, (*after).into(), stepped.into());
            b.assign(*after, next);
        }
    }

    /// Whether an index of the tile is one of the lane's.
    fn owns(&self, b: &mut Builder, index: Operand, start: Operand) -> Operand {
        let place = b.sub(index, start);
        let place = b.convert(Ty::I32, place);
        let vector = b.binary(Binary::Div, place, self.schedule.vector);
        let lane = b.binary(Binary::And, vector, self.schedule.lanes as i32 - 1);
        let span = b.binary(Binary::Div, place, self.schedule.vectors * self.stretch());
        let (lane, span) = (b.eq(lane, self.lane), b.eq(span, self.warp));
        b.and(lane, span)
    }

    /// Whether a lane goes through a row by itself.
    fn is_alone(&self) -> bool {
        self.schedule.lanes == 1 && self.schedule.row_warps == 1
    }

    /// Whether states meet elements only one by one.
    fn takes_single_steps(&self) -> bool {
        self.is_alone() && self.schedule.vector == 1
    }

    fn scan_stretches(&self, b: &mut Builder, elements: HashMap<Place, Fields>) -> Scanned {
        let lanes = self.lanes();
        let last = self.team_lane(b, Operand::i32(lanes.last() as i32));
        let (mut before, mut totals) = (vec![], vec![]);
        for r in self.scan.in_order(self.schedule.vectors) {
            let own: Vec<Fields> =
                self.scan.in_order(self.schedule.vector).map(|v| elements[&(r, v)].clone()).collect();
            let own = self.monoid.fold(b, &own);
            let inclusive = self.monoid.warp_scan(b, own, &lanes);
            before.push(self.monoid.warp_shift(b, &inclusive, &lanes));
            totals.push(inclusive.iter().map(|x| b.shuffle(Shuffle::Index, *x, last)).collect());
        }
        Scanned { elements, before, totals }
    }

    /// Passes the totals of the spans from warp to warp: the states before each row's span and behind its tile.
    fn exchange(&self, b: &mut Builder, rows: &[Row], scanned: &[Scanned], parity: Reg) -> Vec<(Fields, Fields)> {
        let (warps, row_warps) = (self.schedule.warps, self.schedule.row_warps);
        let of_team = b.mul(self.team, row_warps);
        let shift = b.mul(parity.into(), self.schedule.rows * warps);
        let of_team = b.add(of_team, shift);
        let own = b.add(of_team, self.warp);
        let leads = b.eq(self.lane, 0);
        let slot = |b: &mut Builder, base: Operand, k: usize, w: u32| b.add(base, k as u32 * warps + w);
        let sums: Vec<Fields> = scanned.iter().map(|s| self.monoid.fold(b, &s.totals)).collect();
        b.if_(leads, |b| {
            for (k, sum) in sums.iter().enumerate() {
                let at = slot(b, own, k, 0);
                store_fields(b, &self.totals, at, sum);
            }
        });
        b.barrier();
        let flipped = b.binary(Binary::Xor, parity.into(), 1);
        b.assign(parity, flipped);
        let before = |(k, row): (usize, &Row)| {
            let mut state = operands(&row.carry);
            let mut own = state.clone();
            for w in self.scan.in_order(row_warps) {
                let mine = b.eq(self.warp, w);
                own = select(b, mine, &state, &own);
                let at = slot(b, of_team, k, w);
                let sum = load_fields(b, &self.totals, at);
                state = self.monoid.apply(b, &state, &sum);
            }
            (own, state)
        };
        rows.iter().enumerate().map(before).collect()
    }

    /// The states of a row's tile and the outputs there; gives the state after the span, and whether no state before one of the
    /// lane's elements is lost.
    fn finish(
        &self,
        b: &mut Builder,
        at: RowTile<'_, 's>,
        points: &mut HashMap<Place, Point<'s>>,
        scanned: &Scanned,
        mut state: Fields,
    ) -> (Fields, Operand) {
        let mut kept = Operand::bool(true);
        let writes = self.outputs(false).next().is_some();
        for (i, r) in self.scan.in_order(self.schedule.vectors).enumerate() {
            if writes {
                // A team of one lane has no earlier ones: its state stays as it is, to the bit.
                let alone = self.is_alone();
                let own = if alone { state.clone() } else { self.monoid.apply(b, &state, &scanned.before[i]) };
                if !self.takes_single_steps() {
                    let here = self.monoid.are_states(b, &own);
                    kept = b.and(kept, here);
                }
                self.emit(b, at, points, scanned, r, own);
            }
            state = self.monoid.apply(b, &state, &scanned.totals[i]);
        }
        (state, kept)
    }

    /// The outputs of a lane's elements in a stretch; `state` is the one before the first of them.
    fn emit(
        &self,
        b: &mut Builder,
        at: RowTile<'_, 's>,
        points: &mut HashMap<Place, Point<'s>>,
        scanned: &Scanned,
        r: u32,
        mut state: Fields,
    ) {
        let outputs: Vec<u32> = self.outputs(false).collect();
        let mut values = vec![vec![Operand::i32(0); self.schedule.vector as usize]; outputs.len()];
        for v in self.scan.in_order(self.schedule.vector) {
            let after = self.monoid.apply(b, &state, &scanned.elements[&(r, v)]);
            let point = points.get_mut(&(r, v)).expect("there is a point at every place");
            for (values, output) in values.iter_mut().zip(&outputs) {
                values[v as usize] =
                    self.output(b, at, point, (r, v), *output, AroundStep { before: &state, after: &after });
            }
            state = after;
        }
        for (values, output) in values.iter().zip(outputs) {
            self.store(b, at, output, r, values);
        }
    }
}
