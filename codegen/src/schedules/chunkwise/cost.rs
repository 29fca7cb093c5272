//! The cost of walks by chunks.

use super::candidates::WARPS;
use super::work::Work;
use super::{Chunkwise, KeyParts, prepared};
use crate::schedules::Unit;
use crate::schedules::cost::{Cost, Memory};
use crate::schedules::problem::Problem;
use crate::words::counted;
use oplus_dsl::Elem;

/// Time of a recurrence's chunk in a block with two, by that of one among as many in blocks of their own.
const SHARED: f64 = 0.9;
/// Time of a chunk whose queries and keys are prepared in parts, by that of one whose warps divide them.
const PREPARED: f64 = 0.86;
/// Time of such a chunk whose state is read by warps of their own, by that of one whose state is read by those that advance it.
const READ_APART: f64 = 0.87;
/// Time of a chunk where a block copies none ahead and more blocks share a multiprocessor, divided by its time where one is copied ahead.
pub(crate) const ALONE_IN_FLIGHT: f64 = 0.85;
/// That quotient in `f32`: a block that copies a chunk ahead leaves no room for a second block.
const ALONE_IN_FLIGHT_OF_F32: f64 = 0.7;
/// Microseconds of a multiprocessor on a chunk whose parts a kernel of its own prepares.
const PREPARE: f64 = 1.0;

/// The estimate in microseconds, and its reason. Blocks go through chunks: four products for each, over time, depth and width.
pub(super) fn estimate(schedule: &Chunkwise, problem: &Problem<'_>, memory: &Memory) -> Cost {
    let Problem { stage, target, constants, .. } = *problem;
    let Ok(form) = stage.kind().matrices() else {
        return Cost { micros: f64::INFINITY, why: "no recurrence of matrices".into() };
    };
    let (times, depth) = (f64::from(schedule.times()), f64::from(schedule.depth));
    let work = Work::of(schedule, form, problem);
    let segments = work.segments(problem);
    // Decays of channels take a power of two for each pair of neighbouring times, of which a multiprocessor computes few a microsecond.
    let powers =
        if form.channels { times * depth * constants.chunkwise_powers_each / constants.chunkwise_powers } else { 0.0 };
    let alone = if work.walk.blocks * schedule.warps < WARPS { constants.chunkwise_alone } else { 1.0 };
    let (products, beside) = match form.elem(&stage.program) {
        Ok(Elem::F32) if schedule.copiers > 0 => (constants.chunkwise_parts, 0.0),
        _ if schedule.copiers > 0 => (constants.chunkwise_copied, 0.0),
        Ok(Elem::F32) => (constants.chunkwise_split / alone, 0.0),
        Ok(Elem::F16) => (constants.chunkwise_unpacked / alone, constants.chunkwise_iteration),
        _ if schedule.unit == Unit::Warpgroup => (constants.chunkwise_warpgroups, 0.0),
        _ => (constants.chunkwise_warps, 0.0),
    };
    let shared = if schedule.heads > 1 { f64::from(schedule.heads) * SHARED } else { 1.0 };
    let iteration =
        shared * f64::from(work.walk.blocks) * (times * times * (3.0 * depth + times) / products + powers) + beside;
    // Element by element tiles are filled by ordinary loads.
    let slower = if schedule.vector == 1 { 4.0 } else { 1.0 };
    let has_more_blocks = schedule.stages == 1 && schedule.blocks > 1;
    let alone_in_flight =
        if form.elem(&stage.program) == Ok(Elem::F32) { ALONE_IN_FLIGHT_OF_F32 } else { ALONE_IN_FLIGHT };
    let slower = if has_more_blocks { alone_in_flight * slower } else { slower };
    let walk = work.iterations(segments, problem) * iteration * slower;
    let why = work.why(segments, target);
    if schedule.key_parts == KeyParts::Divided {
        return Cost { micros: walk, why };
    }
    let chunks = prepared::blocks(stage, form, schedule, |axis| problem.size(axis)).unwrap_or(u64::MAX);
    let prepare = PREPARE * memory.share_of_one(chunks as f64) + constants.launch;
    let apart = if schedule.readers > 0 { READ_APART } else { 1.0 };
    Cost {
        micros: PREPARED * apart * walk + prepare,
        why: format!("{} prepared, then {why}", counted(chunks, "chunk")),
    }
}
