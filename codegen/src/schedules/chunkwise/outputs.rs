//! The stores: outputs at every time, and final states at the end.

use super::staged::Staged;
use super::state::State;
use super::walk::Chunk;
use super::{COLUMNS, ChunkwiseKernel};
use crate::block::matmul::{Blocks, Factor};
use crate::block::output::{StoredOutput, store_two};
use crate::block::pair::{Coordinates, Values};
use crate::build::Builder;
use crate::tile::Operand;
use oplus_dsl::ir::{AxisSet, Op, Value};

impl ChunkwiseKernel<'_> {
    /// Stores the outputs of a chunk: a value for each time and place of the width.
    pub(super) fn store_outputs(
        &self,
        b: &mut Builder,
        mut values: Values,
        chunk: &Chunk,
        queries: Factor,
        y: &Blocks,
    ) {
        let Chunk { iteration, first, values: Factor { start: stage, .. }, .. } = *chunk;
        let Some(readout) = &self.form.readout else { return };
        self.wait_gate(b, iteration);
        let mut staged = self.staged(b, queries);
        let own = [self.first_row(b), self.fragment.column(b)];
        let [row, column] = if self.gate.is_some() || self.is_scarce() {
            own.map(|first| self.rematerialiser.of(b, first))
        } else {
            own
        };
        let time = b.add(first, row);
        for h in 0..2 {
            let at = b.add(time, h * COLUMNS);
            values.set_row(h, self.index_along(b, at, self.form.time));
            values.read_row(b, h);
        }
        for (block, y) in y.iter().enumerate() {
            let mut values = values.clone();
            for c in 0..2 {
                let at = b.add(column, block as u32 * COLUMNS + c);
                values.set_column(c, self.index_along(b, at, self.form.width));
            }
            self.read_gates(b, &mut values, row, column, block as u32);
            let own = self.values.whole_block(b, stage, row, Operand::i32(block as i32), column);
            for h in 0..2 {
                let coordinates = [0, 1].map(|c| Coordinates { row: Some(h), column: Some(c), inner: None });
                for (c, coordinates) in coordinates.into_iter().enumerate() {
                    values.set_param(self.form.value, coordinates, own[2 * h as usize + c]);
                    let sum = values.product(b, Some(y[2 * h as usize + c]), &readout.factors, coordinates);
                    values.set_state((readout.tuple, 0), coordinates, sum.unwrap_or(y[2 * h as usize + c]));
                }
                self.store_two(b, &mut values, staged.as_mut(), h, block as u32, coordinates);
            }
        }
        self.store_staged(b, &values, first, staged);
    }

    /// Stores the outputs with time at two neighbouring places of the width, in row h of the thread's two and a block.
    fn store_two(
        &self,
        b: &mut Builder,
        values: &mut Values,
        mut staged: Option<&mut Staged>,
        h: u32,
        block: u32,
        coordinates: [Coordinates; 2],
    ) {
        for output in (0..self.stage.program.outputs.len()).filter(|output| !self.stage.is_final(*output)) {
            let two = coordinates.map(|coordinates| values.value(b, self.output(output), coordinates));
            if !self.stage(b, staged.as_deref_mut(), output, h, block, &two) {
                self.store(b, values, output, coordinates);
            }
        }
    }

    /// Stores the outputs that are written once, at the end.
    pub(super) fn finals(&self, b: &mut Builder, state: &State) {
        if self.saved.is_some() && !self.form.reverse {
            return;
        }
        let finals: Vec<usize> =
            (0..self.stage.program.outputs.len()).filter(|output| self.stage.is_final(*output)).collect();
        if finals.is_empty() {
            return;
        }
        let lasts = self.lasts();
        let [row, column] = [self.first_row(b), self.fragment.column(b)].map(|first| self.rematerialiser.of(b, first));
        let mut values = self.values(b);
        self.set_width(b, &mut values, row);
        for (block, sums) in state.whole_blocks(b).into_iter().enumerate() {
            let mut values = values.clone();
            let coordinates = self.coordinates(b, &mut values, column, block as u32);
            for (coordinates, sum) in coordinates.into_iter().zip(sums) {
                lasts.iter().for_each(|last| values.set(*last, coordinates, sum));
            }
            for two in coordinates.chunks(2) {
                finals.iter().for_each(|output| self.store(b, &mut values, *output, [two[0], two[1]]));
            }
        }
    }

    /// The nodes that are the state at the end.
    fn lasts(&self) -> Vec<Value> {
        let nodes = &self.stage.program.nodes;
        let state = Op::Field(self.form.state.0, self.form.state.1);
        let is_state = |v: &Value| nodes[v.0 as usize].op == state;
        // In reverse, what remains at the end is the cotangent of the state before the first time: decay·λ there, or λ.
        let is_last = |op: &Op| match op {
            Op::Last { value, .. } if !self.form.reverse => is_state(value),
            Op::First { value, .. } | Op::Last { value, .. } => {
                is_state(value) || nodes[value.0 as usize].op.operands().iter().any(is_state)
            }
            _ => false,
        };
        (0..nodes.len() as u32).map(Value).filter(|v| is_last(&nodes[v.0 as usize].op)).collect()
    }

    /// Stores an output at two places, neighbours along the depth if it is final, else along the width.
    fn store(&self, b: &mut Builder, values: &mut Values, output: usize, coordinates: [Coordinates; 2]) {
        let unit = if self.stage.is_final(output) { self.form.depth } else { self.form.width };
        let units = AxisSet::of(self.form.depth).with(self.form.width);
        let (other, vector) = (units.minus(AxisSet::of(unit)), self.schedule.vector);
        let stored = StoredOutput { stage: self.stage, args: &self.args, output, unit, other, vector };
        store_two(b, values, &stored, coordinates);
    }
}
