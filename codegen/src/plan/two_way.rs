//! The two-way schedules that a plan may choose, and their cost.
//!
//! As for the [states schedules](super::states), issue slots are the limit: those of the walk, and of the pass that saves
//! states before it.

use crate::lower::states::two_way::passes;
use crate::schedule::{Pass, Schedule, TwoWay, WARP};
use crate::stage::Stage;
use crate::target::{Isa, Target};

/// Cycles per microsecond, under this load.
const CLOCK: f64 = 1980.0;
/// Schedulers of a multiprocessor.
const SCHEDULERS: f64 = 4.0;
/// Issue slots per update of a state, with two rows per lane and with one, and of the pass that saves states.
const WALK: [f64; 2] = [17.5, 21.0];
const SAVE: f64 = 6.0;
/// Time against a scheduler that never waits, with two or more walking warps, and with one.
const LATENCY: [f64; 2] = [1.6, 2.2];

/// State axes of 4, 16 and 64; shorter ones, and up to 256, are padded.
pub(super) fn vector_schedules(vector: u32, isa: Isa) -> Vec<Schedule> {
    let bounded = |s: TwoWay| if isa == Isa::Sm90a { s } else { TwoWay { registers: 0, ..s } };
    let exact = [many(4), few(4), many(16), few(16), few(64)].map(|s| TwoWay { padded: false, ..s });
    let all = exact.into_iter().chain([4, 16, 64, 256].map(few));
    all.map(|s| Schedule::TwoWay(TwoWay { vector, ..bounded(s) })).collect()
}

/// The schedules that assume nothing of strides and addresses.
pub(super) fn scalar_schedules() -> Vec<Schedule> {
    [4, 16, 64, 256].map(|capacity| Schedule::TwoWay(TwoWay { registers: 0, ..few(capacity) })).to_vec()
}

/// Two rows per lane.
fn many(capacity: u32) -> TwoWay {
    let small = capacity == 4;
    let (warps, copy_warps, blocks) = if small { (4, 2, 2) } else { (8, 4, 1) };
    let registers = if small { 0 } else { 216 };
    let states = if small { 1 } else { 4 };
    TwoWay { rows: 2, warps, copy_warps, blocks, registers, states, ..few(capacity) }
}

/// One row per lane.
fn few(capacity: u32) -> TwoWay {
    let (states, warps, copy_warps, steps) = match capacity {
        4 => (1, 4, 2, 32),
        256 => (8, 2, 2, 16),
        _ => (4, 8, 4, 32),
    };
    let lanes = capacity / states;
    TwoWay {
        pass: Pass::Walk,
        warps,
        copy_warps,
        states,
        rows: 1,
        lanes,
        padded: true,
        steps,
        stages: 2,
        vector: 1,
        blocks: 1,
        registers: if warps == 8 { 216 } else { 0 },
    }
}

/// Microseconds of all passes, `blocks` blocks of `steps` steps, and why.
pub(super) fn estimate(stage: &Stage, schedule: &TwoWay, blocks: u64, steps: u64, target: &Target) -> (f64, String) {
    let updates = f64::from(schedule.block_rows() * schedule.capacity()) * steps as f64 / f64::from(WARP);
    let of_one = (blocks as f64 / f64::from(target.multiprocessors)).ceil();
    let resident = f64::from(schedule.blocks).min(of_one).max(1.0);
    let warps = resident * f64::from(schedule.warps);
    let latency = if warps >= 2.0 * SCHEDULERS { LATENCY[0] } else { LATENCY[1] };
    let walk = if schedule.rows == 2 { WALK[0] } else { WALK[1] };
    let micros = |slots: f64| of_one * updates * slots / (SCHEDULERS.min(warps) * CLOCK) * latency;
    let (walk, save) = (micros(walk), micros(SAVE));
    let launches = passes(stage, schedule).len();
    let why = format!("{launches} launches: states {save:.0} µs, walk {walk:.0} µs, {warps} warps per multiprocessor");
    (walk + save, why)
}
