//! What is written: outputs at every time, and what remains at the end.

use super::state::State;
use super::walk::Blocks;
use super::{COLUMNS, ChunksKernel};
use crate::abi::{Tensor, axes};
use crate::build::Builder;
use crate::lower::pairs::values::{Spot, Values};
use crate::tile::{Memory, Operand};
use oplus_dsl::ir::{Axis, Op, Value};

impl ChunksKernel<'_> {
    /// Stores the outputs of a chunk: a value for each time and place of the width.
    pub(super) fn store_outputs(&self, b: &mut Builder, values: &Values, (first, y): (Operand, &Blocks)) {
        let Some(readout) = &self.form.readout else { return };
        let mut values = values.clone();
        let (row, column) = (self.first_row(b), self.first_column(b));
        let row = b.add(first, row);
        for h in 0..2 {
            let at = b.add(row, Operand::i32((h * COLUMNS) as i32));
            values.set_row(h, self.place(b, at, self.form.time));
        }
        for (block, y) in y.iter().enumerate() {
            let mut values = values.clone();
            for c in 0..2 {
                let at = b.add(column, Operand::i32((block as u32 * COLUMNS + c) as i32));
                values.set_column(c, self.place(b, at, self.form.width));
            }
            for h in 0..2 {
                let spots = [0, 1].map(|c| Spot { row: Some(h), column: Some(c), place: None });
                for (c, spot) in spots.into_iter().enumerate() {
                    let sum = values.product(b, Some(y[2 * h as usize + c]), &readout.factors, spot);
                    values.set_state((readout.tuple, 0), spot, sum.unwrap_or(y[2 * h as usize + c]));
                }
                self.store_two(b, &mut values, spots);
            }
        }
    }

    /// The outputs with time at two neighbouring places of the width.
    fn store_two(&self, b: &mut Builder, values: &mut Values, spots: [Spot; 2]) {
        for output in 0..self.stage.program.outputs.len() {
            if !self.stage.is_final(output) {
                self.store(b, values, output, spots);
            }
        }
    }

    /// Stores what remains at the end.
    pub(super) fn finals(&self, b: &mut Builder, values: &Values, state: &State) {
        let finals: Vec<usize> =
            (0..self.stage.program.outputs.len()).filter(|output| self.stage.is_final(*output)).collect();
        if finals.is_empty() {
            return;
        }
        let lasts = self.lasts();
        for (block, sums) in state.blocks.iter().enumerate() {
            let mut values = values.clone();
            let spots = self.spots(b, &mut values, block as u32);
            for (spot, sum) in spots.into_iter().zip(sums) {
                lasts.iter().for_each(|last| values.set(*last, spot, (*sum).into()));
            }
            for two in spots.chunks(2) {
                finals.iter().for_each(|output| self.store(b, &mut values, *output, [two[0], two[1]]));
            }
        }
    }

    /// The nodes that are the state at the end.
    fn lasts(&self) -> Vec<Value> {
        let nodes = &self.stage.program.nodes;
        let state = Op::Field(self.form.state.0, self.form.state.1);
        let is_last = |op: &Op| matches!(op, Op::Last { value, .. } if nodes[value.0 as usize].op == state);
        (0..nodes.len() as u32).map(Value).filter(|v| is_last(&nodes[v.0 as usize].op)).collect()
    }

    /// Stores an output at two places, neighbours along its last axis.
    fn store(&self, b: &mut Builder, values: &mut Values, output: usize, spots: [Spot; 2]) {
        let tensor = Tensor::Output(output as u32);
        let value = self.stage.program.outputs[output].value;
        let memory = Memory::Global(self.args.pointer(tensor));
        let along = |spot: Spot| values.indices(b, spot);
        let places = spots.map(along);
        let two = spots.map(|spot| values.value(b, value, spot));
        let mut offset = |k: usize| self.args.offset(b, tensor, &places[k].0);
        let offsets = [offset(0), offset(1)];
        // Final outputs go along the depth, the others along the width.
        let unit = if self.stage.is_final(output) { self.form.depth } else { self.form.width };
        let is_unit = axes(self.stage, tensor).iter().rev().find(|a| self.is_unit(**a)) == Some(&unit);
        if self.schedule.vector > 1 && is_unit {
            b.store(memory, offsets[0], &two, Some(places[0].1));
        } else {
            (0..2).for_each(|k| b.store(memory, offsets[k], &two[k..=k], Some(places[k].1)));
        }
    }

    fn is_unit(&self, axis: Axis) -> bool {
        [self.form.depth, self.form.width].contains(&axis)
    }
}
