//! The parameters of the sweeps of a gradient in chunks.

use super::{TIMES, WARPS};
use crate::schedules::chunkwise::scale::elements_behind;
use crate::stage::Stage;
use crate::stage::kind::MatrixRecurrenceBackward;
use crate::target::WARP;
use oplus_dsl::Elem;

/// Threads of a warpgroup.
pub(super) const GROUP: u32 = 4 * WARP;
/// Warpgroups that multiply in the third sweep, where warpgroups do.
pub(super) const ROLES: u32 = 3;
/// The most places of the depth in a panel.
const PANEL: u32 = 64;
/// Chunks in flight in walks, where nothing else is said.
pub(super) const WALK_STAGES: u32 = 2;
/// Threads that copy tiles beside them.
const COPYING: u32 = 2 * WARP;

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
        /// Sets of tiles in shared memory: in walks those of the chunks in flight, at least 2 but with decays per channel; in the third sweep
        /// that of keys and queries, and those of one or two heads.
        stages: u32,
        /// Consecutive elements per access.
        vector: u32,
        /// Blocks that share a multiprocessor.
        blocks: u32,
        /// Warps of a walk that only copy tiles and evaluate decays. Walks of f16 then save states in f16, each times a power of two.
        copiers: u32 = 0,
        /// Whether warpgroups multiply in the third sweep: one for the sums of each of queries, keys, and pairs of times.
        warpgroups: bool = false,
        /// Whether tiles of the third sweep that are not needed at the same time lie over one another, with decays per channel beside
        /// products in `tf32`.
        overlaid: bool = false,
        /// Sets of tiles of the walks before the third sweep. With one, two blocks of a walk share a multiprocessor.
        walk_stages: u32 = WALK_STAGES,
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
    /// The type of S and D in memory: that of weights, but where warpgroups walk f16.
    pub(super) fn saved_elem(&self, stage: &Stage, form: &MatrixRecurrenceBackward) -> Elem {
        match form.elem(stage) {
            Elem::F16 if self.copiers > 0 => Elem::F16,
            _ => self.weights_elem(stage, form),
        }
    }

    /// The type of weights: that of the walks' states, but what warpgroups read.
    pub(super) fn weights_elem(&self, stage: &Stage, form: &MatrixRecurrenceBackward) -> Elem {
        match form.elem(stage) {
            Elem::F16 if self.warpgroups => Elem::F16,
            _ if self.warpgroups => Elem::Bf16,
            _ => form.state_elem(stage),
        }
    }

    /// The elements in memory from one S or D to the next.
    pub(super) fn saved_len(&self, stage: &Stage, form: &MatrixRecurrenceBackward) -> u32 {
        self.parts(stage, form) * TIMES * self.depth + elements_behind(self.saved_elem(stage, form))
    }

    /// Whether factors of the third sweep, and S and D in memory, are a high and a low part in `bf16` of `f32`.
    pub(super) fn are_split(&self, stage: &Stage, form: &MatrixRecurrenceBackward) -> bool {
        self.warpgroups && form.elem(stage) == Elem::F32
    }

    /// The numbers in memory for each element of S or D: 2 where it is in two parts.
    pub(super) fn parts(&self, stage: &Stage, form: &MatrixRecurrenceBackward) -> u32 {
        if self.are_split(stage, form) { 2 } else { 1 }
    }

    /// Places of the depth in a panel of S or D, where their factors are in parts.
    pub(super) fn panel(&self) -> u32 {
        self.depth.min(PANEL)
    }

    /// Whether S takes the place of D in the third sweep when all have read that, and cotangents are the second stage of the tile of values:
    /// where elements are largest.
    pub(super) fn shares_tiles(&self, stage: &Stage, form: &MatrixRecurrenceBackward) -> bool {
        self.overlaid && form.elem(stage) == Elem::F32
    }

    /// Whether sums over the width lie over the sums of pairs on both sides of a border of blocks: where there is room for one alone beside
    /// these.
    pub(super) fn lays_sums_over_borders(&self, stage: &Stage, form: &MatrixRecurrenceBackward) -> bool {
        self.shares_tiles(stage, form) && form.sums_channels_over_time(stage) && form.sums_over_width() > 1
    }

    /// Heads whose tiles the third sweep has in shared memory at once.
    pub(super) fn heads(&self) -> u32 {
        self.stages - 1
    }

    /// Sets of partial sums: one for each of these heads where warpgroups are at different heads.
    pub(super) fn sets(&self) -> u32 {
        if self.warpgroups { self.heads() } else { 1 }
    }

    /// Sets of running sums and gains: those of the heads in flight, or of two; one alone where shared memory has no room for more.
    pub(super) fn sets_of_rates(&self) -> u32 {
        if self.overlaid { 1 } else { self.heads().max(2) }
    }

    /// Threads of the third sweep that copy tiles.
    pub(super) fn copying(&self) -> u32 {
        if self.warpgroups { COPYING } else { self.threads() }
    }

    /// Threads of the third sweep that share a matrix of sums.
    pub(super) fn sharing(&self) -> u32 {
        if self.warpgroups { GROUP } else { self.threads() }
    }

    /// The halves in which the columns of a warp's rows are divided.
    pub(super) fn halves(&self) -> u32 {
        if self.warpgroups { 1 } else { 2 }
    }

    /// Threads of a block.
    pub fn threads(&self) -> u32 {
        match self.sweep {
            Sweep::Gradients if self.warpgroups => (ROLES + 1) * GROUP,
            Sweep::Gradients => WARPS * WARP,
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
