//! Pieces of rows: less memory for what the passes of a two-way stage hand on.
//!
//! The passes hand on saved states and sums of blocks. Where these would take more than the stage's tensors account for, the
//! passes take some of the rows at a time, in the same memory; sums over rows go on from piece to piece.

use crate::stage::Bound;
use super::time::Segments;
use crate::abi;
use crate::abi::{Tensor, tensors};
use crate::schedule::{Schedule, StateSpaceBackward};
use crate::schedules::state_space_backward::scratch;
use crate::stage::{Sink, Source, Stage};
use crate::target::Target;
use oplus_dsl::Elem;
use oplus_dsl::ir::{Axis, Op};

/// Bytes that may be taken by what passes hand on, whatever the tensors take.
const LEAST: u64 = 64 << 10;

/// Pieces, each of some launches, that a stage may have. Where these take more than [`room`], as with tensors that repeat a few
/// elements many times, so be it: whether there is so much memory is for its allocation to say.
const MOST: u64 = 1 << 10;

/// Rows that the kernels of a stage take together: all of them, but where memory is short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    first: i64,
    rows: i64,
    /// What [`abi::Role::Piece`] tells the kernels.
    pub bits: i64,
}

impl Piece {
    /// A stage's sizes for the piece.
    pub(super) fn bound(self, stage: &Stage, bound: &Bound) -> Bound {
        let mut own = bound.clone();
        if let Some(row) = rows_axis(stage) {
            own.sizes[row.0 as usize] = self.rows;
        }
        own
    }

    /// Bytes from a tensor's first element to that of the piece.
    pub(super) fn offset(self, stage: &Stage, tensor: Tensor, bound: &Bound) -> i64 {
        let stride = rows_axis(stage).and_then(|row| bound.stride(stage, tensor, row)).unwrap_or(0);
        self.first * stride * abi::elem(stage, tensor).bytes().unwrap_or(8) as i64
    }
}

fn rows_axis(stage: &Stage) -> Option<Axis> {
    stage.outer_axes().iter().last()
}

/// The pieces in which a stage takes its rows under a schedule, in order: as few as keep to [`room`].
pub(super) fn pieces(stage: &Stage, schedule: &Schedule, bound: &Bound, target: &Target) -> Vec<Piece> {
    let rows = rows_axis(stage).map_or(1, |row| bound.size(row));
    let whole = vec![Piece { first: 0, rows, bits: 0 }];
    let Schedule::StateSpaceBackward(own) = schedule else { return whole };
    // A few steps of many states take less than what is found of the states themselves.
    let [steps, states] = [stage.axis(), stage.state_axis()].map(|axis| axis.map_or(1, |axis| bound.size(axis)));
    if steps < states || !rows_axis(stage).is_some_and(|row| is_alike(stage, row)) {
        return whole;
    }
    let of_count = |count: u64| cut(rows, i64::from(own.block_rows()), count);
    let bytes = |pieces: &[Piece]| bytes(stage, own, pieces, bound, target);
    let (blocks, room) = ((rows as u64).div_ceil(u64::from(own.block_rows())), room(stage, bound));
    let least = bytes(&whole).div_ceil(room);
    if least <= 1 || blocks <= 1 {
        return whole;
    }
    of_count(fewest(least, blocks, |count| bytes(&of_count(count)) <= room))
}

/// The fewest pieces that there is room for, from `least` on; as many as there may be where there is not.
fn fewest(least: u64, blocks: u64, has_room: impl Fn(u64) -> bool) -> u64 {
    let most = blocks.min(MOST);
    (least..most).find(|count| has_room(*count)).unwrap_or(most)
}

/// Whether a row's number changes nothing.
fn is_alike(stage: &Stage, row: Axis) -> bool {
    let displaced = stage.views.iter().flatten().any(|view| view.axis == row);
    !displaced && !stage.program.nodes.iter().any(|node| [Op::Index(row), Op::Size(row)].contains(&node.op))
}

/// Rows in at most so many pieces of whole blocks.
fn cut(rows: i64, block: i64, count: u64) -> Vec<Piece> {
    let blocks = (rows as u64).div_ceil(block as u64);
    let each = block * blocks.div_ceil(count) as i64;
    let piece = |first: i64| {
        let continues = if first > 0 { abi::Piece::CONTINUES } else { 0 };
        let goes_on = if first + each < rows { abi::Piece::GOES_ON } else { 0 };
        Piece { first, rows: each.min(rows - first), bits: continues | goes_on }
    };
    (0..rows).step_by(each as usize).map(piece).collect()
}

/// Bytes that the passes of a stage may hand on: twice its tensors, less what is temporary among them.
fn room(stage: &Stage, bound: &Bound) -> u64 {
    let is_temporary = |tensor: &Tensor| match tensor {
        Tensor::Param(i) => matches!(stage.sources[*i as usize], Source::Buffer(_)),
        Tensor::Output(i) => matches!(stage.sinks[*i as usize], Sink::Buffer(_)),
    };
    let again = |tensor: &Tensor| match tensor {
        Tensor::Param(i) => stage.sources[..*i as usize].contains(&stage.sources[*i as usize]),
        Tensor::Output(_) => false,
    };
    let bytes = |temporary: bool| {
        let own = tensors(stage).filter(|t| is_temporary(t) == temporary && !again(t));
        own.map(|t| bound.bytes(stage, t)).fold(0, u64::saturating_add)
    };
    bytes(false).saturating_mul(2).saturating_sub(bytes(true)).max(LEAST)
}

/// Bytes of what the passes of all pieces hand on in the same memory.
fn bytes(stage: &Stage, schedule: &StateSpaceBackward, pieces: &[Piece], bound: &Bound, target: &Target) -> u64 {
    let lens = handed_on(stage, schedule, pieces, bound, target).unwrap_or_default();
    lens.into_iter().fold(0, u64::saturating_add).saturating_mul(Elem::F32.bytes().unwrap_or(4) as u64)
}

/// How many numbers of each kind the passes of all pieces hand on, in the same memory; `None` when 63 bits cannot count them.
pub(super) fn handed_on(
    stage: &Stage,
    schedule: &StateSpaceBackward,
    pieces: &[Piece],
    bound: &Bound,
    target: &Target,
) -> Option<Vec<u64>> {
    let mut lens: Vec<u64> = vec![];
    // All pieces but the last have as many rows.
    let unlike = pieces.iter().enumerate().filter(|(i, piece)| *i == 0 || piece.rows != pieces[i - 1].rows);
    for (_, piece) in unlike {
        let own = piece.bound(stage, bound);
        let segments = Segments::of(stage, &Schedule::StateSpaceBackward(*schedule), &own, target).count;
        let mut found = scratch(stage, schedule, segments, |axis| own.size(axis))?;
        if pieces.len() == 1 {
            // Nothing comes after it.
            found[2] = 0;
        }
        lens.resize(found.len(), 0);
        lens.iter_mut().zip(found).for_each(|(most, len)| *most = len.max(*most));
    }
    Some(lens)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_pieces_as_room_asks_for_but_no_more_than_can_be_launched() {
        assert_eq!(fewest(3, 100, |count| count >= 7), 7);
        assert_eq!(fewest(3, 5, |_| false), 5);
        assert_eq!(fewest(8, 5, |_| true), 5);
        assert_eq!(fewest(2, 1 << 40, |_| false), MOST);
        assert_eq!(fewest(1 << 40, 1 << 41, |_| true), MOST);
    }
}
