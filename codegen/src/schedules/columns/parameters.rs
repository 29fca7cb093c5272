//! The parameters of columns.

use crate::target::WARP;

schedule! {
    /// Columns: lanes along `lane`, `vector` adjacent columns each; the size of that axis is a multiple of `vector`.
    ///
    /// *Walk*: `lanes` is 32, a thread walks its columns from one end to the other with `steps` rows in flight.
    /// *Ring*: a tile is [`Columns::tile_rows`] rows of time by [`Columns::tile_columns`] columns. The lanes of a warp
    /// are `lanes` along the columns by 32/`lanes` along time, each with `steps` consecutive rows.
    Columns, "columns" {
        /// The axis along which lanes lie, an index into the stage's axes.
        lane: u32,
        /// The division of time.
        form: Form,
        /// Warps of a block (walk), or its scan warps (ring).
        warps: u32,
        /// Reduce warps (ring).
        reduce_warps: u32,
        /// Lanes of a warp that lie along the axis, a power of two.
        lanes: u32,
        /// Adjacent columns per lane.
        vector: u32,
        /// Rows of time in flight per thread.
        steps: u32,
        /// Tiles in flight in shared memory (ring); at most 6.
        stages: u32,
        /// Tiles along time whose aggregates are folded into one message (ring).
        group: u32,
        /// Groups that a look-back warp polls together (ring).
        window: u32,
        /// Points of the other outer axes that share a block, each with as many threads (walk).
        points: u32 = 1,
    }
}

word! {
    /// A way in which the columns schedule divides time.
    Form {
        /// A thread walks its columns from one end to the other.
        Walk = "walk",
        /// Tiles of time go through a ring, with look-back between them.
        Ring = "ring",
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

    /// Threads of a block that lie along the axis (walk).
    pub fn threads_of_point(&self) -> u32 {
        self.threads() / self.points
    }

    /// Threads of a block.
    pub fn threads(&self) -> u32 {
        let helpers = match self.form {
            Form::Walk => 0,
            Form::Ring => self.reduce_warps + super::HELPERS,
        };
        WARP * (self.warps + helpers)
    }
}
