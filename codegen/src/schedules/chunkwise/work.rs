//! The number of segments that recurrences of matrices are divided into: few long ones into so many that every place for a block
//! has one.

use super::{Chunkwise, blocks_beside_copiers, has_words, slices};
use crate::schedules::problem::Problem;
use crate::stage::Bound;
use crate::stage::kind::MatrixRecurrence;
use crate::target::Target;
use crate::words::counted;

/// The least chunks of a segment, and the most segments: a block takes up those before it one after the other.
const LEAST: u64 = 4;
const MOST: u64 = 64;

/// Recurrences of so many chunks, and the kernels that walk them.
#[derive(Clone, Copy)]
pub(crate) struct Work {
    /// Recurrences, or groups of so many that a block walks side by side.
    pub rows: u64,
    pub heads: u32,
    pub chunks: u64,
    /// The walk through all chunks.
    pub walk: Walk,
    /// The walk that finds the ends of segments before.
    pub carries: Walk,
    /// Whether only the blocks of last segments go through theirs, as nothing else is asked for.
    pub is_final: bool,
}

/// A kernel whose blocks walk segments.
#[derive(Clone, Copy)]
pub(crate) struct Walk {
    /// Blocks that share a multiprocessor.
    pub blocks: u32,
    /// Time of an iteration where it has one, by that where it has all.
    pub alone: f64,
    /// The part of a whole filling that the last blocks take, where they are at most one for each multiprocessor.
    pub rest: f64,
    /// Time of an iteration where it has all, by that of the kernel that goes through all chunks.
    pub iteration: f64,
}

impl Walk {
    /// Times that a multiprocessor is filled with its blocks. The first blocks are spread over the multiprocessors; later ones
    /// go where others end, which is by twos and threes.
    fn waves(self, blocks: u64, target: &Target) -> f64 {
        let multiprocessors = u64::from(target.multiprocessors);
        let block_capacity = self.block_capacity(target);
        if blocks > block_capacity {
            let rest = blocks % block_capacity;
            let last = match rest {
                0 => 0.0,
                rest if rest <= multiprocessors => self.rest,
                _ => 1.0,
            };
            return (blocks / block_capacity) as f64 + last;
        }
        let beside = blocks.div_ceil(multiprocessors).saturating_sub(1) as f64;
        let others = f64::from(self.blocks.max(2) - 1);
        if blocks == 0 { 0.0 } else { self.alone + (1.0 - self.alone) * beside / others }
    }

    fn block_capacity(self, target: &Target) -> u64 {
        u64::from(target.multiprocessors) * u64::from(self.blocks)
    }
}

impl Work {
    /// Counts the work of a schedule of chunks.
    pub(crate) fn of(schedule: &Chunkwise, form: &MatrixRecurrence, problem: &Problem<'_>) -> Work {
        let chunks = problem.length().div_ceil(u64::from(schedule.times()));
        let heads = schedule.heads;
        let rows = recurrences(form, schedule.wide, schedule.width(), problem.bound) / u64::from(heads);
        let is_final = form.readout.is_none();
        if !has_words(schedule, form, &problem.stage.program) {
            let alone = if schedule.blocks > 1 { 0.75 } else { 1.0 };
            let walk = Walk { blocks: schedule.blocks, alone, rest: 1.0, iteration: 1.0 };
            return Work { rows, heads, chunks, walk, carries: Walk { iteration: 0.5, ..walk }, is_final };
        }
        if heads > 1 {
            let walk = Walk { blocks: 1, alone: 1.0, rest: 1.0, iteration: 1.0 };
            return Work { rows, heads, chunks, walk, carries: Walk { iteration: 0.5, ..walk }, is_final };
        }
        let (alone, blocks) = match schedule.copiers {
            0 => (0.75, 3),
            _ => (0.6, blocks_beside_copiers(schedule.depth)),
        };
        let rest = if schedule.copiers > 0 { 0.6 } else { 1.0 };
        let walk = Walk { blocks: 2, alone, rest, iteration: 1.0 };
        let carries = Walk { blocks, alone: 0.65, rest: 1.0, iteration: 0.62 };
        Work { rows, heads, chunks, walk, carries, is_final }
    }

    /// The number of segments that takes the least time; none is empty. A sequence among several, whose length only a call's list of offsets
    /// says, is one.
    pub(crate) fn segments(self, problem: &Problem<'_>) -> u64 {
        if problem.stage.sequences().is_some() {
            return 1;
        }
        let full = |n: u64| self.chunks.div_ceil(self.chunks.div_ceil(n).max(1)).max(1);
        let numbers = (1..=MOST.min(self.chunks / LEAST).max(1)).map(full);
        numbers.min_by(|x, y| self.iterations(*x, problem).total_cmp(&self.iterations(*y, problem))).unwrap_or(1)
    }

    /// The choice in words.
    pub(crate) fn why(self, segments: u64, target: &Target) -> String {
        let Work { rows, heads, chunks, walk, .. } = self;
        let (blocks, block_capacity) = (rows.saturating_mul(segments), walk.block_capacity(target));
        let how = if segments == 1 { "whole".to_owned() } else { format!("in {segments} segments each") };
        let recurrences = if heads > 1 {
            format!("{} of recurrences", counted(rows, "pair"))
        } else {
            counted(rows, "recurrence").to_string()
        };
        format!(
            "{recurrences} of {}, {how}: {} for {}",
            counted(chunks, "chunk"),
            counted(blocks, "block"),
            counted(block_capacity, "place")
        )
    }

    /// Time with so many segments, in that of an iteration of a multiprocessor with all its blocks.
    pub(crate) fn iterations(self, segments: u64, problem: &Problem<'_>) -> f64 {
        let (target, constants) = (problem.target, problem.constants);
        let own = if self.is_final { [1, segments - 1] } else { [segments, segments - 1] };
        let [blocks, ends] = own.map(|number| self.rows.saturating_mul(number));
        let (each, before) = (self.chunks.div_ceil(segments) as f64 + constants.chunkwise_start, (segments - 1) as f64);
        // Where all blocks are there at once the last segments say how long it takes.
        let joined = if blocks <= self.walk.block_capacity(target) { before } else { before / 2.0 };
        let iteration = if self.is_final { self.carries.iteration } else { 1.0 };
        iteration * self.walk.waves(blocks, target) * (each + constants.chunkwise_join * joined)
            + self.carries.waves(ends, target) * self.carries.iteration * each
    }
}

/// Recurrences that blocks walk apart: of each slice of the width, if that is wide.
pub(crate) fn recurrences(form: &MatrixRecurrence, wide: bool, width: u32, bound: &Bound) -> u64 {
    bound.count(form.outer.iter()).saturating_mul(slices(form, wide, width, |axis| bound.size(axis)))
}
