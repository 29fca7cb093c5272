//! The cost of the sweeps of a gradient in chunks.

use super::{ChunkwiseBackward, TIMES, WALK_STAGES, blocks_of_walks};
use crate::schedules::chunkwise::cost::ALONE_IN_FLIGHT;
use crate::schedules::chunkwise::slices;
use crate::schedules::chunkwise::work::{Walk, Work, recurrences};
use crate::schedules::cost::Cost;
use crate::schedules::problem::Problem;
use crate::schedules::strategy::Strategy;
use crate::stage::kind::MatrixRecurrenceBackward;
use crate::words::counted;
use oplus_dsl::Elem;

/// Time of products whose tiles lie over one another, so that they wait for one another, divided by that of others.
const SHARED_TILES: f64 = 1.9;

/// The recurrences that a walk of the gradient's states goes through.
pub(super) fn work(schedule: &ChunkwiseBackward, form: &MatrixRecurrenceBackward, problem: &Problem<'_>) -> Work {
    let Problem { stage, bound, target, .. } = *problem;
    let chunks = problem.length().div_ceil(u64::from(TIMES));
    let walk =
        Walk { blocks: blocks_of_walks(stage, form, schedule, target.isa), alone: 0.6, rest: 1.0, iteration: 1.0 };
    let rows = recurrences(&form.states, schedule.wide, TIMES, bound);
    Work { rows, heads: 1, chunks, walk, carries: Walk { iteration: 0.6, ..walk }, is_final: false }
}

/// Microseconds of all sweeps, and why: a product over times, depth and width in each of the first two, three of them and three
/// over pairs of times and the width in the third.
pub(super) fn estimate(schedule: &ChunkwiseBackward, problem: &Problem<'_>) -> Cost {
    let Problem { stage, bound, target, constants } = *problem;
    let Ok(form) = stage.kind().matrices_back() else {
        return Cost { micros: f64::INFINITY, why: "no recurrence of matrices".into() };
    };
    let (times, depth) = (f64::from(TIMES), f64::from(schedule.depth));
    let slices = slices(&form.states, schedule.wide, TIMES, |axis| bound.size(axis)) as f64;
    let work = work(schedule, form, problem);
    let segments = work.segments(problem);
    let points = schedule.blocks(problem) as f64;
    let heads = bound.count(form.heads.iter()) as f64 * slices;
    // The powers of decays of channels take time of their own.
    let powers = |each: f64| if form.states.channels { times * depth * each / constants.chunkwise_powers } else { 0.0 };
    let rate = match form.elem(stage) {
        Elem::F32 => constants.chunkwise_backward_split,
        Elem::F16 => constants.chunkwise_backward_unpacked,
        _ => constants.chunkwise_backward_products,
    };
    // Beside warps that only copy, walks are by warpgroups.
    let is_split = schedule.are_split(stage, form);
    let walked = match schedule.copiers {
        0 => rate,
        _ if is_split => constants.chunkwise_backward_parts_walk,
        _ => constants.chunkwise_backward_products,
    };
    let walk = times * times * depth / walked + powers(constants.chunkwise_backward_powers_walk);
    let faster = if schedule.walk_stages < WALK_STAGES { ALONE_IN_FLIGHT } else { 1.0 };
    let walks = faster * 2.0 * work.iterations(segments, problem) * f64::from(work.walk.blocks) * walk;
    let all = (points / f64::from(target.multiprocessors)).ceil();
    // Where there is no room for the tiles of the next head, nothing is computed while they are copied.
    let [own, state] = [form.elem(stage), form.state_elem(stage)].map(|elem| elem.bytes().unwrap_or(4) as f64);
    let copied = 2.0 * times * (own * times + state * depth);
    let waits = if schedule.stages == 2 && heads > 1.0 { copied / constants.chunkwise_backward_copies } else { 0.0 };
    // A single head leaves warpgroups nothing to overlap.
    let rate = match schedule.warpgroups {
        true if is_split => constants.chunkwise_backward_parts,
        true if heads > 1.0 => constants.chunkwise_backward_warpgroups,
        true => 0.9 * rate,
        false => rate,
    };
    let rate = if schedule.shares_tiles(stage, form) { rate / SHARED_TILES } else { rate };
    let products = times * times * (3.0 * depth + 3.0 * times) / rate;
    let gradients = all * (heads * (products + waits) + powers(constants.chunkwise_backward_powers_back));
    // Element by element tiles are filled by ordinary loads.
    let slower = if schedule.vector == 1 { 4.0 } else { 1.0 };
    let why =
        format!("{}; then {} of {}", work.why(segments, target), counted(points, "block"), counted(heads, "head"));
    Cost { micros: (walks + gradients) * slower, why }
}
