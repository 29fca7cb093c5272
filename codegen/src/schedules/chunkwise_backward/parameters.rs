//! The parameters of the sweeps of a gradient in chunks.

use crate::target::WARP;

schedule! {
    /// Chunkwise, backward: the gradient of a recurrence of matrices in chunks of 64 times; the state is as wide as that.
    /// Its sweeps are kernels of their own, see [the module](super).
    ChunkwiseBackward, "chunkwise_backward" {
        /// The kernel.
        sweep: Sweep,
        /// Places along the axis of keys and queries: 32, 64 or 128.
        depth: u32,
        /// Whether depth and width, or its last slice, may be shorter; else they are exactly that long.
        padded: bool,
        /// Whether the width is longer than that: its slices are taken as heads are.
        wide: bool,
        /// Sets of tiles in shared memory: in walks those of the chunks in flight, at least 2; in the third sweep that of
        /// keys and queries, and those of one or two heads.
        stages: u32,
        /// Consecutive elements per access.
        vector: u32,
        /// Blocks that share a multiprocessor.
        blocks: u32,
        /// Warps of a walk that only copy tiles and evaluate decays.
        copiers: u32 = 0,
    }
}

word! {
    /// The kernels of the gradient in chunks, in order.
    Sweep {
        /// Finds the states at the ends of segments.
        StateEnds = "state_ends",
        /// Walks the chunks of a recurrence and saves the state before each.
        States = "states",
        /// Finds the cotangents of the states at the starts of segments.
        CotangentEnds = "cotangent_ends",
        /// Walks the chunks from the last to the first and saves the cotangent of the state after each.
        Cotangents = "cotangents",
        /// Computes the gradients of a chunk from both.
        Gradients = "gradients",
    }
}

impl ChunkwiseBackward {
    /// Threads of a block.
    pub fn threads(&self) -> u32 {
        match self.sweep {
            Sweep::Gradients => 8 * WARP,
            _ => (4 + self.copiers) * WARP,
        }
    }
}

impl Sweep {
    /// Whether only ends of segments are found.
    pub fn is_ends(self) -> bool {
        matches!(self, Sweep::StateEnds | Sweep::CotangentEnds)
    }
}
