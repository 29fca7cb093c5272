//! Chunkwise, backward: the gradient of a recurrence of matrices in chunks.
//!
//! With S the states before a chunk, D the cotangents of those after it, and s the running sum of the logarithms (to base 2)
//! of the chunk's decays, the pairs of times i ≥ j of a chunk have weights w\[i,j\] = 2^(s\[i\] − s\[j\])·gain'\[i\], and
//!
//! ```text
//! G[i,j] = query[i]·key[j]      M[i,j] = cotangent[i]·value[j]      E[i,j] = w[i,j]·gain[j]·M[i,j]
//! value'[j] = 2^(s[end] − s[j])·D·key[j] + Σ_i w[i,j]·G[i,j]·cotangent[i]
//! key'[j]   = Σ over heads of  2^(s[end] − s[j])·gain[j]·Dᵀ·value[j] + Σ_i E[i,j]·query[i]
//! query'[i] = Σ over heads of  2^s[i]·gain'[i]·Sᵀ·cotangent[i]       + Σ_j E[i,j]·key[j]
//! decay'[k] = 2^s[end]·⟨S, D⟩ + Σ_{i ≥ k} r[i] + Σ_{j < k} q[j] + Σ_{i ≥ k > j} E[i,j]·G[i,j]
//! ```
//!
//! where decay' is the cotangent of the decay's logarithm, r\[i\] = ⟨query\[i\], first term of query'\[i\]⟩ for one head, and
//! q\[j\] = ⟨gain\[j\]·value\[j\], first term of value'\[j\]⟩. No rounding error telescopes over more than a chunk.
//!
//! Three kernels, of the [`Sweep`]s: two walk the chunks of a recurrence, one each way, and write S and D of every chunk to
//! memory, rounded (few long recurrences in segments); the third has a block for every chunk, which goes through the heads
//! that share keys and queries: G is computed once, and the sums over heads stay in registers. Sums over heads of E come
//! first, then their products.
//!
//! A width of more than 64 is taken slice by slice in the third sweep, as heads are: all of the above but value'
//! are sums over the width. The last slice may be shorter.
//!
//! Warps are four blocks of 16 times by two halves: of the pairs' other time, of the width, of the depth.
//!
//! Beside factors of `f16` and `f32`, S, D and weights are in `f32`, and products in `tf32` (`tf32`).
//!
//! Decays per channel of the depth belong into the products: then there are sub-chunks within chunks (`channels`), and
//! shared memory has the tiles of one slice of a wide state.

mod block_constants;
mod candidates;
mod channels;
mod cost;
mod half_states;
mod outputs;
mod parameters;
mod partials;
mod products;
mod rates;
mod states;
mod steps;
mod strategy;
mod sweep;
mod tf32;
mod tiles;
mod walk;
mod warpgroups;

use parameters::WALK_STAGES;
pub use parameters::{ChunkwiseBackward, Sweep};

use super::chunkwise::{COLUMNS, COPIERS, ChunkwiseKernel, ROWS, Saved, blocks_beside_copiers, blocks_of_ends, slices};
use super::{LowerError, Strategy};
use crate::block::args::Args;
use crate::block::layout::Tile;
use crate::block::rematerialise::Rematerialiser;
use crate::block::sequence::SequenceTile;
use crate::block::thread::{FragmentPlace, Thread};
use crate::build::Builder;
use crate::schedules::chunkwise::KeyParts;
use crate::schedules::{Chunkwise, Unit};
use crate::stage::Stage;
use crate::stage::kind::{Cotangent, MatrixRecurrence, MatrixRecurrenceBackward};
use crate::target::Isa;
use crate::tile::{Kernel, Operand, SharedId, SharedKind};
use channels::Arrays;
use oplus_dsl::Elem;
use oplus_dsl::ir::{Axis, AxisSet};
use std::ops::Deref;
use tiles::Tiles;
use warpgroups::WarpgroupSweep;

/// Times of a chunk, and places of the width.
pub const TIMES: u32 = 64;
/// The sets of tiles that the third sweep may have in shared memory: one of keys and queries, and those of one or two heads.
const SETS: std::ops::RangeInclusive<u32> = 2..=3;
/// The sets of tiles that it may have where warpgroups multiply, and others copy meanwhile.
const SETS_OF_WARPGROUPS: std::ops::RangeInclusive<u32> = 3..=5;
/// Blocks of 16 times in a chunk.
const BLOCKS: u32 = TIMES / ROWS;
/// The longest axis of keys and queries.
const MOST_DEPTH: u32 = 128;
/// Warps of a block of the third sweep.
const WARPS: u32 = 2 * BLOCKS;

/// The tile kernel of a stage under one sweep of the schedule, for an instruction set.
pub fn lower(stage: &Stage, schedule: &ChunkwiseBackward, isa: Isa, symbol: &str) -> Result<Kernel, LowerError> {
    let ChunkwiseBackward { sweep, depth, wide, vector, stages, blocks, warpgroups, .. } = *schedule;
    let sets = if warpgroups { SETS_OF_WARPGROUPS } else { SETS };
    let is_possible = depth.is_power_of_two() && (32..=MOST_DEPTH).contains(&depth) && matches!(vector, 1 | 2 | 4 | 8);
    let is_possible = is_possible && (sweep != Sweep::Gradients || sets.contains(&stages));
    if !is_possible || stages == 0 || blocks == 0 {
        return Err(LowerError::parameters(schedule));
    }
    let form = stage
        .kind()
        .matrices_back()
        .map_err(|refusal| LowerError::Kind { schedule: ChunkwiseBackward::NAME, refusal })?;
    // An access has at most 16 bytes.
    if form.elem(stage) == Elem::F32 && vector > 4 {
        return Err(LowerError::parameters(schedule));
    }
    // Warps that multiply alone save states of `f16` without a power.
    let has_powers = form.elem(stage) != Elem::F16 || schedule.copiers > 0;
    if warpgroups && !(has_powers && warpgroups::can_take(stage, form, vector, isa)) {
        return Err(LowerError::parameters(schedule));
    }
    if stages < 2 && !form.states.channels {
        return Err(LowerError::parameters(schedule));
    }
    // With decays per channel there is room for one slice.
    if wide && form.states.channels && sweep == Sweep::Gradients && stages != 2 {
        return Err(LowerError::parameters(schedule));
    }
    if schedule.overlaid && !(sweep == Sweep::Gradients && can_overlay(stage, form)) {
        return Err(LowerError::parameters(schedule));
    }
    let mut b = Builder::new(symbol, schedule.threads());
    b.blocks_per_sm(blocks);
    with_kernel(&mut b, stage, isa, form, schedule, |b, kernel| match kernel {
        Either::Walk(kernel) => kernel.body(b),
        Either::Chunk(kernel) if form.states.channels => kernel.where_chunk_exists(b, |b| kernel.channels_body(b)),
        Either::Chunk(kernel) => kernel.where_chunk_exists(b, |b| kernel.body(b)),
        Either::Warpgroups(kernel) => kernel.where_chunk_exists(b, |b| kernel.body(b)),
    });
    Ok(b.finish())
}

/// Whether tiles of the third sweep by warps may lie over one another.
fn can_overlay(stage: &Stage, form: &MatrixRecurrenceBackward) -> bool {
    form.states.channels && form.state_elem(stage) == Elem::F32
}

/// The shared memory of the kernel.
pub fn shared_bytes(stage: &Stage, schedule: &ChunkwiseBackward, isa: Isa) -> u32 {
    let Ok(form) = stage.kind().matrices_back() else { return 0 };
    Builder::shared_bytes_of(|b| with_kernel(b, stage, isa, form, schedule, |_, _| ()))
}

/// The kernels of a schedule, in order.
pub fn sweeps(stage: &Stage, schedule: &ChunkwiseBackward, isa: Isa) -> Vec<ChunkwiseBackward> {
    let walks = [Sweep::StateEnds, Sweep::States, Sweep::CotangentEnds, Sweep::Cotangents];
    let most = stage.kind().matrices_back().map_or(1, |form| blocks_of_walks(stage, form, schedule, isa));
    let blocks = most.min(blocks_of_ends(schedule.vector));
    // Of 16 bits, walks do not depend on who reads what they save.
    let depends = |form: &MatrixRecurrenceBackward| schedule.warpgroups && form.elem(stage) == Elem::F32;
    let warpgroups = stage.kind().matrices_back().is_ok_and(depends);
    let (stages, walk_stages) = (schedule.walk_stages, WALK_STAGES);
    let walk =
        |sweep| ChunkwiseBackward { sweep, stages, blocks, warpgroups, overlaid: false, walk_stages, ..*schedule };
    walks.into_iter().map(walk).chain([*schedule]).collect()
}

/// The blocks of a walk that share a multiprocessor: fewer where warps multiply and a state takes most registers, and where
/// tiles of `f32` take most shared memory.
pub(crate) fn blocks_of_walks(
    stage: &Stage,
    form: &MatrixRecurrenceBackward,
    schedule: &ChunkwiseBackward,
    isa: Isa,
) -> u32 {
    let is_deep = schedule.depth > 64;
    match form.elem(stage) {
        Elem::F32 if schedule.walk_stages < WALK_STAGES => 2,
        // The warps that copy have a chunk's elements in registers, and sums of channels are two numbers each.
        Elem::F32 if is_deep || schedule.copiers > 0 || form.states.channels && schedule.depth > 32 => 1,
        _ if schedule.copiers > 0 => blocks_beside_copiers(schedule.depth),
        Elem::F32 | Elem::F16 => 2,
        elem if unit(&form.states, elem, isa, 0) == Unit::Warp && is_deep => 2,
        _ => 3,
    }
}

/// The lengths of the arrays that the walks store for the third sweep, S and D of every chunk, for axes of these sizes; `None` when 63
/// bits cannot count them.
pub fn scratch(
    stage: &Stage,
    form: &MatrixRecurrenceBackward,
    schedule: &ChunkwiseBackward,
    size: impl Fn(Axis) -> i64,
) -> Option<[u64; 2]> {
    let outer = form.states.outer.minus(stage.axis_of_sequences());
    let rows = outer.iter().try_fold(1i64, |n, axis| n.checked_mul(size(axis)))?;
    let rows = rows.checked_mul(slices(&form.states, schedule.wide, TIMES, &size) as i64)?;
    let chunks = stage.tiles_of_times(form.states.time, TIMES, &size) as i64;
    let each = schedule.saved_len(stage, form);
    let len = rows.checked_mul(chunks)?.checked_mul(i64::from(each))?;
    Some([len as u64; 2])
}

/// Whether a block of the third sweep goes through heads, or slices of the width, one after the other.
pub(crate) fn is_iterated(form: &MatrixRecurrenceBackward, schedule: &ChunkwiseBackward) -> bool {
    form.heads != AxisSet::EMPTY || schedule.wide
}

/// The blocks of the sums of query' that a thread has in registers, and after them in shared memory.
#[derive(Clone, Copy)]
struct QueryBlocks {
    registers: u32,
    shared: u32,
}

/// The division of the sums of query': as many in registers as there is room for; beside the deepest tiles of `f32` shared
/// memory has no room.
fn query_blocks(form: &MatrixRecurrenceBackward, elem: Elem, schedule: &ChunkwiseBackward, isa: Isa) -> QueryBlocks {
    let blocks = schedule.depth / 2 / COLUMNS;
    let is_deep = schedule.depth == MOST_DEPTH && !form.states.channels && elem != Elem::F32;
    let (blocks, registers) = match is_deep {
        _ if !form.outputs.contains(&Cotangent::Queries) => (0, 0),
        true if schedule.vector == 1 || schedule.wide => (blocks, 0),
        true if is_iterated(form, schedule) && !isa.has_bulk_copies() => (blocks, blocks / 2),
        _ => (blocks, blocks),
    };
    QueryBlocks { registers, shared: blocks - registers }
}

/// The numbers of warps that only copy in walks: beside warpgroups, where shallow states always leave them registers.
fn copiers(stage: &Stage, form: &MatrixRecurrenceBackward, depth: u32, vector: u32, isa: Isa) -> &'static [u32] {
    let is_walked = |walked| unit(walked, form.elem(stage), isa, COPIERS) == Unit::Warpgroup;
    match is_walked(&form.states) && is_walked(&form.cotangents) && vector > 1 {
        false => &[0],
        true if depth > 64 => &[0, COPIERS],
        true => &[COPIERS, 0],
    }
}

/// The unit that multiplies in walks beside so many warps that only copy: these evaluate what f16 is scaled by, and divide f32 in two parts.
fn unit(walked: &MatrixRecurrence, elem: Elem, isa: Isa, copiers: u32) -> Unit {
    let is_multiplied = elem == Elem::Bf16 || matches!(elem, Elem::F16 | Elem::F32) && copiers > 0;
    if isa.has_warpgroups() && !walked.channels && is_multiplied { Unit::Warpgroup } else { Unit::Warp }
}

/// A kernel: a walk, or the third sweep by warps or by warpgroups.
enum Either<'k, 's> {
    Walk(&'k ChunkwiseKernel<'s>),
    Chunk(&'k ChunkwiseBackwardKernel<'s>),
    Warpgroups(&'k WarpgroupSweep<'s>),
}

fn with_kernel(
    b: &mut Builder,
    stage: &Stage,
    isa: Isa,
    form: &MatrixRecurrenceBackward,
    schedule: &ChunkwiseBackward,
    then: impl FnOnce(&mut Builder, Either<'_, '_>),
) {
    let args = Args::declare(b, stage, schedule.abi(stage));
    let walked: &MatrixRecurrence = match schedule.sweep {
        Sweep::StateEnds | Sweep::States => &form.states,
        Sweep::CotangentEnds | Sweep::Cotangents => &form.cotangents,
        Sweep::Gradients if schedule.warpgroups => {
            let kernel = WarpgroupSweep::declare(b, stage, form, schedule, args);
            return then(b, Either::Warpgroups(&kernel));
        }
        Sweep::Gradients => {
            let kernel = ChunkwiseBackwardKernel::declare(b, stage, isa, form, schedule, args);
            return then(b, Either::Chunk(&kernel));
        }
    };
    let ChunkwiseBackward { depth, padded, wide, stages, vector, blocks, sweep, copiers, .. } = *schedule;
    let unit = unit(walked, form.elem(stage), isa, copiers);
    let ends = sweep.is_ends();
    let chunks = Chunkwise {
        ends,
        warps: BLOCKS,
        unit,
        depth,
        padded,
        wide,
        stages,
        vector,
        blocks,
        copiers,
        heads: 1,
        key_parts: KeyParts::Divided,
        readers: 0,
    };
    let to = args.scratch[usize::from(walked.reverse)];
    let saved = Saved { to, elem: schedule.saved_elem(stage, form), bulk: isa.has_bulk_copies() };
    let kernel = ChunkwiseKernel::declare(b, stage, walked, &chunks, args, (!ends).then_some(saved));
    then(b, Either::Walk(&kernel));
}

/// The third sweep: a stage with its arguments, tiles and thread coordinates. Immutable while code is emitted.
#[derive(Clone)]
struct GradientSweep<'s> {
    stage: &'s Stage,
    form: &'s MatrixRecurrenceBackward,
    schedule: &'s ChunkwiseBackward,
    args: Args,
    /// The block's chunk, where it is of one of several sequences.
    tile: Option<SequenceTile>,
    keys: Tile,
    queries: Tile,
    /// Values of the heads in flight.
    values: Tile,
    cotangents: Tile,
    /// S and D, a row for every place of the width.
    states: Tile,
    duals: Tile,
    /// Weights as a left factor: a row for every time j.
    weights: Tile,
    /// Whether S, D and weights are `tf32` in products, or `f32` in split tf32.
    is_tf32: bool,
    /// The running sums, the gains and gains' of a chunk, in `f32`, of the heads in flight; where sums are two numbers, their
    /// rounding errors come after.
    rates: [SharedId; 3],
    /// Partial sums over a row of pairs, a row of times for each of them.
    partial_sums: SharedId,
    /// The warps' shares of ⟨S, D⟩.
    energies: SharedId,
    /// Rematerialised indices by which heads are read: they are needed before the products, too.
    rematerialiser: Rematerialiser,
    thread: Thread,
    /// The warp's block of 16 times, and its half.
    block: Operand,
    half: Operand,
    fragment: FragmentPlace,
    /// The set of partial sums and energies that belongs to the head: its stage where heads overlap, else 0.
    set: Operand,
}

/// The third sweep by warps, with what its threads keep.
#[derive(Clone)]
struct ChunkwiseBackwardKernel<'s> {
    sweep: GradientSweep<'s>,
    /// G, transposed: the warp's times j and the times i of its half; and key' over the heads so far, at its times and the
    /// places of the depth of its half. Each thread has elements of its own: registers are scarcer than shared memory.
    /// With decays per channel, these are the sums that pairs of one block add to query' and key'. G has no room, and is computed for
    /// each head, where one head has room and query' is there as well, or tiles of `f32` are deepest.
    scores: Option<SharedId>,
    key_sums: SharedId,
    /// The sums of query' that have no registers, laid out as those of key'.
    query_sums: Option<SharedId>,
    query_blocks: QueryBlocks,
    /// Of S and D in `f16`, the numbers that those of each head in flight are to be multiplied by.
    undone: Option<SharedId>,
    /// The further arrays for decays per channel.
    channels: Option<Arrays>,
    /// Whether the numbers that the next head and outputs need from memory are read before the products. Read late, their addresses
    /// take no registers meanwhile: addresses of single elements take many, and there are fewer to spare on devices before Hopper.
    reads_early: bool,
    /// Whether the numbers of the block's sequence leave too few registers: what needs them is then computed late, and again.
    is_crowded: bool,
}

impl<'s> Deref for ChunkwiseBackwardKernel<'s> {
    type Target = GradientSweep<'s>;

    fn deref(&self) -> &GradientSweep<'s> {
        &self.sweep
    }
}

impl GradientSweep<'_> {
    /// Whether the products of a head are phases that share as little as they can: those in `tf32` take many registers, and two blocks on a
    /// multiprocessor have half as many each.
    fn is_in_phases(&self) -> bool {
        self.is_tf32 || self.schedule.blocks > 1
    }

    /// Whether the numbers that say where the block's sequence lies, one of several, leave too few registers beside sums over all of the
    /// depth: at half of the most depth where elements are single, or are all there and are read early.
    fn is_crowded(&self) -> bool {
        let ChunkwiseBackward { depth, padded, wide, vector, .. } = *self.schedule;
        let is_largest = match depth {
            MOST_DEPTH => vector > 1,
            64 => padded == (vector == 1),
            _ => false,
        };
        self.tile.is_some() && !wide && !self.is_tf32 && is_largest
    }
}

impl<'s> ChunkwiseBackwardKernel<'s> {
    fn declare(
        b: &mut Builder,
        stage: &'s Stage,
        isa: Isa,
        form: &'s MatrixRecurrenceBackward,
        schedule: &'s ChunkwiseBackward,
        args: Args,
    ) -> Self {
        let (elem, depth) = (form.elem(stage), schedule.depth);
        let tiles = Tiles::declare(b, stage, form, schedule);
        let heads = schedule.heads();
        let queries_of = query_blocks(form, elem, schedule, isa);
        let types = [elem, schedule.weights_elem(stage, form)];
        let mut own = |name: &str, columns: u32| {
            let columns = if form.states.channels { channels::row(depth) } else { columns };
            b.shared(name, SharedKind::Elem(Elem::F32), TIMES * columns)
        };
        let is_largest = elem == Elem::F32 && depth == MOST_DEPTH && !form.states.channels;
        let has_room = heads > 1 || !is_largest && (queries_of.registers > 0 || queries_of.shared == 0);
        let (scores, key_sums) = match schedule.overlaid {
            true => channels::overlaid_sums(b, &tiles, depth),
            false => (has_room.then(|| own("scores", TIMES)), own("key_sums", depth)),
        };
        let has_borders = form.sums_channels_over_time(stage);
        let channels = scores.filter(|_| form.states.channels).map(|own_queries| {
            let over = schedule.overlaid.then_some(&tiles.weights);
            Arrays::declare(b, types, depth, own_queries, over, has_borders)
        });
        let len = queries_of.shared * COLUMNS / 2 * schedule.threads();
        let query_sums = (len > 0).then(|| b.shared("query_sums", SharedKind::Elem(Elem::F32), len));
        let reads_early = schedule.vector > 1 && (isa.has_bulk_copies() || depth == 32 || !is_iterated(form, schedule));
        let over = channels.as_ref().and_then(|arrays| arrays.over_width(stage, form, schedule));
        let sweep = GradientSweep::declare(b, stage, form, schedule, args, tiles, over);
        let is_crowded = isa.has_bulk_copies() && sweep.is_crowded();
        let reads_early = reads_early && !sweep.is_in_phases() && !is_crowded;
        let undone = half_states::declare(b, &sweep);
        ChunkwiseBackwardKernel {
            sweep,
            scores,
            key_sums,
            query_sums,
            query_blocks: queries_of,
            undone,
            channels,
            reads_early,
            is_crowded,
        }
    }

    /// The number of heads whose tiles are in shared memory: the head that is computed, and the next one where there is room.
    fn heads_in_flight(&self) -> u32 {
        if self.form.states.channels { 1 } else { self.schedule.heads() }
    }

    /// The kernel with rematerialised thread coordinates, where single elements of one head leave the fewest registers, or products are
    /// computed [in phases](GradientSweep::is_in_phases); `None` elsewhere.
    fn rematerialised(&self, b: &mut Builder) -> Option<Self> {
        let is_scarce = self.schedule.vector == 1 && self.schedule.depth == MOST_DEPTH && !self.is_iterated();
        let is_scarce = is_scarce || self.schedule.vector == 1 && self.is_crowded;
        (is_scarce || self.is_in_phases()).then(|| self.with_rematerialised(b))
    }

    /// The kernel with rematerialised thread coordinates.
    fn with_rematerialised(&self, b: &mut Builder) -> Self {
        let thread = self.thread.rematerialised(b, self.rematerialiser);
        let [half, block] = b.div_rem(thread.warp, BLOCKS);
        let fragment = FragmentPlace::of(b, thread.lane);
        let sweep = GradientSweep { thread, half, block, fragment, ..self.sweep.clone() };
        ChunkwiseBackwardKernel { sweep, ..self.clone() }
    }
}
