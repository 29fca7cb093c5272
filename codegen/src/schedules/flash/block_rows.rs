//! The rows of each block, and the order in which blocks come.

use super::outer_axes;
use crate::block::args::Args;
use crate::build::Builder;
use crate::schedules::Flash;
use crate::stage::Stage;
use crate::stage::kind::Pairwise;
use crate::tile::{Operand, Special};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Axis, AxisSet, Binary};

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
    /// Where rows see different columns those that see most come first; several outer points alternate: they have the most to
    /// do. Else the blocks of an outer point are neighbours, which read the same columns. Those of a part are neighbours, too.
    pub(super) fn of(b: &mut Builder, stage: &Stage, args: &Args, form: &Pairwise, schedule: &Flash) -> BlockRows {
        let block = b.special(Special::Block);
        let tiles = b.div_ceil(args.size(form.row), schedule.rows());
        let block = b.convert(Ty::I64, block);
        BlockRows::of_number(b, stage, args, form, (block, tiles, schedule.rows()))
    }

    /// The rows of every block before there is one: those of a persistent block are [found](Self::each) again and again.
    pub(super) fn none() -> BlockRows {
        BlockRows { outer: vec![], first_row: Operand::i32(0), part: None }
    }

    /// Goes through the rows that a persistent block has. Their numbers go up and down in turn from one round of blocks to the next, as
    /// those that come first have most to do.
    pub(super) fn each(
        b: &mut Builder,
        (stage, args, form): (&Stage, &Args, &Pairwise),
        schedule: &Flash,
        body: impl FnOnce(&mut Builder, BlockRows),
    ) {
        let tiles = b.div_ceil(args.size(form.row), schedule.rows());
        let axes = stage.part_axis.into_iter().fold(outer_axes(form), AxisSet::with);
        let points = args.rows(b, axes);
        let count = b.mul(points, tiles);
        let [block, blocks] = [Special::Block, Special::Blocks].map(|special| {
            let number = b.special(special);
            b.convert(Ty::I64, number)
        });
        b.for_(Operand::i64(0), count, blocks, |b, first| {
            let last = b.add(first, blocks);
            let last = b.sub(last, 1);
            let down = b.sub(last, block);
            let up = b.add(first, block);
            let round = b.binary(Binary::Div, first, blocks);
            let odd = b.binary(Binary::And, round, 1);
            let odd = b.eq(odd, 1);
            let number = b.select(odd, down, up);
            let exists = b.lt(number, count);
            b.if_(exists, |b| {
                let rows = BlockRows::of_number(b, stage, args, form, (number, tiles, schedule.rows()));
                body(b, rows);
            });
        });
    }

    /// The rows of a number among `tiles` tiles of `length` rows for each outer point and part.
    fn of_number(
        b: &mut Builder,
        stage: &Stage,
        args: &Args,
        form: &Pairwise,
        (mut block, tiles, length): (Operand, Operand, u32),
    ) -> BlockRows {
        let outer = outer_axes(form);
        let mut part = None;
        if let Some(axis) = stage.part_axis {
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
        let first = b.mul(tile, length);
        let first_row = b.convert(Ty::I32, first);
        let mut outer = args.indices(b, point, outer);
        outer.extend(part);
        let part = part.map(|(axis, index)| (b.convert(Ty::I32, index), b.convert(Ty::I32, args.size(axis))));
        BlockRows { outer, first_row, part }
    }
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
