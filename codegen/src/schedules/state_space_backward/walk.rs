//! The walk: sub-tile after sub-tile against the direction of the states, state after state.

use super::chain::Chain;
use super::lane::Lane;
use super::row_sums::BatchPlace;
use super::subtile::{Carry, Eight, LaneRows};
use super::terms::{RowState, RowStep, Sums};
use super::{SUBTILE, StateSpaceBackwardKernel};
use crate::block::state_step::StateStep;
use crate::build::{Builder, zero};
use crate::schedules::state_space::TileAt;
use crate::schedules::state_space::copy::load_steps;
use crate::schedules::state_space::saved::Saved;
use crate::tile::{Expr, Memory, Operand, Reg, Stmt};
use oplus_dsl::Ty;
use oplus_dsl::ir::Value;
use std::collections::HashMap;

/// A sub-tile of a tile.
#[derive(Clone, Copy)]
struct SubtileAt<'t> {
    tile: &'t TileAt,
    /// Its first step in the tile, `i32`.
    column: Operand,
    /// The half of the ring of sums over rows that it belongs to, and its number in that half.
    half: Operand,
    number: u32,
    /// The halves of tiles that have been walked before, `i32`.
    halves: Operand,
}

impl<'s> StateSpaceBackwardKernel<'s> {
    pub(super) fn walk_role(&self, b: &mut Builder) {
        let roots = [self.form.walked(), self.form.finished()].concat();
        let lane = self.lane(b, &roots);
        let Some(saved) = &self.scratch.saved else { return };
        let carry = self.carry(b, &lane, saved);
        self.each_tile(b, |b, tile, number| self.walk_tile(b, &lane, &carry, tile, number));
        self.await_last_copies(b);
        let lane = self.rematerialised_lane(b);
        self.finals(b, &lane, &carry);
    }

    /// Walks a tile, two sub-tiles per iteration of the loop, which are one half of the ring.
    fn walk_tile(&self, b: &mut Builder, lane: &Lane<'_, 's>, carry: &Carry, tile: &TileAt, number: Operand) {
        let halves = self.schedule.steps / SUBTILE / super::row_sums::HALF;
        b.for_(Operand::i32(0), halves, 1, |b, i| {
            let before = b.mul(number, halves);
            let half_tile = b.add(before, i);
            let half = self.row_sums.as_ref().map(|sums| self.open_half(b, sums, half_tile));
            for j in 0..super::row_sums::HALF {
                let before = b.mul(i, super::row_sums::HALF);
                let subtile = b.add(before, j);
                let subtile = self.subtile(b, subtile);
                let column = b.mul(subtile, SUBTILE);
                let half = half.unwrap_or(Operand::i32(0));
                let subtile = SubtileAt { tile, column, half, halves: half_tile, number: j };
                self.walk_subtile(b, lane, carry, subtile);
            }
            if let (Some(sums), Some(half)) = (&self.row_sums, half) {
                self.close_half(b, sums, half);
            }
        });
    }

    // ---- what is carried

    fn carry(&self, b: &mut Builder, lane: &Lane<'_, 's>, saved: &Saved) -> Carry {
        let lane_rows = lane.rows.len();
        let mut cotangents = vec![];
        for r in 0..lane_rows {
            cotangents.push(self.initial(b, lane, r, self.form.init[1]));
        }
        self.join(b, lane, &cotangents);
        let regs = self.registers_of_saved(b, lane_rows);
        let tiles = b.mul(self.base.frame.tile_count, self.schedule.steps / SUBTILE);
        let last = b.sub(tiles, 1);
        let before = self
            .base
            .frame
            .segment
            .as_ref()
            .map_or(Operand::i32(0), |segment| b.mul(segment.first, self.schedule.steps / SUBTILE));
        let number = if self.form.reverse { before } else { b.sub(last, before) };
        let subtile = b.convert(Ty::I64, number);
        let position = self.first_place(b, lane);
        let mut indices = vec![];
        for row in &lane.rows {
            let row = self.row_number(b, *row);
            let at = saved.element(b, subtile, row);
            let at = b.add(at, position);
            indices.push(b.var(at));
        }
        let (totals, number) = (self.totals(b), b.var(number));
        let carry = Carry { cotangents, states: regs, totals, saved: indices, number };
        self.take_up_first(b, lane, &carry);
        carry
    }

    /// A value before the first step of a scan, for every state of a row of the lane.
    pub(super) fn initial(
        &self,
        b: &mut Builder,
        lane: &Lane<'_, 's>,
        own_row: usize,
        value: Option<Value>,
    ) -> Vec<Reg> {
        let (mut constants, mut source) = (lane.constants[own_row].clone(), lane.sources[own_row].clone());
        let value = |state| {
            let given = value.map(|value| constants.value(b, &mut source, value, StateStep { state, step: 0 }));
            b.var(given.unwrap_or(zero(Ty::F32)))
        };
        (0..self.schedule.states).map(value).collect()
    }

    // ---- a sub-tile

    fn walk_subtile(&self, b: &mut Builder, lane: &Lane<'_, 's>, carry: &Carry, at: SubtileAt) {
        let SubtileAt { tile, column, half, number: j, halves } = at;
        let mut lane_rows = self.lane_rows(b, lane, tile, column);
        let rows = self.form.row_sums.len();
        let steps = || vec![None; SUBTILE as usize];
        let mut sums = Sums { states: vec![vec![steps(); lane.rows.len()]; self.form.sums.len()], rows: vec![] };
        self.load_states(b, &mut lane_rows, lane, tile, 0, column);
        let saved = self.saved_before(b, lane, carry, (halves, j));
        for state in 0..self.schedule.states {
            sums.rows = vec![steps(); rows];
            for (row, saved) in saved.iter().enumerate() {
                let own = RowState { row, state };
                self.walk_on(b, lane, &mut lane_rows, own, saved[state as usize], &mut sums);
                self.add_totals(b, carry, &mut lane_rows, own, false);
            }
            if state + 1 < self.schedule.states {
                self.load_states(b, &mut lane_rows, lane, tile, state + 1, column);
            } else if self.schedule.saved_ahead == 0 {
                self.take_up_next(b, lane, carry, j);
            }
            self.put(b, lane, &sums, state, false);
            for row in 0..lane.rows.len() {
                let own = RowState { row, state };
                self.walk_back(b, lane, carry, &mut lane_rows, own, &mut sums);
            }
            self.put(b, lane, &sums, state, true);
            if let Some(rows) = self.row_sums.as_ref().filter(|rows| (state + 1) % rows.batch == 0) {
                let batch = BatchPlace { half, subtile: j, batch: state / rows.batch };
                self.add_batch(b, rows, batch);
            }
        }
        b.push(Stmt::SyncWarp);
        let whole = |own_row: &Vec<Option<Operand>>| own_row.iter().map(|x| x.unwrap_or(zero(Ty::F32))).collect();
        let states: Vec<Vec<Vec<Operand>>> = sums.states.iter().map(|sum| sum.iter().map(whole).collect()).collect();
        self.finish(b, lane, carry, tile, column, &states);
    }

    pub(super) fn lane_rows<'k>(
        &'k self,
        b: &mut Builder,
        lane: &Lane<'k, 's>,
        tile: &TileAt,
        column: Operand,
    ) -> LaneRows<'k, 's> {
        let index = b.convert(Ty::I64, column);
        let first = b.add(tile.time.first, index);
        let mut shared = HashMap::new();
        let mut eights = vec![];
        for row in &lane.rows {
            let mut tiles = HashMap::new();
            for (i, own) in self.tiles.tiles.iter().enumerate().filter(|(i, own)| self.tiles.walked[*i] && !own.states)
            {
                let row = if own.rows { *row } else { Operand::i32(0) };
                let load = |b: &mut Builder| self.tile_steps(b, i, tile.stage, row, column, SUBTILE);
                let values = if own.rows { load(b) } else { shared.entry(i).or_insert_with(|| load(b)).clone() };
                tiles.insert((i, 0), values);
            }
            let (before, after, cotangents) = (HashMap::new(), HashMap::new(), HashMap::new());
            eights.push(Eight { kernel: self, tiles, before, after, cotangents, first });
        }
        let exists = (0..SUBTILE).map(|step| self.step_exists(b, tile, column, step)).collect();
        LaneRows { evaluators: lane.constants.clone(), eights, exists }
    }

    /// Whether a step exists, if that matters.
    fn step_exists(&self, b: &mut Builder, tile: &TileAt, column: Operand, step: u32) -> Operand {
        if !self.masks.steps && !self.masks.state_totals.contains(&true) {
            return Operand::bool(true);
        }
        let at = b.add(column, step);
        b.lt(at, tile.time.steps)
    }

    /// Loads steps of a row of a tile.
    pub(super) fn tile_steps(
        &self,
        b: &mut Builder,
        i: usize,
        stage: Operand,
        row: Operand,
        column: Operand,
        count: u32,
    ) -> Vec<Operand> {
        let height = self.base.height(&self.tiles.tiles[i]);
        let from = self.base.element(b, height, stage, row, column);
        load_steps(b, Memory::Shared(self.base.tiles[i]), from, count)
    }

    /// Loads the tiles with states, for one of the lane's states.
    pub(super) fn load_states(
        &self,
        b: &mut Builder,
        lane_rows: &mut LaneRows,
        lane: &Lane,
        tile: &TileAt,
        state: u32,
        column: Operand,
    ) {
        for (i, own) in self.tiles.tiles.iter().enumerate().filter(|(_, own)| own.states) {
            let within = b.add(lane.position, state * self.schedule.lanes);
            let mut shared = None;
            for (r, row) in lane.rows.iter().enumerate() {
                let values = match &shared {
                    Some(values) if !own.rows => Vec::clone(values),
                    _ => {
                        let row = if own.rows { *row } else { Operand::i32(0) };
                        let above = b.mul(row, self.schedule.capacity());
                        let row = b.add(above, within);
                        self.tile_steps(b, i, tile.stage, row, column, SUBTILE)
                    }
                };
                shared = Some(values.clone());
                lane_rows.eights[r].tiles.insert((i, state), values);
            }
        }
    }

    /// Walks one state of a row of the lane, `before` the sub-tile, eight steps on, with the sums over states and rows that do not need
    /// the cotangents.
    fn walk_on(
        &self,
        b: &mut Builder,
        lane: &Lane,
        lane_rows: &mut LaneRows,
        own: RowState,
        before: Operand,
        sums: &mut Sums,
    ) {
        let RowState { row, state } = own;
        // A copy: the state of a later sub-tile is loaded before this one is walked back.
        let mut now = b.let_(Ty::F32, Expr::Copy(before));
        for step in self.in_order(SUBTILE) {
            let at = StateStep { state, step };
            now = self.step_on(b, lane_rows, row, at, now);
            self.add_terms(b, lane, lane_rows, RowStep { row, at }, sums, false);
        }
    }

    /// The state after a step; the state before it where the step does not exist.
    pub(super) fn step_on(
        &self,
        b: &mut Builder,
        lane_rows: &mut LaneRows,
        r: usize,
        at: StateStep,
        now: Operand,
    ) -> Operand {
        let (evaluator, eight) = (&mut lane_rows.evaluators[r], &mut lane_rows.eights[r]);
        eight.before.insert(at, now);
        let after = evaluator.value(b, eight, self.form.after, at);
        let exists = lane_rows.exists[at.step as usize];
        let now = if self.masks.steps { b.select(exists, after, now) } else { after };
        eight.after.insert(at, now);
        now
    }

    /// Walks one state of a row of the lane eight steps back, with the sums that need the cotangents.
    fn walk_back(
        &self,
        b: &mut Builder,
        lane: &Lane,
        carry: &Carry,
        lane_rows: &mut LaneRows,
        own: RowState,
        sums: &mut Sums,
    ) {
        let RowState { row: r, state } = own;
        let reg = carry.cotangents[r][state as usize];
        let mut chain = Chain::Carried(reg.into());
        let mut order = self.in_order(SUBTILE);
        order.reverse();
        for step in order {
            let at = StateStep { state, step };
            chain = self.step_back(b, lane_rows, r, at, chain);
            self.add_terms(b, lane, lane_rows, RowStep { row: r, at }, sums, true);
        }
        let next = chain.carried(b);
        b.assign(reg, next);
        self.add_totals(b, carry, lane_rows, own, true);
    }
}
