//! The work of a block at one outer point: its tile of rows, the tiles of columns that it walks for them, and the block that adds to the
//! sums over rows of a tile before it does.
//!
//! As many blocks as there are tiles of rows form a *gang*, which takes one outer point after the other. Where rows see all columns,
//! each block of a gang begins at a tile of its own and wraps around at the end, so that blocks are at different tiles at each moment:
//! sums of a tile are added first by the block that begins there, then by those that begin before it, nearest first, and last by those
//! that begin behind it. Where rows see columns at some distances, the blocks of an even point go up from the first tile that they
//! see, and sums of a tile are added from the last rows to the first. At an odd point the rows are given to the blocks in the opposite
//! order, so that a block with many tiles has few at the next point; blocks go down, and sums are added from the first rows to the last.

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
pub(super) struct SlidingRange {
    /// The first column that the block's first row sees. Each next row sees columns that lie one further.
    pub from: Operand,
    /// The column behind the last one that the block's first row sees.
    pub to: Operand,
}

/// The place of a block in an iteration over outer points.
struct BlockPlace {
    /// The outer point, `i32`.
    point: Operand,
    /// The number of the tile of rows, and how many there are, `i32`.
    block: Operand,
    blocks: Operand,
    /// Whether the walk goes down; none where rows see all columns.
    down: Option<Operand>,
}

/// The rows of a block at one outer point, and the tiles that it walks for them.
pub(super) struct BlockWork {
    /// The outer point, `i32`.
    pub point: Operand,
    /// The number of the tile of rows, and how many there are, `i32`.
    pub block: Operand,
    pub blocks: Operand,
    /// All tiles of columns, `i32`.
    pub tiles: Operand,
    /// The tiles that the block walks.
    span: Span,
    /// The first tile in the order of the walk where that wraps around.
    start: Operand,
    /// Whether the walk goes down; none where rows see all columns.
    down: Option<Operand>,
    /// The block that adds to sums over rows before this one, and the tiles that it walks.
    before: (Operand, Span),
    /// The columns that are seen, where they are limited.
    pub seen: Option<SlidingRange>,
}

/// A step of a block's walk: a tile of columns for one query head.
pub(super) struct TileStep {
    /// The index along the axis over which sums are added up, `i32`.
    pub query: Operand,
    /// The tile, `i32`.
    pub tile: Operand,
    /// The steps that the block has taken before, `i32`.
    pub number: Operand,
}

impl FlashKernel<'_> {
    /// Goes through the outer points of the block. What stays the same is computed again for each of them from the block's ticket, as it
    /// would take registers from tile to tile.
    pub(super) fn each_point(&self, b: &mut Builder, body: impl FnOnce(&Self, &mut Builder, &BlockWork, Reg)) {
        let iteration = b.var(Operand::i32(0));
        b.loop_(|b| {
            let place = self.place(b, iteration);
            let points = self.args.rows(b, outer_axes(self.form));
            let points = b.convert(Ty::I32, points);
            let is_past = b.ge(place.point, points);
            b.break_if(is_past);
            let kernel = self.at_place(b, place.point, place.block);
            let work = kernel.work(b, &place);
            body(&kernel, b, &work, iteration);
            let next = b.add(iteration.into(), 1);
            b.assign(iteration, next);
        });
    }

    /// The place of the block in an iteration.
    fn place(&self, b: &mut Builder, iteration: Reg) -> BlockPlace {
        let ticket = b.load1(Memory::Shared(self.arrays().launch), Operand::i32(0));
        let ticket = b.convert(Ty::I32, ticket);
        let blocks = b.div_ceil(self.args.size(self.form.row), BLOCK_ROWS);
        let blocks = b.convert(Ty::I32, blocks);
        let [gang, own] = b.div_rem(ticket, blocks);
        let all = b.load1(Memory::Shared(self.arrays().launch), Operand::i32(2));
        let all = b.convert(Ty::I32, all);
        let gangs = b.binary(Binary::Div, all, blocks);
        let before = b.mul(gangs, Operand::Reg(iteration));
        let point = b.add(gang, before);
        let limited = !self.form.limits.is_empty();
        let odd = b.binary(Binary::And, iteration.into(), 1);
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
    pub(super) fn keep_place(&self, b: &mut Builder, work: &BlockWork, iteration: Reg) {
        let first = b.eq(self.thread.lane, 0);
        let at = b.mul(self.thread.warp, KEPT);
        // All lanes have read the place before.
        b.push(Stmt::SyncWarp);
        b.store(
            Memory::Shared(self.ends),
            at,
            &[work.point, work.block, iteration.into(), iteration.into()],
            Some(first),
        );
        b.push(Stmt::SyncWarp);
    }

    /// The kernel at the place that the warp has kept; also assigns the iteration. Neither takes registers from tile to tile.
    pub(super) fn at_kept_place(&self, b: &mut Builder, iteration: Reg) -> Self {
        let at = b.mul(self.thread.warp, KEPT);
        let kept = b.load(Memory::Shared(self.ends), at, KEPT, None, Operand::i32(0));
        b.assign(iteration, kept[2]);
        self.at_place(b, kept[0], kept[1])
    }

    fn work(&self, b: &mut Builder, place: &BlockPlace) -> BlockWork {
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
            return BlockWork {
                point,
                block,
                blocks,
                tiles,
                span,
                start,
                down: None,
                before: (ahead, span),
                seen: None,
            };
        };
        let behind = b.sub(block, 1);
        let other = b.select(down, behind, ahead);
        let seen = self.seen_by_first_row(b);
        let span = self.span(b, seen, block, tiles);
        let others = self.span(b, seen, other, tiles);
        let [from, below] = [b.ge(other, 0), b.lt(other, blocks)];
        let exists = b.and(from, below);
        let end = b.select(exists, others.end, Operand::i32(0));
        let before = (other, Span { end, ..others });
        let first = b.mul(block, BLOCK_ROWS);
        let own = SlidingRange { from: b.add(seen.from, first), to: b.add(seen.to, first) };
        BlockWork { point, block, blocks, tiles, span, start, down: Some(down), before, seen: Some(own) }
    }

    /// The columns that row 0 sees. Bounds are kept within what 32 bits count with room for any row.
    pub(super) fn seen_by_first_row(&self, b: &mut Builder) -> SlidingRange {
        let axes = [self.form.row, self.form.column];
        let mut values = Values::new(self.stage, &self.args, axes, self.outer.clone());
        seen(b, self, &mut values)
    }

    /// The tiles that the rows of a block see.
    fn span(&self, b: &mut Builder, seen: SlidingRange, block: Operand, tiles: Operand) -> Span {
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
        let from = b.add(seen.from, first_row);
        let from = within(b, from);
        let to = b.add(seen.to, last);
        let to = within(b, to);
        let first = b.binary(Binary::Div, from, columns);
        let to = b.add(to, columns - 1);
        let end = b.binary(Binary::Div, to, columns);
        let end = b.binary(Binary::Min, end, tiles);
        Span { first, end: b.binary(Binary::Max, end, first) }
    }

    /// The columns that each of the thread's rows sees, and none where there is no such row. They are computed again where they are
    /// needed, as they would take registers from tile to tile.
    pub(super) fn seen_columns(&self, b: &mut Builder, work: &BlockWork) -> Vec<Range> {
        let of_warp = self.first_row_of_warp(b);
        let own = b.add(of_warp, self.fragment.group);
        let [columns, rows] = [self.form.column, self.form.row].map(|axis| b.convert(Ty::I32, self.args.size(axis)));
        let left = b.sub(rows, self.first_row);
        (0..self.thread_tile().rows)
            .map(|row| {
                let row = b.add(own, row * COLUMNS);
                let exists = b.lt(row, left);
                let (mut from, mut to) = (Operand::i32(0), columns);
                if let Some(seen) = work.seen {
                    from = b.add(seen.from, row);
                    let end = b.add(seen.to, row);
                    to = b.binary(Binary::Min, end, columns);
                }
                Range { from, to: b.select(exists, to, Operand::i32(0)) }
            })
            .collect()
    }

    /// Goes through the steps of a block at an outer point; `number` counts the steps at all points.
    pub(super) fn each_step(
        &self,
        b: &mut Builder,
        work: &BlockWork,
        number: Reg,
        body: impl FnOnce(&mut Builder, &TileStep),
    ) {
        let count = b.sub(work.span.end, work.span.first);
        let queries = self.form.grouped.map_or(Operand::i64(1), |axis| self.args.size(axis));
        let queries = b.convert(Ty::I32, queries);
        b.for_(Operand::i32(0), queries, 1, |b, query| {
            b.for_(Operand::i32(0), count, 1, |b, number_of_tile| {
                let tile = work.tile(b, number_of_tile);
                body(b, &TileStep { query, tile, number: number.into() });
                let next = b.add(number.into(), 1);
                b.assign(number, next);
            });
        });
    }

    /// The outer indices of a step.
    pub(super) fn outer_of(&self, b: &mut Builder, step: &TileStep) -> Vec<(Axis, Operand)> {
        let query = b.convert(Ty::I64, step.query);
        self.outer.iter().copied().chain(self.form.grouped.map(|axis| (axis, query))).collect()
    }

    /// The number of a step's tile among those of all outer points and query heads, `i64`.
    pub(super) fn tile_number(&self, b: &mut Builder, work: &BlockWork, step: &TileStep) -> Operand {
        let [point, query, tile, tiles] =
            [work.point, step.query, step.tile, work.tiles].map(|x| b.convert(Ty::I64, x));
        let queries = self.form.grouped.map_or(Operand::i64(1), |axis| self.args.size(axis));
        let of_point = b.mul(point, queries);
        let head = b.add(of_point, query);
        let of_head = b.mul(head, tiles);
        b.add(of_head, tile)
    }
}

impl BlockWork {
    /// The tile at a place in the order of the walk.
    fn tile(&self, b: &mut Builder, step: Operand) -> Operand {
        let Some(down) = self.down else {
            let tile = b.add(self.start, step);
            let past = b.ge(tile, self.tiles);
            let wrapped = b.sub(tile, self.tiles);
            return b.select(past, wrapped, tile);
        };
        let up = b.add(self.span.first, step);
        let last = b.sub(self.span.end, 1);
        let lower = b.sub(last, step);
        b.select(down, lower, up)
    }

    /// Whether the block is the first that adds to the sums of a tile, and the block before it if it is not.
    pub(super) fn before(&self, b: &mut Builder, tile: Operand) -> (Operand, Operand) {
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
        let is_walked = b.and(from, below);
        (b.eq(is_walked, Operand::bool(false)), before)
    }

    /// Whether some rows of the block do not see all of a tile, whose first column is given; none where all rows always do.
    pub(super) fn is_partial(&self, b: &mut Builder, kernel: &FlashKernel<'_>, first: Operand) -> Operand {
        let rows = b.convert(Ty::I32, kernel.args.size(kernel.form.row));
        let end = b.add(kernel.first_row, BLOCK_ROWS);
        let mut whole = b.ge(rows, end);
        if let Some(seen) = self.seen {
            let from = b.add(seen.from, BLOCK_ROWS - 1);
            let behind = b.add(first, kernel.schedule.columns);
            let [begins, ends] = [b.ge(first, from), b.ge(seen.to, behind)];
            whole = b.and(whole, begins);
            whole = b.and(whole, ends);
        }
        b.eq(whole, Operand::bool(false))
    }
}

/// The columns that row 0 sees.
fn seen(b: &mut Builder, kernel: &FlashKernel<'_>, values: &mut Values) -> SlidingRange {
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
    SlidingRange { from: limited(from), to: limited(to) }
}
