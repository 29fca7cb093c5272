//! Chunkwise: recurrences of matrices by products of matrices (state-space duality).
//!
//! A stage in this [form](MatrixRecurrence) has states S that are matrices of width × depth. At every time a state is scaled by a decay,
//! an outer product is added to it, and queries over the depth read it. Inside a chunk of times the states are never made; with s
//! the running sum of the logarithms (to base 2) of the decays from the chunk's start:
//!
//! ```text
//! y[i]   = 2^s[i]·S·query[i] + Σ_{j ≤ i} 2^(s[i] − s[j])·(query[i]·key[j])·gain[j]·value[j]
//! S_next = 2^s[end]·S + Σ_j 2^(s[end] − s[j])·gain[j]·value[j]⊗key[j]
//! ```
//!
//! A block has a recurrence, or a segment of one, and goes from the first time to the last in chunks of as many times as the
//! state is wide, 16 for each warp; of a wider recurrence it has a slice, of which the last may be shorter. Queries, keys and values of coming
//! chunks are copied to shared memory while products are computed. A warp has 16 times of the products over times, and 16
//! places of the state's width, whose sums stay in its registers in `f32`;
//! for the queries the state is rounded to 16 bits, in shared memory. Of factors of `f16` and `f32` products of warps are in `tf32`
//! (`tf32`); a warpgroup multiplies `f16` as it is (`scaled`), and `f32` in two parts (`parts`).
//!
//! Where nothing but the final state is kept, the block of the last segment starts from the ends of the others and walks its own
//! chunks; a recurrence in reverse has the form of a gradient's cotangents.
//!
//! Decays may differ along the depth: then there are chunks within chunks (`channels`).
//!
//! Logarithms are at least −160: such a decay leaves nothing of an `f32`. Differences of sums are those of times in one chunk.

mod ahead;
mod asynchronous;
mod block_constants;
pub(crate) mod candidates;
pub(crate) mod channels;
mod copiers;
pub(crate) mod cost;
pub(crate) mod decay;
mod declare;
mod factored;
pub(crate) mod fits;
mod gates;
mod heads;
mod numbers;
pub(crate) mod outputs;
mod parameters;
mod parts;
mod prepared;
pub(crate) mod range;
mod read;
mod readers;
pub(crate) mod scale;
mod scaled;
mod segments;
mod staged;
mod state;
mod strategy;
mod tf32;
mod walk;
pub(crate) mod work;

pub(crate) use parameters::COPIERS;
pub use parameters::{Chunkwise, KeyParts};

use super::{LowerError, Strategy};
use crate::abi::Tensor;
use crate::block::args::Args;
use crate::block::copy::{Origin, Source};
use crate::block::layout::Tile;
pub(crate) use crate::block::matmul::{COLUMNS, ROWS, zeros};
use crate::block::pair::Values;
use crate::block::rematerialise::Rematerialiser;
use crate::block::thread::{FragmentPlace, Thread};
use crate::build::Builder;
use crate::schedules::Unit;
use crate::stage::Stage;
use crate::stage::kind::MatrixRecurrence;
use crate::tile::{Kernel, Operand, ParamId, SharedId};
use block_constants::BlockConstants;
use copiers::Handover;
use numbers::Factored;
use oplus_dsl::ir::{Axis, Binary, Program};
use oplus_dsl::{Elem, Ty};
use prepared::PrepareKernel;
use readers::StateHandover;
use scale::Powers;
use segments::Segment;

/// The tile kernel of a stage under a chunkwise schedule.
pub fn lower(stage: &Stage, schedule: &Chunkwise, symbol: &str) -> Result<Kernel, LowerError> {
    let parameters = LowerError::parameters(schedule);
    let Chunkwise { warps, unit, depth, stages, vector, blocks, copiers, heads, key_parts, readers, .. } = *schedule;
    // A warp sums the decays of two times per lane.
    let widths = matches!(warps, 2 | 4);
    let vectors = matches!(vector, 1 | 2 | 4 | 8);
    if !widths || !vectors || depth == 0 || !depth.is_multiple_of(ROWS) || stages == 0 || blocks == 0 {
        return Err(parameters);
    }
    let form = stage.kind().matrices().map_err(|refusal| LowerError::Kind { schedule: Chunkwise::NAME, refusal })?;
    if unit == Unit::Warpgroup && (warps != 4 || form.channels)
        || !matches!(copiers, 0 | COPIERS)
        || copiers > 0 && unit != Unit::Warpgroup
        || stages < 2 && !form.channels
        || heads > 1 && !heads::are_possible(stage, form, schedule)
        || key_parts != KeyParts::Divided && !prepared::is_possible(stage, form, schedule)
        || readers > 0 && !readers::are_possible(stage, form, schedule)
    {
        return Err(parameters);
    }
    // Warpgroups multiply packed pairs, of f16 and f32 only beside warps that only copy; and an access has at most 16 bytes.
    let elem = stage.program.params[form.key as usize].elem;
    let is_multiplied = unit == Unit::Warp || elem == Elem::Bf16 || copiers > 0 && vector > 1;
    if !is_multiplied || elem == Elem::F32 && vector > 4 {
        return Err(parameters);
    }
    let mut b = Builder::new(symbol, schedule.threads());
    b.blocks_per_sm(blocks);
    let args = Args::declare(&mut b, stage, schedule.abi(stage));
    if key_parts == KeyParts::Prepare {
        PrepareKernel::declare(&mut b, stage, form, schedule, args).ok_or(parameters)?.body(&mut b);
        return Ok(b.finish());
    }
    ChunkwiseKernel::declare(&mut b, stage, &walked(form, schedule), schedule, args, None).body(&mut b);
    Ok(b.finish())
}

/// The shared memory of the kernel.
pub fn shared_bytes(stage: &Stage, schedule: &Chunkwise) -> u32 {
    let Ok(form) = stage.kind().matrices() else { return 0 };
    Builder::shared_bytes_of(|b| {
        let args = Args::declare(b, stage, schedule.abi(stage));
        if schedule.key_parts == KeyParts::Prepare {
            PrepareKernel::declare(b, stage, form, schedule, args);
            return;
        }
        ChunkwiseKernel::declare(b, stage, &walked(form, schedule), schedule, args, None);
    })
}

/// The recurrence that a kernel walks: without a readout where only the ends of segments are found.
fn walked(form: &MatrixRecurrence, schedule: &Chunkwise) -> MatrixRecurrence {
    let readout = form.readout.clone().filter(|_| !schedule.ends);
    MatrixRecurrence { readout, ..form.clone() }
}

/// The kernels of a schedule, in order: one that prepares parts of queries and keys, where these are prepared, one that finds the ends of
/// segments, and the schedule's own.
pub fn with_ends(stage: &Stage, schedule: &Chunkwise) -> Vec<Chunkwise> {
    let ends = Chunkwise { ends: true, readers: 0, ..*schedule };
    let ends = match stage.kind().matrices().is_ok_and(|form| has_words(schedule, form, &stage.program)) {
        true => {
            let most = if schedule.copiers > 0 { blocks_beside_copiers(schedule.depth) } else { blocks_of_ends(2) };
            // Copies take longer than a chunk's product; those of all threads are started sooner than those of warps that only copy.
            let stages = if schedule.copiers > 0 { 4 } else { 3 };
            match schedule.heads {
                1 => Chunkwise { stages, blocks: blocks_of_ends(schedule.vector).min(most), ..ends },
                _ => Chunkwise { stages: heads::STAGES_OF_ENDS, ..ends },
            }
        }
        false => ends,
    };
    prepared::kernel_before(schedule).into_iter().chain([ends, *schedule]).collect()
}

/// Whether factors, states and weights have 16 bits in products.
pub(crate) fn has_words(schedule: &Chunkwise, form: &MatrixRecurrence, program: &Program) -> bool {
    match form.elem(program) {
        Ok(Elem::F16) => schedule.unit == Unit::Warpgroup,
        elem => elem == Ok(Elem::Bf16),
    }
}

/// The blocks of a walk without a readout that share a multiprocessor. Addresses of single elements take registers.
pub(crate) fn blocks_of_ends(vector: u32) -> u32 {
    if vector > 1 { 3 } else { 2 }
}

/// The blocks of a walk without a readout that share a multiprocessor where each has warps that only copy: a state of the greatest
/// depth takes most registers.
pub(crate) fn blocks_beside_copiers(depth: u32) -> u32 {
    if depth > 64 { 2 } else { 3 }
}

/// The slices of this width that blocks have, for axes of these sizes; the last may be shorter where tiles are padded.
pub(crate) fn slices(form: &MatrixRecurrence, wide: bool, width: u32, size: impl Fn(Axis) -> i64) -> u64 {
    if wide { (size(form.width) as u64).div_ceil(u64::from(width)) } else { 1 }
}

/// The length of the segment carries of so many recurrences and segments; `None` when 63 bits cannot count
/// it.
pub fn scratch(rows: u64, segments: u64, width: u32, depth: u32) -> Option<u64> {
    rows.checked_mul(segments::segment_carries_len(segments, width, depth)).filter(|len| i64::try_from(*len).is_ok())
}

/// The destination of saved states, and the way in which they are written.
#[derive(Clone, Copy)]
pub(crate) struct Saved {
    pub(crate) to: ParamId,
    /// The type of their elements.
    pub(crate) elem: Elem,
    /// Whether a copy engine writes them, or all threads.
    pub(crate) bulk: bool,
}

/// A stage with its arguments, tiles and thread coordinates. Immutable while code is emitted.
#[derive(Clone)]
pub(crate) struct ChunkwiseKernel<'s> {
    pub(crate) stage: &'s Stage,
    pub(crate) form: &'s MatrixRecurrence,
    pub(crate) schedule: &'s Chunkwise,
    pub(crate) args: Args,
    /// Queries, keys and values of the chunks in flight; without a readout there are no queries.
    pub(crate) queries: Option<Tile>,
    pub(crate) keys: Tile,
    pub(crate) values: Tile,
    /// The gate of this chunk: a parameter that outputs read at every time and place of the width.
    pub(crate) gate: Option<Tile>,
    /// The state as queries read it or it is saved, a row for every place of its width; none where only ends are found.
    pub(crate) states: Option<Tile>,
    /// Outputs on their way to memory, where a block has several recurrences: the others still read the queries.
    pub(crate) outputs: Option<Tile>,
    /// The number of the thread's recurrence among those of the block, `i32`, where it has several.
    pub(crate) head: Option<Operand>,
    /// The numbers of chunks whose weights are products, where warps only copy and no states are saved.
    pub(crate) factored: Option<Factored>,
    /// The powers of two by which states are scaled, if they are of `f16` for a warpgroup.
    pub(crate) powers: Option<Powers>,
    /// Whether states and weights are `tf32` in products, and not of the type of the factors from memory.
    pub(crate) is_tf32: bool,
    /// The running sums and gains of two chunks, in `f32`; of one chunk where decays differ by channel or products are in `tf32`.
    pub(crate) sums: SharedId,
    pub(crate) gains: SharedId,
    /// The mbarriers of stages that are free, and of stages whose sums and gains are written, where warps only copy.
    pub(crate) handover: Option<Handover>,
    /// The mbarriers of the state, where warps of their own read it.
    state_handover: Option<StateHandover>,
    /// The place of the block's first chunk among those that are saved, where the block has one of several sequences.
    first_saved: Option<Operand>,
    /// The destination of the states before every chunk, if they are saved.
    pub(crate) saved: Option<Saved>,
    /// The block's segment, and the segment carries.
    pub(crate) segment: Segment,
    pub(crate) segment_carries: ParamId,
    /// The rematerialised outer indices, whether the segment is the last, and the constants that are in shared memory.
    pub(crate) rematerialiser: Rematerialiser,
    pub(crate) in_shared: BlockConstants,
    pub(crate) thread: Thread,
    pub(crate) fragment: FragmentPlace,
    /// The index along every outer axis.
    pub(crate) outer: Vec<(Axis, Operand)>,
    /// The first place of the block's slice of the width, `i32`, where that has several.
    pub(crate) slice: Option<Operand>,
}

impl ChunkwiseKernel<'_> {
    /// Whether nothing but the final state is asked for: then only the ends of all segments but the last are found.
    fn is_final(&self) -> bool {
        self.form.readout.is_none() && !self.schedule.ends && self.saved.is_none()
    }

    /// The source of the copies of all threads that multiply.
    fn source(&self) -> Source<'_> {
        Source {
            args: &self.args,
            outer: &self.outer,
            threads: self.schedule.walkers(),
            thread: self.thread.number,
            vector: self.schedule.vector,
            padded: self.schedule.padded,
            fenced: self.schedule.unit == Unit::Warpgroup,
            rolled: None,
        }
    }

    /// Whether registers are so scarce that the block's coordinates are rematerialised at every use: a warp holds a state
    /// of the greatest depth, or factors in `tf32`, which take twice the registers of packed pairs.
    fn is_scarce(&self) -> bool {
        self.schedule.unit == Unit::Warp && (self.schedule.depth > 64 || self.is_tf32)
    }

    /// The source for one iteration. Coordinates of single elements are rematerialised, since they take registers that are
    /// not to be kept.
    fn source_of_iteration(&self, b: &mut Builder) -> Source<'_> {
        let source = self.source();
        let is_kept = source.vector > 1 && !self.is_scarce();
        let rolled = (source.vector == 1 && self.is_scarce()).then_some(1);
        if is_kept {
            source
        } else {
            Source { thread: self.rematerialiser.of(b, self.thread.number), rolled, ..source }
        }
    }

    /// The kernel with thread coordinates that are rematerialised in every iteration, where single elements leave the
    /// fewest registers. `None` elsewhere, and in `tf32`, whose kernels spill if coordinates are computed in every
    /// iteration.
    fn rematerialised(&self, b: &mut Builder) -> Option<Self> {
        if !self.is_scarce() || self.is_tf32 || self.schedule.vector > 1 {
            return None;
        }
        Some(self.with_thread_rematerialised(b))
    }

    /// The kernel with rematerialised thread coordinates.
    fn with_thread_rematerialised(&self, b: &mut Builder) -> Self {
        let thread = self.thread.rematerialised(b, self.rematerialiser);
        let fragment = FragmentPlace::of(b, thread.lane);
        ChunkwiseKernel { thread, fragment, ..self.clone() }
    }

    /// An evaluator that knows only the block's coordinates, rematerialised.
    fn values(&self, b: &mut Builder) -> Values<'_> {
        let mut outer = self.rematerialiser.outer(b, &self.outer);
        if let Some(head) = self.head {
            heads::move_on(b, &mut outer, head);
        }
        Values::new(self.stage, &self.args, [self.form.time, self.form.width], outer)
    }

    /// The tiles that are copied.
    fn tiles(&self) -> impl Iterator<Item = &Tile> {
        self.queries.iter().chain([&self.keys, &self.values])
    }

    /// The mbarriers of tiles, and how many arrivals complete each: one array, or an array for every tile.
    fn mbarriers(&self) -> Vec<(SharedId, u32)> {
        let each = self.schedule.copying();
        let tiles = self.tiles().map(|tile| (tile.full, each));
        match self.handover {
            // Sums and gains arrive with the tiles.
            Some(_) if self.is_split() => vec![(self.values.full, each)],
            // Threads that copy for several recurrences report all tiles at once.
            Some(_) if self.schedule.heads > 1 => vec![(self.keys.full, 2 * each)],
            Some(_) => vec![(self.keys.full, (tiles.count() as u32 + 1) * each)],
            None if self.is_tf32 => vec![(self.keys.full, tiles.count() as u32 * each)],
            None => tiles.collect(),
        }
    }

    /// Whether factors are in two parts.
    fn is_split(&self) -> bool {
        self.keys.low.is_some()
    }

    /// The type of factors.
    fn elem(&self) -> Elem {
        self.keys.elem
    }

    /// The thread's first row of the 16 of its warp.
    fn first_row(&self, b: &mut Builder) -> Operand {
        self.fragment.row(b, self.thread.warp)
    }
}

/// The number of slices of the width, `i64`.
pub(crate) fn slices_of(b: &mut Builder, args: &Args, form: &MatrixRecurrence, width: u32, is_padded: bool) -> Operand {
    let size = args.size(form.width);
    if is_padded { b.div_ceil(size, width) } else { b.binary(Binary::Div, size, width) }
}

/// A number over several slices: the number of the whole, and the slice.
pub(crate) fn divided(b: &mut Builder, number: Operand, slices: Operand) -> (Operand, Operand) {
    (b.binary(Binary::Div, number, slices), b.binary(Binary::Rem, number, slices))
}

/// The origin of a tile's parameter where rows begin at a place, `i32`, of the axis within them.
pub(crate) fn origin_at(b: &mut Builder, tile: &Tile, source: &Source, place: Option<Operand>) -> Origin {
    let origin = tile.origin(b, source);
    let Some(place) = place else { return origin.into() };
    let place = b.convert(Ty::I64, place);
    let by = b.mul(place, source.args.stride(Tensor::Param(tile.param), tile.inner));
    Origin { offset: b.add(origin, by), place: Some(place) }
}
