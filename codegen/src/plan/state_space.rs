//! The states schedules that a plan may choose, and their cost.
//!
//! Memory is rarely the limit here. A multiprocessor has four schedulers, each with one issue slot per cycle and a unit
//! that takes 8 cycles for a warp's exponentials; the walk needs both for every update of a state. The estimate counts
//! them. Two warps per scheduler hide each other's latencies, one does not.

use crate::stage::Bound;
use super::geometry::{blocks, length};
use super::time::Segments;
use crate::schedule::{Schedule, StateSpace, WARP};
use crate::schedules::state_space::{CHUNK, Work, can_segment, work};
use crate::stage::Stage;
use crate::target::Target;
use crate::words::counted;

/// Cycles per microsecond, under this load.
const CLOCK: f64 = 1980.0;
/// Schedulers of a multiprocessor.
const SCHEDULERS: f64 = 4.0;
/// Cycles of a scheduler for one warp's exponentials.
const EXPONENTIAL: f64 = 8.0;
/// State axes that shorter ones are padded to.
const PADDED: [u32; 4] = [4, 16, 64, 256];
/// Walking warps of a block where those that copy are many.
const MOST_WARPS: u32 = 16;
/// Time against a scheduler that never waits, with two or more walking warps, and with one.
const LATENCY: [f64; 2] = [1.3, 1.75];

/// The kernel that finds the ends of segments, by the one that walks them.
const ENDS: f64 = 0.85;
/// Microseconds of a launch more.
const LAUNCH: f64 = 3.0;
/// Microseconds from a block's start to its first tile, and from its last one to its end.
const BLOCK: f64 = 4.0;
/// Microseconds in which a block takes up the end of one segment.
const JOIN: f64 = 0.3;

/// State axes of 4, 16 and 64; shorter ones, and up to 256, are padded.
pub(super) fn vector_schedules(stage: &Stage, vector: u32) -> Vec<Schedule> {
    let narrow = vector > CHUNK;
    let many = |capacity| match (work(stage).dear_rows, narrow) {
        (false, _) => many(capacity),
        (true, false) => many_dear(capacity),
        (true, true) => StateSpace { teams: 2, stages: 4, ..many_dear(capacity) },
    };
    let exact = [four(stage, narrow), few(4), many(16), few(16), many(64), few(64)];
    let padded = PADDED.map(|capacity| StateSpace { padded: true, ..few(capacity) });
    let cut = [few(4), many(16), few(16), few(64)].into_iter().chain(padded);
    let cut = cut.filter(|_| can_segment(stage)).map(|s| StateSpace { segmented: true, ..s });
    // Narrow elements take more registers to unpack; four chunks per turn would spill.
    let tight = |s: StateSpace| s.blocks > 1 || s.warps == MOST_WARPS;
    let turn = |s: StateSpace| if narrow && s.states > 1 && tight(s) { StateSpace { unroll: 2, ..s } } else { s };
    exact.into_iter().chain(padded).chain(cut).map(|s| Schedule::StateSpace(StateSpace { vector, ..turn(s) })).collect()
}

/// The schedules that assume nothing of strides and addresses.
pub(super) fn scalar_schedules(stage: &Stage) -> Vec<Schedule> {
    let whole = PADDED.map(|capacity| StateSpace { padded: true, unroll: 1, ..few(capacity) });
    let cut = whole.into_iter().filter(|_| can_segment(stage)).map(|s| StateSpace { segmented: true, ..s });
    whole.into_iter().chain(cut).map(Schedule::StateSpace).collect()
}

/// Rows enough for two blocks on every multiprocessor.
fn many(capacity: u32) -> StateSpace {
    let (warps, copy_warps, states, steps, blocks) = (4, 2, 8, 32, 2);
    let lanes = capacity / states;
    StateSpace {
        warps,
        copy_warps,
        teams: 1,
        states,
        lanes,
        padded: false,
        steps,
        stages: 3,
        unroll: 4,
        vector: 1,
        blocks,
        save: false,
        segmented: false,
        ends: false,
    }
}

/// The same where the copy warps compute dear functions (softplus, a gate): more of them, and for that fewer registers each.
fn many_dear(capacity: u32) -> StateSpace {
    let states = 4;
    let lanes = capacity / states;
    StateSpace { warps: MOST_WARPS, copy_warps: 8, states, lanes, blocks: 1, ..many(capacity) }
}

/// Four states: the rows cost more than the states. Two states per lane where rows cost most, for narrow elements, which are
/// unpacked, and for dear rows; these want as many copy warps as there is room for.
fn four(stage: &Stage, narrow: bool) -> StateSpace {
    let (warps, copy_warps, teams, states, stages, unroll, blocks) = match (narrow, work(stage).dear_rows) {
        (_, true) => (4, 16, 4, 2, 4, 8, 1),
        (true, false) => (4, 8, 1, 2, 3, 8, 1),
        (false, false) => (8, 4, 1, 1, 3, 4, 1),
    };
    StateSpace { warps, copy_warps, teams, states, lanes: 4 / states, steps: 64, stages, unroll, blocks, ..few(4) }
}

/// Fewer rows: more lanes for each. With one block per multiprocessor a single team of copy warps would not hide memory's
/// latency.
fn few(capacity: u32) -> StateSpace {
    let states = match capacity {
        4 => 1,
        256 => 8,
        _ => 4,
    };
    let lanes = capacity / states;
    let unroll = if capacity == 4 { 4 } else { 8 };
    let stages = if capacity == 256 { 2 } else { 4 };
    StateSpace {
        warps: 4,
        copy_warps: 8,
        teams: 2,
        states,
        lanes,
        padded: false,
        steps: 32,
        stages,
        unroll,
        vector: 1,
        blocks: 1,
        save: false,
        segmented: false,
        ends: false,
    }
}

/// What the kernels of a schedule have to do.
pub(super) struct Walk {
    schedule: StateSpace,
    work: Work,
    /// Blocks that walk all rows once.
    blocks: u64,
    multiprocessors: u64,
}

impl Walk {
    pub(super) fn of(stage: &Stage, schedule: &StateSpace, bound: &Bound, target: &Target) -> Walk {
        let blocks = blocks(stage, &Schedule::StateSpace(*schedule), bound);
        Walk { schedule: *schedule, work: work(stage), blocks, multiprocessors: u64::from(target.multiprocessors) }
    }

    /// Segments that are worth an estimate: about twice as many as fill the device.
    pub(super) fn most_segments(&self) -> u64 {
        2 * self.multiprocessors * u64::from(self.schedule.blocks) / self.blocks.max(1) + 1
    }

    /// Microseconds of both kernels of a schedule with segments.
    pub(super) fn micros(&self, segments: Segments) -> f64 {
        let steps = segments.tiles * u64::from(self.schedule.steps);
        let walk = self.of_blocks(self.blocks * segments.count, steps).micros;
        let ends = self.of_blocks(self.blocks * (segments.count - 1), steps).micros * ENDS;
        walk + ends + LAUNCH + 2.0 * BLOCK + JOIN * segments.count as f64
    }

    /// Blocks that walk so many steps.
    fn of_blocks(&self, blocks: u64, steps: u64) -> Micros {
        let (schedule, Work { issues, exponentials, row_issues, .. }) = (&self.schedule, self.work);
        let capacity = f64::from(schedule.capacity());
        let per_update = issues + row_issues / capacity;
        // Updates of a warp's 32 lanes.
        let updates = f64::from(schedule.rows()) * capacity * steps as f64 / f64::from(WARP);
        let of_one = blocks.div_ceil(self.multiprocessors) as f64;
        let resident = f64::from(schedule.blocks).min(of_one).max(1.0);
        let warps = resident * f64::from(schedule.warps) / SCHEDULERS;
        let latency = if warps >= 2.0 { LATENCY[0] } else { LATENCY[1] };
        let cycles =
            |each: f64| of_one * updates * each / (SCHEDULERS.min(resident * f64::from(schedule.warps)) * CLOCK);
        let (slots, units) = (cycles(per_update), cycles(exponentials * EXPONENTIAL));
        let why = format!(
            "{per_update:.1} issue slots per update {slots:.0} µs, exponentials {units:.0} µs, {} per scheduler",
            counted(warps, "warp")
        );
        Micros { micros: slots.max(units) * latency, why }
    }
}

/// Microseconds, and why.
struct Micros {
    micros: f64,
    why: String,
}

/// Microseconds of a stage of these sizes, and why.
pub(super) fn estimate(stage: &Stage, schedule: &StateSpace, bound: &Bound, target: &Target) -> (f64, String) {
    let walk = Walk::of(stage, schedule, bound, target);
    if !schedule.segmented {
        let Micros { micros, why } = walk.of_blocks(walk.blocks, length(stage, bound));
        return (micros, why);
    }
    let segments = Segments::of(stage, &Schedule::StateSpace(*schedule), bound, target);
    let Micros { why, .. } = walk.of_blocks(walk.blocks * segments.count, segments.tiles * u64::from(schedule.steps));
    let cut =
        format!("{} of {}, each walked twice", counted(segments.count, "segment"), counted(segments.tiles, "tile"));
    (walk.micros(segments), format!("{cut}: {why}"))
}
