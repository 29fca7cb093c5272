//! The cost of delta rules in chunks.

use super::{ChunkDelta, RuleSweep, TIMES};
use crate::schedules::constants::Constants;
use crate::schedules::cost::{Cost, Memory};
use crate::schedules::problem::Problem;
use crate::schedules::strategy::Strategy;
use crate::stage::Stage;
use crate::stage::kind::DeltaRule;
use crate::words::counted;
use oplus_dsl::Elem;

/// The part of the work on a tile that is the same for any part of the width: products over pairs of times, and copies of keys.
const SHARED: f64 = 0.35;
/// The waits of a tile that has been prepared, in those of one that a block prepares for itself.
const PREPARED: f64 = 0.9;
/// The waits of a prepared tile that is copied when the one before has been walked.
const IN_TURN: f64 = 1.6;
/// The waits of a walk whose queries have warps of their own, in those of one that takes their products itself: where a block has a
/// multiprocessor for itself, and where others are beside it.
const READERS: f64 = 0.75;
const READERS_BESIDE: f64 = 1.5;
/// How much more work there is where factors are handed over.
const HANDED: f64 = 1.1;
/// How much longer the work on high and low parts takes.
const SPLIT: f64 = 2.0;
/// How much longer still it takes where decays differ along a depth above 64, as parts are divided when they are multiplied.
const SPLIT_LATE: f64 = 1.6;
/// How much longer copies of single elements take.
const SINGLE: f64 = 2.4;
/// Microseconds of a multiprocessor on a tile of times that a kernel of its own prepares, and for each 64 of the depth where decays
/// differ along it.
const PREPARE: f64 = 1.0;
const PREPARE_CHANNELS: f64 = 3.0;
/// Microseconds that a prepared tile takes longer in `f32`: high and low parts are copied, or they are made of elements that have been copied.
const COPIED_PARTS: f64 = 0.6;
/// How much longer the preparation takes where there are two keys.
const TWO_KEYS: f64 = 1.5;
/// The time of a rule whose steps read nothing of the state, in that of one whose steps do, where tiles are prepared.
const UNREAD: f64 = 0.85;
/// That time where blocks prepare their own tiles in two parts: it is the preparation that takes longest then.
pub(in crate::schedules) const UNREAD_PARTS: f64 = 1.2;
/// Microseconds of a tile, for each 64 of the depth, in which a block computes the decays of its times.
const DECAYS: f64 = 0.25;

/// What decays differ along.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::schedules) enum Decays {
    Nothing,
    Time,
    Channels,
}

impl Decays {
    pub(in crate::schedules) fn of(form: &DeltaRule) -> Decays {
        match form.channels {
            Some(_) => Decays::Channels,
            None if form.decays() => Decays::Time,
            None => Decays::Nothing,
        }
    }
}

/// A walk over the tiles of the blocks of a schedule.
pub(in crate::schedules) struct WalkCost {
    /// Blocks that share a multiprocessor, and blocks for each multiprocessor.
    pub resident: u32,
    pub of_one: f64,
    pub decays: Decays,
    /// The work on a tile, in that of the rule itself.
    pub times: f64,
}

/// How much longer products of a parameter's elements take: those of `f32` are three.
pub(in crate::schedules) fn products(stage: &Stage, param: u32) -> f64 {
    if stage.program.params[param as usize].elem == Elem::F32 { SPLIT } else { 1.0 }
}

impl WalkCost {
    /// The time in microseconds.
    pub(in crate::schedules) fn micros(&self, schedule: &ChunkDelta, problem: &Problem<'_>) -> f64 {
        let Constants { chunk_delta_tile, chunk_delta_wait, chunk_delta_channels, .. } = *problem.constants;
        let tiles = problem.length().div_ceil(u64::from(TIMES)) as f64;
        let resident = self.of_one.min(f64::from(self.resident)).max(1.0);
        let depth = f64::from(schedule.depth) / 64.0;
        let part = f64::from(schedule.places) / f64::from(TIMES);
        let is_prepared = schedule.sweep == RuleSweep::Walk;
        let shorter = match schedule.readers {
            true if resident > 1.0 => READERS_BESIDE,
            true => READERS,
            false => 1.0,
        };
        let more = if schedule.readers { HANDED } else { 1.0 };
        let shared = if is_prepared { 0.0 } else { SHARED };
        let work = more * self.times * chunk_delta_tile * depth * (shared + (1.0 - SHARED) * part);
        let copied = match (is_prepared, schedule.stages) {
            (true, 1) => IN_TURN,
            (true, _) => PREPARED,
            (false, _) => 1.0,
        };
        let wait = copied * shorter * chunk_delta_wait;
        let decays = match self.decays {
            _ if is_prepared => 0.0,
            Decays::Nothing => 0.0,
            Decays::Time => DECAYS * depth,
            Decays::Channels => chunk_delta_channels * depth,
        };
        let slower = if schedule.vector == 1 { SINGLE } else { 1.0 };
        tiles * slower * (self.of_one * work + self.of_one / resident * (wait + decays))
    }
}

/// Microseconds of the kernel that prepares the tiles, of which there are so many, for the walk, and of its launch.
pub(in crate::schedules) fn preparation(
    schedule: &ChunkDelta,
    problem: &Problem<'_>,
    form: &DeltaRule,
    of_one: f64,
) -> f64 {
    let depth = f64::from(schedule.depth) / 64.0;
    let of_tile = if form.channels.is_some() { PREPARE_CHANNELS * depth } else { PREPARE };
    let keys = if form.has_two_keys() { TWO_KEYS } else { 1.0 };
    of_one * of_tile * keys * products(problem.stage, form.row.param) + problem.constants.launch
}

/// Microseconds by which walks of prepared tiles take longer in `f32`.
pub(in crate::schedules) fn copied_parts(problem: &Problem<'_>, form: &DeltaRule, of_one: f64) -> f64 {
    let tiles = problem.length().div_ceil(u64::from(TIMES)) as f64;
    let is_split = products(problem.stage, form.row.param) > 1.0;
    if is_split { of_one * tiles * COPIED_PARTS } else { 0.0 }
}

/// Microseconds of a stage of these sizes, and why.
pub(super) fn estimate(schedule: &ChunkDelta, problem: &Problem<'_>, memory: &Memory) -> Cost {
    let Ok(form) = problem.stage.kind().delta() else {
        return Cost { micros: f64::INFINITY, why: String::new() };
    };
    let tiles = problem.length().div_ceil(u64::from(TIMES));
    let blocks = schedule.blocks(problem);
    let is_prepared = schedule.sweep == RuleSweep::Walk;
    // Where blocks prepare the tiles of channels themselves, these leave no room for a second block.
    let is_alone = form.channels.is_some() && !is_prepared;
    let times = products(problem.stage, form.row.param);
    let late = if is_alone && times > 1.0 && schedule.depth > 64 { SPLIT_LATE } else { 1.0 };
    let walk = WalkCost {
        resident: if is_alone { 1 } else { schedule.blocks },
        of_one: memory.share_of_one(blocks as f64),
        decays: Decays::of(form),
        times: times * late,
    };
    let mut micros = walk.micros(schedule, problem);
    let unread = match (form.reads, is_prepared) {
        (false, true) => UNREAD,
        (false, false) if times > 1.0 => UNREAD_PARTS,
        _ => 1.0,
    };
    let mut why = format!("{} of {} times, {}", counted(tiles, "tile"), TIMES, counted(blocks, "block"));
    if is_prepared {
        let prepared = ChunkDelta { sweep: RuleSweep::Prepare, ..*schedule }.blocks(problem);
        micros += preparation(schedule, problem, form, memory.share_of_one(prepared as f64));
        micros += copied_parts(problem, form, walk.of_one);
        why = format!("{} prepared, then {why}", counted(prepared, "tile"));
    }
    Cost { micros: (unread * micros).max(memory.micros()), why }
}
