//! The parameters of delta rules in chunks.

schedule! {
    /// Delta rules by products of matrices: a block of four warps has 64 places of the state's width and walks chunks of 16 times.
    ChunkDelta, "chunk_delta" {
        /// Places along the axis that the matrices act on, a multiple of 16.
        depth: u32,
        /// Whether depth and width may be shorter; else they are exactly that long.
        padded: bool,
        /// Whether the width is several times as long: blocks have parts of it.
        wide: bool,
        /// Tiles of 64 times in flight in shared memory, at least 2.
        stages: u32,
        /// Consecutive elements per access.
        vector: u32,
        /// Blocks that share a multiprocessor.
        blocks: u32,
    }
}
