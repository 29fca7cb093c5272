//! The course of a block: which rows it has, one after the other, the tiles of columns that it walks for them, and whose turn is before
//! its own.
//!
//! A *gang* of as many blocks as there are tiles of rows takes one outer point after the other. Where rows see all columns, each
//! block of a gang begins at a tile of its own and goes round, so that at each moment blocks are at different tiles: a tile is
//! visited first by the block that begins there, then by those that began before it, last by those that began behind it. Where rows see
//! columns at some distances, the blocks of an even point go up from the first tile that they see, and a tile's visitors come from the
//! last rows to the first. The rows of an odd point are given out in the opposite order, so that those who have much to do have little to do
//! next, and are walked down, with visitors from the first rows to the last.

use super::super::visible::{Range, bound};
use super::super::{COLUMNS, FlashKernel, outer_axes};
use super::BLOCK_ROWS;
use crate::block::pair::{Index, Values};
use crate::build::Builder;
use crate::tile::{Memory, Operand, Reg, Stmt};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Axis, Binary};

/// Numbers of a place that a warp keeps.
const KEPT: u32 = 4;

/// A range of tiles of columns, `i32`.
#[derive(Clone, Copy)]
pub(super) struct Span {
    /// The first.
    pub first: Operand,
    /// The end.
    pub end: Operand,
}

/// The columns that the rows of a block see, `i32`, not limited to those that there are.
#[derive(Clone, Copy)]
pub(super) struct Sight {
    /// The first column that the block's first row sees. Each next row sees columns that lie one further.
    pub from: Operand,
    /// The column behind the last one that the block's first row sees.
    pub to: Operand,
}

/// The place of a block in a round.
struct BlockPlace {
    /// The outer point, `i32`.
    point: Operand,
    /// The number of the tile of rows, and how many there are, `i32`.
    block: Operand,
    blocks: Operand,
    /// Whether the walk goes down; none where rows see all columns.
    down: Option<Operand>,
}

/// The rows of a block at one outer point, and its way.
pub(super) struct Course {
    /// The outer point, `i32`.
    pub point: Operand,
    /// The number of the tile of rows, and how many there are, `i32`.
    pub block: Operand,
    pub blocks: Operand,
    /// All tiles of columns, `i32`.
    pub tiles: Operand,
    /// The tiles that the block walks.
    span: Span,
    /// The first tile in the order of the walk where it goes round.
    start: Operand,
    /// Whether the walk goes down; none where rows see all columns.
    down: Option<Operand>,
    /// The block before whose turn is before this one's, and its tiles.
    before: (Operand, Span),
    /// The columns that are seen, where they are limited.
    pub sight: Option<Sight>,
}

/// The visit of a tile.
pub(super) struct Visit {
    /// The index along the axis over which sums are added up, `i32`.
    pub query: Operand,
    /// The tile, `i32`.
    pub tile: Operand,
    /// How many visits the block has made, `i32`.
    pub number: Operand,
}

impl FlashKernel<'_> {
    /// Goes through the outer points of the block. What stays the same is computed again for each of them from the block's ticket, as it
    /// would take registers from tile to tile.
    pub(super) fn each_point(&self, b: &mut Builder, body: impl FnOnce(&Self, &mut Builder, &Course, Reg)) {
        let round = b.var(Operand::i32(0));
        b.loop_(|b| {
            let place = self.place(b, round);
            let points = self.args.rows(b, outer_axes(self.form));
            let points = b.convert(Ty::I32, points);
            let is_past = b.ge(place.point, points);
            b.break_if(is_past);
            let kernel = self.at_place(b, place.point, place.block);
            let course = kernel.course(b, &place);
            body(&kernel, b, &course, round);
            let next = b.add(round.into(), 1);
            b.assign(round, next);
        });
    }

    /// The place of the block in a round.
    fn place(&self, b: &mut Builder, round: Reg) -> BlockPlace {
        let ticket = b.load1(Memory::Shared(self.arrays().launch), Operand::i32(0));
        let ticket = b.convert(Ty::I32, ticket);
        let blocks = b.div_ceil(self.args.size(self.form.row), BLOCK_ROWS);
        let blocks = b.convert(Ty::I32, blocks);
        let [gang, own] = b.div_rem(ticket, blocks);
        let all = b.load1(Memory::Shared(self.arrays().launch), Operand::i32(2));
        let all = b.convert(Ty::I32, all);
        let gangs = b.binary(Binary::Div, all, blocks);
        let before = b.mul(gangs, Operand::Reg(round));
        let point = b.add(gang, before);
        let limited = !self.form.limits.is_empty();
        let odd = b.binary(Binary::And, round.into(), 1);
        let odd = b.eq(odd, 1);
        let last = b.sub(blocks, 1);
        let opposite = b.sub(last, own);
        let block = if limited { b.select(odd, opposite, own) } else { own };
        BlockPlace { point, block, blocks, down: limited.then_some(odd) }
    }

    /// The kernel at an outer point and a tile of rows.
    fn at_place(&self, b: &mut Builder, point: Operand, block: Operand) -> Self {
        let number = b.convert(Ty::I64, point);
        let outer = self.args.indices(b, number, outer_axes(self.form));
        let first_row = b.mul(block, BLOCK_ROWS);
        FlashKernel { outer, first_row, ..self.clone() }
    }

    /// Keeps the place of a walk in shared memory, for each warp.
    pub(super) fn keep_place(&self, b: &mut Builder, course: &Course, round: Reg) {
        let first = b.eq(self.thread.lane, 0);
        let at = b.mul(self.thread.warp, KEPT);
        // All lanes have read the place before.
        b.push(Stmt::SyncWarp);
        b.store(Memory::Shared(self.ends), at, &[course.point, course.block, round.into(), round.into()], Some(first));
        b.push(Stmt::SyncWarp);
    }

    /// The kernel at the place that the warp has kept, and its round: they take no registers from tile to tile.
    pub(super) fn at_kept_place(&self, b: &mut Builder, round: Reg) -> Self {
        let at = b.mul(self.thread.warp, KEPT);
        let kept = b.load(Memory::Shared(self.ends), at, KEPT, None, Operand::i32(0));
        b.assign(round, kept[2]);
        self.at_place(b, kept[0], kept[1])
    }

    fn course(&self, b: &mut Builder, place: &BlockPlace) -> Course {
        let BlockPlace { point, block, blocks, down } = *place;
        let tiles = b.div_ceil(self.args.size(self.form.column), self.schedule.columns);
        let tiles = b.convert(Ty::I32, tiles);
        let ahead = b.add(block, 1);
        let start = b.mul(block, tiles);
        let start = b.binary(Binary::Div, start, blocks);
        let Some(down) = down else {
            let wraps = b.eq(ahead, blocks);
            let ahead = b.select(wraps, Operand::i32(0), ahead);
            let span = Span { first: Operand::i32(0), end: tiles };
            return Course { point, block, blocks, tiles, span, start, down: None, before: (ahead, span), sight: None };
        };
        let behind = b.sub(block, 1);
        let other = b.select(down, behind, ahead);
        let sight = self.sight(b);
        let span = self.span(b, sight, block, tiles);
        let others = self.span(b, sight, other, tiles);
        let [from, below] = [b.ge(other, 0), b.lt(other, blocks)];
        let exists = b.and(from, below);
        let end = b.select(exists, others.end, Operand::i32(0));
        let before = (other, Span { end, ..others });
        let first = b.mul(block, BLOCK_ROWS);
        let own = Sight { from: b.add(sight.from, first), to: b.add(sight.to, first) };
        Course { point, block, blocks, tiles, span, start, down: Some(down), before, sight: Some(own) }
    }

    /// The columns that row 0 sees. Bounds are kept within what 32 bits count with room for any row.
    pub(super) fn sight(&self, b: &mut Builder) -> Sight {
        let axes = [self.form.row, self.form.column];
        let mut values = Values::new(self.stage, &self.args, axes, self.outer.clone());
        sight(b, self, &mut values)
    }

    /// The tiles that the rows of a block see.
    fn span(&self, b: &mut Builder, sight: Sight, block: Operand, tiles: Operand) -> Span {
        let columns = self.schedule.columns;
        let size = b.convert(Ty::I32, self.args.size(self.form.column));
        let rows = b.convert(Ty::I32, self.args.size(self.form.row));
        let first_row = b.mul(block, BLOCK_ROWS);
        let last = b.add(first_row, BLOCK_ROWS - 1);
        let last_row = b.sub(rows, 1);
        let last = b.binary(Binary::Min, last, last_row);
        let within = |b: &mut Builder, x: Operand| {
            let x = b.binary(Binary::Max, x, 0);
            b.binary(Binary::Min, x, size)
        };
        let from = b.add(sight.from, first_row);
        let from = within(b, from);
        let to = b.add(sight.to, last);
        let to = within(b, to);
        let first = b.binary(Binary::Div, from, columns);
        let to = b.add(to, columns - 1);
        let end = b.binary(Binary::Div, to, columns);
        let end = b.binary(Binary::Min, end, tiles);
        Span { first, end: b.binary(Binary::Max, end, first) }
    }

    /// The columns that each of the thread's rows sees, and none where there is no such row. They are computed again where they are
    /// needed, as they would take registers from tile to tile.
    pub(super) fn seen_columns(&self, b: &mut Builder, course: &Course) -> Vec<Range> {
        let of_warp = self.first_row_of_warp(b);
        let own = b.add(of_warp, self.fragment.group);
        let [columns, rows] = [self.form.column, self.form.row].map(|axis| b.convert(Ty::I32, self.args.size(axis)));
        let left = b.sub(rows, self.first_row);
        (0..self.thread_tile().rows)
            .map(|row| {
                let row = b.add(own, row * COLUMNS);
                let exists = b.lt(row, left);
                let (mut from, mut to) = (Operand::i32(0), columns);
                if let Some(sight) = course.sight {
                    from = b.add(sight.from, row);
                    let end = b.add(sight.to, row);
                    to = b.binary(Binary::Min, end, columns);
                }
                Range { from, to: b.select(exists, to, Operand::i32(0)) }
            })
            .collect()
    }

    /// Goes through the visits of a block at an outer point; `number` counts all of them.
    pub(super) fn each_visit(
        &self,
        b: &mut Builder,
        course: &Course,
        number: Reg,
        body: impl FnOnce(&mut Builder, &Visit),
    ) {
        let count = b.sub(course.span.end, course.span.first);
        let queries = self.form.grouped.map_or(Operand::i64(1), |axis| self.args.size(axis));
        let queries = b.convert(Ty::I32, queries);
        b.for_(Operand::i32(0), queries, 1, |b, query| {
            b.for_(Operand::i32(0), count, 1, |b, step| {
                let tile = course.tile(b, step);
                body(b, &Visit { query, tile, number: number.into() });
                let next = b.add(number.into(), 1);
                b.assign(number, next);
            });
        });
    }

    /// The outer indices of a visit.
    pub(super) fn outer_of(&self, b: &mut Builder, visit: &Visit) -> Vec<(Axis, Operand)> {
        let query = b.convert(Ty::I64, visit.query);
        self.outer.iter().copied().chain(self.form.grouped.map(|axis| (axis, query))).collect()
    }

    /// The number of a visit's tile among those of all outer points and query heads, `i64`.
    pub(super) fn tile_number(&self, b: &mut Builder, course: &Course, visit: &Visit) -> Operand {
        let [point, query, tile, tiles] =
            [course.point, visit.query, visit.tile, course.tiles].map(|x| b.convert(Ty::I64, x));
        let queries = self.form.grouped.map_or(Operand::i64(1), |axis| self.args.size(axis));
        let of_point = b.mul(point, queries);
        let head = b.add(of_point, query);
        let of_head = b.mul(head, tiles);
        b.add(of_head, tile)
    }
}

impl Course {
    /// The tile of a step of the walk.
    fn tile(&self, b: &mut Builder, step: Operand) -> Operand {
        let Some(down) = self.down else {
            let tile = b.add(self.start, step);
            let past = b.ge(tile, self.tiles);
            let round = b.sub(tile, self.tiles);
            return b.select(past, round, tile);
        };
        let up = b.add(self.span.first, step);
        let last = b.sub(self.span.end, 1);
        let lower = b.sub(last, step);
        b.select(down, lower, up)
    }

    /// Whether the block is a tile's first visitor, and the one before it if it is not.
    pub(super) fn turn(&self, b: &mut Builder, tile: Operand) -> (Operand, Operand) {
        let (before, span) = self.before;
        if self.down.is_none() {
            // The last of the blocks that begin at the tile or before it.
            let next = b.add(tile, 1);
            let head = b.mul(next, self.blocks);
            let head = b.sub(head, 1);
            let head = b.binary(Binary::Div, head, self.tiles);
            return (b.eq(self.block, head), before);
        }
        let [from, below] = [b.ge(tile, span.first), b.lt(tile, span.end)];
        let visits = b.and(from, below);
        (b.eq(visits, Operand::bool(false)), before)
    }

    /// Whether some rows of the block do not see all of a tile, whose first column is given; none where all rows always do.
    pub(super) fn is_partial(&self, b: &mut Builder, kernel: &FlashKernel<'_>, first: Operand) -> Operand {
        let rows = b.convert(Ty::I32, kernel.args.size(kernel.form.row));
        let end = b.add(kernel.first_row, BLOCK_ROWS);
        let mut whole = b.ge(rows, end);
        if let Some(sight) = self.sight {
            let from = b.add(sight.from, BLOCK_ROWS - 1);
            let behind = b.add(first, kernel.schedule.columns);
            let [begins, ends] = [b.ge(first, from), b.ge(sight.to, behind)];
            whole = b.and(whole, begins);
            whole = b.and(whole, ends);
        }
        b.eq(whole, Operand::bool(false))
    }
}

/// The columns that row 0 sees.
fn sight(b: &mut Builder, kernel: &FlashKernel<'_>, values: &mut Values) -> Sight {
    values.set_row(0, Index { at: Operand::i64(0), exists: Operand::bool(true) });
    let far = Operand::i64(1 << 30);
    let near = Operand::i64(-(1 << 30));
    let (mut from, mut to) = (near, far);
    for limit in &kernel.form.limits {
        let bound = bound(b, values, limit, 0);
        if limit.above {
            to = b.binary(Binary::Min, to, bound);
        } else {
            from = b.binary(Binary::Max, from, bound);
        }
    }
    let mut limited = |x: Operand| {
        let x = b.binary(Binary::Max, x, near);
        let x = b.binary(Binary::Min, x, far);
        b.convert(Ty::I32, x)
    };
    Sight { from: limited(from), to: limited(to) }
}
