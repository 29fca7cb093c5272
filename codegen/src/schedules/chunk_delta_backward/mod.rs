//! The gradient of delta rules in chunks of times.
//!
//! A stage in this [form](DeltaRuleBackward) has the states S of a rule and their cotangents Λ,
//!
//! ```text
//! S[t] = w[t]·S[t−1] + y[t]·e[t]⊗k[t],  e[t] = x[t] − S[t−1]·z[t]
//! Λ[t] = w[t+1]·Λ[t+1] − y[t+1]·p[t+1]⊗z[t+1] + g[t]·c[t]⊗q[t],  p[t] = Λ[t]·k[t]
//! ```
//!
//! With s the running sum of the logarithms of w from a chunk's start, s′ the same before a step, D the cotangent that reaches the state
//! after the chunk, and d\[i, j\] = 2^(s\[i\] − s\[j\]), d′\[i, j\] = 2^(s′\[i\] − s\[j\]), the rows e and p of a chunk solve triangular systems:
//!
//! ```text
//! e[i] + Σ_{j < i} d′[i, j]·(z[i]·k[j])·y[j]·e[j] = x[i] − 2^s′[i]·S·z[i]
//! p[j] + Σ_{i > j} y[i]·d′[i, j]·(z[i]·k[j])·p[i] = 2^(s[end] − s[j])·D·k[j] + Σ_{i ≥ j} d[i, j]·g[i]·(q[i]·k[j])·c[i]
//! D_before = 2^s[end]·D + Σ_i 2^s[i]·g[i]·c[i]⊗q[i] − Σ_i 2^s′[i]·y[i]·p[i]⊗z[i]
//! ```
//!
//! With e and p known, the sums of which gradients are maps need no further system:
//!
//! ```text
//! Σ c·S[i]   = 2^s[i]·c[i]·S  + Σ_{j ≤ i} d[i, j]·(c[i]·e[j])·y[j]·k[j]
//! Σ p·S[i−1] = 2^s′[i]·p[i]·S + Σ_{j < i} d′[i, j]·(p[i]·e[j])·y[j]·k[j]
//! Σ e·Λ[j]   = 2^(s[end] − s[j])·e[j]·D + Σ_{i ≥ j} d[i, j]·(c[i]·e[j])·g[i]·q[i] − Σ_{i > j} d′[i, j]·(p[i]·e[j])·y[i]·z[i]
//! ```
//!
//! and w\[t\]·⟨S\[t−1\], Λ\[t\]⟩ follows from ⟨S, D⟩ at the end of a chunk and the products of these sums with q, z and k at later times.
//!
//! Where steps read nothing of the state, e is x, nothing is taken off, and the walk of cotangents stores what is computed from p.
//!
//! Three kernels, of the [`DeltaSweep`]s: two walk the recurrences in chunks of 16 times as [`chunk_delta`](super::chunk_delta) does, one
//! each way, and write e and S, or p and D, to memory, the states once for 64 times; the third has a block for every 64 times of a
//! recurrence. Where decays differ along the depth, a kernel before them may prepare the tiles of times for both walks. Where few blocks walk, both walks are one launch, and half of its blocks are of each. A width of several times 64 is divided among the blocks of walks, and taken part by part in the third.

mod candidates;
mod channels;
mod common;
mod copies;
mod cost;
mod gradients;
mod outputs;
mod parameters;
mod persistent;
mod prepared;
mod products;
mod rates;
mod rows;
mod save;
mod saved;
mod steps;
mod strategy;
mod tiles;
mod walk;
mod weights;
mod width;

pub use parameters::{ChunkDeltaBackward, DeltaSweep};

use super::LowerError;
use super::chunk_delta::{TIMES, of_all_tiles};
use crate::block::args::Args;
use crate::block::sequence::SequenceTile;
use crate::build::Builder;
use crate::stage::Stage;
use crate::stage::kind::DeltaRuleBackward;
use crate::target::WARP;
use crate::tile::{Kernel, Operand, Special};
use channels::ChannelGradients;
use gradients::Gradients;
use oplus_dsl::ir::Axis;
use prepared::Preparation;
use saved::saved_rows;
use walk::Walk;

/// How many blocks of 16 times the times of a block of the third sweep have.
const BLOCKS: u32 = TIMES / crate::block::matmul::ROWS;
/// Warps of a block of the third sweep.
const WARPS: u32 = 2 * BLOCKS;
/// The longest axis that matrices act on.
const MOST_DEPTH: u32 = 128;
/// The most tiles of times in flight in walks.
const STAGES: u32 = 3;

/// The tile kernel of a stage under one sweep of the schedule.
fn lower(stage: &Stage, schedule: &ChunkDeltaBackward, symbol: &str) -> Result<Kernel, LowerError> {
    let ChunkDeltaBackward { depth, padded, wide, places, vector, blocks, stages, .. } = *schedule;
    let least = if schedule.prepared { 1 } else { 2 };
    let is_possible = (least..=STAGES).contains(&stages)
        && depth.is_power_of_two()
        && (32..=MOST_DEPTH).contains(&depth)
        && blocks > 0
        && !(padded && wide)
        && !(schedule.overlaid && schedule.persistent)
        // Such blocks read from shared memory which times are theirs. That is written once, and a persistent block has other times in each tile.
        && !(schedule.persistent && (blocks > 1 || vector == 1));
    // A saved tile has 64 places: where there may be fewer, a block has them all.
    let is_divided = places == TIMES || matches!(places, 16 | 32) && !padded;
    if !is_possible || !is_divided || !matches!(vector, 1 | 2 | 4 | 8) {
        return Err(LowerError::parameters(schedule));
    }
    let form = stage
        .kind()
        .delta_back()
        .map_err(|refusal| LowerError::Kind { schedule: ChunkDeltaBackward::NAME, refusal })?;
    let is_other = if form.states.channels.is_some() { DeltaSweep::Gradients } else { DeltaSweep::Channels };
    let is_prepared = form.states.channels.is_some() && vector > 1;
    if schedule.sweep == is_other || schedule.prepared && !is_prepared {
        return Err(LowerError::parameters(schedule));
    }
    let mut b = Builder::new(symbol, schedule.threads());
    b.blocks_per_sm(blocks);
    with_kernel(&mut b, stage, form, schedule, |b, kernel| match kernel {
        Either::Preparation(kernel) => kernel.body(b),
        Either::Walk(kernel) => kernel.body(b),
        Either::Walks([states, cotangents]) => {
            let half = b.special(Special::BlockY);
            let is_first = b.eq(half, Operand::i32(0));
            b.if_else(is_first, |b| states.body(b), |b| cotangents.body(b));
        }
        Either::Gradients(kernel) => b.if_(exists(&kernel.tile), |b| kernel.body(b)),
        Either::Channels(kernel) => b.if_(exists(&kernel.tile), |b| kernel.body(b)),
    });
    Ok(b.finish())
}

/// Whether a block of the third sweep has times: its sequence may have none left for it.
fn exists(tile: &Option<SequenceTile>) -> Operand {
    tile.as_ref().map_or(Operand::bool(true), |tile| tile.exists)
}

/// The shared memory of the kernel.
fn shared_bytes(stage: &Stage, schedule: &ChunkDeltaBackward) -> u32 {
    let Ok(form) = stage.kind().delta_back() else { return 0 };
    let mut b = Builder::new("", WARP);
    with_kernel(&mut b, stage, form, schedule, |_, _| ());
    b.finish().shared_layout().1
}

/// Blocks of walks that share a multiprocessor.
fn blocks_of_walks(stage: &Stage, schedule: &ChunkDeltaBackward) -> u32 {
    let form = stage.kind().delta_back();
    let prepares_channels = |form: &DeltaRuleBackward| form.states.channels.is_some() && !schedule.prepared;
    let is_large = form.is_ok_and(|form| prepares_channels(form) || tiles::is_large(stage, form, 2 * schedule.depth));
    let is_alone = is_large || schedule.depth > 64 || schedule.vector == 1;
    if is_alone { 1 } else { 2 }
}

/// The kernels of a schedule, in order.
fn sweeps(stage: &Stage, schedule: &ChunkDeltaBackward) -> Vec<ChunkDeltaBackward> {
    let blocks = blocks_of_walks(stage, schedule);
    let walk = |sweep| ChunkDeltaBackward { sweep, blocks, persistent: false, overlaid: false, ..*schedule };
    let walks = match schedule.concurrent {
        true => vec![walk(DeltaSweep::Walks)],
        false => vec![walk(DeltaSweep::States), walk(DeltaSweep::Cotangents)],
    };
    let prepare = schedule.prepared.then(|| prepared::sweep(stage, schedule));
    prepare.into_iter().chain(walks).chain([*schedule]).collect()
}

/// How many numbers the walks store: states of every 64 times, or of every 16 where decays differ along the depth, cotangents of states, and rows of each time of both; of a rule with two keys two rows of cotangents. `None` when 63
/// bits cannot count them.
fn scratch(
    stage: &Stage,
    form: &DeltaRuleBackward,
    schedule: &ChunkDeltaBackward,
    size: impl Fn(Axis) -> i64 + Copy,
) -> Option<Vec<u64>> {
    let states = &form.states;
    let outer = states.outer.minus(stage.axis_of_sequences());
    let parts = (size(states.width) as u64).div_ceil(u64::from(TIMES)) as i64;
    let rows = outer.iter().try_fold(parts, |n, axis| n.checked_mul(size(axis)))?;
    let tiles = rows.checked_mul(stage.tiles_of_times(states.time, TIMES, size) as i64)?;
    let [state, row] = [schedule.depth, TIMES].map(|n| tiles.checked_mul(i64::from(TIMES * n)).map(|n| n as u64));
    let each = if form.states.channels.is_some() { u64::from(BLOCKS) } else { 1 };
    let state = state?.checked_mul(each).filter(|n| i64::try_from(*n).is_ok())?;
    let mut all = vec![state, state];
    all.extend(std::iter::repeat_n(row?, saved_rows(states)));
    if schedule.prepared {
        let lens = prepared::lens(form, schedule.depth);
        all.extend(of_all_tiles(stage, states, lens, size)?);
    }
    Some(all)
}

/// The kernel of a sweep.
enum Either<'k, 's> {
    Preparation(&'k Preparation<'s>),
    Walk(&'k Walk<'s>),
    /// The walk of states and that of cotangents.
    Walks([&'k Walk<'s>; 2]),
    Gradients(&'k Gradients<'s>),
    Channels(&'k ChannelGradients<'s>),
}

fn with_kernel(
    b: &mut Builder,
    stage: &Stage,
    form: &DeltaRuleBackward,
    schedule: &ChunkDeltaBackward,
    then: impl FnOnce(&mut Builder, Either<'_, '_>),
) {
    let args = Args::declare(b, stage, super::Strategy::abi(schedule, stage));
    if schedule.sweep == DeltaSweep::Gradients {
        let kernel = Gradients::declare(b, stage, form, schedule, args);
        return then(b, Either::Gradients(&kernel));
    }
    if schedule.sweep == DeltaSweep::Channels {
        let kernel = ChannelGradients::declare(b, stage, form, schedule, args);
        return then(b, Either::Channels(&kernel));
    }
    let walked = schedule.walked();
    if schedule.sweep == DeltaSweep::Prepare {
        let kernel = Preparation::declare(b, stage, form, &walked, args);
        return then(b, Either::Preparation(&kernel));
    }
    if schedule.sweep == DeltaSweep::Walks {
        let states = Walk::declare(b, stage, form, DeltaSweep::States, &walked, args.clone());
        let cotangents = |b: &mut Builder| Walk::declare(b, stage, form, DeltaSweep::Cotangents, &walked, args);
        let cotangents = b.in_same_memory(cotangents);
        return then(b, Either::Walks([&states, &cotangents]));
    }
    let kernel = Walk::declare(b, stage, form, schedule.sweep, &walked, args);
    then(b, Either::Walk(&kernel));
}
