//! The parameters of sums over pairs.

use crate::schedules::Unit;
use crate::target::{WARP, registers_at_start};

/// Warps of a warpgroup.
pub(super) const GROUP: u32 = 4;
/// The most registers that a thread may have.
const MOST: u32 = 240;
/// Of the warps that copy, those that add sums over rows to what other blocks have added, where there are such sums.
pub(super) const ADDERS: u32 = 2;

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
        /// Warps that only copy; without any, all warps copy. Where there are some, the contraction of a tile is started before the
        /// payload's product of the tile before, and its weights are evaluated meanwhile.
        copiers: u32 = 0,
        /// Whether there are as many blocks as run at once, which go from tile of rows to tile of rows.
        persistent: bool = false,
        /// Whether the warpgroups start their products one after the other, so that one multiplies while another takes exponentials: the
        /// order that CUTLASS calls ping-pong.
        turns: bool = false,
        /// Binary orders of magnitude by which weights may exceed one before earlier sums are scaled: the maximum against which they
        /// are taken stays while no row of a warp has grown by more. 0 scales them for every tile.
        slack: u32 = 0,
        /// Which sums the kernel has.
        sums: SumsOver = SumsOver::Columns,
    }
}

word! {
    /// The sums of a kernel.
    SumsOver {
        /// Sums over columns.
        Columns = "columns",
        /// Sums over columns, and beside them one over rows, which blocks add up one after the other.
        Both = "both",
        /// The sum over rows, of which an output is made.
        Finish = "finish",
    }
}

impl Flash {
    /// Rows of a block.
    pub fn rows(&self) -> u32 {
        self.warps * self.repeat * 16
    }

    /// Threads of a block.
    pub fn threads(&self) -> u32 {
        (self.warps + self.copiers) * WARP
    }

    /// Threads of a block that walk its tiles; they come first.
    pub fn walkers(&self) -> u32 {
        self.warps * WARP
    }

    /// Threads of a block that copy tiles.
    pub fn copying(&self) -> u32 {
        if self.sums == SumsOver::Both {
            return (self.copiers - ADDERS) * WARP;
        }
        if self.copiers > 0 { self.copiers * WARP } else { self.threads() }
    }

    /// Tiles of rows in shared memory: persistent blocks copy the next ones while they walk. Sums over rows leave no room for that.
    pub(super) fn row_stages(&self) -> u32 {
        if self.assigns() { 2 } else { 1 }
    }

    /// Whether the warps that copy tell those that walk which rows come next.
    pub(super) fn assigns(&self) -> bool {
        self.persistent && self.sums == SumsOver::Columns
    }

    /// Warpgroups that walk.
    pub fn groups(&self) -> u32 {
        self.warps / GROUP
    }

    /// Registers of a thread that walks and of one that copies, where there are such and all alike would have too few.
    pub fn registers(&self) -> Option<(u32, u32)> {
        let at_start = registers_at_start(self.threads(), self.blocks);
        let all = at_start * (self.warps + self.copiers);
        let copying = if self.warps > 2 * GROUP { 32 } else { 40 };
        let walking = (all.saturating_sub(copying * self.copiers) / self.warps) & !7;
        (self.copiers > 0 && at_start < MOST).then_some((walking.min(MOST), copying))
    }
}
