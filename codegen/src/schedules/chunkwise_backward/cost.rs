//! The cost of the sweeps of a gradient in chunks.

use super::{ChunkwiseBackward, TIMES, blocks_of_walks};
use crate::schedules::chunkwise::cost::POWERS;
use crate::schedules::chunkwise::parts;
use crate::schedules::chunkwise::work::{Walk, Work, recurrences};
use crate::schedules::cost::Cost;
use crate::schedules::problem::Problem;
use crate::schedules::strategy::Strategy;
use crate::stage::kind::MatrixRecurrenceBackward;
use crate::words::counted;
use oplus_dsl::Elem;

/// Multiply-adds per microsecond of a multiprocessor, of what its tensor cores reach in such kernels: of packed pairs, of packed pairs beside
/// states in `tf32`, and of `f32` in high and low parts.
const PRODUCTS: f64 = 0.52e6;
const BY_UNPACKED: f64 = 0.3e6;
const BY_PARTS: f64 = 0.12e6;
/// Bytes per microsecond that a multiprocessor copies to its shared memory.
const COPIES: f64 = 1e5;
/// Powers of two for each time and channel where decays are those of channels, with what they are of, in a walk and in the third
/// sweep: as many as 0.75 ms on an H200 for 128 recurrences of 2048 times and 64 × 64 states.
const POWERS_WALK: f64 = 10.0;
const POWERS_BACK: f64 = 50.0;

/// The recurrences that a walk of the gradient's states has to go through.
pub(super) fn work(schedule: &ChunkwiseBackward, form: &MatrixRecurrenceBackward, problem: &Problem<'_>) -> Work {
    let Problem { stage, bound, target } = *problem;
    let chunks = (bound.size(form.states.time) as u64).div_ceil(u64::from(TIMES));
    let walk = Walk { blocks: blocks_of_walks(stage, form, schedule.depth, target.isa), alone: 0.6, iteration: 1.0 };
    let rows = recurrences(&form.states, schedule.wide, TIMES, bound);
    Work { rows, chunks, walk, carries: Walk { iteration: 0.6, ..walk } }
}

/// Microseconds of all sweeps, and why: a product over times, depth and width in each of the first two, three of them and three
/// over pairs of times and the width in the third.
pub(super) fn estimate(schedule: &ChunkwiseBackward, problem: &Problem<'_>) -> Cost {
    let Problem { stage, bound, target } = *problem;
    let Ok(form) = stage.kind().matrices_back() else {
        return Cost { micros: f64::INFINITY, why: "no recurrence of matrices".into() };
    };
    let (times, depth) = (f64::from(TIMES), f64::from(schedule.depth));
    let parts = parts(&form.states, schedule.wide, TIMES, |axis| bound.size(axis)) as f64;
    let work = work(schedule, form, problem);
    let segments = work.segments(target);
    let points = schedule.blocks(problem) as f64;
    let heads = bound.count(form.heads.iter()) as f64 * parts;
    // The powers of decays of channels take time of their own.
    let powers = |each: f64| if form.states.channels { times * depth * each / POWERS } else { 0.0 };
    let rate = match form.elem(stage) {
        Elem::F32 => BY_PARTS,
        Elem::F16 => BY_UNPACKED,
        _ => PRODUCTS,
    };
    let walk = times * times * depth / rate + powers(POWERS_WALK);
    let walks = 2.0 * work.iterations(segments, target) * f64::from(work.walk.blocks) * walk;
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
    Cost { micros: (walks + gradients) * slower, why }
}
