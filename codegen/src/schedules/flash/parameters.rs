//! The parameters of sums over pairs.

use crate::schedules::Unit;
use crate::target::WARP;

schedule! {
    /// Flash: a block of `warps` warps has `repeat` times 16 rows per warp, and walks tiles of `columns` columns. The axes
    /// within rows and columns are padded to multiples of 16, see [`crate::stage::kind::Pairwise::inner`].
    Flash, "flash" {
        /// Warps of a block.
        warps: u32,
        /// Blocks of 16 rows that a warp has.
        repeat: u32,
        /// Who multiplies: warps, or warpgroups.
        unit: Unit,
        /// Columns of a tile, a multiple of 16.
        columns: u32,
        /// Places along the first axis within columns, a multiple of 16.
        depth: u32,
        /// Places along the second one.
        width: u32,
        /// Whether these axes may be shorter; else they are exactly that long.
        padded: bool,
        /// Tiles in flight in shared memory.
        stages: u32,
        /// Consecutive elements per access.
        vector: u32,
        /// Blocks that share a multiprocessor.
        blocks: u32,
    }
}

impl Flash {
    /// Rows of a block.
    pub fn rows(&self) -> u32 {
        self.warps * self.repeat * 16
    }

    /// Threads of a block.
    pub fn threads(&self) -> u32 {
        self.warps * WARP
    }
}
