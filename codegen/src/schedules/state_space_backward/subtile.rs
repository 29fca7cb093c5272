//! The values at hand while a sub-tile is walked.

use super::StateSpaceBackwardKernel;
use crate::block::state_step::{Evaluator, Source, StateStep};
use crate::build::Builder;
use crate::tile::{Operand, Reg};
use oplus_dsl::ir::{Op, Value};
use std::collections::HashMap;

/// Sums over time so far.
pub(super) struct Totals {
    /// Sums of maps of states: by sum, row of the lane and state.
    pub states: Vec<Vec<Vec<Reg>>>,
    /// Sums of values of the lane's first row: by sum.
    pub rows: Vec<Reg>,
}

/// The carry of a lane from sub-tile to sub-tile, by row of the lane and state.
pub(super) struct Carry {
    /// The decay times the cotangent of the sub-tile's first step: that of the state before it.
    pub cotangents: Vec<Vec<Reg>>,
    /// The states before the next sub-tiles, each loaded again once its sub-tile has begun.
    pub states: Vec<Vec<Vec<Reg>>>,
    pub totals: Totals,
    /// The index of the saved states of the sub-tile that was loaded last, by row of the lane, `i64`, and its number, `i32`.
    pub saved: Vec<Reg>,
    pub number: Reg,
}

impl Carry {
    /// The states before the `j`-th sub-tile of half a tile.
    pub(super) fn before(&self, j: u32) -> &[Vec<Reg>] {
        &self.states[j as usize % self.states.len()]
    }
}

/// A sub-tile being walked.
pub(super) struct Eight<'k, 's> {
    pub kernel: &'k StateSpaceBackwardKernel<'s>,
    /// The loaded values, by tile and state.
    pub tiles: HashMap<(usize, u32), Vec<Operand>>,
    pub before: HashMap<StateStep, Operand>,
    pub after: HashMap<StateStep, Operand>,
    pub cotangents: HashMap<StateStep, Operand>,
    /// The index of its first step, `i64`.
    pub first: Operand,
}

/// The lane's rows of a sub-tile.
pub(super) struct LaneRows<'k, 's> {
    pub evaluators: Vec<Evaluator<'k>>,
    pub eights: Vec<Eight<'k, 's>>,
    /// Whether each step exists.
    pub exists: Vec<Operand>,
}

impl Source for Eight<'_, '_> {
    fn leaf(&mut self, b: &mut Builder, value: Value, at: StateStep) -> Option<Operand> {
        let form = self.kernel.form;
        if let Some(i) = self.kernel.tiles.place(value) {
            let state = if self.kernel.tiles.tiles[i].states { at.state } else { 0 };
            return Some(self.tiles[&(i, state)][at.step as usize]);
        }
        match form.program.node(value).op {
            Op::Field(tuple, _) if tuple == form.exclusive => Some(self.before[&at]),
            Op::Field(tuple, _) if tuple == form.back => Some(self.cotangents[&at]),
            Op::Field(..) => Some(self.after[&at]),
            Op::Index(_) => Some(b.add(self.first, at.step)),
            _ => None,
        }
    }
}
