//! The parameters of the passes of two scans in opposite directions.

use crate::target::{REGISTERS, WARP};

schedule! {
    /// State space, backward: as [`StateSpace`](super::super::StateSpace), with `rows` rows per lane, for a stage with two scans in opposite directions. Its passes are
    /// kernels of their own: the states before every eighth step are saved; time is walked the other way, eight steps
    /// computed a second time and then walked back; the sums over the rows of a block are added. Where time is cut into segments,
    /// passes before find what each does to the states and to the cotangent that it is given.
    StateSpaceBackward, "state_space_backward" {
        /// The kernel.
        pass: Pass,
        /// Warps that walk.
        warps: u32,
        /// Warps that copy.
        copy_warps: u32,
        /// States per lane and row.
        states: u32,
        /// Rows per lane, 1 or 2.
        rows: u32,
        /// Lanes that share a row, a power of two, not fewer than `rows`.
        lanes: u32,
        /// Whether the state axis may be shorter than `states·lanes`; else it is exactly that long.
        padded: bool,
        /// Steps of a tile; a power of two, at least 16.
        steps: u32,
        /// Tiles in flight in shared memory.
        stages: u32,
        /// Consecutive steps per access; with more than one their number is a multiple of it.
        vector: u32,
        /// Blocks that share a multiprocessor.
        blocks: u32,
        /// Registers of a thread that walks, a multiple of 8; the others have what is left. 0 leaves all alike.
        registers: u32,
        /// Whether time is cut into segments with blocks of their own; the call says how many.
        segmented: bool,
        /// The sub-tiles, at most 2, that the walk copies saved states ahead to shared memory; with 0 it loads them to registers, which has to
        /// wait until those of this sub-tile have been used.
        saved_ahead: u32 = 0,
    }
}

word! {
    /// The kernels of the schedule of backward scans, in order.
    Pass {
        /// Walks each segment in the direction of the states, and finds its carry.
        Ends = "ends",
        /// Walks time, or each segment, in the direction of the states and saves them.
        Save = "save",
        /// Walks each segment in the opposite direction, and finds its carry of the cotangents.
        Carry = "carry",
        /// Walks time in the opposite direction.
        Walk = "walk",
        /// Adds the sums over the rows of all blocks, and those over the time of all segments.
        Sum = "sum",
    }
}

impl StateSpaceBackward {
    /// The states that a row may have.
    pub fn capacity(&self) -> u32 {
        self.states * self.lanes
    }

    /// Rows of a block.
    pub fn block_rows(&self) -> u32 {
        self.warps * WARP / self.lanes * self.rows
    }

    /// Threads of a block.
    pub fn threads(&self) -> u32 {
        (self.warps + self.copy_warps) * WARP
    }

    /// Teams of copy warps, which take tiles in turn. The passes before the walk wait for loads alone, and with two teams
    /// those of two tiles are on their way; the walk takes longer for a tile than they do.
    pub fn teams(&self) -> u32 {
        match self.pass {
            Pass::Ends | Pass::Save | Pass::Carry => 2,
            Pass::Walk | Pass::Sum => 1,
        }
    }

    /// Threads that copy a tile.
    pub fn team_threads(&self) -> u32 {
        self.copy_warps / self.teams() * WARP
    }

    /// Registers of a thread that copies, where those that walk have `registers`.
    pub fn copy_registers(&self) -> u32 {
        let warps = self.warps + self.copy_warps;
        // Registers are bounded by fours of warps.
        let each = (REGISTERS / (warps.next_multiple_of(4) * WARP * self.blocks)) & !7;
        let left = (each * warps).saturating_sub(self.registers * self.warps);
        (left / self.copy_warps) & !7
    }
}
