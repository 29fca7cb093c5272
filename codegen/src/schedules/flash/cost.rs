//! The cost of sums over pairs.

use super::{Flash, SumsOver, outer_axes};
use crate::abi::{Tensor, elem};
use crate::schedules::cost::Cost;
use crate::schedules::problem::Problem;
use crate::schedules::strategy::Strategy;
use crate::stage::kind::Pairwise;
use crate::words::counted;
use oplus_dsl::ir::Axis;

/// Bytes per microsecond at which sums over rows are read and made outputs.
const BANDWIDTH: f64 = 3e6;

/// Blocks of a multiprocessor from which on those of different length even out.
const EVEN: f64 = 4.0;

/// The estimate in microseconds, and its reason. Blocks are taken to walk all tiles of columns: which of them no row sees is not
/// known here.
pub(super) fn estimate(schedule: &Flash, problem: &Problem<'_>) -> Cost {
    let Problem { stage, bound, target, constants } = *problem;
    let Ok(form) = stage.kind().pairwise() else { return Cost { micros: f64::INFINITY, why: "no pairs".into() } };
    if schedule.sums != SumsOver::Columns {
        return of_both(schedule, problem, form);
    }
    if schedule.copiers > 0 {
        return of_overlapped(schedule, problem, form);
    }
    let places =
        |axis: Axis| f64::from(if form.inner.first() == Some(&axis) { schedule.depth } else { schedule.width });
    let contracted: f64 = form.contractions.iter().map(|c| places(c.axis)).sum();
    let leaves: f64 = form.payloads.iter().filter_map(|p| p.leaf).map(|(_, axis)| places(axis)).sum();
    let bytes =
        |(param, axis): (u32, Axis)| places(axis) * elem(stage, Tensor::Param(param)).bytes().unwrap_or(4) as f64;
    let copied: f64 = form.column_leaves().into_iter().map(bytes).sum();
    let parts = stage.partial_axis.map_or(1, |part| bound.size(part).max(1));
    let blocks = schedule.blocks(problem) as f64;
    let grouped = form.grouped.map_or(1.0, |over| bound.size(over) as f64);
    // Of columns that are limited rows see half, and tiles of which they see some only.
    let (seen, some) = if form.limits.is_empty() { (1.0, 0.0) } else { (0.5, f64::from(schedule.columns) / 2.0) };
    let columns = ((bound.size(form.column) as f64 * seen / parts as f64).ceil() + some) * grouped * blocks;
    let work = columns * f64::from(schedule.rows()) * (contracted + leaves);
    let each = (blocks / f64::from(target.multiprocessors)).ceil();
    let share = each / blocks.max(1.0);
    // Element by element tiles are filled by ordinary loads; places that may not exist are compared.
    let slower = match schedule.vector {
        1 => 4.0,
        _ if schedule.padded => 1.05,
        _ => 1.0,
    };
    let of_parts = if parts > 1 { format!(", columns in {parts} parts") } else { String::new() };
    let why = format!("{}{of_parts}, {:.1} G multiply-adds", counted(blocks, "block"), work / 1e9);
    let iterations = columns / f64::from(schedule.columns);
    let starts = constants.flash_start * each / f64::from(schedule.blocks).min(each.max(1.0));
    let time = work / constants.flash_products
        + columns * copied / constants.flash_copies
        + iterations * constants.flash_iteration;
    Cost { micros: time * share * slower + starts, why }
}

/// Blocks of which some warps only copy, one on a multiprocessor: the tiles of rows of the one that has most of them.
fn of_overlapped(schedule: &Flash, problem: &Problem<'_>, form: &Pairwise) -> Cost {
    let Problem { stage, bound, target, constants } = *problem;
    let (rows, columns) = (f64::from(schedule.rows()), f64::from(schedule.columns));
    let parts = stage.partial_axis.map_or(1, |part| bound.size(part).max(1)) as f64;
    let size = bound.size(form.column) as f64 / parts;
    let limited = !form.limits.is_empty();
    let walked = if limited {
        // Half of the columns, and half of the tiles of which rows see some only.
        let uneven = if schedule.rows().is_multiple_of(schedule.columns) { 0.0 } else { columns / 2.0 };
        (size / 2.0).ceil() + rows / 2.0 + uneven
    } else {
        (size / columns).ceil() * columns
    };
    let blocks = schedule.blocks(problem) as f64;
    let mean = blocks / f64::from(target.multiprocessors);
    let (each, start) = match schedule.persistent {
        true if limited => (most_of_pairs(schedule, problem, form) as f64, constants.flash_pairs_start),
        true => (mean.ceil(), constants.flash_persistent_start),
        // Blocks that have less to do come later, and even out.
        false if limited && mean > EVEN => (mean, constants.flash_overlapped_start),
        false => (mean.ceil(), constants.flash_overlapped_start),
    };
    let places = f64::from(schedule.depth + schedule.width);
    let bytes = |(param, _): (u32, Axis)| elem(stage, Tensor::Param(param)).bytes().unwrap_or(4) as f64;
    let copied: f64 = form.column_leaves().into_iter().map(|leaf| bytes(leaf) * places / 2.0).sum();
    let of_column = rows * places / constants.flash_overlapped
        + copied / constants.flash_overlapped_copies
        + constants.flash_overlapped_iteration / columns;
    let of_parts = if parts > 1.0 { format!(", columns in {parts} parts") } else { String::new() };
    let work = blocks * walked * rows * places;
    let why = format!("{}{of_parts}, {:.1} G multiply-adds", counted(blocks, "block"), work / 1e9);
    Cost { micros: each * (walked * of_column + start), why }
}

/// The most tiles of rows that a persistent block has where they go in pairs. Tiles in the middle, which are alone, come last.
fn most_of_pairs(schedule: &Flash, problem: &Problem<'_>, form: &Pairwise) -> u64 {
    let tiles = (problem.size(form.row) as u64).div_ceil(u64::from(schedule.rows()));
    let points = schedule.blocks(problem) / tiles.max(1);
    let multiprocessors = u64::from(problem.target.multiprocessors);
    let (pairs, alone) = (points * (tiles / 2), points * (tiles % 2));
    let (each, more) = (pairs / multiprocessors, pairs % multiprocessors);
    let of_others = 2 * each + alone.div_ceil(multiprocessors);
    if more == 0 {
        return of_others;
    }
    let of_first = 2 * (each + 1) + alone.saturating_sub(multiprocessors - more).div_ceil(multiprocessors);
    of_first.max(of_others)
}

/// With sums over rows: gangs of blocks go from one outer point to the next, and the sums over rows are read and written once more. The
/// estimate is compared with those of kernels for single sums, which are about twice their times, and is as much too large.
fn of_both(schedule: &Flash, problem: &Problem<'_>, form: &Pairwise) -> Cost {
    let Problem { bound, target, constants, .. } = *problem;
    let own = (bound.size(form.row) as f64 / f64::from(schedule.rows())).ceil().max(1.0);
    let gangs = (f64::from(target.multiprocessors) / own).floor().max(1.0);
    let points = bound.count(outer_axes(form).iter()) as f64;
    let iterations = (points / gangs).ceil();
    let queries = form.grouped.map_or(1.0, |over| bound.size(over) as f64);
    // Blocks that see little at one point see much at the next.
    let seen = if form.limits.is_empty() { 1.0 } else { 0.5 + 0.5 / own };
    let tiles = (bound.size(form.column) as f64 / f64::from(schedule.columns)).ceil() * seen * queries;
    let pairs = tiles * f64::from(schedule.columns * schedule.rows());
    let products = 5.0 * f64::from(schedule.depth);
    let each = pairs * (products / constants.flash_both_products + 1.0 / constants.flash_both_pairs);
    let sums = points * queries * bound.size(form.column) as f64 * f64::from(schedule.depth);
    let finish = constants.launch + 6.0 * sums / BANDWIDTH;
    // The blocks of a gang add to a tile one after the other.
    let added = own * constants.flash_both_add;
    let micros = iterations * (each.max(added) + constants.flash_both_start) + finish;
    let work = iterations * pairs * products * own * gangs;
    let why = format!("{} of {}, {:.1} G multiply-adds", counted(gangs, "gang"), counted(own, "block"), work / 1e9);
    Cost { micros, why }
}
