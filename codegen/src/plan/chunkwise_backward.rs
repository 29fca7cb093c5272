//! The schedules of gradients of recurrences of matrices that a plan may choose, and their cost.

use crate::stage::Bound;
use super::chunkwise::{KINDS, POWERS};
use super::geometry::blocks;
use super::segments::Work;
use crate::schedule::{ChunkwiseBackward, Schedule, Sweep};
use crate::schedules::chunkwise::parts;
use crate::schedules::chunkwise_backward::TIMES;
use crate::stage::Stage;
use crate::target::{Isa, Target};
use crate::words::counted;
use oplus_dsl::Elem;
use oplus_dsl::ir::AxisSet;

/// Lengths of the axis of keys and queries.
const DEPTHS: [u32; 3] = [32, 64, 128];
/// Multiply-adds per microsecond of a multiprocessor, of what its tensor cores reach in such kernels: of words, of words beside
/// states in `tf32`, and of `f32` in two parts.
const PRODUCTS: f64 = 0.52e6;
const BY_UNPACKED: f64 = 0.3e6;
const BY_PARTS: f64 = 0.12e6;
/// Bytes per microsecond that a multiprocessor copies to its shared memory.
const COPIES: f64 = 1e5;
/// Powers of two for each time and channel where decays are those of channels, with what they are of, in a walk and in the third
/// sweep: as many as 0.75 ms on an H200 for 128 recurrences of 2048 times and 64 × 64 states.
const POWERS_WALK: f64 = 10.0;
const POWERS_BACK: f64 = 50.0;

/// The schedules of a two-way stage that is the gradient of a recurrence of matrices. On Hopper there is room for the tiles of two
/// heads; on other devices not always, nor for states in `f32`, and of a single head there is no other to be copied meanwhile.
pub(super) fn schedules(stage: &Stage, isa: Isa) -> Vec<Schedule> {
    let Ok(form) = stage.kind().matrices_back() else { return vec![] };
    let is_single = form.state_elem(stage) == Elem::F32;
    let of = |depth, (padded, wide, vector): (bool, bool, u32)| {
        let vector = if form.elem(stage) == Elem::F32 { vector.min(4) } else { vector };
        let has_turns = form.heads != AxisSet::EMPTY || wide;
        // The deepest tiles of two heads have room on few devices, and their indices have too few registers.
        let is_deepest = depth == DEPTHS[DEPTHS.len() - 1];
        let sets: &[u32] = match isa {
            // Of decays of channels one part has room.
            _ if wide && form.states.channels => &[2],
            Isa::Sm90a if !is_single => &[3],
            // Of `f32` in parts those of one head leave too few registers.
            Isa::Sm90a if wide && !is_deepest => &[3],
            Isa::Sm80 if is_single => &[2],
            _ if has_turns && !is_deepest => &[3, 2],
            _ => &[2],
        };
        let sweep = Sweep::Gradients;
        let of = move |stages| ChunkwiseBackward { sweep, depth, padded, wide, stages, vector, blocks: 1 };
        sets.iter().map(move |stages| Schedule::ChunkwiseBackward(of(*stages)))
    };
    DEPTHS.into_iter().flat_map(|depth| KINDS.into_iter().flat_map(move |kind| of(depth, kind))).collect()
}

/// Microseconds of all sweeps, and why: a product over times, depth and width in each of the first two, three of them and three
/// over pairs of times and the width in the third.
pub(super) fn estimate(stage: &Stage, schedule: &ChunkwiseBackward, bound: &Bound, target: &Target) -> (f64, String) {
    let Ok(form) = stage.kind().matrices_back() else { return (f64::INFINITY, "no recurrence of matrices".into()) };
    let (times, depth) = (f64::from(TIMES), f64::from(schedule.depth));
    let parts = parts(&form.states, schedule.wide, TIMES, |axis| bound.size(axis)) as f64;
    let work = Work::back(stage, form, schedule, (bound, target));
    let segments = work.segments(target);
    let points = blocks(stage, &Schedule::ChunkwiseBackward(*schedule), bound) as f64;
    let heads = bound.count(form.heads.iter()) as f64 * parts;
    // The powers of decays of channels take time of their own.
    let powers = |each: f64| if form.states.channels { times * depth * each / POWERS } else { 0.0 };
    let rate = match form.elem(stage) {
        Elem::F32 => BY_PARTS,
        Elem::F16 => BY_UNPACKED,
        _ => PRODUCTS,
    };
    let walk = times * times * depth / rate + powers(POWERS_WALK);
    let walks = 2.0 * work.turns(segments, target) * f64::from(work.walk.blocks) * walk;
    let all = (points / f64::from(target.multiprocessors)).ceil();
    // Where there is no room for the tiles of the next head, nothing is computed while they are copied.
    let [own, state] = [form.elem(stage), form.state_elem(stage)].map(|elem| elem.bytes().unwrap_or(4) as f64);
    let waits =
        if schedule.stages == 2 && heads > 1.0 { 2.0 * times * (own * times + state * depth) / COPIES } else { 0.0 };
    let products = times * times * (3.0 * depth + 3.0 * times) / rate;
    let gradients = all * (heads * (products + waits) + powers(POWERS_BACK));
    // Element by element tiles are filled by ordinary loads.
    let slower = if schedule.vector == 1 { 4.0 } else { 1.0 };
    let why =
        format!("{}; then {} of {}", work.why(segments, target), counted(points, "block"), counted(heads, "head"));
    ((walks + gradients) * slower, why)
}
