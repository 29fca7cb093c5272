//! The cost of a walk.
//!
//! Memory is rarely the limit here. A multiprocessor has four schedulers, each with one issue slot per cycle and a unit
//! that takes 8 cycles for a warp's exponentials; the walk needs both for every update of a state. The estimate counts
//! them. Two warps per scheduler hide each other's latencies, one does not.

use super::{StateSpace, Work, work};
use crate::schedules::constants::Constants;
use crate::schedules::cost::Cost;
use crate::schedules::problem::Problem;
use crate::schedules::segments::Segments;
use crate::schedules::strategy::Strategy;
use crate::target::WARP;
use crate::words::counted;

/// Schedulers of a multiprocessor.
const SCHEDULERS: f64 = 4.0;
/// Cycles of a scheduler for one warp's exponentials.
const EXPONENTIAL: f64 = 8.0;

/// The work of the kernels of a schedule.
pub(super) struct Walk<'a> {
    schedule: StateSpace,
    work: Work,
    /// Blocks that walk all rows once.
    blocks: u64,
    multiprocessors: u64,
    constants: &'a Constants,
}

impl<'a> Walk<'a> {
    pub(super) fn of(schedule: &StateSpace, problem: &Problem<'a>) -> Walk<'a> {
        let (blocks, multiprocessors) = (schedule.blocks(problem), u64::from(problem.target.multiprocessors));
        Walk { schedule: *schedule, work: work(problem.stage), blocks, multiprocessors, constants: problem.constants }
    }

    /// Segments that are worth an estimate: about twice as many as fill the device.
    pub(super) fn most_segments(&self) -> u64 {
        2 * self.multiprocessors * u64::from(self.schedule.blocks) / self.blocks.max(1) + 1
    }

    /// Microseconds of both kernels of a schedule with segments.
    pub(super) fn micros(&self, segments: Segments) -> f64 {
        let Constants { state_space_carries, state_space_block, state_space_join, launch, .. } = *self.constants;
        let steps = segments.tiles * u64::from(self.schedule.steps);
        let walk = self.of_blocks(self.blocks * segments.count, steps).micros;
        let ends = self.of_blocks(self.blocks * (segments.count - 1), steps).micros * state_space_carries;
        walk + ends + launch + 2.0 * state_space_block + state_space_join * segments.count as f64
    }

    /// Blocks that walk so many steps.
    fn of_blocks(&self, blocks: u64, steps: u64) -> Cost {
        let Constants { state_space_latency, state_space_latency_of_one, clock, .. } = *self.constants;
        let (schedule, Work { issues, exponentials, row_issues, .. }) = (&self.schedule, self.work);
        let capacity = f64::from(schedule.capacity());
        let per_update = issues + row_issues / capacity;
        // Updates of a warp's 32 lanes.
        let updates = f64::from(schedule.rows()) * capacity * steps as f64 / f64::from(WARP);
        let of_one = blocks.div_ceil(self.multiprocessors) as f64;
        let resident = f64::from(schedule.blocks).min(of_one).max(1.0);
        let warps = resident * f64::from(schedule.warps) / SCHEDULERS;
        let latency = if warps >= 2.0 { state_space_latency } else { state_space_latency_of_one };
        let cycles =
            |each: f64| of_one * updates * each / (SCHEDULERS.min(resident * f64::from(schedule.warps)) * clock);
        let (slots, units) = (cycles(per_update), cycles(exponentials * EXPONENTIAL));
        let why = format!(
            "{per_update:.1} issue slots per update {slots:.0} µs, exponentials {units:.0} µs, {} per scheduler",
            counted(warps, "warp")
        );
        Cost { micros: slots.max(units) * latency, why }
    }
}

/// Microseconds of a stage of these sizes, and why.
pub(super) fn estimate(schedule: &StateSpace, problem: &Problem<'_>) -> Cost {
    let walk = Walk::of(schedule, problem);
    if !schedule.segmented {
        let Cost { micros, why } = walk.of_blocks(walk.blocks, problem.length());
        // As in the kernel of segment carries, nothing is summed or written.
        let share = if problem.stage.has_final_states() { problem.constants.state_space_carries } else { 1.0 };
        return Cost { micros: micros * share, why };
    }
    let segments = schedule.segments(problem);
    let Cost { why, .. } = walk.of_blocks(walk.blocks * segments.count, segments.tiles * u64::from(schedule.steps));
    let cut =
        format!("{} of {}, each walked twice", counted(segments.count, "segment"), counted(segments.tiles, "tile"));
    Cost { micros: walk.micros(segments), why: format!("{cut}: {why}") }
}
