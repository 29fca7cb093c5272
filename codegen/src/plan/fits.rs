//! Whether a schedule can run a stage of these sizes and strides: the conditions that all schedules share.

use oplus_dsl::ir::Axis;

use crate::abi::{Tensor, axes, elem, name, tensors, unit_axis};
use crate::schedules::{Misfit, Problem, Strategy};
use crate::target::Target;

/// Blocks of a grid and tiles of a persistent kernel are counted in 31 bits.
const MAX_COUNT: u64 = i32::MAX as u64;
/// More tiles than any window of a look-back has.
const WINDOW: u64 = 1 << 12;

/// Whether a schedule can run a call.
pub(super) fn fits(schedule: &dyn Strategy, problem: &Problem<'_>) -> Result<(), Misfit> {
    let stage = problem.stage;
    let units = schedule.unit_axes(stage);
    for (tensor, unit) in tensors(stage).filter_map(|t| Some((t, unit_axis(stage, units, t)?))) {
        aligned(schedule, problem, tensor, unit)?;
    }
    schedule.fits(problem)?;
    if !schedule.takes_empty_scans() && stage.axis().is_some_and(|axis| problem.size(axis) == 0) {
        return Err(Misfit::NothingScanned);
    }
    let (count, most) = match schedule.tiles(problem) {
        Some(tiles) => (tiles, MAX_COUNT.saturating_sub(past_the_last(problem.target))),
        None => (schedule.blocks(problem), MAX_COUNT),
    };
    if count <= most || schedule.has_grid_stride() { Ok(()) } else { Err(Misfit::TooMany { count, what: "tiles" }) }
}

/// Numbers of tiles behind the last one that a persistent kernel counts: every block draws a ticket that names no tile, and a
/// look-back may compare those of its window.
fn past_the_last(target: &Target) -> u64 {
    u64::from(target.multiprocessors) + WINDOW
}

/// Whether vector accesses along the unit axis are aligned.
fn aligned(schedule: &dyn Strategy, problem: &Problem<'_>, tensor: Tensor, unit: Axis) -> Result<(), Misfit> {
    let (stage, bound) = (problem.stage, problem.bound);
    let (name, bytes) = (|| name(stage, tensor).to_owned(), elem(stage, tensor).bytes().unwrap_or(8) as i64);
    let axis_name = |axis: Axis| stage.program.axis_name(axis).to_owned();
    let Some(stride) = bound.stride(stage, tensor, unit) else { return Ok(()) };
    let views = if let Tensor::Param(i) = tensor { &stage.views[i as usize][..] } else { &[] };
    if views.iter().any(|v| v.axis == unit) {
        let displaced = || Misfit::DisplacedTensor { tensor: name(), axis: axis_name(unit) };
        return if schedule.takes_displaced_vectors() { Ok(()) } else { Err(displaced()) };
    }
    if stride != 1 && bound.size(unit) > 1 {
        return Err(Misfit::Stride { tensor: name(), stride, axis: axis_name(unit) });
    }
    let access = schedule.alignment(bytes);
    let placed = bound.tensor(stage, tensor);
    if i64::from(placed.align.min(16)) < access {
        return Err(Misfit::Address { tensor: name(), bytes: access });
    }
    let apart =
        |(axis, stride): &(&Axis, &i64)| **axis != unit && bound.size(**axis) > 1 && **stride * bytes % access != 0;
    match axes(stage, tensor).iter().zip(&placed.strides).find(apart) {
        None => Ok(()),
        Some((axis, stride)) => {
            Err(Misfit::StrideBytes { tensor: name(), axis: axis_name(*axis), stride: *stride, bytes: access })
        }
    }
}
