//! Outputs: at every time, and of the last state.

use oplus_dsl::ir::{AxisSet, Op, Value};

use super::state::{PLACES, State};
use super::{COLUMNS, DeltaKernel, ELEMENTS};
use crate::abi::Tensor;
use crate::block::matmul::Blocks;
use crate::block::output::{StoredOutput, store_two};
use crate::block::pair::{Coordinates, Values};
use crate::build::Builder;
use crate::tile::{Memory, Operand};

impl DeltaKernel<'_> {
    /// Stores the outputs of a chunk, of what queries read.
    pub(in crate::schedules) fn store_outputs(&self, b: &mut Builder, reads: &Blocks, first: Operand) {
        let Some(readout) = &self.form.readout else { return };
        let own = self.rematerialised_in_walk(b).unwrap_or_else(|| self.clone());
        let mut values = own.values_at();
        own.set_width(b, &mut values);
        let column = own.fragment.column(b);
        let time = b.add(first, column);
        for (block, reads) in (0..).zip(reads) {
            let mut values = values.clone();
            for c in 0..2 {
                let at = b.add(time, Operand::i32((block * COLUMNS + c) as i32));
                values.set_row(c, own.index_along(b, at, self.form.time));
            }
            for (element, (h, c)) in ELEMENTS.into_iter().enumerate() {
                let here = Coordinates { row: Some(c as u32), column: Some(PLACES[h]), inner: None };
                let number = self.number(b, &mut values, &readout.query, here);
                let sum = b.mul(reads[2 * h + c], number);
                values.set(readout.value, here, sum);
                match self.staged {
                    Some(staged) => {
                        let value = values.value(b, self.stage.program.outputs[staged.output].value, here);
                        staged.put(b, self, block, element, value);
                    }
                    None => self.store_element(b, &mut values, here),
                }
            }
        }
        if let Some(staged) = self.staged {
            staged.store(b, self, &values, first);
        }
    }

    /// Stores the outputs with time at a point.
    fn store_element(&self, b: &mut Builder, values: &mut Values, here: Coordinates) {
        for output in (0..self.stage.program.outputs.len()).filter(|output| !self.stage.is_final(*output)) {
            let tensor = Tensor::Output(output as u32);
            let (indices, exists) = values.indices(b, here);
            let value = values.value(b, self.stage.program.outputs[output].value, here);
            let offset = self.args.offset(b, tensor, &indices);
            b.store(Memory::Global(self.args.pointer(tensor)), offset, &[value], Some(exists));
        }
    }

    /// Stores the outputs that are written once, at the end.
    pub(in crate::schedules) fn finals(&self, b: &mut Builder, state: &State) {
        let outputs = 0..self.stage.program.outputs.len();
        let finals: Vec<usize> = outputs.filter(|output| self.stage.is_final(*output)).collect();
        let lasts: Vec<Value> =
            (0..self.stage.program.nodes.len() as u32).map(Value).filter(|v| self.is_last(*v)).collect();
        if finals.is_empty() {
            return;
        }
        let kernel = self.rematerialised(b);
        let mut values = kernel.values_at();
        kernel.set_width_of_states(b, &mut values);
        for (block, sums) in (0..).zip(state.numbers(b)) {
            let mut values = values.clone();
            let coordinates = kernel.coordinates(b, &mut values, block);
            for (here, sum) in coordinates.into_iter().zip(sums) {
                lasts.iter().for_each(|last| values.set(*last, here, sum));
            }
            for two in coordinates.chunks(2) {
                finals.iter().for_each(|output| kernel.store_final(b, &mut values, *output, [two[0], two[1]]));
            }
        }
    }

    fn is_last(&self, value: Value) -> bool {
        matches!(self.stage.program.node(value).op, Op::Last { .. })
    }

    /// Stores an output at two places, neighbours along the depth.
    pub(in crate::schedules) fn store_final(
        &self,
        b: &mut Builder,
        values: &mut Values,
        output: usize,
        two: [Coordinates; 2],
    ) {
        let (unit, other) = (self.form.depth, AxisSet::of(self.form.width));
        let vector = self.schedule.vector;
        let stored = StoredOutput { stage: self.stage, args: &self.args, output, unit, other, vector };
        store_two(b, values, &stored, two);
    }
}
