//! Where the elements of a tile lie in shared memory.

use super::tiles::Tile;
use super::{CHUNK, StateSpace};
use crate::stage::Stage;

/// The padding, in elements, of a row of `f32` that is copied as it is: 32 bytes. Memory delivers sectors of 32 bytes, and a sector whose place in
/// shared memory is not a multiple of 32 bytes is written in two parts.
const SECTOR_PADDING: u32 = 2 * CHUNK;

/// The rows of a tile in one stage of the ring. A row has a padding: lanes that read several rows at once then find them in different banks,
/// and may read ahead of the tile's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Rows.
    pub height: u32,
    /// From row to row, in elements.
    pub pitch: u32,
    /// The column of step 0. Where time goes backwards, the columns before it are read ahead.
    pub lead: u32,
}

impl Layout {
    /// The elements of a stage.
    pub(crate) fn len(self) -> u32 {
        self.height * self.pitch
    }
}

/// The layouts of all tiles of a kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layouts {
    /// Rows of a block.
    rows: u32,
    /// States of a row that there is room for.
    capacity: u32,
    steps: u32,
    /// The padding of tiles that have a row for each row of the block.
    padding: u32,
    reverse: bool,
}

/// How a lane walks through tiles.
pub(crate) struct LaneWalk {
    /// The rows that it walks at once.
    pub rows: u32,
    /// Whether time goes backwards.
    pub reverse: bool,
}

impl Layouts {
    /// The layouts of a block of so many rows.
    pub(crate) fn of(stage: &Stage, schedule: &StateSpace, tiles: &[Tile], rows: u32, walk: &LaneWalk) -> Layouts {
        let is_copied = |tile: &Tile| tile.rows && !tile.states && tile.copied(&stage.program).is_some();
        // Where a lane walks two rows, the sums that it stores would meet in the same banks.
        let aligns_to_sectors = schedule.vector > 1 && walk.rows == 1 && tiles.iter().any(is_copied);
        let padding = if aligns_to_sectors { SECTOR_PADDING } else { CHUNK };
        Layouts { rows, capacity: schedule.capacity(), steps: schedule.steps, padding, reverse: walk.reverse }
    }

    /// The layout of a tile.
    pub(crate) fn tile(&self, tile: &Tile) -> Layout {
        match tile {
            Tile { rows: true, states: false, .. } => self.row_tile(),
            Tile { rows, states, .. } => {
                let rows = if *rows { self.rows } else { 1 };
                self.padded(if *states { rows * self.capacity } else { rows }, CHUNK)
            }
        }
    }

    /// The layout of a tile, sum or output that has a row for each row of the block.
    pub(crate) fn row_tile(&self) -> Layout {
        self.padded(self.rows, self.padding)
    }

    fn padded(&self, height: u32, padding: u32) -> Layout {
        let lead = if self.reverse { padding } else { 0 };
        Layout { height, pitch: self.steps + padding, lead }
    }
}
