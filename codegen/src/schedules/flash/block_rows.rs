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
    /// Where rows see different columns those that see most come first; several outer points alternate: they have the most to
    /// do. Else the blocks of an outer point are neighbours, which read the same columns. Those of a part are neighbours, too.
    pub(super) fn of(b: &mut Builder, stage: &Stage, args: &Args, form: &Pairwise, schedule: &Flash) -> BlockRows {
        let block = b.special(Special::Block);
        let outer = outer_axes(form);
        let tiles = b.div_ceil(args.size(form.row), schedule.rows());
        let mut block = b.convert(Ty::I64, block);
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
        let first = b.mul(tile, schedule.rows());
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
