//! The cost of a walk state by state: issue slots of the schedulers, or the time in which one step waits for another.

use super::Recurrence;
use crate::schedules::constants::Constants;
use crate::schedules::cost::{Cost, Memory};
use crate::schedules::problem::Problem;
use crate::schedules::strategy::Strategy;
use crate::words::counted;

/// Schedulers of a multiprocessor.
const SCHEDULERS: f64 = 4.0;
/// Cycles from one operation to the next that waits for it.
const WAIT: f64 = 4.0;
/// Blocks that a multiprocessor has at once.
const RESIDENT: f64 = 4.0;

/// Microseconds of a stage of these sizes, and why.
pub(super) fn estimate(schedule: &Recurrence, problem: &Problem<'_>, memory: &Memory) -> Cost {
    let why =
        |micros, what: &str| Cost { micros, why: format!("{}, {what}", counted(schedule.blocks(problem), "block")) };
    let (Ok(form), Some(recurrence)) = (problem.stage.kind().recurrence(), problem.stage.recurrence()) else {
        return why(f64::INFINITY, "no recurrence");
    };
    let Constants { recurrence_latency, recurrence_step, recurrence_shuffle, clock, .. } = *problem.constants;
    let places = f64::from(schedule.states);
    let halvings = f64::from(schedule.lanes.trailing_zeros());
    let terms = recurrence.scan.terms.len() as f64;
    let sums = terms + form.readouts.len() as f64;
    let along = if form.has_dense { f64::from(schedule.capacity()) } else { 1.0 };
    let tensors = (problem.stage.program.params.len() + problem.stage.program.outputs.len()) as f64;
    let issues = places * (3.0 + terms + 2.0 * sums) * along + tensors * 8.0 + 2.0 * halvings * sums;
    let wait = recurrence_step + places * WAIT * along + terms * (places / 4.0 * WAIT + halvings * recurrence_shuffle);
    let of_one = memory.share_of_one(schedule.blocks(problem) as f64);
    let warps = of_one * f64::from(schedule.warps);
    let cycles = (warps * issues / SCHEDULERS * recurrence_latency).max(wait * (of_one / RESIDENT).max(1.0));
    let steps = problem.length() as f64 * cycles / clock;
    let moved = memory.micros();
    if moved > steps { why(moved, "memory") } else { why(steps, "one step after the other") }
}
