//! The stores of walks: the state before a tile, and rows of each time.

use super::TIMES;
use super::saved::ACCESS;
use super::walk::Walk;
use crate::block::matmul::{Blocks, COLUMNS, ROWS};
use crate::build::{Builder, zero};
use crate::schedules::chunk_delta::{ELEMENTS, State};
use crate::tile::{Memory, Operand, ParamId, Stmt};
use oplus_dsl::Ty;
use oplus_dsl::ir::Binary;

impl Walk<'_> {
    /// Saves the state.
    pub(super) fn save_state(&self, b: &mut Builder, state: &State, number: Operand) {
        let kernel = &self.kernel;
        let first = b.mul(number, Operand::i64(i64::from(TIMES * kernel.keys.depth)));
        let row = self.saved.first_row(b, kernel);
        let (row, column) = (b.add(row, kernel.group), kernel.first_column(b));
        for h in 0..2 {
            let row = b.add(row, Operand::i32((h as u32 * COLUMNS) as i32));
            for (block, sums) in (0..).zip(state) {
                // Tiles of keys and of states have one layout.
                let index = kernel.keys.piece_index(b, row, Operand::i32(block));
                let index = b.add(index, column);
                let index = b.convert(Ty::I64, index);
                let index = b.add(first, index);
                let two = [sums[2 * h], sums[2 * h + 1]].map(Operand::Reg);
                b.store(Memory::Global(self.saved.states), index, &two, None);
            }
        }
    }

    /// Saves the rows of a chunk's times.
    pub(super) fn save_rows(&self, b: &mut Builder, rows: &Blocks, (to, number): (ParamId, Operand), chunk: u32) {
        let (kernel, array) = (&self.kernel, Memory::Shared(self.saved.array));
        let (row, column) = (kernel.first_row(b), kernel.first_column(b));
        for (block, rows) in (0..).zip(rows) {
            for (h, c) in ELEMENTS {
                let time = b.add(column, Operand::i32((block * COLUMNS) as i32 + c as i32));
                let index = b.mul(time, self.saved.pitch);
                let index = b.add(index, row);
                let index = b.add(index, Operand::i32((h as u32 * COLUMNS) as i32));
                b.store(array, index, &[rows[2 * h + c]], None);
            }
        }
        b.push(Stmt::SyncWarp);
        let pieces = ROWS / ACCESS;
        let [line, half] = [Binary::Div, Binary::Rem].map(|op| b.binary(op, kernel.lane, Operand::i32(pieces as i32)));
        let of_warp = b.mul(kernel.warp, Operand::i32(pieces as i32));
        let piece = b.add(of_warp, half);
        let place = b.mul(piece, Operand::i32(ACCESS as i32));
        let index = b.mul(line, self.saved.pitch);
        let index = b.add(index, place);
        let elements = b.load(array, index, ACCESS, None, zero(Ty::F32));
        let time = b.add(line, Operand::i32((chunk * ROWS) as i32));
        let first_row = self.saved.first_row(b, kernel);
        let first_piece = b.binary(Binary::Div, first_row, ACCESS);
        let piece = b.add(first_piece, half);
        let layout = &self.saved.layout;
        let index = layout.piece_index(b, time, piece);
        let index = b.convert(Ty::I64, index);
        let first = b.mul(number, Operand::i64(i64::from(layout.len())));
        let index = b.add(first, index);
        b.store(Memory::Global(to), index, &elements, None);
        b.push(Stmt::SyncWarp);
    }
}
