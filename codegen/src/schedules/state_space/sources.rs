//! The values that a walking lane has: at the steps of a chunk, and after the last one.

use super::StateSpaceKernel;
use super::global::Global;
use crate::block::carry::Fields;
use crate::block::state_step::{Source, StateStep};
use crate::build::Builder;
use crate::tile::{Operand, Reg};
use oplus_dsl::ir::{Op, Value};
use std::collections::HashMap;

/// The source of values in a chunk.
pub(super) struct Chunk<'k, 's> {
    pub kernel: &'k StateSpaceKernel<'s>,
    /// The loaded values, by tile and state.
    pub tiles: HashMap<(usize, u32), Vec<Operand>>,
    /// The states before and after each step.
    pub states: HashMap<StateStep, (Fields, Fields)>,
    /// The first step, `i64`.
    pub first: Operand,
}

impl Source for Chunk<'_, '_> {
    fn leaf(&mut self, b: &mut Builder, value: Value, at: StateStep) -> Option<Operand> {
        let kernel = self.kernel;
        if let Some(i) = kernel.values.tile(value) {
            return Some(self.tiles[&(i, at.state)][at.step as usize]);
        }
        match kernel.stage.program.node(value).op {
            Op::Field(tuple, field) => {
                let (before, after) = &self.states[&at];
                let state = if kernel.scan.inclusive == Some(tuple) { after } else { before };
                Some(state[kernel.monoid.slot(field)])
            }
            Op::Index(_) => Some(b.add(self.first, at.step)),
            _ => None,
        }
    }
}

/// The source of values after the last step.
pub(super) struct Finals<'l, 'k, 's> {
    pub source: Global<'k, 's>,
    pub states: &'l [Vec<Reg>],
}

impl Source for Finals<'_, '_, '_> {
    fn leaf(&mut self, b: &mut Builder, value: Value, at: StateStep) -> Option<Operand> {
        match self.source.kernel.stage.program.node(value).op {
            Op::Field(_, field) => Some(self.states[at.state as usize][self.source.kernel.monoid.slot(field)].into()),
            _ => self.source.leaf(b, value, at),
        }
    }
}
