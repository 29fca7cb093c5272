//! The cost of delta rules in chunks.

use super::{ChunkDelta, TIMES};
use crate::schedules::cost::{Cost, Memory};
use crate::schedules::problem::Problem;
use crate::schedules::strategy::Strategy;
use crate::words::counted;

/// Microseconds of a chunk of 64 places of the depth, of the work of one block alone and of its waits.
const WORK: f64 = 0.8;
const WAITS: f64 = 1.5;

/// Microseconds of a stage of these sizes, and why.
pub(super) fn estimate(schedule: &ChunkDelta, problem: &Problem<'_>, memory: &Memory) -> Cost {
    let chunks = problem.length().div_ceil(u64::from(TIMES));
    let blocks = schedule.blocks(problem);
    let of_one = memory.share_of_one(blocks as f64);
    let resident = of_one.min(f64::from(schedule.blocks)).max(1.0);
    let slower = if schedule.vector == 1 { 2.0 } else { 1.0 };
    let work = of_one * WORK * (f64::from(schedule.depth) / 64.0 + 0.5) * slower;
    let micros = chunks as f64 * (work + of_one / resident * WAITS);
    let why = format!("{} of {} times, {}", counted(chunks, "chunk"), TIMES, counted(blocks, "block"));
    Cost { micros: micros.max(memory.micros()), why }
}
