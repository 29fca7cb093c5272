//! The outputs over the width of rules whose steps read nothing of the state: the walk of cotangents stores them, as nothing else needs p.

use super::common::set_sum;
use super::walk::{Walk, WalkedChunk};
use crate::block::matmul::{Blocks, COLUMNS, ROWS};
use crate::block::output::store_one;
use crate::block::pair::Coordinates;
use crate::build::Builder;
use crate::schedules::chunk_delta::{ELEMENTS, PLACES, Staged};
use crate::stage::kind::{DeltaCotangent, DeltaSum};

impl Walk<'_> {
    /// Whether the walk stores the outputs over the width.
    fn stores_width(&self) -> bool {
        self.is_back && !self.kernel.form.reads
    }

    /// The output over the width that goes through shared memory, where the walk stores one.
    pub(super) fn stage_width(&self, b: &mut Builder) -> Option<Staged> {
        let mut outputs = self.form.outputs_of(DeltaCotangent::OverWidth).filter(|_| self.stores_width());
        let output = outputs.next().filter(|_| outputs.next().is_none())?;
        Some(Staged::of_output(b, &self.kernel, output))
    }

    /// Stores the outputs over the width at a chunk's times, which are maps of p, at the warp's places.
    pub(super) fn store_width(&self, b: &mut Builder, rows: &Blocks, chunk: &WalkedChunk<'_>) {
        if !self.stores_width() {
            return;
        }
        let own = if self.has_few_registers() {
            Some(self.kernel.rematerialised_behind_barrier(b))
        } else {
            self.kernel.rematerialised_in_walk(b)
        };
        let kernel = own.as_ref().unwrap_or(&self.kernel);
        let mut values = kernel.values_at();
        kernel.set_width(b, &mut values);
        let first = b.add(chunk.first, chunk.number * ROWS);
        let column = kernel.fragment.column(b);
        let time = b.add(first, column);
        for (block, rows) in (0..).zip(rows) {
            let mut values = values.clone();
            for c in 0..2 {
                let at = b.add(time, block * COLUMNS + c);
                values.set_row(c, kernel.index_along(b, at, kernel.form.time));
            }
            for (element, (h, c)) in ELEMENTS.into_iter().enumerate() {
                let here = Coordinates { row: Some(c as u32), column: Some(PLACES[h]), inner: None };
                set_sum(b, self.form, &mut values, DeltaSum::Rows, rows[2 * h + c], here);
                if let Some(staged) = self.staged {
                    let value = values.value(b, kernel.stage.program.outputs[staged.output].value, here);
                    staged.put(b, kernel, block, element, value);
                    continue;
                }
                for output in self.form.outputs_of(DeltaCotangent::OverWidth) {
                    store_one(b, &mut values, kernel.stage, &kernel.args, output, here);
                }
            }
        }
        if let Some(staged) = self.staged {
            staged.store(b, kernel, &values, first);
        }
    }
}
