//! The numbers that walks write to memory, tile by tile in the layout of shared memory: states, and rows of each time.

use super::TIMES;
use super::walk::Walk;
use crate::block::matmul::{Blocks, COLUMNS, ROWS};
use crate::build::{Builder, zero};
use crate::schedules::chunk_delta::{DeltaKernel, ELEMENTS, State};
use crate::tile::{Memory, Operand, ParamId, SharedId, SharedKind, Special, Stmt};
use oplus_dsl::Ty;
use oplus_dsl::ir::Binary;

/// Elements of an access.
const ACCESS: u32 = COLUMNS;
/// Elements from one time to the next on the way to memory: neighbouring rows meet different banks.
const PITCH: u32 = TIMES + ACCESS;

/// The memory of what a walk saves.
#[derive(Clone, Copy)]
pub(super) struct Saved {
    states: ParamId,
    rows: ParamId,
    /// An element for a chunk's times and all places of the width.
    array: SharedId,
}

impl Saved {
    pub(super) fn declare(b: &mut Builder, kernel: &DeltaKernel<'_>, is_back: bool) -> Saved {
        let scratch = &kernel.args.scratch;
        let (states, rows) = (scratch[usize::from(is_back)], scratch[2 + usize::from(is_back)]);
        let array = b.shared("saved", SharedKind::Elem(kernel.keys.elem), ROWS * PITCH);
        Saved { states, rows, array }
    }

    /// The number of the tile that a block has at a place in time.
    pub(super) fn number(self, b: &mut Builder, place: Operand, tiles: Operand) -> Operand {
        let block = b.special(Special::Block);
        let [block, place, tiles] = [block, place, tiles].map(|x| b.convert(Ty::I64, x));
        let before = b.mul(block, tiles);
        b.add(before, place)
    }
}

impl Walk<'_> {
    /// Saves the state.
    pub(super) fn save_state(&self, b: &mut Builder, state: &State, number: Operand) {
        let kernel = &self.kernel;
        let first = b.mul(number, Operand::i64(i64::from(TIMES * kernel.keys.depth)));
        let (row, column) = (kernel.first_row(b), kernel.first_column(b));
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
    pub(super) fn save_rows(&self, b: &mut Builder, rows: &Blocks, number: Operand, chunk: u32) {
        let (kernel, array) = (&self.kernel, Memory::Shared(self.saved.array));
        let (row, column) = (kernel.first_row(b), kernel.first_column(b));
        for (block, rows) in (0..).zip(rows) {
            for (h, c) in ELEMENTS {
                let time = b.add(column, Operand::i32((block * COLUMNS) as i32 + c as i32));
                let index = b.mul(time, Operand::i32(PITCH as i32));
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
        let index = b.mul(line, Operand::i32(PITCH as i32));
        let index = b.add(index, place);
        let elements = b.load(array, index, ACCESS, None, zero(Ty::F32));
        let time = b.add(line, Operand::i32((chunk * ROWS) as i32));
        let index = kernel.values.piece_index(b, time, piece);
        let index = b.convert(Ty::I64, index);
        let first = b.mul(number, Operand::i64(i64::from(kernel.values.len())));
        let index = b.add(first, index);
        b.store(Memory::Global(self.saved.rows), index, &elements, None);
        b.push(Stmt::SyncWarp);
    }
}
