//! Schedules: how a stage runs on a GPU, as plain data. A schedule has a text form, which is part of a kernel's key.
//!
//! A schedule holds what specialises the code of a kernel; sizes and strides are run-time values. `vector` is its
//! alignment class: with more than one element per access, the stage's tensors have stride 1 along the *unit axis* and
//! every access is aligned ([`Schedule::unit_axes`]); with one, nothing is assumed.

#[macro_use]
mod text;
mod blocks;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

use oplus_dsl::ir::{Axis, AxisSet};

use text::Fields;
pub use text::ParseScheduleError;

use crate::stage::Stage;
use crate::target::Isa;

pub use crate::target::WARP;

/// How a stage runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Schedule {
    /// No scan: every thread computes its own elements.
    Map(Map),
    /// A row by the lanes of one or several warps, tile after tile, the carry in registers.
    Rows(Rows),
    /// Long rows in one pass: tiles of many blocks publish their aggregates, and fold those of their predecessors.
    LookBack(LookBack),
    /// Lanes along an axis that is not scanned, time in registers.
    Columns(Columns),
    /// A scan whose states are summed away: states in registers, time walked step by step.
    StateSpace(StateSpace),
    /// Sums over all pairs of a row and a column, by matrix products.
    Flash(Flash),
    /// Two scans in opposite directions whose states are summed away.
    StateSpaceBackward(StateSpaceBackward),
    /// A recurrence of matrices in chunks, by matrix products.
    Chunkwise(Chunkwise),
    /// The gradient of such a recurrence.
    ChunkwiseBackward(ChunkwiseBackward),
}

schedule! {
    /// Map: a block of `32·warps` threads takes `32·warps·vectors·vector` consecutive elements along an axis.
    Map, "map" {
        /// The axis along which lanes lie, an index into the stage's axes.
        lane: u32,
        /// Warps of a block.
        warps: u32,
        /// Consecutive elements per access.
        vector: u32,
        /// Accesses per thread and tensor.
        vectors: u32,
    }
}

schedule! {
    /// Rows: a *team* of `row_warps` warps, or of `lanes` lanes of one, scans `rows` rows at once in tiles of
    /// [`Rows::tile`] elements. Lane l of a warp holds elements l·vector … l·vector + vector − 1 of each of its
    /// `vectors` stretches of `lanes·vector` consecutive elements.
    Rows, "rows" {
        /// Warps of a block.
        warps: u32,
        /// Warps of a team; divides `warps`.
        row_warps: u32,
        /// Lanes of a team within a warp; 32 when it has more than one warp.
        lanes: u32,
        /// Rows that a team scans at once.
        rows: u32,
        /// Consecutive elements per access.
        vector: u32,
        /// Accesses per lane, row and tensor in a tile.
        vectors: u32,
    }
}

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
        /// In which order aggregates are folded.
        fold: Fold,
        /// How tiles reach the block.
        loader: Loader,
    }
}

schedule! {
    /// Columns: lanes along `lane`, `vector` adjacent columns each; the size of that axis is a multiple of `vector`.
    ///
    /// *Walk*: `lanes` is 32, a thread walks its columns from one end to the other with `steps` rows in flight.
    /// *Ring*: a tile is [`Columns::tile_rows`] rows of time by [`Columns::tile_columns`] columns. The lanes of a warp
    /// are `lanes` along the columns by 32/`lanes` along time, each with `steps` consecutive rows.
    Columns, "columns" {
        /// The axis along which lanes lie, an index into the stage's axes.
        lane: u32,
        /// How time is divided.
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
    }
}

schedule! {
    /// States: a lane holds `states` neighbouring states of a row and walks time from one end to the other; `lanes` lanes
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
        /// Chunks of four steps per turn of the loop.
        unroll: u32,
        /// Consecutive steps per access; with more than one their number is a multiple of it.
        vector: u32,
        /// Blocks that share a multiprocessor.
        blocks: u32,
        /// Whether the states before every eighth step are stored, for the gradient.
        save: bool,
        /// Whether time is cut into segments with blocks of their own, how many being a matter of the call.
        segmented: bool,
        /// Whether only what segments do to the states before them is found: the first of two kernels.
        ends: bool,
    }
}

schedule! {
    /// Pairs: a block of `warps` warps has `repeat` times 16 rows per warp, and walks tiles of `columns` columns. The axes
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
    }
}

schedule! {
    /// Two-way: as [`StateSpace`], with `rows` rows per lane, for a stage with two scans in opposite directions. Its passes are
    /// kernels of their own: the states before every eighth step are saved; time is walked the other way, eight steps
    /// computed anew and then walked back; the sums over the rows of a block are added. Where time is cut into segments,
    /// passes before find what each does to the states and to the cotangent that it is given.
    StateSpaceBackward, "state_space_backward" {
        /// Which of the kernels.
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
        /// Whether time is cut into segments with blocks of their own, how many being a matter of the call.
        segmented: bool,
    }
}

schedule! {
    /// Chunks: a block of `warps` warps has a segment of a recurrence and walks chunks of 16 times per warp; the state is as
    /// wide as a chunk is long, see [`crate::schedules::chunkwise`].
    Chunkwise, "chunkwise" {
        /// Whether only the states at the ends of segments are found.
        ends: bool,
        /// Warps of a block, 2 or 4.
        warps: u32,
        /// Who multiplies; a warpgroup only where a recurrence has one decay.
        unit: Unit,
        /// Places along the axis that is summed away, a multiple of 16.
        depth: u32,
        /// Whether depth and width may be shorter; else they are exactly that long.
        padded: bool,
        /// Whether the width is several times as long: blocks have parts of it.
        wide: bool,
        /// Chunks in flight in shared memory, at least 2.
        stages: u32,
        /// Consecutive elements per access.
        vector: u32,
        /// Blocks that share a multiprocessor.
        blocks: u32,
    }
}

schedule! {
    /// Chunks, back: the gradient of a recurrence of matrices in chunks of 64 times; the state is as wide as that. Its sweeps
    /// are kernels of their own, see [`crate::schedules::chunkwise_backward`].
    ChunkwiseBackward, "chunkwise_backward" {
        /// Which of the kernels.
        sweep: Sweep,
        /// Places along the axis of keys and queries: 32, 64 or 128.
        depth: u32,
        /// Whether depth and width may be shorter; else they are exactly that long.
        padded: bool,
        /// Whether the width is several times as long: its parts are taken as heads are.
        wide: bool,
        /// Sets of tiles in shared memory: in walks those of the chunks in flight, at least 2; in the third sweep that of keys and
        /// queries, and those of one or two heads.
        stages: u32,
        /// Consecutive elements per access.
        vector: u32,
        /// Blocks that share a multiprocessor.
        blocks: u32,
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
    /// How the tiles of a persistent kernel are loaded.
    Loader {
        /// The copy engine fills a ring of stages in shared memory.
        Bulk = "bulk",
        /// Plain loads to registers.
        Registers = "registers",
    }
}

word! {
    /// The kernels of the two-way schedule, in order.
    Pass {
        /// Walks each segment in the direction of the states, for what it does to those before it.
        Ends = "ends",
        /// Walks time, or each segment, in the direction of the states and saves them.
        Save = "save",
        /// Walks each segment in the opposite direction, for what it does to the cotangent that it is given.
        Carry = "carry",
        /// Walks time in the opposite direction.
        Walk = "walk",
        /// Adds the sums over the rows of all blocks, and those over the time of all segments.
        Sum = "sum",
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

word! {
    /// Who multiplies matrices together.
    Unit {
        /// A warp, which loads fragments.
        Warp = "warp",
        /// The four warps of a warpgroup, from shared memory; `sm_90a`.
        Warpgroup = "warpgroup",
    }
}

word! {
    /// How the columns schedule divides time.
    Form {
        /// A thread walks its columns from one end to the other.
        Walk = "walk",
        /// Tiles of time go through a ring, with look-back between them.
        Ring = "ring",
    }
}

impl Schedule {
    /// The schedule's name.
    pub fn name(&self) -> &'static str {
        match self {
            Schedule::Map(_) => "map",
            Schedule::Rows(_) => "rows",
            Schedule::LookBack(_) => "lookback",
            Schedule::Columns(_) => "columns",
            Schedule::StateSpace(_) => "state_space",
            Schedule::Flash(_) => "flash",
            Schedule::StateSpaceBackward(_) => "state_space_backward",
            Schedule::Chunkwise(_) => "chunkwise",
            Schedule::ChunkwiseBackward(_) => "chunkwise_backward",
        }
    }

    /// Consecutive elements per access.
    pub fn vector(&self) -> u32 {
        match self {
            Schedule::Map(s) => s.vector,
            Schedule::Rows(s) => s.vector,
            Schedule::LookBack(s) => s.vector,
            Schedule::Columns(s) => s.vector,
            Schedule::StateSpace(s) => s.vector,
            Schedule::Flash(s) => s.vector,
            Schedule::StateSpaceBackward(s) => s.vector,
            Schedule::Chunkwise(s) => s.vector,
            Schedule::ChunkwiseBackward(s) => s.vector,
        }
    }

    /// The instruction set that the kernel is compiled for on devices of `isa`. One for all devices, unless it has
    /// vector accesses and blocks that wait for one another: newer devices wait better, and have copy engines.
    pub fn isa(&self, isa: Isa) -> Isa {
        let waits = match self {
            Schedule::Map(_) | Schedule::Rows(_) => false,
            // Only warpgroups need more than every device has.
            Schedule::Flash(Flash { unit, .. }) | Schedule::Chunkwise(Chunkwise { unit, .. }) => {
                return if *unit == Unit::Warpgroup { isa } else { Isa::Sm80 };
            }
            // Saved states go by copy engines where there are such, and warpgroups walk.
            Schedule::ChunkwiseBackward(_) => return isa,
            Schedule::LookBack(_) | Schedule::StateSpace(_) | Schedule::StateSpaceBackward(_) => true,
            Schedule::Columns(s) => s.form == Form::Ring,
        };
        if waits && self.vector() > 1 { isa } else { Isa::Sm80 }
    }

    /// Whether time is cut into segments with blocks of their own, along the second axis of the grid.
    pub fn is_segmented(&self) -> bool {
        match self {
            Schedule::StateSpace(s) => s.segmented,
            Schedule::StateSpaceBackward(s) => s.segmented,
            _ => false,
        }
    }

    /// The axes along which accesses are vectors: a tensor that has one, or the last of several, has stride 1 there, and its
    /// other strides and its address are multiples of the access. None when accesses are single elements.
    pub fn unit_axes(&self, stage: &Stage) -> AxisSet {
        match self {
            _ if self.vector() == 1 => AxisSet::EMPTY,
            Schedule::Map(s) => AxisSet::of(Axis(s.lane)),
            Schedule::Columns(s) => AxisSet::of(Axis(s.lane)),
            Schedule::Rows(_) | Schedule::LookBack(_) | Schedule::StateSpace(_) | Schedule::StateSpaceBackward(_) => {
                stage.axis().into_iter().collect()
            }
            Schedule::Flash(_) => {
                stage.kind().pairs().map(|form| form.inner.iter().copied().collect()).unwrap_or_default()
            }
            Schedule::Chunkwise(_) => {
                stage.kind().matrices().map(|form| AxisSet::of(form.depth).with(form.width)).unwrap_or_default()
            }
            Schedule::ChunkwiseBackward(_) => {
                let form = stage.kind().matrices_back().map(|form| &form.states);
                form.map(|form| AxisSet::of(form.depth).with(form.width)).unwrap_or_default()
            }
        }
    }
}
