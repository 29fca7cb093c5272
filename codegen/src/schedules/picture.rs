//! The tiles that a schedule cuts its work into, as the picture of a plan shows them.

use oplus_dsl::ir::Axis;

/// The way in which a tile gets the state before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carry {
    /// Tiles have nothing to do with each other.
    None,
    /// A block goes from tile to tile and keeps the state.
    Kept,
    /// Blocks draw tiles in order; one folds what others publish since its own last tile.
    LookBack,
}

/// The parts of a tile: warps, stretches of a warp, lanes of a stretch, elements of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tile {
    /// Warps of the tile.
    pub warps: u32,
    /// Stretches of a warp.
    pub stretches: u32,
    /// Lanes of a stretch.
    pub lanes: u32,
    /// Consecutive elements of a lane.
    pub elements: u32,
}

/// Tiles along an axis, and across it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// The axis along which tiles follow one another.
    pub along: Option<Axis>,
    /// The axes that a tile holds whole: neither tiles along nor tiles across divide them.
    pub within: Vec<Axis>,
    /// Elements of a tile along the axis.
    pub length: u64,
    /// Rows or columns that a block has at once.
    pub across: u64,
    /// The parts of a tile, where they are simple enough to draw.
    pub tile: Option<Tile>,
    /// The way in which states go from tile to tile.
    pub carry: Carry,
}
