//! Tiles as the eight warps of a block read them: each warp has 16 of a product's 64 rows, and a half of its columns.

use super::fragment::{Factor, ROWS};
use super::layout::{Lanes, Tile, left_rows, right_rows};
use crate::build::Builder;
use crate::tile::Operand;

/// The place of a lane among eight warps. All `i32`.
#[derive(Clone, Copy)]
pub(crate) struct HalfPlace {
    pub lane: Operand,
    /// The number of the warp's 16 rows.
    pub block: Operand,
    /// The warp's half of the columns, 0 or 1.
    pub half: Operand,
}

/// Gives the lanes that read single elements of a right factor over rows, from a piece of rows on.
pub(crate) type ElementLanes<'a> = &'a dyn Fn(&mut Builder, Operand) -> Lanes;

/// The lanes by which a warp reads tiles of one shape.
pub(crate) struct HalfViews {
    /// The warp's 16 rows, as a left factor.
    left: Lanes,
    /// The rows of its half, as a right factor over the axis within them, and where they begin.
    right: Lanes,
    right_start: Operand,
    /// The columns of its half, as a right factor over rows, and where they begin.
    in_time: Lanes,
    in_time_start: Operand,
}

impl HalfViews {
    /// The lanes for tiles of the shape of this one; `elements` where lanes read single elements of right factors over rows.
    pub(crate) fn of(b: &mut Builder, tile: &Tile, place: HalfPlace, elements: Option<ElementLanes<'_>>) -> HalfViews {
        let HalfPlace { lane, block, half } = place;
        let (panel, columns) = (tile.panel(), tile.depth / 2);
        let (row, piece) = left_rows(b, lane);
        let of_block = b.mul(block, ROWS);
        let own = b.add(row, of_block);
        let left = tile.lanes(b, own, piece);
        let piece = if elements.is_some() { Operand::i32(0) } else { piece };
        let lanes = |b: &mut Builder, piece| match elements {
            Some(elements) => elements(b, piece),
            None => tile.lanes(b, row, piece),
        };
        // Halves of rows are whole panels, or pieces of one.
        let (in_time, in_time_start) = if columns >= panel {
            let from = b.mul(half, columns * tile.rows);
            (lanes(b, piece), from)
        } else {
            let pieces = b.mul(half, columns / tile.piece());
            let piece = b.add(piece, pieces);
            (lanes(b, piece), Operand::i32(0))
        };
        let (row, piece) = right_rows(b, lane);
        let right = tile.lanes(b, row, piece);
        let right_start = b.mul(half, tile.rows / 2 * panel);
        HalfViews { left, right, right_start, in_time, in_time_start }
    }

    /// The warp's 16 rows of a tile's stage.
    pub(crate) fn left<'a>(&'a self, b: &mut Builder, tile: &'a Tile, stage: Operand) -> Factor<'a> {
        Factor::of(b, tile, &self.left, stage)
    }

    /// Rows of the warp's half as a right factor over the axis within them.
    pub(crate) fn right<'a>(&'a self, b: &mut Builder, tile: &'a Tile, stage: Operand) -> Factor<'a> {
        let factor = Factor::of(b, tile, &self.right, stage);
        Factor { start: b.add(factor.start, self.right_start), ..factor }
    }

    /// Columns of the warp's half as a right factor over rows.
    pub(crate) fn in_time<'a>(&'a self, b: &mut Builder, tile: &'a Tile, stage: Operand) -> Factor<'a> {
        let factor = Factor::of(b, tile, &self.in_time, stage);
        Factor { start: b.add(factor.start, self.in_time_start), ..factor }
    }
}
