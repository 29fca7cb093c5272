//! The third sweep for decays per channel: sub-chunks of 16 times within chunks, as in the forward scan.
//!
//! With s\[t, n\] the running sums of the logarithms of channel n, S, D and M as above, gains left out,
//!
//! ```text
//! A[i,j]      = Σ_n query[i,n]·key[j,n]·2^(s[i,n] − s[j,n])
//! value'[j]   = Σ_n 2^(s[end,n] − s[j,n])·key[j,n]·D[n] + Σ_{i ≥ j} A[i,j]·cotangent[i]
//! query'[i,n] = 2^s[i,n]·⟨S[n], cotangent[i]⟩           + Σ_{j ≤ i} M[i,j]·key[j,n]·2^(s[i,n] − s[j,n])
//! key'[j,n]   = 2^(s[end,n] − s[j,n])·⟨D[n], value[j]⟩  + Σ_{i ≥ j} M[i,j]·query[i,n]·2^(s[i,n] − s[j,n])
//! decay'[k,n] = 2^s[end,n]·⟨S[n], D[n]⟩ + Σ_j key[j,n]·first term of key'[j,n] + Σ_{t ≥ k} (query·query' − key·key')[t,n]
//! ```
//!
//! where the last sum goes over the pairs with i ≥ k > j alone; where decay' is summed over all times, it has those of the
//! block of k alone, and others are added without differences (`borders`). No power of two has a positive exponent: between blocks of
//! 16 times queries are scaled by 2^(s\[i\] − s\[r\]) and keys by 2^(s\[r\] − s\[j\]), r a border between both, and these
//! are factors of products; pairs of times of one block are summed channel by channel in `f32`. A warp has its 16 times j
//! of A and every other later block; of query' and key' it has its 16 times and half of the channels. For pairs of one
//! block a thread has some channels alone: the power of a pair serves both cotangents.

mod borders;
mod factors;
mod own;
mod products;
mod rates;
mod scores;
mod sums;
mod tf32;
mod wide;

use super::tiles::Tiles;
use super::walk::{AllViews, Chunk, Head, Sums};
use super::{BLOCKS, ChunkwiseBackward, ChunkwiseBackwardKernel, ROWS, TIMES};
use crate::block::layout::Tile;
use crate::block::matmul::Blocks;
use crate::block::pair::Values;
use crate::block::ring::RingStage;
use crate::build::Builder;
use crate::schedules::chunkwise::channels::{ChannelSums, PAD, numbers, sums_row};
use crate::stage::Stage;
use crate::stage::kind::{Cotangent, MatrixRecurrenceBackward};
use crate::tile::{Operand, SharedId, SharedKind, Stmt};
use oplus_dsl::Elem;

/// The distance between rows of numbers of channels, in elements.
pub(super) fn row(depth: u32) -> u32 {
    depth + PAD
}

/// The arrays of the sums that pairs of one block add to query' and key', over tiles that all have read when these are computed.
pub(super) fn overlaid_sums(b: &mut Builder, tiles: &Tiles, depth: u32) -> (Option<SharedId>, SharedId) {
    let Tiles { values, cotangents, states, duals, .. } = tiles;
    let of_queries = if values.array == cotangents.array { values } else { states }.array;
    for array in [of_queries, duals.array] {
        b.lengthen(array, TIMES * row(depth));
    }
    (Some(of_queries), duals.array)
}

/// The arrays in shared memory that only decays per channel need.
#[derive(Clone)]
pub(super) struct Arrays {
    /// The running sums of the chunk's channels: a row of zeros, and one for every time.
    sums: ChannelSums,
    /// M with its gains, as a left factor: a row for every time j.
    pairs: Tile,
    /// The sums that pairs of one block add to query'.
    own_queries: SharedId,
    /// Sums of channels over the times of a block: of logarithms, and of the terms of their cotangents.
    totals: SharedId,
    /// None where tiles lie over one another and `borders` say what reaches over the end of a block.
    later: Option<SharedId>,
    /// ⟨S, D⟩ of channels over 16 places of the width, and the sums of keys by the first term of key' over a block's times.
    energies: SharedId,
    end_terms: SharedId,
    /// The sums of pairs on both sides of a border of blocks, where cotangents are summed over all times.
    borders: Option<Borders>,
}

impl Arrays {
    /// Declares them beside factors of a type, and weights of another one; M, and totals, may lie over the tile of A.
    pub(super) fn declare(
        b: &mut Builder,
        [elem, weights]: [Elem; 2],
        depth: u32,
        own_queries: SharedId,
        over: Option<&Tile>,
        has_borders: bool,
    ) -> Arrays {
        let len = (TIMES + 1) * sums_row(elem, depth);
        let array = b.shared("channel_sums", SharedKind::Elem(Elem::F32), len);
        let sums = ChannelSums { array, elem, depth, swizzled: false };
        let pairs = over.cloned().unwrap_or_else(|| Tile::bare(b, "pairs", weights, TIMES, TIMES));
        let mut of_blocks = |name, each| b.shared(name, SharedKind::Elem(Elem::F32), each * BLOCKS * depth);
        // Totals are read before there are weights.
        let totals = over.map_or_else(|| of_blocks("totals", numbers(elem)), |tile| tile.array);
        let has_later = over.is_none() || !has_borders;
        let later = has_later.then(|| of_blocks("later", 1));
        let [energies, end_terms] = ["channel_energies", "ends"].map(|name| of_blocks(name, 1));
        let borders = has_borders.then(|| Borders::declare(b, depth));
        Arrays { sums, pairs, own_queries, totals, later, energies, end_terms, borders }
    }

    /// The array that several sums over the width lie over: no thread writes sums over borders before all slices are summed.
    pub(super) fn over_width(
        &self,
        stage: &Stage,
        form: &MatrixRecurrenceBackward,
        schedule: &ChunkwiseBackward,
    ) -> Option<SharedId> {
        let borders = self.borders.as_ref().filter(|_| schedule.lays_sums_over_borders(stage, form));
        borders.map(|borders| borders.passing)
    }
}

/// Sums of pairs of times in different blocks.
#[derive(Clone)]
struct Borders {
    /// Of pairs with a key in a block and a query behind it, in the chunk or after.
    leaving: SharedId,
    /// Of pairs with a query in a block and a key before an earlier one, in the chunk or before: a row for each two blocks.
    passing: SharedId,
}

impl Borders {
    fn declare(b: &mut Builder, depth: u32) -> Borders {
        let mut own = |name: &str, rows: u32| b.shared(name, SharedKind::Elem(Elem::F32), rows * depth);
        Borders { leaving: own("leaving", BLOCKS), passing: own("passing", BLOCKS * (BLOCKS - 1) / 2) }
    }
}

/// The inputs of the steps of a chunk: arrays, lanes and rows of the sums.
struct Steps<'a> {
    arrays: &'a Arrays,
    views: &'a AllViews,
    /// The first row of the sums at the start of the warp's 16 times, and at their end.
    start: Operand,
    end: Operand,
}

impl ChunkwiseBackwardKernel<'_> {
    /// Emits the third sweep.
    pub(super) fn channels_body(&self, b: &mut Builder) {
        let Some(arrays) = &self.channels else { return };
        let none = Operand::i32(0);
        let (chunk, head) = self.begin(b);
        let (time, width) = (self.form.states.time, self.form.states.width);
        let values = Values::new(self.stage, &self.args, [time, width], head.outer.clone());
        self.sum_channels(b, arrays, &values, chunk.first);
        if self.schedule.wide || self.schedule.overlaid {
            return self.all_slices(b, arrays, &chunk, &head, &values);
        }
        for tile in [&self.keys, &self.queries, &self.values, &self.cotangents, &self.states, &self.duals] {
            b.wait(tile.full, RingStage::FIRST);
        }
        let (rows, steps) = self.early(b, &head, chunk.first);
        self.channel_energies(b, arrays, None, None);
        // From here on all threads see sums and rates.
        b.barrier();
        let views = self.all_views(b);
        let own = self.steps(b, arrays, &views);
        self.score_earlier(b, &own);
        self.score_own(b);
        self.weigh_pairs(b, &own);
        // The weights of all warps are there.
        b.barrier();
        let decays = self.decays(b, none);
        let sums = Sums { pairs: vec![], queries: vec![] };
        let one = Head { views: &views, stage: none, decays: &decays, sums: &sums };
        let found = self.channel_values(b, &own, &one, |_| ());
        self.store_values(b, &rows, none, None, &found);
        self.after_pairs(b, &own, None, &values, chunk.first);
        self.store_steps(b, &steps, &decays, None);
    }

    /// The steps' view of arrays and lanes.
    fn steps<'a>(&self, b: &mut Builder, arrays: &'a Arrays, views: &'a AllViews) -> Steps<'a> {
        let [start, end] = [0, 1].map(|by| self.border(b, by));
        Steps { arrays, views, start, end }
    }

    /// Computes what needs M: key', query' and the cotangents of the logarithms. The products over all of the width with D
    /// and S are given, or computed from the tiles.
    fn after_pairs(
        &self,
        b: &mut Builder,
        own: &Steps,
        through: Option<(Blocks, Blocks)>,
        values: &Values,
        first: Operand,
    ) {
        self.pairs_of_own(b, own.arrays);
        b.push(Stmt::SyncWarp);
        let (keys, queries) = through.unzip();
        self.emit_step(b, own, |kernel, b, own| kernel.channel_keys(b, own, keys, values, first));
        self.emit_step(b, own, |kernel, b, own| kernel.channel_queries(b, own, queries, values, first));
        b.push(Stmt::SyncWarp);
        self.sum_later_channels(b, own.arrays);
        b.barrier();
        self.store_channels(b, own.arrays, values, first);
    }

    /// The kernel with rematerialised coordinates where registers are scarce: kept through products, they would take some.
    fn for_step(&self, b: &mut Builder) -> Option<Self> {
        self.has_few_registers().then(|| self.with_rematerialised(b))
    }

    /// The block's chunk, rematerialised where several sums leave few registers.
    fn chunk_again(&self, b: &mut Builder) -> Option<Chunk> {
        self.has_fewest_registers().then(|| self.rematerialised_chunk(b))
    }

    /// Emits a step with such coordinates.
    fn emit_step(&self, b: &mut Builder, own: &Steps, step: impl FnOnce(&Self, &mut Builder, &Steps)) {
        let Some(kernel) = self.for_step(b) else { return step(self, b, own) };
        let views = kernel.all_views(b);
        let own = kernel.steps(b, own.arrays, &views);
        step(&kernel, b, &own);
    }

    /// The row of the sums at the start of the warp's 16 times, or so many times 16 further.
    fn border(&self, b: &mut Builder, by: i32) -> Operand {
        let block = b.add(self.block, by);
        b.mul(block, ROWS)
    }

    /// Whether the cotangents of the logarithms are written.
    fn has_channels(&self) -> bool {
        self.needs(Cotangent::Channels)
    }
}
