//! The parameters of look-back.

use crate::target::WARP;

schedule! {
    /// Look-back: persistent blocks draw tiles in order. Reduce warps publish a tile's aggregate, a look-ahead warp
    /// folds the aggregates since the block's last tile onto its running carry, scan warps finish the tile.
    /// A tile has [`LookBack::tile`] elements.
    LookBack, "lookback" {
        /// Warps that scan.
        scan_warps: u32,
        /// Warps that reduce ahead of them.
        reduce_warps: u32,
        /// Consecutive elements per access.
        vector: u32,
        /// Accesses per lane and tensor in a tile.
        vectors: u32,
        /// Tiles in flight in shared memory.
        stages: u32,
        /// Messages that a lane of the look-ahead warp polls together.
        window: u32,
        /// The order in which aggregates are folded.
        fold: Fold,
        /// The way in which tiles reach the block.
        loader: Loader,
    }
}

word! {
    /// The order in which a carry takes up aggregates. Both depend on positions only, never on timing.
    Fold {
        /// One tile after another, left to right.
        Strict = "strict",
        /// Blocks of 32 tiles, counted from the row's start, each reduced by a fixed warp scan; blocks left to right.
        Blocks = "blocks",
    }
}

word! {
    /// A way of loading the tiles of a persistent kernel.
    Loader {
        /// The copy engine fills a ring of stages in shared memory.
        Bulk = "bulk",
        /// Plain loads to registers.
        Registers = "registers",
    }
}

impl LookBack {
    /// Elements of a tile.
    pub fn tile(&self) -> u32 {
        self.scan_warps * WARP * self.vectors * self.vector
    }

    /// Warps of a block: scan, reduce, producer, publisher and look-ahead.
    pub fn warps(&self) -> u32 {
        self.scan_warps + self.reduce_warps + 3
    }
}
