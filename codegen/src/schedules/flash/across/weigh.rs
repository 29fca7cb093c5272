//! The weights of a tile, and the numbers of columns that they need.

use super::super::FlashKernel;
use super::super::weigh::of_grid;
use crate::block::pair::{Coordinates, Values};
use crate::build::{Builder, zero};
use crate::tile::{Operand, Reg};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Literal, Op, Value};
use oplus_dsl::walk::any;

/// Columns whose numbers a thread reads ahead of their use: more take registers that there are not.
const READ_AHEAD: u32 = 16;

impl FlashKernel<'_> {
    /// Reads numbers of columns: those that are needed as soon as the first contraction has ended, or the others.
    pub(super) fn read_numbers(&self, b: &mut Builder, values: &mut Values, first: bool) {
        let program = &self.stage.program;
        let factors = &self.form.contractions[1].factors;
        for (value, node) in (0..).map(Value).zip(&program.nodes) {
            let Op::Param(param) = node.op else { continue };
            let is_needed = factors.iter().any(|factor| any(program, *factor, |v| v == value));
            if is_needed != first || !self.vectors.iter().any(|vector| vector.param == param) {
                continue;
            }
            for column in 0..READ_AHEAD.min(self.thread_tile().columns) {
                values.value(b, value, Coordinates { row: None, column: Some(column), inner: None });
            }
        }
    }

    /// The weights of a payload, in registers.
    pub(super) fn payload_weights(&self, b: &mut Builder, values: &mut Values, number: usize) -> Vec<[Reg; 4]> {
        let mut grid = vec![[zero(Ty::F32); 4]; self.blocks()];
        for (row, column) in self.pairs() {
            let coordinates = Coordinates { row: Some(row), column: Some(column), inner: None };
            let (block, at) = of_grid(self.blocks(), row, column);
            let weight = values.product(b, None, &self.form.payloads[number].factors, coordinates);
            grid[block][at] = weight.unwrap_or(Operand::Const(Ty::F32, Literal::Float(1.0)));
        }
        grid.into_iter().map(|four| four.map(|weight| b.var(weight))).collect()
    }
}
