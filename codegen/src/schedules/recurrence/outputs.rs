//! Stores: outputs at a step, and last states.

use oplus_dsl::ir::{Axis, Output};

use super::RecurrenceKernel;
use super::values::Values;
use crate::abi::{Tensor, axes};
use crate::build::Builder;
use crate::tile::{Operand, Reg};

impl<'s> RecurrenceKernel<'s> {
    /// Stores the outputs at a step.
    pub(super) fn store_step(&self, b: &mut Builder, values: &mut Values<'_, 's>) {
        let time = values.time();
        for k in (0..self.stage.program.outputs.len()).filter(|k| !self.stage.is_final(*k)) {
            self.store(b, values, k, Some(time));
        }
    }

    /// Stores the last states.
    pub(super) fn store_ends(&self, b: &mut Builder, mut values: Values<'_, 's>, states: &[Reg]) {
        values.after = states.iter().map(|state| Operand::from(*state)).collect();
        for k in (0..self.stage.program.outputs.len()).filter(|k| self.stage.is_final(*k)) {
            self.store(b, &mut values, k, None);
        }
    }

    fn store(&self, b: &mut Builder, values: &mut Values<'_, 's>, output: usize, time: Option<Operand>) {
        let (tensor, along) = (Tensor::Output(output as u32), self.scan.scan.along);
        let Output { value, .. } = self.stage.program.outputs[output];
        let mut indices: Vec<(Axis, Operand)> = self.row.clone();
        indices.extend(time.map(|time| (self.scan.scan.axis, time)));
        indices.push((along, self.first));
        let start = self.args.offset(b, tensor, &indices);
        if !axes(self.stage, tensor).contains(&along) {
            let value = values.of_place(b, value, 0);
            let first = b.eq(self.position, Operand::i32(0));
            let guard = b.and(first, self.row_exists);
            return b.store(self.memory(tensor), start, &[value], Some(guard));
        }
        let elements = values.of_places(b, value);
        let access = self.access(tensor);
        for (number, elements) in elements.chunks(access as usize).enumerate() {
            let place = number as u32 * access;
            let further = b.mul(self.args.stride(tensor, along), Operand::i64(i64::from(place)));
            let index = b.add(start, further);
            let guard = b.and(self.exists[place as usize], self.row_exists);
            b.store(self.memory(tensor), index, elements, Some(guard));
        }
    }
}
