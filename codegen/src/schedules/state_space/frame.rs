//! The frame of a block: its mbarriers and thread coordinates, the tiles of time, its rows and its segment.

use super::StateSpace;
use super::segments::Segment;
use crate::block::args::Args;
use crate::build::Builder;
use crate::stage::Stage;
use crate::tile::{Operand, SharedId, SharedKind, Special};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Axis, Binary};

/// The parts of a kernel that do not depend on what it computes.
pub(crate) struct Frame {
    /// The mbarriers of every stage of the ring: one completes when the stage holds a tile, the other when the tile has been walked.
    pub full: SharedId,
    pub done: SharedId,
    pub warp: Operand,
    pub lane: Operand,
    /// Size of the scan axis, `i64`, and its tiles, `i32`.
    pub len: Operand,
    pub tile_count: Operand,
    /// Size of the state axis, `i32`.
    pub state_count: Operand,
    pub block: Block,
    pub segment: Option<Segment>,
}

/// The rows and outer indices of a block.
pub(crate) struct Block {
    /// The number of its point among those of every outer axis but that of the rows, `i64`, if it has been found.
    pub point: Option<Operand>,
    /// The index along every outer axis but that of the rows.
    pub outer: Vec<(Axis, Operand)>,
    /// Its first row, `i64`.
    pub first_row: Operand,
    /// Its rows, `i32`.
    pub rows: Operand,
}

/// The axes of a kernel.
#[derive(Clone, Copy)]
pub(crate) struct Axes {
    pub time: Axis,
    pub state: Axis,
    /// The axis of the rows of a block.
    pub row: Option<Axis>,
}

impl Frame {
    /// The frame of a kernel whose blocks have so many rows. One that is `narrow` finds the block's indices in 32 bits.
    pub(crate) fn declare(
        b: &mut Builder,
        args: &Args,
        stage: &Stage,
        axes: Axes,
        schedule: &StateSpace,
        rows: u32,
        narrow: bool,
    ) -> Frame {
        let [full, done] = ["full", "done"].map(|name| b.shared(name, SharedKind::Mbarrier, schedule.stages));
        let [warp, lane] = [Special::Warp, Special::Lane].map(|s| b.special(s));
        let len = args.size(axes.time);
        let tile_count = b.div_ceil(len, schedule.steps);
        let tile_count = b.convert(Ty::I32, tile_count);
        let state_count = b.convert(Ty::I32, args.size(axes.state));
        let block = Block::find(b, args, stage, axes.row, rows, narrow);
        let segment = Segment::find(b, args, tile_count);
        Frame { full, done, warp, lane, len, tile_count, state_count, block, segment }
    }
}

impl Block {
    /// The block's rows and outer indices. Groups of rows are the fastest part of a block's number. A kernel that is `narrow` divides numbers of
    /// 32 bits, which blocks are fewer than: an index then takes one register.
    fn find(b: &mut Builder, args: &Args, stage: &Stage, row: Option<Axis>, rows: u32, narrow: bool) -> Block {
        let number = b.special(Special::Block);
        let number = if narrow { number } else { b.convert(Ty::I64, number) };
        let Some(axis) = row else {
            return Block { point: None, outer: vec![], first_row: Operand::i64(0), rows: Operand::i32(1) };
        };
        let size = args.size(axis);
        let groups = b.div_ceil(size, rows);
        let groups = if narrow { b.convert(Ty::I32, groups) } else { groups };
        let others = stage.outer_axes().without(axis);
        let (mut point, mut outer, mut group) = (Operand::i64(0), vec![], number);
        if !others.is_empty() {
            point = b.binary(Binary::Div, number, groups);
            outer = args.indices(b, point, others);
            group = b.binary(Binary::Rem, number, groups);
        }
        if narrow {
            outer.iter_mut().for_each(|(_, index)| *index = natural(b, *index));
            [point, group] = [point, group].map(|x| natural(b, x));
        }
        let first_row = b.mul(group, rows);
        let left = b.sub(size, first_row);
        let left = b.binary(Binary::Min, left, rows);
        Block { point: narrow.then_some(point), outer, first_row, rows: b.convert(Ty::I32, left) }
    }
}

/// A number that is not negative, as `i64`. The compiler cannot know that it is not; without the sign its upper half takes no register.
fn natural(b: &mut Builder, number: Operand) -> Operand {
    if b.ty(number) == Ty::I64 {
        return number;
    }
    let number = b.binary(Binary::And, number, i32::MAX);
    b.convert(Ty::I64, number)
}
