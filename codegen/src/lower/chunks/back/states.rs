//! Copies of saved states to shared memory.

use super::{BackKernel, STAGES, TIMES};
use crate::build::Builder;
use crate::tile::{Mbarrier, Operand, Stmt};
use oplus_dsl::ir::{Axis, Binary};

impl BackKernel<'_> {
    /// Starts the copies of S and D before and after a chunk into a stage.
    pub(super) fn fetch_states(
        &self,
        b: &mut Builder,
        outer: &[(Axis, Operand)],
        (chunk, chunks): (Operand, Operand),
        stage: Operand,
    ) {
        let row = self.recurrence(b, outer);
        let before = b.mul(row, chunks);
        let number = b.add(before, chunk);
        let from = b.mul(number, Operand::i64(i64::from(TIMES * self.schedule.depth)));
        let first = b.eq(self.thread, Operand::i32(0));
        b.if_(first, |b| self.load_saved(b, from, stage));
    }

    /// One thread has both tiles copied.
    fn load_saved(&self, b: &mut Builder, from_index: Operand, stage: Operand) {
        let (count, bytes) = (self.states.len() as i32, self.states.elem.bytes().unwrap_or(2) as i32);
        let mbarrier = Mbarrier { array: self.states.full, index: stage };
        b.push(Stmt::MbarrierExpect(mbarrier, Operand::i32(2 * count * bytes)));
        let to_index = b.mul(stage, Operand::i32(count));
        for (tile, from) in [&self.states, &self.duals].into_iter().zip(&self.args.scratch) {
            let (to, from, count) = (tile.array, *from, Operand::i32(count));
            b.push(Stmt::BulkLoad { to, to_index, from, from_index, count, mbarrier });
        }
    }

    /// The number of a recurrence: that of its block in the first sweeps.
    fn recurrence(&self, b: &mut Builder, outer: &[(Axis, Operand)]) -> Operand {
        self.form.states.outer.iter().fold(Operand::i64(0), |number, axis| {
            let above = b.mul(number, self.args.size(axis));
            let index = outer.iter().find(|(a, _)| *a == axis).map_or(Operand::i64(0), |(_, index)| *index);
            b.add(above, index)
        })
    }

    /// The stage of a turn, and the parity of its phase.
    pub(super) fn stage_of(&self, b: &mut Builder, turn: Operand) -> (Operand, Operand) {
        let stages = Operand::i32(STAGES as i32);
        let [stage, round] = [Binary::Rem, Binary::Div].map(|op| b.binary(op, turn, stages));
        (stage, b.binary(Binary::And, round, Operand::i32(1)))
    }
}
