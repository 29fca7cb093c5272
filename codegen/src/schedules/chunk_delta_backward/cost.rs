//! The cost of the sweeps of a gradient of a delta rule in chunks.

use super::{ChunkDeltaBackward, DeltaSweep, TIMES, blocks_of_walks};
use crate::schedules::chunk_delta::{Decays, UNREAD_PARTS, WalkCost, copied_parts, preparation, products};
use crate::schedules::constants::Constants;
use crate::schedules::cost::{Cost, Memory};
use crate::schedules::problem::Problem;
use crate::schedules::strategy::Strategy;
use crate::words::counted;

/// The work of a walk on a tile, in that of the rule itself: a walk has more products and saves its rows.
const WALK: f64 = 1.3;
/// How much longer two walks take at the same time than one after the other, where their blocks share multiprocessors.
const CROWDED: f64 = 1.05;
/// The work of the third sweep on a tile of 64 times and a part of the width, most of which is memory.
const GRADIENTS: f64 = 11.0;

/// The constant of the third sweep whose persistent blocks copy parts of the width ahead.
const PERSISTENT: f64 = 7.0;

/// The constant of the third sweep where decays differ along the depth: it reads four times as many states.
const CHANNELS: f64 = 18.0;

/// Microseconds of all sweeps, and why.
pub(super) fn estimate(schedule: &ChunkDeltaBackward, problem: &Problem<'_>, memory: &Memory) -> Cost {
    let Constants { chunk_delta_tile, .. } = *problem.constants;
    let tiles = problem.length().div_ceil(u64::from(TIMES));
    let walk = ChunkDeltaBackward { sweep: DeltaSweep::States, ..*schedule };
    let blocks = walk.blocks(problem);
    let of_one = memory.share_of_one(blocks as f64);
    let slower = if schedule.vector == 1 { 2.0 } else { 1.0 };
    let depth = f64::from(schedule.depth) / 64.0;
    let resident = blocks_of_walks(problem.stage, schedule);
    let form = problem.stage.kind().delta_back();
    let decays = form.as_ref().map_or(Decays::Nothing, |form| Decays::of(&form.states));
    let products = form.as_ref().map_or(1.0, |form| products(problem.stage, form.states.row.param));
    let is_unread = form.is_ok_and(|form| !form.states.reads);
    let unread = if is_unread && products > 1.0 && !schedule.prepared { UNREAD_PARTS } else { 1.0 };
    let channels = schedule.sweep == DeltaSweep::Channels;
    let times = WALK * products;
    let one_walk = WalkCost { resident, of_one, decays, times }.micros(&schedule.walked(), problem);
    let fits_beside = 2 * blocks <= u64::from(problem.target.multiprocessors);
    let walks = match (schedule.concurrent, fits_beside) {
        // Blocks of both walks share multiprocessors, and wait at the same time.
        (true, false) if schedule.prepared => {
            WalkCost { resident, of_one: 2.0 * of_one, decays, times }.micros(&schedule.walked(), problem)
        }
        (true, true) => one_walk,
        (true, false) => CROWDED * 2.0 * one_walk,
        (false, _) => 2.0 * one_walk,
    };
    let parts = ChunkDeltaBackward { places: TIMES, ..walk }.blocks(problem).saturating_mul(tiles);
    let each = match (channels, schedule.persistent) {
        (true, _) => CHANNELS,
        (false, true) => PERSISTENT,
        (false, false) => GRADIENTS,
    };
    let prepared = preparation_of(schedule, problem, memory, of_one);
    let gradients = memory.share_of_one(parts as f64) * each * chunk_delta_tile * depth * slower * products;
    let count = counted(parts, "tile");
    let at_once = if schedule.concurrent { " each at the same time" } else { "" };
    let blocks = counted(blocks, "block");
    let before = if schedule.prepared { "tiles prepared, then " } else { "" };
    let why = format!("{before}two walks of {} by {blocks}{at_once}, then {count}", counted(tiles, "tile"));
    Cost { micros: (prepared + unread * walks + gradients).max(memory.micros()), why }
}

/// Microseconds of the kernel that prepares tiles for both walks, and by which these take longer.
fn preparation_of(schedule: &ChunkDeltaBackward, problem: &Problem<'_>, memory: &Memory, of_one: f64) -> f64 {
    let form = problem.stage.kind().delta_back().ok().filter(|_| schedule.prepared);
    form.map_or(0.0, |form| {
        let tiles = ChunkDeltaBackward { sweep: DeltaSweep::Prepare, ..*schedule }.blocks(problem);
        let tiles_of_one = memory.share_of_one(tiles as f64);
        let own = preparation(&schedule.walked(), problem, &form.cotangents, tiles_of_one);
        own + 2.0 * copied_parts(problem, &form.cotangents, of_one)
    })
}
