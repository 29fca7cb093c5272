//! The parameters of chunks.

use crate::schedules::Unit;
use crate::target::WARP;

schedule! {
    /// Chunkwise: a block of `warps` warps has a segment of a recurrence and walks chunks of 16 times per warp; the state is as
    /// wide as a chunk is long, see [the module](super).
    Chunkwise, "chunkwise" {
        /// Whether only the states at the ends of segments are found.
        ends: bool,
        /// Warps of a block, 2 or 4.
        warps: u32,
        /// Who multiplies; a warpgroup only where a recurrence has one decay.
        unit: Unit,
        /// Places along the axis that is summed away, a multiple of 16.
        depth: u32,
        /// Whether depth and width, or its last part, may be shorter; else they are exactly that long.
        padded: bool,
        /// Whether the width is longer than that: blocks have parts of it.
        wide: bool,
        /// Chunks in flight in shared memory, at least 2.
        stages: u32,
        /// Consecutive elements per access.
        vector: u32,
        /// Blocks that share a multiprocessor.
        blocks: u32,
    }
}

impl Chunkwise {
    /// Times of a chunk.
    pub fn times(&self) -> u32 {
        self.warps * 16
    }

    /// Places along the other axis of the state.
    pub fn width(&self) -> u32 {
        self.warps * 16
    }

    /// Threads of a block.
    pub fn threads(&self) -> u32 {
        self.warps * WARP
    }
}
