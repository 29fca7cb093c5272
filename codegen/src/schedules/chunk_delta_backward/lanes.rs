//! The lanes by which a warp of the third sweep reads tiles: rows of its block of 16 times, and columns of its half.

use super::TIMES;
use super::gradients::Gradients;
use crate::block::layout::{Lanes, Tile, left_rows, right_rows};
use crate::block::matmul::{Factor, ROWS};
use crate::build::Builder;
use crate::tile::Operand;

/// The lanes of tiles of one shape.
pub(super) struct Views {
    /// The warp's block of rows, as a left factor.
    left: Lanes,
    /// The rows of its half, as a right factor over the axis within them, and where they begin.
    right: Lanes,
    right_start: Operand,
    /// The columns of its half, as a right factor over rows, and where they begin.
    in_time: Lanes,
    in_time_start: Operand,
}

impl Views {
    /// The warp's block of rows.
    pub(super) fn left<'a>(&'a self, tile: &'a Tile) -> Factor<'a> {
        Factor { tile, lanes: &self.left, start: Operand::i32(0) }
    }

    /// The rows of the warp's half.
    pub(super) fn right<'a>(&'a self, tile: &'a Tile) -> Factor<'a> {
        Factor { tile, lanes: &self.right, start: self.right_start }
    }

    /// The columns of the warp's half.
    pub(super) fn in_time<'a>(&'a self, tile: &'a Tile) -> Factor<'a> {
        Factor { tile, lanes: &self.in_time, start: self.in_time_start }
    }
}

impl Gradients<'_> {
    /// The lanes of tiles of the shape of this one, of 64 rows.
    pub(super) fn views(&self, b: &mut Builder, tile: &Tile) -> Views {
        let (panel, columns) = (tile.panel(), tile.depth / 2);
        let (row, piece) = left_rows(b, self.thread.lane);
        let of_block = b.mul(self.block, Operand::i32(ROWS as i32));
        let own = b.add(row, of_block);
        let left = tile.lanes(b, own, piece);
        // Halves of rows are whole panels, or pieces of one.
        let (in_time, in_time_start) = if columns >= panel {
            let from = b.mul(self.half, Operand::i32((columns * tile.rows) as i32));
            (tile.lanes(b, row, piece), from)
        } else {
            let pieces = b.mul(self.half, Operand::i32((columns / tile.piece()) as i32));
            let piece = b.add(piece, pieces);
            (tile.lanes(b, row, piece), Operand::i32(0))
        };
        let (row, piece) = right_rows(b, self.thread.lane);
        let right = tile.lanes(b, row, piece);
        let right_start = b.mul(self.half, Operand::i32((TIMES / 2 * panel) as i32));
        Views { left, right, right_start, in_time, in_time_start }
    }
}
