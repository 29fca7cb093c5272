//! The walk: sub-tile after sub-tile against the direction of the states, state after state.

use super::chain::Chain;
use super::lane::Lane;
use super::registers;
use super::row_sums::BatchPlace;
use super::subtile::{Carry, Eight, LaneRows};
use super::terms::{RowState, RowStep, Sums};
use super::{SUBTILE, StateSpaceBackwardKernel};
use crate::block::reads::constant_along;
use crate::block::state_step::StateStep;
use crate::build::{Builder, zero};
use crate::schedules::StateSpaceBackward;
use crate::schedules::state_space::copy::load_steps;
use crate::schedules::state_space::saved::Saved;
use crate::schedules::state_space::tiles::Tile;
use crate::schedules::state_space::{CHUNK, TileAt};
use crate::tile::{Expr, Memory, Operand, Reg, Stmt};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Binary, Value};
use std::collections::HashMap;

/// Sums over states of which four states' terms fit into registers.
const FEW_SUMS: usize = 2;
/// Lanes that share a row beside which flags of steps fit into registers.
const FEW_LANES: u32 = 4;

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

/// A sub-tile whose states are walked: what is saved before it, by row of the lane and state, the values at hand, the sums so far.
struct Walked<'t, 'k, 's> {
    at: SubtileAt<'t>,
    saved: Vec<Vec<Operand>>,
    lane_rows: LaneRows<'k, 's>,
    sums: Sums,
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
        let SubtileAt { tile, column, number, halves, .. } = at;
        let mut lane_rows = self.lane_rows(b, lane, tile, column, SUBTILE);
        let steps = || vec![None; SUBTILE as usize];
        let sums = Sums { states: vec![vec![steps(); lane.rows.len()]; self.form.sums.len()], rows: vec![] };
        self.load_states(b, &mut lane_rows, lane, tile, 0, column, SUBTILE);
        let saved = self.saved_before(b, lane, carry, (halves, number));
        let mut walked = Walked { at, saved, lane_rows, sums };
        if self.states_at_once() < self.schedule.states {
            self.walk_groups(b, lane, carry, &mut walked);
        } else {
            (0..self.schedule.states).for_each(|state| self.walk_state(b, lane, carry, &mut walked, state));
        }
        b.push(Stmt::SyncWarp);
        let whole = |own_row: &Vec<Option<Operand>>| own_row.iter().map(|x| x.unwrap_or(zero(Ty::F32))).collect();
        let sums = walked.sums.states.iter().map(|sum| sum.iter().map(whole).collect());
        let states: Vec<Vec<Vec<Operand>>> = sums.collect();
        self.finish(b, lane, carry, tile, column, &states);
    }

    /// The states of a lane that are walked in one block of code: the numbers that sums over them are made of have to be in registers, and where
    /// sequences are packed the flags of their first steps. Guards of states, sums over many lanes and narrow elements leave fewer for these.
    fn states_at_once(&self) -> u32 {
        let states = self.schedule.states;
        if self.schedule.rows > 1 {
            return states;
        }
        let is_flag = |tile: &Tile| self.form.program.node(tile.value).ty == Ty::Bool;
        let has_flags = self.tiles.tiles.iter().any(is_flag);
        if states > CHUNK {
            return if has_flags || self.form.sums.len() > FEW_SUMS { CHUNK / 2 } else { CHUNK };
        }
        let StateSpaceBackward { lanes, padded, vector, registers, .. } = *self.schedule;
        let fitting = registers::states_at_once(self.form, self.schedule);
        match has_flags && (padded || lanes > FEW_LANES || vector > CHUNK) {
            // Walking warps that are given no registers by those that copy have even fewer.
            true if padded && registers == 0 => 1,
            true => fitting.min(CHUNK / 2),
            false => fitting,
        }
    }

    /// Walks the states of a lane group by group, each in a loop that runs once. The compiler cannot know that, so it computes all that the loop carries before
    /// the loop ends. Otherwise `ptxas` puts sums over states and over time off to the end of the sub-tile, and keeps all that they are made of.
    fn walk_groups<'k>(&'k self, b: &mut Builder, lane: &Lane<'k, 's>, carry: &Carry, walked: &mut Walked<'_, 'k, 's>) {
        let SubtileAt { tile, column, .. } = walked.at;
        self.find_row_values(b, &mut walked.lane_rows);
        let found = walked.lane_rows.evaluators.clone();
        let sums = walked.sums.registers(b);
        let once = b.binary(Binary::Min, self.base.frame.state_count, 1);
        let group = self.states_at_once();
        for first in (0..self.schedule.states).step_by(group as usize) {
            if first > 0 {
                self.load_states(b, &mut walked.lane_rows, lane, tile, first, column, SUBTILE);
            }
            b.for_(Operand::i32(0), once, 1, |b, _| {
                walked.lane_rows.evaluators.clone_from(&found);
                (first..first + group).for_each(|state| self.walk_state(b, lane, carry, walked, state));
                walked.sums.assign(b, &sums);
            });
            walked.sums.take(&sums);
        }
    }

    /// Finds the values of rows that all states read.
    fn find_row_values(&self, b: &mut Builder, lane_rows: &mut LaneRows<'_, 's>) {
        let values = constant_along(&self.form.program, self.form.state, self.form.walked().into_iter());
        for (evaluator, eight) in lane_rows.evaluators.iter_mut().zip(&mut lane_rows.eights) {
            for value in &values {
                (0..SUBTILE).for_each(|step| _ = evaluator.value(b, eight, *value, StateStep { state: 0, step }));
            }
        }
    }

    /// Walks one state of the lane's rows through a sub-tile, and loads the next one's tiles, if it is of the same group.
    fn walk_state<'k>(
        &'k self,
        b: &mut Builder,
        lane: &Lane<'k, 's>,
        carry: &Carry,
        walked: &mut Walked<'_, 'k, 's>,
        state: u32,
    ) {
        let Walked { at, saved, lane_rows, sums } = walked;
        let SubtileAt { tile, column, half, number, .. } = *at;
        sums.rows = vec![vec![None; SUBTILE as usize]; self.form.row_sums.len()];
        for (row, saved) in saved.iter().enumerate() {
            let own = RowState { row, state };
            self.walk_on(b, lane, lane_rows, own, saved[state as usize], sums);
            self.add_totals(b, carry, lane_rows, own, false);
        }
        if !(state + 1).is_multiple_of(self.states_at_once()) {
            self.load_states(b, lane_rows, lane, tile, state + 1, column, SUBTILE);
        } else if state + 1 == self.schedule.states && self.schedule.saved_ahead == 0 {
            self.take_up_next(b, lane, carry, number);
        }
        self.put(b, lane, sums, state, false);
        for row in 0..lane.rows.len() {
            let own = RowState { row, state };
            self.walk_back(b, lane, carry, lane_rows, own, sums);
        }
        self.put(b, lane, sums, state, true);
        if let Some(rows) = self.row_sums.as_ref().filter(|rows| (state + 1).is_multiple_of(rows.batch)) {
            let batch = BatchPlace { half, subtile: number, batch: state / rows.batch };
            self.add_batch(b, rows, batch);
        }
    }

    /// The values of the lane's rows at some steps of a tile, from a column on.
    pub(super) fn lane_rows<'k>(
        &'k self,
        b: &mut Builder,
        lane: &Lane<'k, 's>,
        tile: &TileAt,
        column: Operand,
        steps: u32,
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
                let load = |b: &mut Builder| self.tile_steps(b, i, tile.stage, row, column, steps);
                let values = if own.rows { load(b) } else { shared.entry(i).or_insert_with(|| load(b)).clone() };
                tiles.insert((i, 0), values);
            }
            let (before, after, cotangents) = (HashMap::new(), HashMap::new(), HashMap::new());
            eights.push(Eight { kernel: self, tiles, before, after, cotangents, first });
        }
        let exists = (0..steps).map(|step| self.step_exists(b, tile, column, step)).collect();
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
        let layout = self.base.layouts.tile(&self.tiles.tiles[i]);
        let from = self.base.element(b, layout, stage, row, column);
        load_steps(b, Memory::Shared(self.base.tiles[i]), from, count)
    }

    /// Loads some steps of the tiles with states from a column on, for one of the lane's states.
    pub(super) fn load_states(
        &self,
        b: &mut Builder,
        lane_rows: &mut LaneRows,
        lane: &Lane,
        tile: &TileAt,
        state: u32,
        column: Operand,
        steps: u32,
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
                        self.tile_steps(b, i, tile.stage, row, column, steps)
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
