//! Rows of outputs of 16 bits that are staged in shared memory, where the tile of a block's rows has been.
//!
//! A warp writes its 16 rows as matrices and reads them back in pieces of eight elements, four lanes to a row. The products of no other
//! warp have read these rows, so that none is waited for.

use super::finals::{InnerPlace, WideOutput};
use super::sums::Sums;
use super::{COLUMNS, FlashKernel, ROWS};
use crate::abi::Tensor;
use crate::block::layout::TileStage;
use crate::block::pair::Values;
use crate::build::Builder;
use crate::tile::{Memory, Operand, Stmt};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Axis, Binary};

/// Lanes to a row.
const LANES: u32 = 4;
/// The places that the lanes of a row store in two accesses.
const TWO_ACCESSES: u32 = 2 * LANES * COLUMNS;

impl FlashKernel<'_> {
    /// Whether the rows of an output along an axis fit the tile of rows that nobody reads any more.
    pub(super) fn can_stage(&self, axis: Axis) -> bool {
        let width = self.depth_of(axis);
        self.free_rows.is_some() && width.is_multiple_of(TWO_ACCESSES) && width <= self.row_tiles[0].depth
    }

    /// The tile of rows that nobody reads any more.
    fn free_tile(&self) -> TileStage<'_> {
        TileStage { tile: &self.row_tiles[0], start: self.free_rows.unwrap_or(Operand::i32(0)) }
    }

    /// Stores an output's rows of one block of 16, of which `row` is the thread's first one.
    pub(super) fn store_staged(&self, b: &mut Builder, values: &Values, sums: &Sums, row: u32, output: WideOutput) {
        // Lanes write what others have read before.
        b.push(Stmt::SyncWarp);
        self.stage_rows(b, values, sums, row, output);
        b.push(Stmt::SyncWarp);
        self.store_rows(b, values, row, output);
    }

    /// Writes 16 rows to the tile.
    fn stage_rows(&self, b: &mut Builder, values: &Values, sums: &Sums, row: u32, wide: WideOutput) {
        let WideOutput { output, axis } = wide;
        let TileStage { tile, start } = self.free_tile();
        let lanes = self.left_lanes(b, tile);
        let mut values = values.clone();
        values.reciprocal = true;
        for step in 0..self.depth_of(axis) / ROWS {
            let place = |row, block| InnerPlace { row, block, column: 0, axis };
            let blocks = [2 * step, 2 * step + 1];
            let four = blocks.map(|block| {
                [row, row + 1].map(|row| self.packed_places(b, &mut values, sums, output, place(row, block)))
            });
            let index = tile.index(b, &lanes, row / 2 * self.row_step(), step);
            let index = b.add(start, index);
            b.store_matrix(tile.array, index, &four.concat(), false);
        }
    }

    /// Stores 16 rows that are in the tile.
    fn store_rows(&self, b: &mut Builder, values: &Values, row: u32, WideOutput { output, axis }: WideOutput) {
        let TileStage { tile, start } = self.free_tile();
        let tensor = Tensor::Output(output as u32);
        let first = self.first_row_of_warp(b);
        let first = b.add(first, row / 2 * self.row_step());
        let row_of_tile = b.add(first, self.fragment.group);
        // Odd rows begin with the other one of two accesses: pieces of a row and of the next one then lie in all banks.
        let odd = b.binary(Binary::Rem, self.fragment.group, 2);
        let halves = [0, 1].map(|half| {
            let half = b.binary(Binary::Xor, odd, half);
            let piece = b.mul(half, LANES);
            let piece = b.add(piece, self.fragment.member);
            let index = tile.piece_index(b, row_of_tile, piece);
            let place = b.mul(piece, COLUMNS);
            (b.add(start, index), b.convert(Ty::I64, place))
        });
        for (below, row) in [(0, row), (ROWS / 2 * tile.panel(), row + 1)] {
            let index = values.row(row);
            let origin = self.offset(b, output, index.at);
            for (from, place) in halves {
                let origin = b.add(origin, place);
                for first in (0..self.depth_of(axis)).step_by(TWO_ACCESSES as usize) {
                    let from = b.add(from, first / tile.panel() * tile.rows * tile.panel() + below);
                    let pairs = b.load_pairs(Memory::Shared(tile.array), from, COLUMNS / 2);
                    let at = b.add(origin, first);
                    b.store(Memory::Global(self.args.pointer(tensor)), at, &pairs, Some(index.exists));
                }
            }
        }
    }
}
