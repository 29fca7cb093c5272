//! What a block of each schedule has: threads, rows, elements, states.

use super::{
    Chunkwise, ChunkwiseBackward, Columns, Flash, Form, LookBack, Map, Pass, Rows, StateSpace,
    StateSpaceBackward, Sweep, WARP,
};
use crate::target::REGISTERS;

impl Map {
    /// Elements that a block computes.
    pub fn tile(&self) -> u32 {
        WARP * self.warps * self.vectors * self.vector
    }
}

impl Rows {
    /// Elements of a row that a team scans between two updates of its carry.
    pub fn tile(&self) -> u32 {
        self.row_warps * self.lanes * self.vectors * self.vector
    }

    /// Rows that a block scans at once.
    pub fn block_rows(&self) -> u32 {
        self.warps / self.row_warps * (WARP / self.lanes) * self.rows
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

impl Columns {
    /// Columns of a tile.
    pub fn tile_columns(&self) -> u32 {
        self.lanes * self.vector
    }

    /// Rows of time of a tile.
    pub fn tile_rows(&self) -> u32 {
        self.warps * (WARP / self.lanes) * self.steps
    }

    /// Threads of a block.
    pub fn threads(&self) -> u32 {
        let helpers = match self.form {
            Form::Walk => 0,
            Form::Ring => self.reduce_warps + crate::schedules::columns::HELPERS,
        };
        WARP * (self.warps + helpers)
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
}

impl Flash {
    /// Rows of a block.
    pub fn rows(&self) -> u32 {
        self.warps * self.repeat * 16
    }

    /// Threads of a block.
    pub fn threads(&self) -> u32 {
        self.warps * WARP
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

impl ChunkwiseBackward {
    /// Threads of a block.
    pub fn threads(&self) -> u32 {
        match self.sweep {
            Sweep::Gradients => 8 * WARP,
            _ => 4 * WARP,
        }
    }
}

impl Sweep {
    /// Whether only ends of segments are found.
    pub fn is_ends(self) -> bool {
        matches!(self, Sweep::StateEnds | Sweep::CotangentEnds)
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
