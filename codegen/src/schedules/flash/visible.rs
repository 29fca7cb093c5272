//! The columns that rows see: a range for every row, and the tiles of columns that a block walks.
//!
//! Tiles that some but not all pairs of the block see are *partial*: their pairs are compared one by one. A block walks
//! the partial tiles before its first whole one, those behind the last one, and then the whole ones. Where the columns are
//! divided into parts, a block takes some of these iterations, one after the other.
//!
//! Blocks that overlap walk the partial tiles behind the whole ones from the last to the first: those that a warpgroup's rows do not
//! see then come before all others, and the warpgroup [leaves them out](FlashKernel::unseen).

use super::parameters::GROUP;
use super::{FlashKernel, ThreadTile};
use crate::block::lane_sum::over_lanes;
use crate::block::pair::{Coordinates, Values};
use crate::build::Builder;
use crate::stage::kind::Limit;
use crate::tile::{Memory, Operand};
use oplus_dsl::Ty;
use oplus_dsl::ir::Binary;

/// The columns from `from` up to and without `to`, `i32`.
#[derive(Clone, Copy)]
pub(super) struct Range {
    pub from: Operand,
    pub to: Operand,
}

/// The tiles that a block walks, `i32`.
#[derive(Clone, Copy)]
pub(super) struct Tiles {
    /// The first tile.
    pub first: Operand,
    /// Partial tiles at the beginning.
    pub head: Operand,
    /// The first partial tile behind the whole ones.
    pub behind: Operand,
    /// The tile behind all of them, where those behind the whole ones are walked from the last to the first.
    pub end: Option<Operand>,
    /// Partial tiles of all parts.
    pub tail: Operand,
    /// The iterations of the parts before the block's own.
    pub before: Operand,
    /// Partial tiles.
    pub partial: Operand,
    /// All tiles.
    pub count: Operand,
}

impl Tiles {
    /// The tile of an iteration.
    pub(super) fn at(&self, b: &mut Builder, iteration: Operand) -> Operand {
        let iteration = b.add(iteration, self.before);
        let after = b.sub(iteration, self.head);
        let in_head = b.lt(iteration, self.head);
        let is_partial = b.lt(iteration, self.tail);
        let head = b.add(self.first, iteration);
        let tail = match self.end {
            None => b.add(self.behind, after),
            Some(end) => {
                let last = b.sub(end, 1);
                b.sub(last, after)
            }
        };
        let whole_iteration = b.sub(iteration, self.tail);
        let first_whole = b.add(self.first, self.head);
        let whole = b.add(first_whole, whole_iteration);
        let later = b.select(is_partial, tail, whole);
        b.select(in_head, head, later)
    }

    /// The iterations of one of several parts, which differ in length by one iteration at most.
    fn of_part(self, b: &mut Builder, part: Operand, parts: Operand) -> Tiles {
        let [each, more] = b.div_rem(self.count, parts);
        let whole = b.mul(part, each);
        let longer = b.binary(Binary::Min, part, more);
        let before = b.add(whole, longer);
        let is_longer = b.lt(part, more);
        let one = b.select(is_longer, Operand::i32(1), Operand::i32(0));
        let count = b.add(each, one);
        let partial = b.sub(self.tail, before);
        let partial = b.binary(Binary::Max, partial, 0);
        let partial = b.binary(Binary::Min, partial, count);
        Tiles { before, partial, count, ..self }
    }
}

impl FlashKernel<'_> {
    /// The range of every row of the thread.
    pub(super) fn ranges(&self, b: &mut Builder, values: &mut Values, thread_tile: &ThreadTile) -> Vec<Range> {
        let size = b.convert(Ty::I32, self.args.size(self.form.column));
        let mut row = |b: &mut Builder, number: u32| {
            let mut range = Range { from: Operand::i32(0), to: size };
            for limit in &self.form.limits {
                let bound = bound(b, values, limit, number);
                // Within the axis a bound fits 32 bits.
                let bound = b.binary(Binary::Max, bound, 0);
                let bound = b.binary(Binary::Min, bound, self.args.size(self.form.column));
                let bound = b.convert(Ty::I32, bound);
                if limit.above {
                    range.to = b.binary(Binary::Min, range.to, bound);
                } else {
                    range.from = b.binary(Binary::Max, range.from, bound);
                }
            }
            range
        };
        (0..thread_tile.rows).map(|number| row(b, number)).collect()
    }

    /// The tiles of the block, from the ranges of all its threads' rows.
    pub(super) fn tiles(&self, b: &mut Builder, values: &Values, ranges: &[Range]) -> Tiles {
        let (some, all) = self.some_and_all(b, values, ranges);
        let width = Operand::i32(self.schedule.columns as i32);
        let up = |b: &mut Builder, x| {
            let more = b.add(x, self.schedule.columns as i32 - 1);
            b.binary(Binary::Div, more, width)
        };
        let first = b.binary(Binary::Div, some.from, width);
        let end = up(b, some.to);
        // Persistent blocks have a tile for any rows: one that no row sees where there is nothing to see.
        let least = b.add(first, i32::from(self.schedule.assigns()));
        let end = b.binary(Binary::Max, end, least);
        let whole = up(b, all.from);
        let whole = b.binary(Binary::Max, whole, first);
        let whole = b.binary(Binary::Min, whole, end);
        let behind = b.binary(Binary::Div, all.to, width);
        let behind = b.binary(Binary::Max, behind, whole);
        let behind = b.binary(Binary::Min, behind, end);
        let head = b.sub(whole, first);
        let tail = b.sub(end, behind);
        let (tail, before) = (b.add(head, tail), Operand::i32(0));
        let count = b.sub(end, first);
        let end = self.inspects().then_some(end);
        let all = Tiles { first, head, behind, end, tail, before, partial: tail, count };
        match self.part {
            Some((part, parts)) => all.of_part(b, part, parts),
            None => all,
        }
    }

    /// The iterations at the beginning whose tiles no row of the thread's warpgroup sees, `i32`. None where there are partial tiles
    /// before the whole ones, or where the block has a part of the columns.
    pub(super) fn unseen(&self, b: &mut Builder, tiles: &Tiles) -> Operand {
        let none = Operand::i32(0);
        let (Some(end), None, true) = (tiles.end, self.part, self.form.limits.iter().any(|limit| limit.above)) else {
            return none;
        };
        let first = b.binary(Binary::Div, self.thread.warp, GROUP);
        let first = b.mul(first, GROUP);
        let [_, some_to, ..] = self.ends_of_warps();
        let to = (0..GROUP).fold(none, |to, warp| {
            let at = b.add(first, some_to + warp as i32);
            let own = b.load1(Memory::Shared(self.ends), at);
            b.binary(Binary::Max, to, own)
        });
        self.unseen_before(b, tiles, end, to)
    }

    /// The iterations at the beginning whose tiles rows do not see that see the columns before `to`, `i32`; `end` is that of the tiles.
    pub(super) fn unseen_before(&self, b: &mut Builder, tiles: &Tiles, end: Operand, to: Operand) -> Operand {
        let more = b.add(to, self.schedule.columns as i32 - 1);
        let seen = b.binary(Binary::Div, more, self.schedule.columns);
        let seen = b.binary(Binary::Max, seen, tiles.behind);
        let unseen = b.sub(end, seen);
        let unseen = b.binary(Binary::Max, unseen, 0);
        let no_head = b.eq(tiles.head, 0);
        b.select(no_head, unseen, Operand::i32(0))
    }

    /// The index in shared memory at which the team's ends of ranges begin, one for each warp.
    fn ends_of_warps(&self) -> [i32; 4] {
        let (warps, before) = (self.team.warps as i32, 4 * self.team.first as i32);
        [0, 1, 2, 3].map(|k| before + k * warps)
    }

    /// The columns that some row of the block sees, and those that all rows see.
    fn some_and_all(&self, b: &mut Builder, values: &Values, ranges: &[Range]) -> (Range, Range) {
        if self.form.limits.is_empty() {
            return (ranges[0], ranges[0]);
        }
        let size = b.convert(Ty::I32, self.args.size(self.form.column));
        let mut ends = [size, Operand::i32(0), Operand::i32(0), size];
        for (number, range) in ranges.iter().enumerate() {
            let exists = values.row(number as u32).exists;
            let own = [range.from, range.to, range.from, range.to];
            for (k, own) in own.into_iter().enumerate() {
                let joined = b.binary(WIDEST[k], ends[k], own);
                ends[k] = b.select(exists, joined, ends[k]);
            }
        }
        let also = |b: &mut Builder| self.store_ends_of_groups(b, values, ranges);
        let [some_from, some_to, all_from, all_to] = self.over_block(b, ends, also);
        (Range { from: some_from, to: some_to }, Range { from: all_from, to: all_to })
    }

    /// The extremes over the block's threads, through shared memory. All threads see the elements that `also` stores.
    fn over_block(&self, b: &mut Builder, ends: [Operand; 4], also: impl FnOnce(&mut Builder)) -> [Operand; 4] {
        let of_warps = self.ends_of_warps();
        if self.schedule.persistent {
            // All warps have read the ends of the rows before.
            self.team_barrier(b);
        }
        for (k, end) in ends.into_iter().enumerate() {
            // The four lanes of a group have the same rows.
            let end = over_lanes(b, WIDEST[k], end, &[4, 8, 16]);
            let at = b.add(self.thread.warp, of_warps[k]);
            let first = b.eq(self.thread.lane, 0);
            b.store(Memory::Shared(self.ends), at, &[end], Some(first));
        }
        also(b);
        self.team_barrier(b);
        std::array::from_fn(|k| {
            let of_warp = |b: &mut Builder, w: i32| b.load1(Memory::Shared(self.ends), Operand::i32(of_warps[k] + w));
            let first = of_warp(b, 0);
            (1..self.team.warps as i32).fold(first, |end, w| {
                let other = of_warp(b, w);
                b.binary(WIDEST[k], end, other)
            })
        })
    }
}

/// The bound of a limit for a row of the evaluator, `i64`.
pub(super) fn bound(b: &mut Builder, values: &mut Values, limit: &Limit, row: u32) -> Operand {
    let coordinates = Coordinates { row: Some(row), ..Coordinates::default() };
    limit.terms.iter().fold(Operand::i64(limit.shift), |sum, (term, negated)| {
        let term = values.value(b, *term, coordinates);
        if *negated { b.sub(sum, term) } else { b.add(sum, term) }
    })
}

/// The operations that join the ends of ranges: those of the union, then those of the intersection.
const WIDEST: [Binary; 4] = [Binary::Min, Binary::Max, Binary::Max, Binary::Min];
