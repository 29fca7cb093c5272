//! The cost of the sweeps of a gradient of a delta rule in chunks.

use super::{ChunkDeltaBackward, DeltaSweep, TIMES, blocks_of_walks};
use crate::schedules::chunk_delta::tile_work;
use crate::schedules::constants::Constants;
use crate::schedules::cost::{Cost, Memory};
use crate::schedules::problem::Problem;
use crate::schedules::strategy::Strategy;
use crate::words::counted;

/// The work of a walk on a tile, in that of the rule itself: a walk has more products and saves its rows.
const WALK: f64 = 1.3;
/// The work of the third sweep on a tile of 64 times and a part of the width, most of which is memory.
const GRADIENTS: f64 = 4.0;

/// Microseconds of all sweeps, and why.
pub(super) fn estimate(schedule: &ChunkDeltaBackward, problem: &Problem<'_>, memory: &Memory) -> Cost {
    let Constants { chunk_delta_tile, chunk_delta_wait, .. } = *problem.constants;
    let tiles = problem.length().div_ceil(u64::from(TIMES));
    let walk = ChunkDeltaBackward { sweep: DeltaSweep::States, ..*schedule };
    let blocks = walk.blocks(problem);
    let of_one = memory.share_of_one(blocks as f64);
    let resident = of_one.min(f64::from(blocks_of_walks(schedule.depth))).max(1.0);
    let slower = if schedule.vector == 1 { 2.0 } else { 1.0 };
    let depth = f64::from(schedule.depth) / 64.0;
    let work = WALK * of_one * chunk_delta_tile * tile_work(&schedule.walked());
    let walks = 2.0 * tiles as f64 * (work + of_one / resident * chunk_delta_wait);
    let parts = ChunkDeltaBackward { places: TIMES, ..walk }.blocks(problem).saturating_mul(tiles);
    let gradients = memory.share_of_one(parts as f64) * GRADIENTS * chunk_delta_tile * depth * slower;
    let count = counted(parts, "tile");
    let why = format!("two walks of {} by {}, then {count}", counted(tiles, "tile"), counted(blocks, "block"));
    Cost { micros: (walks + gradients).max(memory.micros()), why }
}
