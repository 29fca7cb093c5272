//! The cost of delta rules in chunks.

use super::{ChunkDelta, TIMES};
use crate::schedules::constants::Constants;
use crate::schedules::cost::{Cost, Memory};
use crate::schedules::problem::Problem;
use crate::schedules::strategy::Strategy;
use crate::words::counted;

/// The part of the work on a tile that is the same for any part of the width: products over pairs of times, and copies of keys.
const SHARED: f64 = 0.35;

/// The work on a tile of times, in that at a depth of 64 and as many places of the width.
pub(in crate::schedules) fn tile_work(schedule: &ChunkDelta) -> f64 {
    let slower = if schedule.vector == 1 { 2.0 } else { 1.0 };
    let part = f64::from(schedule.places) / f64::from(TIMES);
    f64::from(schedule.depth) / 64.0 * slower * (SHARED + (1.0 - SHARED) * part)
}

/// Microseconds of a stage of these sizes, and why.
pub(super) fn estimate(schedule: &ChunkDelta, problem: &Problem<'_>, memory: &Memory) -> Cost {
    let Constants { chunk_delta_tile, chunk_delta_wait, .. } = *problem.constants;
    let tiles = problem.length().div_ceil(u64::from(TIMES));
    let blocks = schedule.blocks(problem);
    let of_one = memory.share_of_one(blocks as f64);
    let resident = of_one.min(f64::from(schedule.blocks)).max(1.0);
    let work = of_one * chunk_delta_tile * tile_work(schedule);
    let micros = tiles as f64 * (work + of_one / resident * chunk_delta_wait);
    let why = format!("{} of {} times, {}", counted(tiles, "tile"), TIMES, counted(blocks, "block"));
    Cost { micros: micros.max(memory.micros()), why }
}
