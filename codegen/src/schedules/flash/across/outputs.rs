//! The outputs of a block's rows.

use super::super::FlashKernel;
use super::super::finals::WideOutput;
use super::super::sums::Sums;
use crate::abi::{Tensor, axes, elem};
use crate::build::Builder;

impl FlashKernel<'_> {
    /// Stores the outputs of the thread's rows.
    pub(super) fn store_outputs(&self, b: &mut Builder, sums: &Sums) {
        let thread_tile = self.thread_tile();
        let mut values = self.new_values();
        self.set_rows(b, &mut values, thread_tile);
        for output in (0..self.stage.program.outputs.len()).filter(|output| self.is_of_rows(*output)) {
            let tensor = Tensor::Output(output as u32);
            let axis = axes(self.stage, tensor).iter().copied().find(|axis| self.form.inner.contains(axis));
            for row in 0..thread_tile.rows {
                match axis {
                    Some(axis) if elem(self.stage, tensor).bytes() == Some(2) => {
                        self.store_whole(b, &values, sums, row, WideOutput { output, axis });
                    }
                    _ => self.store(b, &mut values, sums, row..row + 1, output),
                }
            }
        }
    }
}
