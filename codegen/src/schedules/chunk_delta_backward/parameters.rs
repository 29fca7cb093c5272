//! The parameters of the sweeps of a gradient of a delta rule in chunks.

use crate::schedules::ChunkDelta;
use crate::schedules::chunk_delta::RuleSweep;
use crate::target::WARP;

schedule! {
    /// The gradient of a delta rule by products of matrices. Its sweeps are kernels of their own, see [the module](super).
    ChunkDeltaBackward, "chunk_delta_backward" {
        /// Which of the kernels.
        sweep: DeltaSweep,
        /// Places along the axis that the matrices act on: 32, 64 or 128.
        depth: u32,
        /// Whether depth and width may be shorter; else they are exactly that long.
        padded: bool,
        /// Whether the width is several times 64: blocks of gradients go through its parts.
        wide: bool,
        /// Places of the width that a block of walks has, 16 for each warp that walks: 16, 32 or 64.
        places: u32,
        /// Consecutive elements per access.
        vector: u32,
        /// Blocks that share a multiprocessor.
        blocks: u32,
        /// Tiles of 64 times in flight in walks, 3, or 2 where tiles are large. Of those that have been prepared 1 to 3.
        stages: u32 = 3,
        /// Whether both walks are one launch, half of whose blocks are of each.
        concurrent: bool = false,
        /// Whether blocks of gradients go through several tiles of 64 times, and copy parts of the width while they compute others.
        persistent: bool = false,
        /// Whether a kernel of its own prepares for both walks what they need of the tiles of times.
        prepared: bool = false,
        /// Whether weights of pairs of times lie where the parts of the width were: for devices with little shared memory.
        overlaid: bool = false,
    }
}

word! {
    /// The kernels of the gradient of a delta rule, in order.
    DeltaSweep {
        /// Prepares what both walks need of 64 times.
        Prepare = "prepare",
        /// Walks the chunks of a recurrence; saves the state before every 64 times and e of each time.
        States = "states",
        /// Walks the chunks from the last to the first; saves the cotangent of the state after every 64 times, and its products with keys.
        Cotangents = "cotangents",
        /// Both walks, each by half of the blocks.
        Walks = "walks",
        /// Computes the gradients of 64 times from both.
        Gradients = "gradients",
        /// Computes the gradients of rules whose decays differ along the depth, from states that walks have saved for every 16 times.
        Channels = "channels",
    }
}

impl ChunkDeltaBackward {
    /// Threads of a block.
    pub fn threads(&self) -> u32 {
        match self.sweep {
            DeltaSweep::Gradients => super::WARPS * WARP,
            DeltaSweep::Channels => super::channels::WARPS * WARP,
            _ => self.walked().threads(),
        }
    }

    /// Whether the sweep computes gradients, and does not walk.
    pub(super) fn is_last(&self) -> bool {
        matches!(self.sweep, DeltaSweep::Gradients | DeltaSweep::Channels)
    }

    /// Whether the sweep goes through the times of a recurrence.
    pub(super) fn walks(&self) -> bool {
        matches!(self.sweep, DeltaSweep::States | DeltaSweep::Cotangents | DeltaSweep::Walks)
    }

    /// The schedule of walks, or of the kernel that prepares tiles for them, as that of the rule itself.
    pub(super) fn walked(&self) -> ChunkDelta {
        let ChunkDeltaBackward { depth, padded, wide, places, vector, blocks, stages, .. } = *self;
        let (readers, sweep) = (false, if self.prepared { RuleSweep::Walk } else { RuleSweep::Whole });
        let walk = ChunkDelta { depth, padded, wide, places, stages, vector, blocks, readers, sweep };
        // How many blocks share a multiprocessor is the sweep's own.
        if self.sweep == DeltaSweep::Prepare { ChunkDelta { blocks, ..walk.preparation(true) } } else { walk }
    }
}
