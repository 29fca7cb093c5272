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

/// When numbers of columns are needed.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Needed {
    /// As soon as the first contraction has ended.
    First,
    /// With the second contraction.
    Second,
}

/// The packed weights of a warp's 16 rows, for every 16 columns.
pub(super) type PackedRegisters = Vec<[Reg; 4]>;

impl FlashKernel<'_> {
    /// Reads numbers of columns ahead of their use.
    pub(super) fn read_numbers(&self, b: &mut Builder, values: &mut Values, when: Needed) {
        let columns = self.thread_tile().columns;
        // By then there are the weights of both contractions, too.
        if when == Needed::Second && columns > READ_AHEAD {
            return;
        }
        let program = &self.stage.program;
        let factors = &self.form.contractions[1].factors;
        for (value, node) in (0..).map(Value).zip(&program.nodes) {
            let Op::Param(param) = node.op else { continue };
            let is_needed = factors.iter().any(|factor| any(program, *factor, |v| v == value));
            if is_needed != (when == Needed::First) || !self.vectors.iter().any(|vector| vector.param == param) {
                continue;
            }
            for column in 0..READ_AHEAD.min(columns) {
                values.value(b, value, Coordinates { row: None, column: Some(column), inner: None });
            }
        }
    }

    /// The weights of a payload as left factors, in registers.
    pub(super) fn packed_weights(&self, b: &mut Builder, values: &mut Values, number: usize) -> PackedRegisters {
        let mut grid = vec![[zero(Ty::F32); 4]; self.blocks()];
        for (row, column) in self.pairs() {
            let coordinates = Coordinates { row: Some(row), column: Some(column), inner: None };
            let (block, at) = of_grid(self.blocks(), row, column);
            let weight = values.product(b, None, &self.form.payloads[number].factors, coordinates);
            grid[block][at] = weight.unwrap_or(Operand::Const(Ty::F32, Literal::Float(1.0)));
        }
        let packed = self.pack(b, &grid).concat();
        packed.into_iter().map(|four| four.map(|word| b.var(word))).collect()
    }
}
