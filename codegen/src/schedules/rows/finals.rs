//! Outputs that a row has once: its final state, and what is computed from it.

use super::{Row, RowsKernel};
use crate::abi::{Tensor, axes};
use crate::block::args::index_of;
use crate::block::point::{Leaves, Point, Position};
use crate::build::Builder;
use crate::tile::Operand;
use oplus_dsl::ir::{Axis, Op, Program, Value};

impl RowsKernel<'_> {
    /// Stores the final outputs of a team's rows, by one of its lanes.
    pub(super) fn finals(&self, b: &mut Builder, rows: &[Row]) {
        if !self.stage.has_finals() {
            return;
        }
        let first = b.eq(self.lane, 0);
        let first_warp = b.eq(self.warp, 0);
        let leads = b.and(first, first_warp);
        let empty = self.empty_program();
        let any = b.ne(self.len, 0);
        for row in rows {
            let writes = b.and(leads, row.exists);
            b.if_(writes, |b| {
                b.if_else(any, |b| self.write(b, row, &self.stage.program), |b| self.write(b, row, &empty));
            });
        }
    }

    fn write(&self, b: &mut Builder, row: &Row, program: &Program) {
        let mut point = Point::new(program, Some(self.scan.axis));
        for output in self.outputs(true) {
            let tensor = Tensor::Output(output);
            let value = program.outputs[output as usize].value;
            let value = point.here(b, &mut FinalLeaves { kernel: self, row }, value);
            b.store(self.args.memory(tensor), row.bases[&tensor], &[value], None);
        }
    }

    /// The stage's program for rows without elements: `first` and `last` are their value for an empty axis.
    fn empty_program(&self) -> Program {
        let mut program = self.stage.program.clone();
        for node in &mut program.nodes {
            if let Op::First { axis, empty, .. } | Op::Last { axis, empty, .. } = node.op
                && axis == self.scan.axis
            {
                node.op = Op::Broadcast(empty);
            }
        }
        program
    }
}

/// The leaves at the last point of the scan.
struct FinalLeaves<'k, 's> {
    kernel: &'k RowsKernel<'s>,
    row: &'k Row<'s>,
}

impl FinalLeaves<'_, '_> {
    /// The index of a position along the scan axis.
    fn at(&self, b: &mut Builder, at: Position) -> Operand {
        at.at_last(self.kernel.scan.reverse).from_end(b, self.kernel.len)
    }
}

impl Leaves for FinalLeaves<'_, '_> {
    fn param(&mut self, b: &mut Builder, param: u32, at: Position) -> Operand {
        let tensor = Tensor::Param(param);
        if !axes(self.kernel.stage, tensor).contains(&self.kernel.scan.axis) {
            return b.load1(self.kernel.args.memory(tensor), self.row.bases[&tensor]);
        }
        let index = self.at(b, at);
        self.kernel.far(b, self.row, param, index)
    }

    fn state(&mut self, _: &mut Builder, _: Value, field: u32, _: Position) -> Operand {
        self.row.carry[self.kernel.monoid.slot(field)].into()
    }

    fn index(&mut self, b: &mut Builder, axis: Axis) -> Operand {
        if axis == self.kernel.scan.axis { self.at(b, Position::HERE) } else { index_of(&self.row.indices, axis) }
    }

    fn size(&mut self, _: &mut Builder, axis: Axis) -> Operand {
        self.kernel.args.size(axis)
    }
}
