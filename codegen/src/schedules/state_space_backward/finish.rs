//! The work after the states of a sub-tile: sums over the lanes of a row, outputs, totals over time; and the outputs at the end.

use super::StateSpaceBackwardKernel;
use super::lane::Lane;
use super::subtile::{Carry, Totals};
use super::terms::Term;
use crate::abi::Tensor;
use crate::block::lane_sum::over_lanes;
use crate::block::state_step::{Source, StateStep};
use crate::build::{Builder, zero};
use crate::schedules::state_space::{CHUNK, TileAt};
use crate::stage::kind::Given;
use crate::tile::{Memory, Operand, Reg, Stmt};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Binary, Op, Value};
use std::collections::HashMap;

/// The source of values of a row at some steps of a sub-tile.
struct Finish<'k, 's> {
    kernel: &'k StateSpaceBackwardKernel<'s>,
    stage: Operand,
    row: Operand,
    /// The first step in the tile, `i32`; its index, `i64`; how many.
    column: Operand,
    first: Operand,
    count: u32,
    /// Sums over states, by tuple.
    sums: HashMap<Value, Vec<Operand>>,
    tiles: HashMap<usize, Vec<Operand>>,
}

impl<'s> StateSpaceBackwardKernel<'s> {
    pub(super) fn totals(&self, b: &mut Builder) -> Totals {
        let (slots, states) = (self.schedule.rows, self.schedule.states);
        let mut reg = || b.var(zero(Ty::F32));
        let own = (0..self.form.state_totals.len())
            .map(|_| (0..slots).map(|_| (0..states).map(|_| reg()).collect()).collect())
            .collect();
        Totals { states: own, rows: (0..self.form.row_totals.len()).map(|_| reg()).collect() }
    }

    /// Writes the outputs of a sub-tile, from the sums of the lane by sum, row of the lane and step.
    pub(super) fn finish(
        &self,
        b: &mut Builder,
        lane: &Lane<'_, 's>,
        carry: &Carry,
        tile: &TileAt,
        column: Operand,
        states: &[Vec<Vec<Operand>>],
    ) {
        let lanes = self.lanes(b, lane);
        let mut sums = HashMap::new();
        for (sum, slots) in self.form.sums.iter().zip(states) {
            sums.insert(sum.tuple, self.lane_sum(b, lane, slots));
        }
        let (own, keeps) = (lanes.first_step(b), lanes.keeps(b));
        let column = b.add(column, own);
        let index = b.convert(Ty::I64, column);
        let first = b.add(tile.time.first, index);
        let (row, count, tiles) = (lane.rows[0], lanes.steps(), HashMap::new());
        let mut source = Finish { kernel: self, stage: tile.stage, row, column, first, count, sums, tiles };
        let mut evaluator = lane.constants[0].clone();
        let mut stores = vec![];
        for (k, array) in self.form.bodies().zip(&self.outputs) {
            let value = self.form.program.outputs[k].value;
            let value = |step| evaluator.value(b, &mut source, value, StateStep { state: 0, step });
            stores.push((*array, (0..count).map(value).collect::<Vec<_>>()));
        }
        for (i, sum) in self.form.row_totals.iter().enumerate() {
            let mut total: Operand = carry.totals.rows[i].into();
            for step in 0..count {
                let at = b.add(column, step);
                let exists = self.masks.row_totals[i].then(|| b.lt(at, tile.time.steps));
                let term = Term { sum, at: StateStep { state: 0, step }, exists };
                total = self.add_term(b, &mut evaluator, &mut source, &term, Some(total));
            }
            b.assign(carry.totals.rows[i], total);
        }
        if lanes.count > lanes.length {
            // Lanes that keep nothing have read what the others overwrite.
            b.push(Stmt::SyncWarp);
        }
        let at = self.base.element(b, self.base.layouts.row_tile(), tile.stage, row, column);
        for (array, values) in stores {
            for (access, values) in values.chunks(CHUNK as usize).enumerate() {
                let at = b.add(at, access as u32 * CHUNK);
                b.store(Memory::Shared(array), at, values, Some(keeps));
            }
        }
    }

    /// Writes the outputs that are known at the end of time.
    pub(super) fn finals(&self, b: &mut Builder, lane: &Lane<'_, 's>, carry: &Carry) {
        for (k, given) in self.form.given.iter().enumerate() {
            match given {
                Given::Initial => {
                    let last = self.base.frame.segment.as_ref().map_or(Operand::bool(true), |segment| segment.is_last);
                    self.write_states(b, lane, k, last, &carry.cotangents);
                }
                Given::States(i) => match &self.base.frame.segment {
                    Some(segment) => self.store_state_totals(b, lane, segment, *i, &carry.totals.states[*i]),
                    None => self.write_states(b, lane, k, Operand::bool(true), &carry.totals.states[*i]),
                },
                Given::Steps(i) => self.write_row(b, lane, k, *i, carry.totals.rows[*i]),
                Given::Body | Given::Rows(_) => {}
            }
        }
    }

    /// Writes a value for every state of every row of the lane, where the guard holds.
    fn write_states(&self, b: &mut Builder, lane: &Lane<'_, 's>, k: usize, guard: Operand, values: &[Vec<Reg>]) {
        let tensor = Tensor::Output(k as u32);
        for (source, values) in lane.sources.iter().zip(values) {
            for (state, value) in values.iter().enumerate() {
                let (offset, exists) = source.offset(b, tensor, state as u32);
                let guard = b.and(guard, exists);
                b.store(self.base.args.memory(tensor), offset, &[(*value).into()], Some(guard));
            }
        }
    }

    /// Writes a total of the lane's first row, over the lanes that have parts of it.
    fn write_row(&self, b: &mut Builder, lane: &Lane<'_, 's>, k: usize, i: usize, total: Reg) {
        let (tensor, lanes) = (Tensor::Output(k as u32), self.lanes(b, lane));
        let keeps = lanes.keeps(b);
        let own = b.select(keeps, total.into(), zero(Ty::F32));
        let apart: Vec<u32> = (0..lanes.count.ilog2()).rev().map(|bit| lanes.stride << bit).collect();
        let sum = over_lanes(b, Binary::Add, own, &apart);
        let leads = b.eq(lanes.position, 0);
        if let Some(segment) = &self.base.frame.segment {
            return self.store_row_total(b, lane, segment, i, sum, leads);
        }
        let (offset, exists) = lane.sources[0].offset(b, tensor, 0);
        let guard = b.and(leads, exists);
        b.store(self.base.args.memory(tensor), offset, &[sum], Some(guard));
    }
}

impl Source for Finish<'_, '_> {
    fn leaf(&mut self, b: &mut Builder, value: Value, at: StateStep) -> Option<Operand> {
        let kernel = self.kernel;
        if let Some(i) = kernel.tiles.place(value) {
            if !self.tiles.contains_key(&i) {
                let row = if kernel.tiles.tiles[i].rows { self.row } else { Operand::i32(0) };
                let steps = kernel.tile_steps(b, i, self.stage, row, self.column, self.count);
                self.tiles.insert(i, steps);
            }
            return Some(self.tiles[&i][at.step as usize]);
        }
        match kernel.form.program.node(value).op {
            Op::Field(tuple, _) => Some(self.sums[&tuple][at.step as usize]),
            Op::Index(_) => Some(b.add(self.first, at.step)),
            _ => None,
        }
    }
}
