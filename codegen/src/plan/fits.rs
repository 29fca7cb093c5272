//! Whether a schedule can run a stage of these sizes and strides.

use crate::stage::Bound;
use super::geometry::{blocks, tiles};
use super::segments::recurrences;
use super::time::Segments;
use crate::abi::{Tensor, axes, elem, name, tensors, unit_axis};
use crate::schedule::{
    Chunkwise, ChunkwiseBackward, Columns, Flash, Form, Loader, LookBack, Pass, Schedule, StateSpace,
    StateSpaceBackward,
};
use crate::schedules::chunkwise_backward;
use crate::schedules::chunkwise_backward::TIMES;
use crate::schedules::state_space::{can_segment, ends_len};
use crate::schedules::state_space_backward;
use crate::schedules::state_space_backward::scratch;
use crate::stage::Stage;
use crate::stage::kind::MatrixRecurrence;
use crate::target::Target;
use oplus_dsl::ir::Axis;

/// Blocks of a grid and tiles of a persistent kernel are counted in 31 bits.
const MAX_COUNT: u64 = i32::MAX as u64;
/// More tiles than any window of a look-back has.
const WINDOW: u64 = 1 << 12;
/// The states that the smallest schedules have room for; each larger one has four times as much.
const LEAST_STATES: i64 = 4;

/// `Err` says in words why the schedule cannot be used.
pub(super) fn fits(stage: &Stage, schedule: &Schedule, bound: &Bound, target: &Target) -> Result<(), String> {
    let bulk = matches!(schedule, Schedule::LookBack(LookBack { loader: Loader::Bulk, .. }));
    let units = schedule.unit_axes(stage);
    for (tensor, unit) in tensors(stage).filter_map(|t| Some((t, unit_axis(stage, units, t)?))) {
        aligned(stage, schedule, bound, (tensor, unit), bulk)?;
    }
    match schedule {
        Schedule::Map(_) | Schedule::Rows(_) => {}
        Schedule::LookBack(s) => looks_back(stage, s, bound, target)?,
        Schedule::Columns(s) => columns(stage, s, bound)?,
        Schedule::StateSpace(s) => one_way(stage, s, bound, target)?,
        Schedule::Flash(s) => pairs(stage, s, bound)?,
        Schedule::StateSpaceBackward(s) => two_way(stage, s, bound, target)?,
        Schedule::Chunkwise(s) => chunks(stage, s, bound)?,
        Schedule::ChunkwiseBackward(s) => chunks_back(stage, s, bound)?,
    }
    if !matches!(schedule, Schedule::Rows(_)) && stage.axis().is_some_and(|axis| bound.size(axis) == 0) {
        return Err("the scan axis is empty".to_owned());
    }
    let (count, most) = match tiles(stage, schedule, bound) {
        Some(tiles) => (tiles, MAX_COUNT.saturating_sub(past_the_last(target))),
        None => (blocks(stage, schedule, bound), MAX_COUNT),
    };
    let counted = count <= most || matches!(schedule, Schedule::Map(_) | Schedule::Rows(_));
    if counted { Ok(()) } else { Err(format!("{count} tiles are more than 31 bits count")) }
}

/// Numbers of tiles behind the last one that a persistent kernel counts: every block draws a ticket that names no tile, and a
/// look-back may compare those of its window.
fn past_the_last(target: &Target) -> u64 {
    u64::from(target.multiprocessors) + WINDOW
}

/// Whether vector accesses along the unit axis are aligned.
fn aligned(
    stage: &Stage,
    schedule: &Schedule,
    bound: &Bound,
    (tensor, unit): (Tensor, Axis),
    bulk: bool,
) -> Result<(), String> {
    let (name, bytes) = (name(stage, tensor), elem(stage, tensor).bytes().unwrap_or(8) as i64);
    let Some(own) = bound.stride(stage, tensor, unit) else { return Ok(()) };
    let axis_name = stage.program.axis_name(unit);
    let views = if let Tensor::Param(i) = tensor { &stage.views[i as usize][..] } else { &[] };
    if views.iter().any(|v| v.axis == unit) {
        let element_by_element = matches!(schedule, Schedule::Map(_));
        let displaced = format!("`{name}` is displaced along {axis_name}");
        return if element_by_element { Ok(()) } else { Err(displaced) };
    }
    if own != 1 && bound.size(unit) > 1 {
        return Err(format!("`{name}` has stride {own} along {axis_name}"));
    }
    let access = if bulk { 16 } else { (i64::from(schedule.vector()) * bytes).min(16) };
    let placed = bound.tensor(stage, tensor);
    if i64::from(placed.align.min(16)) < access {
        return Err(format!("the address of `{name}` is not a multiple of {access} bytes"));
    }
    let apart =
        |(axis, stride): &(&Axis, &i64)| **axis != unit && bound.size(**axis) > 1 && **stride * bytes % access != 0;
    match axes(stage, tensor).iter().zip(&placed.strides).find(apart) {
        None => Ok(()),
        Some((axis, stride)) => {
            let axis = stage.program.axis_name(*axis);
            Err(format!("the stride of `{name}` along {axis}, {stride}, is not a multiple of {access} bytes"))
        }
    }
}

fn looks_back(stage: &Stage, schedule: &LookBack, bound: &Bound, target: &Target) -> Result<(), String> {
    if schedule.loader == Loader::Bulk && !target.isa.has_bulk_copies() {
        return Err(format!("{} has no bulk copies", target.isa.name()));
    }
    let rows = bound.count(stage.outer_axes().iter());
    if rows > MAX_COUNT { Err(format!("{rows} rows are more than 31 bits count")) } else { Ok(()) }
}

fn two_way(stage: &Stage, schedule: &StateSpaceBackward, bound: &Bound, target: &Target) -> Result<(), String> {
    let axes = (0..stage.program.axes.len() as u32).map(Axis);
    if let Some(axis) = axes.into_iter().find(|axis| bound.size(*axis) == 0) {
        return Err(format!("{} is empty", stage.program.axis_name(axis)));
    }
    if schedule.segmented && !state_space_backward::can_segment(stage) {
        return Err("its cotangents depend on the states: time cannot be cut".to_owned());
    }
    let segments = Segments::of(stage, &Schedule::StateSpaceBackward(*schedule), bound, target).count;
    if scratch(stage, schedule, segments, |axis| bound.size(axis)).is_none() {
        return Err(UNCOUNTED.to_owned());
    }
    // Of the passes before the walk blocks have fewer rows.
    for pass in
        [state_space_backward::before(schedule, Pass::Save), StateSpaceBackward { pass: Pass::Sum, ..*schedule }]
    {
        let blocks = blocks(stage, &Schedule::StateSpaceBackward(pass), bound);
        if blocks > MAX_COUNT {
            return Err(format!("{blocks} blocks are more than 31 bits count"));
        }
    }
    states(stage, (schedule.capacity(), schedule.padded), (schedule.vector, schedule.steps, schedule.stages), bound)
}

/// Scratch memory has more numbers than can be counted.
const UNCOUNTED: &str = "it has more states than 63 bits count";

fn one_way(stage: &Stage, schedule: &StateSpace, bound: &Bound, target: &Target) -> Result<(), String> {
    if schedule.segmented && !can_segment(stage) {
        return Err("its states are neither numbers in f32 nor flags: time cannot be cut".to_owned());
    }
    let segments = Segments::of(stage, &Schedule::StateSpace(*schedule), bound, target).count;
    if schedule.segmented && ends_len(stage, segments, |axis| bound.size(axis)).is_none() {
        return Err(UNCOUNTED.to_owned());
    }
    states(stage, (schedule.capacity(), schedule.padded), (schedule.vector, schedule.steps, schedule.stages), bound)
}

/// A state axis of some capacity, filled or padded; time in vectors, tiles and some tiles in flight.
fn states(
    stage: &Stage,
    (capacity, padded): (u32, bool),
    (vector, tile, stages): (u32, u32, u32),
    bound: &Bound,
) -> Result<(), String> {
    let (Some(time), Some(state)) = (stage.axis(), stage.state_axis()) else {
        return Err("there is no sum over an axis of states".to_owned());
    };
    let [(steps, time), (count, state)] = [time, state].map(|a| (bound.size(a), stage.program.axis_name(a)));
    let capacity = i64::from(capacity);
    match padded {
        true if count > capacity => return Err(format!("{state} has size {count}, more than {capacity}")),
        // Lanes walk all the states that there is room for: a quarter of them where that suffices.
        true if capacity > LEAST_STATES && 4 * count <= capacity => {
            return Err(format!("{state} has size {count}, for which {} suffice", capacity / 4));
        }
        false if count != capacity => return Err(format!("{state} has size {count}, not {capacity}")),
        _ => {}
    }
    if steps % i64::from(vector) != 0 {
        return Err(format!("{time} has size {steps}, not a multiple of {vector}"));
    }
    // Tiles and those in flight are counted together.
    let tiles = steps as u64 / u64::from(tile) + u64::from(stages) + 1;
    if tiles > MAX_COUNT { Err(format!("{tiles} tiles are more than 31 bits count")) } else { Ok(()) }
}

fn pairs(stage: &Stage, schedule: &Flash, bound: &Bound) -> Result<(), String> {
    let form = stage.kind().pairs().map_err(|refusal| refusal.to_string())?;
    for (axis, places) in form.inner.iter().zip([schedule.depth, schedule.width]) {
        let (name, size, places) = (stage.program.axis_name(*axis), bound.size(*axis), i64::from(places));
        match schedule.padded {
            true if size > places => return Err(format!("{name} has size {size}, more than {places}")),
            false if size != places => return Err(format!("{name} has size {size}, not {places}")),
            _ if size % i64::from(schedule.vector) != 0 => {
                return Err(format!("{name} has size {size}, not a multiple of {}", schedule.vector));
            }
            _ => {}
        }
    }
    let tiles = form.row_leaves().into_iter().chain(form.column_leaves());
    if tiles.into_iter().any(|(param, _)| !stage.views[param as usize].is_empty()) {
        return Err("a parameter of tiles is displaced".to_owned());
    }
    // Rows and columns are counted together with those of a tile.
    let columns = form.over.map_or(1, |over| bound.size(over)).saturating_mul(bound.size(form.column));
    let longest = bound.size(form.row).max(columns);
    let most = i64::from(i32::MAX) - i64::from(schedule.rows().max(schedule.columns * schedule.stages));
    if longest > most { Err(format!("{longest} rows or columns are more than 31 bits count")) } else { Ok(()) }
}

fn chunks(stage: &Stage, schedule: &Chunkwise, bound: &Bound) -> Result<(), String> {
    let form = stage.kind().matrices().map_err(|refusal| refusal.to_string())?;
    let Chunkwise { depth, padded, wide, vector, stages, .. } = *schedule;
    matrices(stage, form, (depth, schedule.width()), (padded, wide, vector), bound)?;
    if form.readout.as_ref().is_some_and(|readout| !stage.views[readout.query as usize].is_empty()) {
        return Err(DISPLACED.to_owned());
    }
    counted(bound.size(form.time), schedule.times() * stages)
}

/// A parameter is read in tiles elsewhere than at the point.
const DISPLACED: &str = "a parameter of tiles is displaced";

/// Tiles of a recurrence of matrices, filled or padded, of keys and values that are where they are read.
fn matrices(
    stage: &Stage,
    form: &MatrixRecurrence,
    (depth, width): (u32, u32),
    (padded, wide, vector): (bool, bool, u32),
    bound: &Bound,
) -> Result<(), String> {
    for (axis, places) in [(form.depth, depth), (form.width, width)] {
        let (name, size, places) = (stage.program.axis_name(axis), bound.size(axis), i64::from(places));
        let several = wide && axis == form.width;
        match padded {
            true if size > places => return Err(format!("{name} has size {size}, more than {places}")),
            false if several && (size <= places || size % places != 0) => {
                return Err(format!("{name} has size {size}, not several times {places}"));
            }
            false if !several && size != places => return Err(format!("{name} has size {size}, not {places}")),
            _ if size % i64::from(vector) != 0 => {
                return Err(format!("{name} has size {size}, not a multiple of {vector}"));
            }
            _ => {}
        }
    }
    let displaced = [form.key, form.value].into_iter().any(|param| !stage.views[param as usize].is_empty());
    if displaced { Err(DISPLACED.to_owned()) } else { Ok(()) }
}

/// Times are counted in 31 bits, with those of the chunks in flight.
fn counted(times: i64, ahead: u32) -> Result<(), String> {
    let most = i64::from(i32::MAX) - i64::from(ahead);
    if times > most { Err(format!("{times} times are more than 31 bits count")) } else { Ok(()) }
}

fn chunks_back(stage: &Stage, schedule: &ChunkwiseBackward, bound: &Bound) -> Result<(), String> {
    let form = stage.kind().matrices_back().map_err(|refusal| refusal.to_string())?;
    let ChunkwiseBackward { depth, padded, wide, vector, stages, .. } = *schedule;
    for own in [&form.states, &form.cotangents] {
        matrices(stage, own, (depth, TIMES), (padded, wide, vector), bound)?;
    }
    if let Some(axis) = (0..stage.program.axes.len() as u32).map(Axis).find(|axis| bound.size(*axis) == 0) {
        return Err(format!("{} is empty", stage.program.axis_name(axis)));
    }
    if chunkwise_backward::scratch(form, schedule, |axis| bound.size(axis)).is_none() {
        return Err(UNCOUNTED.to_owned());
    }
    let walks = recurrences(&form.states, (wide, TIMES), bound);
    if walks > MAX_COUNT {
        return Err(format!("{walks} recurrences are more than 31 bits count"));
    }
    counted(bound.size(form.states.time), TIMES * stages)
}

fn columns(stage: &Stage, schedule: &Columns, bound: &Bound) -> Result<(), String> {
    let lane = Axis(schedule.lane);
    let axis = stage.program.axis_name(lane);
    let width = bound.size(lane);
    if width % i64::from(schedule.vector) != 0 {
        return Err(format!("{axis} has size {width}, not a multiple of {}", schedule.vector));
    }
    let displaced = stage.views.iter().flatten().any(|v| v.axis == lane);
    if schedule.form == Form::Ring && displaced {
        return Err(format!("a parameter is displaced along {axis}"));
    }
    Ok(())
}
