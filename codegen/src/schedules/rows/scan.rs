//! The scan of a tile.

use super::tile::{Place, Tile};
use super::{Row, RowsKernel};
use crate::block::carry::{Fields, assign, select};
use crate::block::persistent::{load_fields, store_fields};
use crate::block::point::Point;
use crate::build::Builder;
use crate::tile::{Operand, Reg, Shuffle};
use oplus_dsl::ir::Binary;
use std::collections::HashMap;

/// What a row's tile holds after the scans of its stretches.
struct Scanned {
    elements: HashMap<Place, Fields>,
    /// For each stretch, in the order of the scan: what the earlier lanes of the stretch combine to.
    before: Vec<Fields>,
    /// For each stretch, in the order of the scan: its total.
    totals: Vec<Fields>,
}

impl<'s> RowsKernel<'s> {
    /// One tile of a team's rows: outputs are stored, carries move on. `turn` is 0 and 1 in turns.
    pub(super) fn tile(&self, b: &mut Builder, rows: &mut [Row<'s>], start: Operand, turn: Reg) {
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
        let before: Vec<Fields> = if self.schedule.row_warps > 1 {
            self.exchange(b, rows, &scanned, turn)
        } else {
            rows.iter().map(|row| row.carry.iter().map(|r| Operand::Reg(*r)).collect()).collect()
        };
        for (k, row) in rows.iter().enumerate() {
            let state = self.finish(b, (row, &tiles[k]), &mut points[k], &scanned[k], before[k].clone());
            if self.schedule.row_warps == 1 {
                assign(b, &row.carry, &state);
            }
        }
    }

    fn scan_stretches(&self, b: &mut Builder, elements: HashMap<Place, Fields>) -> Scanned {
        let lanes = self.lanes();
        let last = self.team_lane(b, Operand::i32(lanes.last() as i32));
        let (mut before, mut totals) = (vec![], vec![]);
        for r in self.in_order(self.schedule.vectors) {
            let own: Vec<Fields> = self.in_order(self.schedule.vector).map(|v| elements[&(r, v)].clone()).collect();
            let own = self.monoid.fold(b, &own);
            let inclusive = self.monoid.warp_scan(b, own, &lanes);
            before.push(self.monoid.warp_shift(b, &inclusive, &lanes));
            totals.push(inclusive.iter().map(|x| b.shuffle(Shuffle::Index, *x, last)).collect());
        }
        Scanned { elements, before, totals }
    }

    /// Passes the totals of the spans from warp to warp: the state before each row's span; carries move on.
    fn exchange(&self, b: &mut Builder, rows: &[Row], scanned: &[Scanned], turn: Reg) -> Vec<Fields> {
        let (warps, row_warps) = (self.schedule.warps, self.schedule.row_warps);
        let of_team = b.mul(self.team, Operand::i32(row_warps as i32));
        let shift = b.mul(turn.into(), Operand::i32((self.schedule.rows * warps) as i32));
        let of_team = b.add(of_team, shift);
        let own = b.add(of_team, self.part);
        let leads = b.eq(self.lane, Operand::i32(0));
        let slot =
            |b: &mut Builder, base: Operand, k: usize, w: u32| b.add(base, Operand::i32((k as u32 * warps + w) as i32));
        let sums: Vec<Fields> = scanned.iter().map(|s| self.monoid.fold(b, &s.totals)).collect();
        b.if_(leads, |b| {
            for (k, sum) in sums.iter().enumerate() {
                let at = slot(b, own, k, 0);
                store_fields(b, &self.totals, at, sum);
            }
        });
        b.barrier();
        let flipped = b.binary(Binary::Xor, turn.into(), Operand::i32(1));
        b.assign(turn, flipped);
        let before = |(k, row): (usize, &Row)| {
            let mut state: Fields = row.carry.iter().map(|r| Operand::Reg(*r)).collect();
            let mut own = state.clone();
            for w in self.in_order(row_warps) {
                let mine = b.eq(self.part, Operand::i32(w as i32));
                own = select(b, mine, &state, &own);
                let at = slot(b, of_team, k, w);
                let sum = load_fields(b, &self.totals, at);
                state = self.monoid.apply(b, &state, &sum);
            }
            assign(b, &row.carry, &state);
            own
        };
        rows.iter().enumerate().map(before).collect()
    }

    /// The states of a row's tile and the outputs there; gives the state after the span.
    fn finish(
        &self,
        b: &mut Builder,
        at: (&Row<'s>, &Tile),
        points: &mut HashMap<Place, Point<'s>>,
        scanned: &Scanned,
        mut state: Fields,
    ) -> Fields {
        let writes = self.outputs(false).next().is_some();
        for (i, r) in self.in_order(self.schedule.vectors).enumerate() {
            if writes {
                // A team of one lane has no earlier ones: its state stays as it is, to the bit.
                let alone = self.schedule.lanes == 1 && self.schedule.row_warps == 1;
                let own = if alone { state.clone() } else { self.monoid.apply(b, &state, &scanned.before[i]) };
                self.emit(b, at, points, scanned, r, own);
            }
            state = self.monoid.apply(b, &state, &scanned.totals[i]);
        }
        state
    }

    /// The outputs of a lane's elements in a stretch; `state` is the one before the first of them.
    fn emit(
        &self,
        b: &mut Builder,
        at: (&Row<'s>, &Tile),
        points: &mut HashMap<Place, Point<'s>>,
        scanned: &Scanned,
        r: u32,
        mut state: Fields,
    ) {
        let outputs: Vec<u32> = self.outputs(false).collect();
        let mut values = vec![vec![Operand::i32(0); self.schedule.vector as usize]; outputs.len()];
        for v in self.in_order(self.schedule.vector) {
            let after = self.monoid.apply(b, &state, &scanned.elements[&(r, v)]);
            let point = points.get_mut(&(r, v)).expect("there is a point at every place");
            for (values, output) in values.iter_mut().zip(&outputs) {
                values[v as usize] = self.output(b, at, point, (r, v), *output, (&state, &after));
            }
            state = after;
        }
        for (values, output) in values.iter().zip(outputs) {
            self.store(b, at, output, r, values);
        }
    }
}
