//! The cost of walks by chunks.

use super::Chunkwise;
use super::candidates::WARPS;
use super::work::Work;
use crate::schedules::Unit;
use crate::schedules::cost::Cost;
use crate::schedules::problem::Problem;
use oplus_dsl::Elem;

/// Multiply-adds per microsecond of a multiprocessor, of what its tensor cores reach in such kernels by warps and warpgroups.
const BY_WARPS: f64 = 0.83e6;
const BY_WARPGROUPS: f64 = 1.2e6;
/// Multiply-adds of products in `tf32`, whose factors have two parts each.
const BY_PARTS: f64 = 0.146e6;
/// Those where packed pairs are unpacked, and the microseconds that an iteration takes beside them.
const BY_UNPACKED: f64 = 0.71e6;
const ITERATION: f64 = 1.3;
/// How much longer fewer warps take than those that hide one another's waits.
const ALONE: f64 = 1.25;
/// Powers of two per microsecond of a multiprocessor.
pub(crate) const POWERS: f64 = 20e3;
/// Powers of two for each time and channel where decays are those of channels: of pairs, and to scale queries and keys.
const POWERS_EACH: f64 = 24.0;

/// Microseconds, and why. Blocks go through chunks: four products for each, over time, depth and width.
pub(super) fn estimate(schedule: &Chunkwise, problem: &Problem<'_>) -> Cost {
    let (stage, target) = (problem.stage, problem.target);
    let Ok(form) = stage.kind().matrices() else {
        return Cost { micros: f64::INFINITY, why: "no recurrence of matrices".into() };
    };
    let (times, depth) = (f64::from(schedule.times()), f64::from(schedule.depth));
    let work = Work::of(schedule, form, problem);
    let segments = work.segments(target);
    // Decays of channels: those of pairs of neighbouring times are powers of two, of which a multiprocessor has few a microsecond.
    let powers = if form.channels { times * depth * POWERS_EACH / POWERS } else { 0.0 };
    let alone = if work.walk.blocks * schedule.warps < WARPS { ALONE } else { 1.0 };
    let (products, beside) = match form.elem(&stage.program) {
        Ok(Elem::F32) => (BY_PARTS / alone, 0.0),
        Ok(Elem::F16) => (BY_UNPACKED / alone, ITERATION),
        _ if schedule.unit == Unit::Warpgroup => (BY_WARPGROUPS, 0.0),
        _ => (BY_WARPS, 0.0),
    };
    let iteration = f64::from(work.walk.blocks) * (times * times * (3.0 * depth + times) / products + powers) + beside;
    // Element by element tiles are filled by ordinary loads.
    let slower = if schedule.vector == 1 { 4.0 } else { 1.0 };
    Cost { micros: work.iterations(segments, target) * iteration * slower, why: work.why(segments, target) }
}
