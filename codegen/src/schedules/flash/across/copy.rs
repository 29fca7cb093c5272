//! The warps that copy: the rows of a block, and the tiles of columns.

use super::super::FlashKernel;
use super::course::{Course, Visit};
use crate::abi::Tensor;
use crate::block::copy::Source;
use crate::block::ring::RingStage;
use crate::build::Builder;
use crate::tile::Operand;

impl FlashKernel<'_> {
    /// Copies the rows of the block and all tiles of columns.
    pub(super) fn copy_across(&self, b: &mut Builder) {
        let number = b.var(Operand::i32(0));
        self.each_point(b, |kernel, b, course, round| {
            let read = RingStage::only(b, round.into()).before(b);
            b.wait(kernel.rows_empty, read);
            kernel.fill_rows(b, &kernel.source(&kernel.outer));
            kernel.each_visit(b, course, number, |b, visit| kernel.copy_visit(b, course, visit));
        });
    }

    fn source<'s>(&'s self, outer: &'s [(oplus_dsl::ir::Axis, Operand)]) -> Source<'s> {
        Source {
            args: &self.args,
            outer,
            threads: self.schedule.copying(),
            thread: self.thread.number,
            vector: self.schedule.vector,
            padded: false,
            fenced: true,
            // Few threads copy many pieces each, with few registers.
            rolled: true,
        }
    }

    /// Copies the tiles of a visit, once they have been left; numbers of columns come with the first of them.
    fn copy_visit(&self, b: &mut Builder, _course: &Course, visit: &Visit) {
        let outer = self.outer_of(b, visit);
        let source = self.source(&outer);
        let first = b.mul(visit.tile, self.schedule.columns);
        let filled = self.ring().at(b, visit.number);
        let left = filled.before(b);
        for (ring, tile) in self.column_tiles.iter().enumerate() {
            let at = b.add(left.index, ring as u32 * self.schedule.stages);
            b.wait(self.empty, RingStage { index: at, ..left });
            if ring == 0 {
                for vector in &self.vectors {
                    let origin = self.args.offset(b, Tensor::Param(vector.param), &outer);
                    vector.fill(b, &source, self.form.column, origin, first, filled.index);
                }
            }
            let origin = tile.origin(b, &source);
            tile.fill(b, &source, origin, first, filled.index);
        }
    }
}
