//! The parameters of the schedule chunkwise.

use crate::schedules::Unit;
use crate::target::{WARP, registers_at_start};

/// Warps that only copy, where there are any: a warpgroup, which gives registers up.
pub(crate) const COPIERS: u32 = 4;
/// The most registers that a thread may have.
const MOST: u32 = 240;

schedule! {
    /// Chunkwise: a block of `warps` warps has a segment of a recurrence and walks chunks of 16 times per warp; the state is as
    /// wide as a chunk is long, see [the module](super).
    Chunkwise, "chunkwise" {
        /// Whether only the states at the ends of segments are found.
        ends: bool,
        /// Warps of a block, 2 or 4.
        warps: u32,
        /// The unit that multiplies; a warpgroup only where a recurrence has one decay.
        unit: Unit,
        /// Places along the axis that is summed away, a multiple of 16.
        depth: u32,
        /// Whether depth and width, or its last slice, may be shorter; else they are exactly that long.
        padded: bool,
        /// Whether the width is longer than that: blocks have slices of it.
        wide: bool,
        /// Chunks in flight in shared memory. Of one, the next chunk's copies run while its decays are summed.
        stages: u32,
        /// Consecutive elements per access.
        vector: u32,
        /// Blocks that share a multiprocessor.
        blocks: u32,
        /// Warps that only copy tiles and evaluate decays; without any, the warps that multiply do so.
        copiers: u32 = 0,
        /// Recurrences that a block walks side by side, 1 or 2, each with warps of its own: those that share queries and keys.
        heads: u32 = 1,
        /// The origin of the parts of queries and keys, where these are in two parts.
        key_parts: KeyParts = KeyParts::Divided,
        /// Warps that read the state beside those that advance it; without any, these read it too.
        readers: u32 = 0,
    }
}

word! {
    /// The origin of the parts of queries and keys.
    KeyParts {
        /// The warps that copy divide elements.
        Divided = "divided",
        /// A kernel before has written them.
        Prepared = "prepared",
        /// This is that kernel.
        Prepare = "prepare",
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
        match self.key_parts {
            KeyParts::Prepare => self.walkers(),
            _ => (self.multipliers() + self.copiers) * WARP,
        }
    }

    /// Warps that multiply.
    pub(super) fn multipliers(&self) -> u32 {
        self.warps * self.heads + self.readers
    }

    /// Threads that advance the state of a recurrence; those of all recurrences of a block come first.
    pub fn walkers(&self) -> u32 {
        self.warps * WARP
    }

    /// The registers of threads that multiply and of those that copy, where these are a warpgroup and give theirs up.
    pub fn registers(&self) -> Option<(u32, u32)> {
        let at_start = registers_at_start(self.threads(), self.blocks);
        // Warps that divide values in two parts have a chunk's elements.
        let copying = match (self.readers, self.blocks) {
            (0, 3..) => 32,
            (0, _) => 40,
            _ => 88,
        };
        let groups = self.multipliers() / self.warps;
        let walking = ((at_start * (groups + 1)).saturating_sub(copying) / groups) & !7;
        (self.copiers > 0 && at_start < MOST).then_some((walking.min(MOST), copying))
    }

    /// Threads of a block that copy tiles.
    pub fn copying(&self) -> u32 {
        if self.copiers > 0 { self.copiers * WARP } else { self.walkers() }
    }
}
