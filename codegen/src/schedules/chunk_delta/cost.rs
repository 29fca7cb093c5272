//! The cost of delta rules in chunks.

use super::{ChunkDelta, RuleSweep, TIMES};
use crate::schedules::constants::Constants;
use crate::schedules::cost::{Cost, Memory};
use crate::schedules::problem::Problem;
use crate::schedules::strategy::Strategy;
use crate::stage::Stage;
use crate::words::counted;
use oplus_dsl::Elem;

/// The part of the work on a tile that is the same for any part of the width: products over pairs of times, and copies of keys.
const SHARED: f64 = 0.35;
/// The time of a walk whose queries have warps of their own, in that of one that takes their products itself.
const READERS: f64 = 0.75;
/// How much more work there is where factors are handed over.
const HANDED: f64 = 1.1;
/// How much longer the work on high and low parts takes.
const SPLIT: f64 = 2.0;
/// Microseconds of a multiprocessor on a tile of times that a kernel of its own prepares, at a depth of 64.
const PREPARE: f64 = 1.2;
/// How much longer copies of single elements take.
const SINGLE: f64 = 2.4;

/// How much longer products of a parameter's elements take: those of `f32` are three.
pub(in crate::schedules) fn products(stage: &Stage, param: u32) -> f64 {
    if stage.program.params[param as usize].elem == Elem::F32 { SPLIT } else { 1.0 }
}

/// Microseconds of a walk over the tiles of blocks of a schedule, where the work on a tile is so many times that of the rule itself.
pub(in crate::schedules) fn walk(
    schedule: &ChunkDelta,
    problem: &Problem<'_>,
    blocks: u32,
    of_one: f64,
    channels: bool,
    times: f64,
) -> f64 {
    let Constants { chunk_delta_tile, chunk_delta_wait, chunk_delta_channels, .. } = *problem.constants;
    let tiles = problem.length().div_ceil(u64::from(TIMES)) as f64;
    let resident = of_one.min(f64::from(blocks)).max(1.0);
    let depth = f64::from(schedule.depth) / 64.0;
    let part = f64::from(schedule.places) / f64::from(TIMES);
    let (shorter, more) = if schedule.readers { (READERS, HANDED) } else { (1.0, 1.0) };
    let work = more * times * chunk_delta_tile * depth * (SHARED + (1.0 - SHARED) * part);
    let wait = shorter * chunk_delta_wait + if channels { chunk_delta_channels * depth } else { 0.0 };
    let slower = if schedule.vector == 1 { SINGLE } else { 1.0 };
    tiles * slower * (of_one * work + of_one / resident * wait)
}

/// Microseconds of a stage of these sizes, and why.
pub(super) fn estimate(schedule: &ChunkDelta, problem: &Problem<'_>, memory: &Memory) -> Cost {
    let tiles = problem.length().div_ceil(u64::from(TIMES));
    let blocks = schedule.blocks(problem);
    let form = problem.stage.kind().delta();
    let channels = form.as_ref().is_ok_and(|form| form.channels.is_some());
    let products = form.map_or(1.0, |form| products(problem.stage, form.row.param));
    let of_one = memory.share_of_one(blocks as f64);
    // The tiles of channels leave no room for a second block.
    let resident = if channels { 1 } else { schedule.blocks };
    let tile_words = format!("{} of {} times, {}", counted(tiles, "tile"), TIMES, counted(blocks, "block"));
    if schedule.sweep == RuleSweep::Walk {
        let prepare = ChunkDelta { sweep: RuleSweep::Prepare, ..*schedule };
        let prepared = prepare.blocks(problem);
        let depth = f64::from(schedule.depth) / 64.0;
        let preparing = memory.share_of_one(prepared as f64) * PREPARE * depth * products;
        let micros = preparing + walk(schedule, problem, schedule.blocks, of_one, false, products);
        let why = format!("{} prepared, then {tile_words}", counted(prepared, "tile"));
        return Cost { micros: micros.max(memory.micros()), why };
    }
    let micros = walk(schedule, problem, resident, of_one, channels, products);
    let why = tile_words;
    Cost { micros: micros.max(memory.micros()), why }
}
