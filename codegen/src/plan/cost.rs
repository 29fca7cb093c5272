//! The cost model: microseconds that a schedule takes for a stage of these sizes and strides.
//!
//! Everything is bound by memory at least, so an estimate is never less than bytes over bandwidth, worsened by what keeps a
//! schedule from it: accesses that use part of a 32-byte sector, scalar accesses. What else limits a schedule, as
//! multiprocessors that have too little in flight or the fixed price of passing carries between blocks, it says itself. The
//! constants were measured on an H200; only their ratios matter to the choice.

use super::Estimate;
use crate::abi::{Tensor, elem, tensors};
use crate::schedules::{Cost, Memory, Problem, Schedule};
use crate::target::{Isa, Target};

/// Microseconds from a launch to its first useful load, and from the last store to the end.
const LAUNCH: f64 = 3.0;
/// Share of the bandwidth that scalar accesses reach.
const SCALAR: f64 = 0.75;
/// Bytes of a sector, the least that memory moves.
const SECTOR: u64 = 32;

/// Bytes per microsecond of one multiprocessor's share of the bandwidth.
fn bandwidth(target: &Target) -> f64 {
    match target.isa {
        Isa::Sm80 => 14_000.0,
        Isa::Sm90a => 32_000.0,
    }
}

/// The estimate of a schedule that fits.
pub(super) fn estimate(schedule: &Schedule, problem: &Problem<'_>) -> Estimate {
    let moved = moved_bytes(schedule, problem) as f64;
    let share = if schedule.vector() == 1 { SCALAR } else { 1.0 };
    let one = bandwidth(problem.target) * (share * schedule.share_of_bandwidth());
    let memory = Memory { moved, one, multiprocessors: f64::from(problem.target.multiprocessors) };
    let Cost { micros, why } = schedule.cost(problem, &memory);
    Estimate {
        schedule: *schedule,
        bytes: problem.bound.total_bytes(problem.stage),
        micros: LAUNCH + micros.max(memory.micros()),
        why: format!("{why}, {:.1} MB at {:.0} GB/s", moved / 1e6, one * memory.multiprocessors / 1e3),
    }
}

/// Bytes moved: whole sectors where neighbouring lanes are apart.
fn moved_bytes(schedule: &Schedule, problem: &Problem<'_>) -> u64 {
    let (stage, bound) = (problem.stage, problem.bound);
    let along = schedule.lane_axis(stage);
    let waste = |tensor: Tensor| {
        let stride = along.filter(|a| bound.size(*a) > 1).and_then(|a| bound.stride(stage, tensor, a));
        let elements = SECTOR / elem(stage, tensor).bytes().unwrap_or(8) as u64;
        stride.map_or(1, |s| s.unsigned_abs().clamp(1, elements))
    };
    let total = bound.total_bytes(stage);
    let extra = |t: Tensor| bound.bytes(stage, t).saturating_mul(waste(t) - 1);
    tensors(stage).map(extra).fold(total, u64::saturating_add)
}
