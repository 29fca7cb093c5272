//! The cost model: microseconds that a schedule takes for a stage of these sizes and strides.
//!
//! Everything here is bound by memory, so the estimate is bytes over bandwidth, worsened by what keeps a schedule from
//! it: accesses that use part of a 32-byte sector, scalar accesses, multiprocessors that have too little in flight,
//! and the fixed price of passing carries between blocks. The constants were measured on an H200; only their ratios
//! matter to the choice.

use super::Estimate;
use crate::stage::Bound;
use super::geometry::{blocks, length, rows, tiles};
use super::{chunkwise, chunkwise_backward, flash, state_space, state_space_backward};
use crate::abi::{Tensor, axes, elem, tensors};
use crate::schedule::{Columns, Form, Loader, LookBack, Rows, Schedule, WARP};
use crate::schedules::rows::blocks_per_sm;
use crate::stage::Stage;
use crate::target::{Isa, Target};
use crate::words::counted;
use oplus_dsl::ir::Axis;

/// Microseconds from a launch to its first useful load, and from the last store to the end.
const LAUNCH: f64 = 3.0;
/// Microseconds of one load, scan and store with nothing else in flight.
const ROUND: f64 = 1.2;
/// Microseconds that an element of a thread takes in a round, whether there is one in its place or not.
const ELEMENT: f64 = 0.005;
/// Microseconds of a chunk of columns beyond what its bytes take, with one block on a multiprocessor.
const AHEAD: f64 = 0.35;
/// Microseconds that filling the pipeline and the first look-back take.
const LOOK_BACK: f64 = 5.0;
/// The same for columns, which look back over two levels.
const LOOK_BACK_COLUMNS: f64 = 7.0;
/// Least microseconds between two tiles of a persistent block: a look-ahead must be hidden behind it.
const TILE: f64 = 2.0;
/// The same where the carry begins anew at every row, and so fewer aggregates are folded.
const ROW_TILE: f64 = 1.5;
/// Microseconds more for every poll beyond the first that it takes to see the aggregates of all other blocks.
const POLL: f64 = 0.15;
/// Share of the bandwidth that scalar accesses reach.
const SCALAR: f64 = 0.75;
/// Share that persistent blocks reach.
const PERSISTENT: f64 = 0.97;
/// Share that persistent blocks reach without bulk copies: they read their input twice, once from the L2 cache.
const REGISTERS: f64 = 0.8;
/// Share that tiles of columns reach.
const RING: f64 = 0.85;
/// Price of a round against equal time otherwise: fewer, larger rounds are steadier.
const UNSTEADY: f64 = 0.1;
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
pub(super) fn estimate(stage: &Stage, schedule: &Schedule, bound: &Bound, target: &Target) -> Estimate {
    let bytes = bound.total_bytes(stage);
    let moved = moved_bytes(stage, schedule, bound) as f64;
    let share = if schedule.vector() == 1 { SCALAR } else { 1.0 };
    let share = share
        * match schedule {
            Schedule::LookBack(LookBack { loader: Loader::Registers, .. }) => REGISTERS,
            Schedule::LookBack(_) => PERSISTENT,
            Schedule::Columns(Columns { form: Form::Ring, .. }) => RING,
            _ => 1.0,
        };
    let one = bandwidth(target) * share;
    let stream = moved / (one * f64::from(target.multiprocessors));
    let work = Work { moved, one, multiprocessors: f64::from(target.multiprocessors) };
    let (time, why) = match schedule {
        Schedule::Map(_) => (stream, counted(blocks(stage, schedule, bound), "block")),
        Schedule::Rows(s) => by_rows(stage, s, bound, &work),
        Schedule::Columns(s) if s.form == Form::Walk => by_walk(stage, s, bound, &work),
        Schedule::StateSpace(s) => state_space::estimate(stage, s, bound, target),
        Schedule::Flash(s) => flash::estimate(stage, s, bound, target),
        Schedule::StateSpaceBackward(s) => state_space_backward::estimate(stage, s, bound, target),
        Schedule::Chunkwise(s) => chunkwise::estimate(stage, s, bound, target),
        Schedule::ChunkwiseBackward(s) => chunkwise_backward::estimate(stage, s, bound, target),
        Schedule::LookBack(_) | Schedule::Columns(_) => by_tiles(stage, schedule, bound, &work),
    };
    let micros = LAUNCH + time.max(stream);
    let why = format!("{why}, {:.1} MB at {:.0} GB/s", moved / 1e6, one * work.multiprocessors / 1e3);
    Estimate { schedule: *schedule, bytes, micros, why }
}

/// What a schedule has to do, and with what.
struct Work {
    moved: f64,
    /// Bytes per microsecond of a multiprocessor.
    one: f64,
    multiprocessors: f64,
}

/// Bytes moved: whole sectors where neighbouring lanes are apart.
fn moved_bytes(stage: &Stage, schedule: &Schedule, bound: &Bound) -> u64 {
    let along = match schedule {
        Schedule::Map(s) => Some(Axis(s.lane)),
        Schedule::Columns(s) => Some(Axis(s.lane)),
        Schedule::Rows(_) | Schedule::LookBack(_) | Schedule::StateSpace(_) | Schedule::StateSpaceBackward(_) => {
            stage.axis()
        }
        Schedule::Flash(_) | Schedule::Chunkwise(_) | Schedule::ChunkwiseBackward(_) => None,
    };
    let waste = |tensor: Tensor| {
        let stride = along.filter(|a| bound.size(*a) > 1).and_then(|a| bound.stride(stage, tensor, a));
        let elements = SECTOR / elem(stage, tensor).bytes().unwrap_or(8) as u64;
        stride.map_or(1, |s| s.unsigned_abs().clamp(1, elements))
    };
    let total = bound.total_bytes(stage);
    let extra = |t: Tensor| bound.bytes(stage, t).saturating_mul(waste(t) - 1);
    tensors(stage).map(extra).fold(total, u64::saturating_add)
}

/// Blocks of the multiprocessor that has the most of them; where there are many, they even out.
fn share_of_one(blocks: f64, work: &Work) -> f64 {
    let mean = blocks / work.multiprocessors;
    if mean > 8.0 { mean } else { mean.ceil() }
}

/// Teams take rows in rounds; in a round all blocks of a multiprocessor load, scan and store a tile.
fn by_rows(stage: &Stage, schedule: &Rows, bound: &Bound, work: &Work) -> (f64, String) {
    let blocks = blocks(stage, &Schedule::Rows(*schedule), bound) as f64;
    let of_one = share_of_one(blocks, work);
    let resident = f64::from(blocks_per_sm(stage, schedule)).min(of_one);
    let row_tiles = length(stage, bound).div_ceil(u64::from(schedule.tile())) as f64;
    let rounds = (of_one / resident.max(1.0)).ceil() * row_tiles;
    let tile = work.moved / (blocks * row_tiles).max(1.0) / work.one;
    let elements = f64::from(schedule.rows * schedule.vectors * schedule.vector);
    let time = (of_one * row_tiles * tile).max(rounds * (ROUND + ELEMENT * elements + tile));
    (time + UNSTEADY * rounds, of_blocks(rounds, "round", resident))
}

/// Rounds or steps of the blocks that a multiprocessor has at once, in words.
fn of_blocks(rounds: f64, noun: &str, resident: f64) -> String {
    format!("{} of {} per multiprocessor", counted(rounds, noun), counted(format!("{resident:.0}"), "block"))
}

/// Threads walk their columns, `steps` rows in flight.
fn by_walk(stage: &Stage, schedule: &Columns, bound: &Bound, work: &Work) -> (f64, String) {
    let blocks = blocks(stage, &Schedule::Columns(*schedule), bound) as f64;
    let of_one = share_of_one(blocks, work);
    let resident = (1024.0 / f64::from(schedule.threads())).min(of_one);
    let steps = length(stage, bound).div_ceil(u64::from(schedule.steps)) as f64;
    let rounds = (of_one / resident.max(1.0)).ceil() * steps;
    let step = work.moved / (blocks * steps).max(1.0) / work.one;
    // A chunk is on its way while the one before is scanned, but waits for its own first rows.
    let time = of_one * steps * step + rounds * AHEAD * 2.0 / (1.0 + resident);
    (time, of_blocks(rounds, "step", resident))
}

/// Persistent blocks take tiles in turn; a tile that is not full costs as much as a full one.
fn by_tiles(stage: &Stage, schedule: &Schedule, bound: &Bound, work: &Work) -> (f64, String) {
    let count = tiles(stage, schedule, bound).unwrap_or(0) as f64;
    let (elements, fixed) = match schedule {
        Schedule::LookBack(s) => (u64::from(s.tile()), LOOK_BACK),
        Schedule::Columns(s) => (u64::from(s.tile_rows() * s.tile_columns()), LOOK_BACK_COLUMNS),
        _ => (1, 0.0),
    };
    let points = rows(stage, bound).saturating_mul(length(stage, bound)).max(1) as f64;
    let least = if rows(stage, bound) > 1 { ROW_TILE } else { TILE };
    let polls = polls(stage, schedule, bound, work);
    let least = least + POLL * (polls - 1.0);
    let tile = (work.moved / points * elements as f64 / work.one).max(least);
    let waves = (count / work.multiprocessors).ceil();
    // The first tile of every block is loaded with nothing to do meanwhile.
    let polled = if polls > 1.0 { format!(", {polls} polls for each") } else { String::new() };
    (fixed + (waves + 1.0) * tile, format!("{} in {}{polled}", counted(count, "tile"), counted(waves, "wave")))
}

/// Polls of the look-ahead for one tile: it folds the aggregates of the other blocks' tiles, as far as they are of the
/// same row.
fn polls(stage: &Stage, schedule: &Schedule, bound: &Bound, work: &Work) -> f64 {
    let Schedule::LookBack(s) = schedule else { return 1.0 };
    let before = length(stage, bound).div_ceil(u64::from(s.tile())) as f64;
    (before.min(work.multiprocessors) / f64::from(WARP * s.window)).ceil().max(1.0)
}

/// Bytes that one point of the iteration reads and writes.
pub(super) fn bytes_per_point(stage: &Stage, read_only: bool) -> u32 {
    let Some(axis) = stage.axis() else { return 0 };
    let counted = |t: &Tensor| !read_only || matches!(t, Tensor::Param(_));
    let own = |t: &Tensor| axes(stage, *t).contains(&axis);
    tensors(stage).filter(|t| counted(t) && own(t)).map(|t| elem(stage, t).bytes().unwrap_or(8) as u32).sum()
}
