//! The walk: a lane takes its states through time, chunk after chunk.
//!
//! The sums of a chunk are stored in the next one, after its loads: `ptxas` cannot tell that a store to the sums does not
//! touch the inputs, so it would hold back every load of the next chunk until the reduction is through. For the same
//! reason, values that do not depend on states are loaded one chunk ahead.

use super::global::Global;
use super::lane::LanePlace;
use super::saved::{Saved, StateRun};
use super::sources::{Chunk, Finals};
use super::{CHUNK, StateSpace, StateSpaceKernel, Time};
use crate::abi::Tensor;
use crate::block::carry::{Fields, assign, select};
use crate::block::lane_sum::Lanes;
use crate::block::state_step::{Evaluator, StateStep};
use crate::build::{Builder, operands, zero};
use crate::target::WARP;
use crate::tile::{Expr, Memory, Operand, Reg, Shuffle, Stmt};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Binary, Op, Value};
use std::collections::HashMap;

/// The values that a lane keeps all the time.
struct Lane<'k, 's> {
    lanes: Lanes,
    /// Its row in the block, `i32`.
    row: Operand,
    /// Its first state, `i32`, and whether each exists.
    first_state: Operand,
    exists: Vec<Operand>,
    /// The evaluator of values that do not change in time.
    constants: Evaluator<'k>,
    source: Global<'k, 's>,
    /// Its states, field by field.
    states: Vec<Vec<Reg>>,
    /// The place of saved states, if they are saved, and that of its first one.
    saved: Option<(Saved, Operand)>,
}

/// The tile that is walked.
struct Tile {
    /// The lane's first element in each tile, and in each sum.
    bases: Vec<Operand>,
    sums: Vec<Operand>,
    time: Time,
    /// The values of the next chunk: by tile, those without states.
    next: Vec<Vec<Reg>>,
}

/// One term of a sum over states.
struct Term {
    element: Value,
    at: StateStep,
    /// Whether the state exists.
    exists: Operand,
}

impl<'s> StateSpaceKernel<'s> {
    pub(super) fn walk_role(&self, b: &mut Builder) {
        let lane = self.lane(b);
        self.each_tile(b, |b, stage, number| {
            let tile = self.tile(b, &lane, stage, number);
            self.walk(b, &lane, &tile);
        });
        let lane = self.rematerialised(b, lane);
        if self.schedule.ends {
            return self.store_segment_carries(b, lane.row, lane.first_state, &lane.states);
        }
        self.finals(b, &lane);
    }

    /// The lane with its coordinates rematerialised, so that none is kept in registers through the walk.
    fn rematerialised<'k>(&'k self, b: &mut Builder, lane: Lane<'k, 's>) -> Lane<'k, 's> {
        let (place, row, first_state) = self.shuffled_place(b);
        let mut source = Global::timeless(self, row, first_state);
        source.take_up(Some(&lane.source.elements_loaded()));
        let lanes = Lanes { position: place.position, ..lane.lanes };
        Lane { lanes, row, first_state, source, ..lane }
    }

    /// The lane's own place, rematerialised.
    fn shuffled_place(&self, b: &mut Builder) -> (LanePlace, Operand, Operand) {
        let [warp, own] = [self.frame.warp, self.frame.lane].map(|x| b.shuffle(Shuffle::Index, x, self.frame.lane));
        self.place(b, warp, own)
    }

    /// The place of a lane of a warp, its row in the block and its first state.
    fn place(&self, b: &mut Builder, warp: Operand, lane: Operand) -> (LanePlace, Operand, Operand) {
        let count = self.schedule.lanes;
        let place = LanePlace::of(b, lane, count);
        let before = b.mul(warp, WARP / count);
        let row = b.add(before, place.number);
        let first_state = b.mul(place.position, self.schedule.states);
        (place, row, first_state)
    }

    /// The lane's coordinates, and the values that it keeps.
    fn lane(&self, b: &mut Builder) -> Lane<'_, 's> {
        let (LanePlace { position, stride, .. }, row, first_state) = self.place(b, self.frame.warp, self.frame.lane);
        let source = Global::timeless(self, row, first_state);
        let constants = Evaluator::new(&self.stage.program, self.scan.axis, self.values.state);
        let exists = (0..self.schedule.states).map(|k| self.state_exists(b, first_state, k)).collect();
        let lanes = Lanes { count: self.schedule.lanes, stride, position, length: CHUNK };
        let saved = self.schedule.save.then(|| {
            let saved = Saved::find(b, self, self.schedule.rows());
            (saved, self.anchor_of_states(b, &saved, row, first_state))
        });
        let mut lane = Lane { lanes, row, first_state, exists, constants, source, states: vec![], saved };
        self.constants(b, &mut lane);
        lane
    }

    /// Computes the values that do not change in time, and the initial states.
    fn constants(&self, b: &mut Builder, lane: &mut Lane<'_, '_>) {
        let program = &self.stage.program;
        let Lane { constants, source, .. } = lane;
        for value in &self.values.constants {
            let states = if program.node(*value).axes.contains(self.values.state) { self.schedule.states } else { 1 };
            (0..states).for_each(|state| _ = constants.value(b, source, *value, StateStep { state, step: 0 }));
        }
        let init = if self.schedule.ends { vec![] } else { self.monoid.keep(self.scan.init) };
        lane.states = (0..self.schedule.states)
            .map(|state| {
                let fields = if init.is_empty() {
                    self.monoid.identity_state()
                } else {
                    init.iter().map(|v| constants.value(b, source, *v, StateStep { state, step: 0 })).collect()
                };
                b.vars(&fields)
            })
            .collect();
        if !self.schedule.ends {
            self.join(b, lane.row, lane.first_state, &lane.states);
        }
    }

    // ---- a tile

    /// The lanes that sum, and the lane's row in the block, `i32`: rematerialised for every tile where segments, and saved states or carries,
    /// leave many threads few registers.
    fn lanes_of_tile(&self, b: &mut Builder, lane: &Lane) -> (Lanes, Operand) {
        let StateSpace { segmented, save, ends, .. } = *self.schedule;
        if !(self.is_crowded() && segmented && (save || ends)) {
            return (lane.lanes, lane.row);
        }
        let (place, row, _) = self.shuffled_place(b);
        (Lanes { position: place.position, ..lane.lanes }, row)
    }

    fn tile(&self, b: &mut Builder, lane: &Lane, stage: Operand, number: Operand) -> Tile {
        let mut bases = vec![];
        let (lanes, lane_row) = self.lanes_of_tile(b, lane);
        for tile in &self.values.tiles {
            let row = if tile.rows { lane_row } else { Operand::i32(0) };
            let row = if tile.states {
                let first = b.mul(row, self.schedule.capacity());
                b.add(first, lanes.position)
            } else {
                row
            };
            bases.push(self.element(b, self.layouts.tile(tile), stage, row, Operand::i32(0)));
        }
        let first = lanes.first_step(b);
        let sum = |b: &mut Builder| self.element(b, self.layouts.row_tile(), stage, lane_row, first);
        let sums = self.sums.iter().map(|_| sum(b)).collect();
        let time = self.time(b, number);
        let ahead = self.values.tiles.iter().zip(&self.tiles).filter(|(tile, _)| !tile.states);
        let next = ahead.map(|(_, array)| {
            let ty = b.elem(Memory::Shared(*array)).value();
            (0..CHUNK).map(|_| b.var(zero(ty))).collect()
        });
        let next = next.collect();
        Tile { bases, sums, time, next }
    }

    fn walk(&self, b: &mut Builder, lane: &Lane, tile: &Tile) {
        if !self.is_exact() {
            return self.walk_whole(b, lane, tile);
        }
        let whole = b.eq(tile.time.steps, self.schedule.steps);
        b.if_else(whole, |b| self.walk_whole(b, lane, tile), |b| self.walk_part(b, lane, tile));
    }

    /// Walks all chunks of a tile, several per iteration of the loop.
    fn walk_whole(&self, b: &mut Builder, lane: &Lane, tile: &Tile) {
        let steps = self.schedule.steps as i32;
        let step = (CHUNK * self.schedule.unroll) as i32;
        let first = if self.scan.reverse { steps - CHUNK as i32 } else { 0 };
        self.read_ahead(b, tile, Operand::i32(first));
        let pending: Vec<Vec<Reg>> = self.sums.iter().map(|_| self.no_sums(b, lane)).collect();
        b.for_(Operand::i32(0), steps, step, |b, start| {
            let later = b.binary(Binary::Gt, start, 0);
            for j in 0..self.schedule.unroll {
                let at = b.add(start, j * CHUNK);
                let column = if self.scan.reverse { b.sub(Operand::i32(first), at) } else { at };
                if self.schedule.unroll % 2 == 1 || j % 2 == 0 {
                    self.save(b, lane, tile, at, column);
                }
                let sums = self.chunk(b, lane, tile, column, false);
                let back = if self.scan.reverse { CHUNK as i32 } else { -(CHUNK as i32) };
                let earlier = b.add(column, back);
                self.store(b, lane, tile, earlier, &pending, (j == 0).then_some(later));
                self.finish(b, lane, &sums, &pending);
            }
        });
        let last = if self.scan.reverse { 0 } else { steps - CHUNK as i32 };
        self.store(b, lane, tile, Operand::i32(last), &pending, None);
    }

    /// Walks the chunks of a tile in which time ends.
    fn walk_part(&self, b: &mut Builder, lane: &Lane, tile: &Tile) {
        let chunk = Operand::i32(CHUNK as i32);
        let up = b.add(tile.time.steps, CHUNK as i32 - 1);
        let end = b.binary(Binary::And, up, -(CHUNK as i32));
        let last = b.sub(end, chunk);
        self.read_ahead(b, tile, if self.scan.reverse { last } else { Operand::i32(0) });
        let pending: Vec<Vec<Reg>> = self.sums.iter().map(|_| self.no_sums(b, lane)).collect();
        b.for_(Operand::i32(0), end, chunk, |b, at| {
            let column = if self.scan.reverse { b.sub(last, at) } else { at };
            self.save(b, lane, tile, at, column);
            let sums = self.chunk(b, lane, tile, column, self.schedule.vector == 1);
            self.finish(b, lane, &sums, &pending);
            self.store(b, lane, tile, column, &pending, None);
        });
    }

    /// Saves the states before a chunk if it is the first of eight steps; `at` chunks have been walked, times four.
    fn save(&self, b: &mut Builder, lane: &Lane, tile: &Tile, at: Operand, column: Operand) {
        let Some((saved, anchor)) = &lane.saved else { return };
        let half = b.binary(Binary::And, column, CHUNK);
        let first = b.eq(half, if self.scan.reverse { CHUNK as i32 } else { 0 });
        let begins = b.eq(at, 0);
        let first = b.binary(Binary::Or, first, begins);
        let (inside, row) = (b.lt(column, tile.time.steps), b.lt(lane.row, self.frame.block.rows));
        let guard = b.and(inside, row);
        let guard = b.and(guard, first);
        let column = b.convert(Ty::I64, column);
        let step = b.add(tile.time.first, column);
        let position = b.mul(lane.lanes.position, self.schedule.states);
        let states: Vec<Operand> = lane.states.iter().map(|fields| fields[0].into()).collect();
        let run = StateRun { step, first: position, anchor: *anchor, states: &states };
        self.store_states(b, saved, run, guard);
    }

    /// Loads the chunk at a column of all tiles without states.
    fn read_ahead(&self, b: &mut Builder, tile: &Tile, column: Operand) {
        let ahead = (0..self.tiles.len()).filter(|i| !self.values.tiles[*i].states);
        for (i, regs) in ahead.zip(&tile.next) {
            let values = self.load(b, i, tile.bases[i], column);
            regs.iter().zip(values).for_each(|(reg, value)| b.assign(*reg, value));
        }
    }

    fn load(&self, b: &mut Builder, i: usize, base: Operand, column: Operand) -> Vec<Operand> {
        let memory = Memory::Shared(self.tiles[i]);
        let at = b.add(base, column);
        let zero = zero(b.elem(memory).value());
        b.load(memory, at, CHUNK, None, zero)
    }

    /// Walks the chunk at a column; gives the sums over the lane's own states at each step.
    fn chunk(&self, b: &mut Builder, lane: &Lane, tile: &Tile, column: Operand, masked: bool) -> Vec<Vec<Operand>> {
        let first = b.convert(Ty::I64, column);
        let first = b.add(tile.time.first, first);
        let mut source = Chunk { kernel: self, tiles: HashMap::new(), states: HashMap::new(), first };
        let ahead = (0..self.tiles.len()).filter(|i| !self.values.tiles[*i].states);
        for (i, regs) in ahead.zip(&tile.next) {
            let now = regs.iter().map(|r| b.let_(b.ty((*r).into()), Expr::Copy((*r).into()))).collect();
            source.tiles.insert((i, 0), now);
        }
        let further = if self.scan.reverse { -(CHUNK as i32) } else { CHUNK as i32 };
        let further = b.add(column, further);
        self.read_ahead(b, tile, further);
        let exists: Vec<Operand> = (0..CHUNK)
            .map(|j| {
                let at = b.add(column, j);
                if masked { b.lt(at, tile.time.steps) } else { Operand::bool(true) }
            })
            .collect();
        let mut evaluator = lane.constants.clone();
        let mut sums: Vec<Vec<Option<Operand>>> = vec![vec![None; CHUNK as usize]; self.sums.len()];
        for state in 0..self.schedule.states {
            self.load_states(b, &mut source, tile, state, column);
            let mut now = operands(&lane.states[state as usize]);
            for step in self.scan.in_order(CHUNK) {
                let at = StateStep { state, step };
                now = self.step(b, &mut evaluator, &mut source, at, now, exists[step as usize]);
                for (sum, (_, element)) in sums.iter_mut().zip(&self.values.sums) {
                    let so_far = &mut sum[step as usize];
                    let term = Term { element: *element, at, exists: lane.exists[state as usize] };
                    *so_far = Some(self.accumulate(b, &mut evaluator, &mut source, &term, *so_far));
                }
            }
            assign(b, &lane.states[state as usize], &now);
        }
        sums.into_iter().map(|sum| sum.into_iter().flatten().collect()).collect()
    }

    /// Loads the chunk of the tiles with states, for one of the lane's states.
    fn load_states(&self, b: &mut Builder, source: &mut Chunk, tile: &Tile, state: u32, column: Operand) {
        for i in (0..self.tiles.len()).filter(|i| self.values.tiles[*i].states) {
            let row = (state * self.schedule.lanes * self.layouts.tile(&self.values.tiles[i]).pitch) as i32;
            let base = b.add(tile.bases[i], row);
            let values = self.load(b, i, base, column);
            source.tiles.insert((i, state), values);
        }
    }

    /// The state after a step; the state before it where the step does not exist.
    fn step(
        &self,
        b: &mut Builder,
        evaluator: &mut Evaluator,
        source: &mut Chunk,
        at: StateStep,
        before: Fields,
        exists: Operand,
    ) -> Fields {
        let element: Fields = self.scan.elements.iter().map(|v| evaluator.value(b, source, *v, at)).collect();
        let after = self.monoid.apply(b, &before, &element);
        let after = select(b, exists, &after, &before);
        source.states.insert(at, (before, after.clone()));
        after
    }

    /// Adds one more term to a sum; nothing where its state does not exist.
    fn accumulate(
        &self,
        b: &mut Builder,
        evaluator: &mut Evaluator,
        source: &mut Chunk,
        term: &Term,
        so_far: Option<Operand>,
    ) -> Operand {
        let Term { element, at, exists } = *term;
        let factors = match self.stage.program.node(element).op {
            Op::Binary(Binary::Mul, x, y) if !self.schedule.padded => Some((x, y)),
            _ => None,
        };
        if let (Some((x, y)), Some(sum)) = (factors, so_far) {
            let [x, y] = [x, y].map(|v| evaluator.value(b, source, v, at));
            return b.fma(x, y, sum);
        }
        let term = evaluator.value(b, source, element, at);
        let term = b.select(exists, term, zero(Ty::F32));
        match so_far {
            Some(sum) => b.add(sum, term),
            None => term,
        }
    }

    // ---- sums

    /// Registers for the steps that a lane ends with.
    fn no_sums(&self, b: &mut Builder, lane: &Lane) -> Vec<Reg> {
        (0..lane.lanes.steps()).map(|_| b.var(zero(Ty::F32))).collect()
    }

    /// Sums over the lanes of a row.
    fn finish(&self, b: &mut Builder, lane: &Lane, sums: &[Vec<Operand>], pending: &[Vec<Reg>]) {
        for (sum, regs) in sums.iter().zip(pending) {
            let steps = lane.lanes.sum(b, sum);
            regs.iter().zip(steps).for_each(|(reg, value)| b.assign(*reg, value));
        }
    }

    /// Stores the sums of the chunk at a column, when all lanes have read the tile that the sums may overwrite.
    fn store(
        &self,
        b: &mut Builder,
        lane: &Lane,
        tile: &Tile,
        column: Operand,
        pending: &[Vec<Reg>],
        guard: Option<Operand>,
    ) {
        if self.values.over.iter().any(Option::is_some) {
            b.push(Stmt::SyncWarp);
        }
        let keeps = lane.lanes.keeps(b);
        let guard = guard.map_or(keeps, |guard| b.and(guard, keeps));
        for (k, regs) in pending.iter().enumerate() {
            let at = b.add(tile.sums[k], column);
            let values = operands(regs);
            b.store(Memory::Shared(self.sums[k]), at, &values, Some(guard));
        }
    }

    // ---- final states

    /// Writes the outputs that depend on the states at the end of time.
    fn finals(&self, b: &mut Builder, lane: &Lane) {
        let program = &self.stage.program;
        let ended = self.frame.segment.as_ref().map_or(Operand::bool(true), |segment| segment.is_last);
        for k in (0..program.outputs.len()).filter(|k| self.stage.is_final(*k)) {
            let (tensor, output) = (Tensor::Output(k as u32), &program.outputs[k]);
            let each = output.axes.contains(&self.values.state);
            let leads = b.eq(lane.lanes.position, 0);
            for state in 0..if each { self.schedule.states } else { 1 } {
                let mut source = Finals { source: lane.source.clone(), states: &lane.states };
                let value = lane.constants.clone().value(b, &mut source, output.value, StateStep { state, step: 0 });
                let (offset, exists) = lane.source.offset(b, tensor, state);
                let guard = if each { exists } else { b.and(exists, leads) };
                let guard = b.and(guard, ended);
                b.store(self.args.memory(tensor), offset, &[value], Some(guard));
            }
        }
    }
}
