//! The rows of each block, and the order in which blocks come.

use super::outer_axes;
use crate::block::args::Args;
use crate::build::Builder;
use crate::schedules::Flash;
use crate::stage::Stage;
use crate::stage::kind::Pairwise;
use crate::tile::{Operand, Special};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Axis, Binary};

/// Outer points whose blocks alternate, so that their columns stay in the device's cache.
const SECTION: i32 = 8;

/// The rows of a block, and its part of the columns.
pub(super) struct BlockRows {
    /// Its indices along the outer axes, and along that of parts.
    pub outer: Vec<(Axis, Operand)>,
    /// Its first row.
    pub first_row: Operand,
    /// Its part of the columns, and how many there are.
    pub part: Option<(Operand, Operand)>,
}

impl BlockRows {
    /// Finds the rows of a block. Where rows see different columns, the rows that see most come first, as they have the most to do, and
    /// several outer points alternate. Else the blocks of an outer point, which read the same columns, are neighbours; so are those of a
    /// part.
    pub(super) fn of(b: &mut Builder, stage: &Stage, args: &Args, form: &Pairwise, schedule: &Flash) -> BlockRows {
        let block = b.special(Special::Block);
        let tiles = b.div_ceil(args.size(form.row), schedule.rows());
        let block = b.convert(Ty::I64, block);
        BlockRows::of_number(b, stage, args, form, block, RowTiles { count: tiles, length: schedule.rows() })
    }

    /// No rows yet: a persistent block [finds](Self::each) its rows one tile after the other.
    pub(super) fn none() -> BlockRows {
        BlockRows { outer: vec![], first_row: Operand::i32(0), part: None }
    }

    /// Goes through the rows that a persistent block has. Where rows see different columns, the tiles of rows of an outer point are
    /// taken in pairs, the first with the last: all pairs have about as much to do.
    pub(super) fn each(
        b: &mut Builder,
        args: &Args,
        form: &Pairwise,
        schedule: &Flash,
        body: impl FnOnce(&mut Builder, BlockRows),
    ) {
        let tiles = b.div_ceil(args.size(form.row), schedule.rows());
        let points = args.rows(b, outer_axes(form));
        let [block, blocks] = [Special::Block, Special::Blocks].map(|special| {
            let number = b.special(special);
            b.convert(Ty::I64, number)
        });
        let outer_of = |b: &mut Builder, point| args.indices(b, point, outer_axes(form));
        let rows = |b: &mut Builder, outer, tile| {
            let first = b.mul(tile, schedule.rows());
            BlockRows { outer, first_row: b.convert(Ty::I32, first), part: None }
        };
        if form.limits.is_empty() {
            let count = b.mul(points, tiles);
            return b.for_(block, count, blocks, |b, number| {
                let [point, tile] = b.div_rem(number, tiles);
                let outer = outer_of(b, point);
                let rows = rows(b, outer, tile);
                body(b, rows);
            });
        }
        let half = b.div_ceil(tiles, 2);
        let count = b.mul(points, half);
        b.for_(block, count, blocks, |b, number| {
            let (point, first) = pair_of(b, number, points, tiles);
            let last = b.sub(tiles, 1);
            let last = b.sub(last, first);
            // Once for both members: these divisions take as long as the copies of a tile.
            let outer = outer_of(b, point);
            let is_alone = b.eq(first, last);
            let members = b.select(is_alone, Operand::i64(1), Operand::i64(2));
            b.for_(Operand::i64(0), members, 1, |b, member| {
                let is_second = b.eq(member, 1);
                let tile = b.select(is_second, first, last);
                let rows = rows(b, outer, tile);
                body(b, rows);
            });
        });
    }

    /// The rows of the block of a number, where each outer point and part has such tiles.
    fn of_number(
        b: &mut Builder,
        stage: &Stage,
        args: &Args,
        form: &Pairwise,
        mut block: Operand,
        RowTiles { count: tiles, length }: RowTiles,
    ) -> BlockRows {
        let outer = outer_axes(form);
        let mut part = None;
        if let Some(axis) = stage.partial_axis {
            let points = args.rows(b, outer);
            let of_part = b.mul(points, tiles);
            part = Some((axis, b.binary(Binary::Div, block, of_part)));
            block = b.binary(Binary::Rem, block, of_part);
        }
        let (point, tile) = if form.limits.is_empty() {
            (b.binary(Binary::Div, block, tiles), b.binary(Binary::Rem, block, tiles))
        } else {
            let points = args.rows(b, outer);
            let (point, order) = in_sections(b, block, points, tiles);
            let last = b.sub(tiles, 1);
            let descending = form.limits.iter().any(|limit| limit.above);
            (point, if descending { b.sub(last, order) } else { order })
        };
        BlockRows::at(b, args, form, RowTile { point, part, tile, length })
    }

    /// The rows of a tile of rows.
    fn at(b: &mut Builder, args: &Args, form: &Pairwise, RowTile { point, part, tile, length }: RowTile) -> BlockRows {
        let first = b.mul(tile, length);
        let first_row = b.convert(Ty::I32, first);
        let mut outer = args.indices(b, point, outer_axes(form));
        outer.extend(part);
        let part = part.map(|(axis, index)| (b.convert(Ty::I32, index), b.convert(Ty::I32, args.size(axis))));
        BlockRows { outer, first_row, part }
    }
}

/// The tiles of rows of an outer point.
#[derive(Clone, Copy)]
struct RowTiles {
    /// How many there are, `i64`.
    count: Operand,
    /// The rows of each.
    length: u32,
}

/// A tile of rows.
struct RowTile {
    /// The index among the outer points, `i64`.
    point: Operand,
    /// The axis of parts of the columns and the index along it, where there are parts.
    part: Option<(Axis, Operand)>,
    /// Its number among the tiles of the outer point, `i64`.
    tile: Operand,
    /// Its rows.
    length: u32,
}

/// The outer point of pair number `number` of tiles, and its first tile, `i64`. A tile in the middle of an outer point is a pair by
/// itself; these come after all others, as they have half as much to do.
fn pair_of(b: &mut Builder, number: Operand, points: Operand, tiles: Operand) -> (Operand, Operand) {
    let pairs = b.binary(Binary::Div, tiles, 2);
    let whole = b.mul(points, pairs);
    let is_middle = b.ge(number, whole);
    let alone = b.sub(number, whole);
    let each = b.binary(Binary::Max, pairs, 1);
    let [point, first] = b.div_rem(number, each);
    (b.select(is_middle, alone, point), b.select(is_middle, pairs, first))
}

/// The outer point of a block and its number among the blocks of that point, `i64`: section by section, the first block of
/// every point, then the second one.
fn in_sections(b: &mut Builder, block: Operand, points: Operand, each: Operand) -> (Operand, Operand) {
    let [block, points, each] = [block, points, each].map(|x| b.convert(Ty::I32, x));
    let section = Operand::i32(SECTION);
    let of_section = b.mul(each, section);
    let [number, within] = b.div_rem(block, of_section);
    let before = b.mul(number, section);
    let left = b.sub(points, before);
    let here = b.binary(Binary::Min, left, section);
    let [order, own] = b.div_rem(within, here);
    let point = b.add(before, own);
    (b.convert(Ty::I64, point), b.convert(Ty::I64, order))
}
