//! How many blocks, tiles and messages a schedule needs for a stage of these sizes.

use crate::stage::Bound;
use super::segments::blocks_of_row;
use super::segments::recurrences;
use crate::schedule::{Flash, Form, Pass, Schedule, Sweep, WARP};
use crate::schedules::chunkwise_backward::TIMES;
use crate::schedules::state_space_backward::sum_threads;
use crate::schedules::{columns, flash, lookback};
use crate::stage::Stage;
use crate::target::Target;
use oplus_dsl::ir::Axis;

/// Rows: points of the outer axes.
pub(super) fn rows(stage: &Stage, bound: &Bound) -> u64 {
    bound.count(stage.outer_axes().iter())
}

/// Elements of a row.
pub(super) fn length(stage: &Stage, bound: &Bound) -> u64 {
    stage.axis().map_or(1, |axis| bound.size(axis) as u64)
}

/// Tiles of a persistent kernel; `None` for other schedules.
pub(super) fn tiles(stage: &Stage, schedule: &Schedule, bound: &Bound) -> Option<u64> {
    let (rows, length) = (rows(stage, bound), length(stage, bound));
    match schedule {
        Schedule::LookBack(s) => Some(rows.saturating_mul(length.div_ceil(u64::from(s.tile())))),
        Schedule::Columns(s) if s.form == Form::Ring => {
            let width = bound.size(Axis(s.lane)).max(1) as u64;
            Some(columns::scans(s, rows / width, width).saturating_mul(columns::time_tiles(s, length)))
        }
        _ => None,
    }
}

/// Blocks of a kernel that is not persistent, one for each piece of work: of recurrences, one for all their segments.
pub(super) fn blocks(stage: &Stage, schedule: &Schedule, bound: &Bound) -> u64 {
    let rows = rows(stage, bound);
    match schedule {
        Schedule::Map(s) => {
            let written = stage.outer_axes().contains(Axis(s.lane));
            let width = if written { bound.size(Axis(s.lane)) as u64 } else { 1 };
            let chunks = width.div_ceil(u64::from(s.vector)).saturating_mul(rows / width.max(1));
            chunks.div_ceil(u64::from(s.warps * WARP * s.vectors))
        }
        Schedule::Rows(s) => rows.div_ceil(u64::from(s.block_rows())),
        Schedule::Columns(s) => {
            let width = bound.size(Axis(s.lane)).max(1) as u64;
            rows / width * width.div_ceil(u64::from(s.threads() * s.vector))
        }
        Schedule::StateSpace(s) => {
            let width = stage.outer_axes().iter().last().map_or(1, |row| bound.size(row) as u64);
            rows / width.max(1) * width.div_ceil(u64::from(s.rows()))
        }
        Schedule::Flash(s) => pairs_blocks(stage, s, bound),
        Schedule::StateSpaceBackward(s) => {
            let width = stage.outer_axes().iter().last().map_or(1, |row| bound.size(row) as u64);
            let points = rows / width.max(1);
            let size = |axis| bound.size(axis);
            match s.pass {
                Pass::Ends | Pass::Save | Pass::Carry | Pass::Walk => {
                    points * width.div_ceil(u64::from(s.block_rows()))
                }
                Pass::Sum => sum_threads(stage, s, size).unwrap_or(u64::MAX).div_ceil(u64::from(s.threads())),
            }
        }
        Schedule::Chunkwise(s) => {
            stage.kind().matrices().map_or(0, |form| recurrences(form, (s.wide, s.width()), bound))
        }
        Schedule::ChunkwiseBackward(s) => stage.kind().matrices_back().map_or(0, |form| match s.sweep {
            Sweep::Gradients => {
                let chunks = (bound.size(form.states.time) as u64).div_ceil(u64::from(TIMES));
                bound.count(form.shared().iter()).saturating_mul(chunks)
            }
            _ => recurrences(&form.states, (s.wide, TIMES), bound),
        }),
        Schedule::LookBack(_) => 1,
    }
}

/// A block for each tile of rows of each outer point and part.
fn pairs_blocks(stage: &Stage, schedule: &Flash, bound: &Bound) -> u64 {
    let Ok(form) = stage.kind().pairs() else { return 0 };
    let tiles = (bound.size(form.row) as u64).div_ceil(u64::from(schedule.rows()));
    bound.count(flash::outer_axes(form).iter().chain(stage.part_axis)).saturating_mul(tiles)
}

/// The grid of a launch. Maps and rows go round when there is more work than blocks.
pub(super) fn grid(stage: &Stage, schedule: &Schedule, bound: &Bound, target: &Target) -> [u32; 3] {
    let count = match tiles(stage, schedule, bound) {
        Some(tiles) => tiles.min(u64::from(target.multiprocessors)),
        None => {
            let own = blocks_of_row(stage, schedule, bound, target).unwrap_or(1);
            blocks(stage, schedule, bound).saturating_mul(own).min(i32::MAX as u64)
        }
    };
    [count.max(1) as u32, 1, 1]
}

/// Message words of a launch.
pub(super) fn message_words(stage: &Stage, schedule: &Schedule, bound: &Bound) -> u64 {
    let tiles = tiles(stage, schedule, bound).unwrap_or(0);
    match schedule {
        Schedule::LookBack(_) => lookback::message_words(stage, tiles),
        Schedule::Columns(s) if s.form == Form::Ring => {
            let time = columns::time_tiles(s, length(stage, bound)).max(1);
            columns::message_words(stage, s, tiles / time, time)
        }
        _ => 0,
    }
}

/// How many parts a schedule stores sums over columns in.
pub(super) fn parts(stage: &Stage, schedule: &Schedule, bound: &Bound, target: &Target) -> Option<u64> {
    match schedule {
        Schedule::Columns(s) => Some(columns::parts(s, bound.size(Axis(s.lane)) as u64)),
        Schedule::Flash(s) => Some(pairs_parts(stage, s, bound, target)),
        _ => None,
    }
}

/// As many parts as give every place for a block one, but no part of fewer than two tiles of columns.
fn pairs_parts(stage: &Stage, schedule: &Flash, bound: &Bound, target: &Target) -> u64 {
    let Ok(form) = stage.kind().pairs() else { return 1 };
    let own = pairs_blocks(stage, schedule, bound) / stage.part_axis.map_or(1, |part| bound.size(part).max(1) as u64);
    let tiles = (bound.size(form.column) as u64).div_ceil(u64::from(schedule.columns));
    let places = u64::from(target.multiprocessors * schedule.blocks);
    (places / own.max(1)).min(tiles / 2).max(1)
}

/// Threads of a block.
pub(super) fn threads(schedule: &Schedule) -> u32 {
    match schedule {
        Schedule::Map(s) => s.warps * WARP,
        Schedule::Rows(s) => s.warps * WARP,
        Schedule::LookBack(s) => s.warps() * WARP,
        Schedule::Columns(s) => s.threads(),
        Schedule::StateSpace(s) => s.threads(),
        Schedule::Flash(s) => s.threads(),
        Schedule::StateSpaceBackward(s) => s.threads(),
        Schedule::Chunkwise(s) => s.threads(),
        Schedule::ChunkwiseBackward(s) => s.threads(),
    }
}
