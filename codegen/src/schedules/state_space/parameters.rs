//! The parameters of the schedule state_space.

use super::CHUNK;
use crate::target::WARP;

/// Chunks of narrow elements in an iteration, where registers are scarce.
pub(super) const UNROLL_OF_NARROW: u32 = 2;
/// Walking warps of a block where those that copy are many.
pub(super) const MOST_WARPS: u32 = 16;

schedule! {
    /// State space: a lane holds `states` neighbouring states of a row and walks time from one end to the other; `lanes` lanes
    /// share a row and sum over its states. The `32·warps/lanes` rows of a block lie along the last outer axis; other warps
    /// bring tiles of `steps` steps into shared memory and take the outputs back.
    StateSpace, "state_space" {
        /// Warps that walk.
        warps: u32,
        /// Warps that copy.
        copy_warps: u32,
        /// Teams that those warps form, which take tiles in turn; `stages` is a multiple of them.
        teams: u32,
        /// States per lane.
        states: u32,
        /// Lanes that share a row, a power of two.
        lanes: u32,
        /// Whether the state axis may be shorter than `states·lanes`; else it is exactly that long.
        padded: bool,
        /// Steps of a tile; a power of two.
        steps: u32,
        /// Tiles in flight in shared memory.
        stages: u32,
        /// Chunks of four steps per iteration of the loop.
        unroll: u32,
        /// Consecutive steps per access; with more than one their number is a multiple of it.
        vector: u32,
        /// Blocks that share a multiprocessor.
        blocks: u32,
        /// Whether the states before every eighth step are stored, for the gradient.
        save: bool,
        /// Whether time is cut into segments with blocks of their own; the call says how many.
        segmented: bool,
        /// Whether only the segment carries are found: the first of two kernels.
        ends: bool,
    }
}

impl StateSpace {
    /// The states that a row may have.
    pub fn capacity(&self) -> u32 {
        self.states * self.lanes
    }

    /// Rows of a block.
    pub fn rows(&self) -> u32 {
        self.warps * WARP / self.lanes
    }

    /// Threads of a block.
    pub fn threads(&self) -> u32 {
        (self.warps + self.copy_warps) * WARP
    }

    /// Threads that copy a tile.
    pub fn team_threads(&self) -> u32 {
        self.copy_warps / self.teams * WARP
    }

    /// Chunks of an iteration of a kernel that also saves its states, which takes registers.
    pub(super) fn unroll_of_saving(&self) -> u32 {
        let is_crowded = self.warps == MOST_WARPS || self.states > CHUNK;
        if is_crowded || self.unpacks_many() { UNROLL_OF_NARROW.min(self.unroll) } else { self.unroll }
    }

    /// Whether an iteration unpacks more chunks of narrow elements than a kernel that saves its states has registers for.
    pub(super) fn unpacks_many(&self) -> bool {
        self.vector > CHUNK && self.states > 1 && self.blocks > 1 && self.unroll > UNROLL_OF_NARROW
    }
}
