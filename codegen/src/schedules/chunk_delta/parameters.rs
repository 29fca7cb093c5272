//! The parameters of delta rules in chunks.

use super::{PAIRS, ROWS, TIMES, WARPS};
use crate::stage::Stage;
use crate::target::WARP;

schedule! {
    /// Delta rules by products of matrices: a block has some places of the state's width and walks chunks of 16 times. Four warps compute
    /// products over pairs of times ahead of the warps that walk.
    ChunkDelta, "chunk_delta" {
        /// Places along the axis that the matrices act on, a multiple of 16.
        depth: u32,
        /// Whether depth and width may be shorter; else they are exactly that long.
        padded: bool,
        /// Whether the width is several times as long as a block's part of it.
        wide: bool,
        /// Places of the width that a block has, 16 for each warp that walks: 16, 32 or 64.
        places: u32,
        /// Tiles of 64 times in flight in shared memory: at least 3, or 2 where tiles are large, and products over pairs of times wait for the walk.
        stages: u32,
        /// Consecutive elements per access.
        vector: u32,
        /// Blocks that share a multiprocessor.
        blocks: u32,
        /// Whether each warp that walks has a partner that takes the products of queries.
        readers: bool = false,
        /// Which of the kernels, where the tiles of times are prepared by one of their own.
        sweep: RuleSweep = RuleSweep::Whole,
    }
}

word! {
    /// The kernels of a delta rule in chunks.
    RuleSweep {
        /// All of it: four warps of each block compute ahead what the others need of a tile of times.
        Whole = "whole",
        /// Computes what the walk needs of a tile of times, and stores it.
        Prepare = "prepare",
        /// Walks the tiles that have been prepared.
        Walk = "walk",
    }
}

impl ChunkDelta {
    /// The warps that walk the chunks.
    pub(in crate::schedules) fn walkers(&self) -> u32 {
        self.places / ROWS
    }

    /// The warps that walk, and their partners.
    pub(super) fn with_places(&self) -> u32 {
        self.walkers() * if self.readers { 2 } else { 1 }
    }

    /// The fewest tiles in flight: blocks that compute products over pairs of times have one at which they work, and one that is walked.
    pub(super) fn least_stages(&self) -> u32 {
        if self.sweep == RuleSweep::Walk { 1 } else { 2 }
    }

    /// The tiles whose products over pairs of times are in shared memory.
    pub(super) fn pairs(&self) -> u32 {
        if self.sweep == RuleSweep::Walk { self.stages } else { PAIRS.min(self.stages - 1) }
    }

    /// Threads of a block.
    pub fn threads(&self) -> u32 {
        let with_places = if self.sweep == RuleSweep::Prepare { 0 } else { self.with_places() };
        (with_places + WARPS) * WARP
    }

    /// The times whose systems are in shared memory.
    pub(super) fn systems(&self) -> u32 {
        if self.sweep == RuleSweep::Walk { 0 } else { TIMES }
    }

    /// The kernels of the rule, in order.
    pub(super) fn kernels(&self, stage: &Stage) -> Vec<ChunkDelta> {
        if self.sweep == RuleSweep::Whole {
            return vec![*self];
        }
        let reads = stage.kind().delta().is_ok_and(|form| form.reads);
        vec![self.preparation(reads), *self]
    }

    /// The kernel that prepares tiles for a walk whose steps read the state or not: blocks have one tile of each.
    pub(in crate::schedules) fn preparation(&self, reads: bool) -> ChunkDelta {
        let blocks = match (self.depth > 64, reads) {
            (false, false) => 5,
            (true, true) => 2,
            _ => 4,
        };
        ChunkDelta { sweep: RuleSweep::Prepare, stages: 2, places: ROWS, blocks, readers: false, ..*self }
    }
}
