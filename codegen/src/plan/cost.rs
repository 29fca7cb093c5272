//! The cost model: microseconds that a schedule takes for a stage of these sizes and strides.
//!
//! Memory bounds everything, so an estimate is never less than bytes over bandwidth. Bytes count for more where accesses use part of
//! a 32-byte sector, and the bandwidth is lower for scalar accesses. Each schedule adds its own limits, such as multiprocessors with
//! too little in flight, or the fixed price of passing carries between blocks. The constants are in one table ([`Constants`]); only
//! their ratios matter to the choice.

use super::Estimate;
use crate::abi::{Tensor, elem, tensors};
use crate::schedules::{Constants, Cost, Memory, Problem, Schedule};
use crate::target::{Isa, Target};

/// Bytes of a sector, the least that memory moves.
const SECTOR: u64 = 32;

/// Bytes per microsecond of one multiprocessor's share of the bandwidth.
fn bandwidth(target: &Target, constants: &Constants) -> f64 {
    match target.isa {
        Isa::Sm80 => constants.bandwidth_sm_80,
        Isa::Sm90a => constants.bandwidth_sm_90a,
    }
}

/// The estimate of a schedule that fits.
pub(super) fn estimate(schedule: &Schedule, problem: &Problem<'_>) -> Estimate {
    let moved = moved_bytes(schedule, problem) as f64;
    let constants = problem.constants;
    let share = if schedule.vector() == 1 { constants.scalar_share } else { 1.0 };
    let one = bandwidth(problem.target, constants) * (share * schedule.share_of_bandwidth(constants));
    let memory = Memory { moved, one, multiprocessors: f64::from(problem.target.multiprocessors) };
    let Cost { micros, why } = schedule.cost(problem, &memory);
    Estimate {
        schedule: *schedule,
        bytes: problem.bound.total_bytes(problem.stage),
        micros: constants.launch + micros.max(memory.micros()),
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
