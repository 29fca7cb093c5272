//! The inverse of a diagonal block of the system, by substitution. The identity is left out: it is added in `f32`.

use oplus_dsl::Ty;

use super::scores::Rows;
use super::{COLUMNS, DeltaKernel, PITCH, ROWS};
use crate::build::{Builder, zero};
use crate::schedules::chunkwise::decay::f32;
use crate::tile::{Memory, Operand, Stmt};
use oplus_dsl::ir::Binary;

/// Elements of a row that are read at once.
const ACCESS: u32 = 4;

impl DeltaKernel<'_> {
    /// Writes the inverse of 1 − A, less 1, for the warp's 16 rows: a lane has a column of it.
    pub(super) fn invert(&self, b: &mut Builder, rows: Rows) {
        b.push(Stmt::SyncWarp);
        let column = b.binary(Binary::Rem, self.lane, Operand::i32(ROWS as i32));
        let mut inverse: Vec<Operand> = vec![];
        for row in 0..ROWS {
            let is_own = b.eq(column, Operand::i32(row as i32));
            let mut sum = b.select(is_own, f32(1.0), f32(0.0));
            for first in (0..row).step_by(ACCESS as usize) {
                let index = Operand::i32(((rows.warp * ROWS + row) * PITCH + first) as i32);
                let four = b.load(Memory::Shared(self.diagonal), index, ACCESS, None, zero(Ty::F32));
                for (factor, known) in four.iter().zip(&inverse[first as usize..]) {
                    sum = b.fma(*factor, *known, sum);
                }
            }
            inverse.push(sum);
        }
        let [piece, within] = [Binary::Div, Binary::Rem].map(|op| b.binary(op, column, Operand::i32(COLUMNS as i32)));
        let piece = b.add(piece, Operand::i32((2 * rows.warp) as i32));
        let is_first = b.lt(self.lane, Operand::i32(ROWS as i32));
        for (row, element) in (0..).zip(inverse) {
            let index = self.system.piece_index(b, Operand::i32((rows.warp * ROWS) as i32 + row), piece);
            let index = b.add(index, within);
            let is_own = b.eq(column, Operand::i32(row));
            let element = b.select(is_own, f32(0.0), element);
            b.store(Memory::Shared(self.system.array), index, &[element], Some(is_first));
        }
    }
}
