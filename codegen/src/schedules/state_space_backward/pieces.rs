//! Pieces of rows: less memory for what the passes of a backward-scan stage store for later ones.
//!
//! The passes store saved states and sums of blocks. Where these would take more than the stage's tensors account for, the
//! passes take some of the rows at a time, in the same memory; sums over rows go on from piece to piece.

use super::{StateSpaceBackward, scratch};
use crate::abi::{Tensor, tensors};
use crate::schedules::pieces::{Piece, rows_axis};
use crate::schedules::problem::Problem;
use crate::schedules::strategy::Strategy;
use crate::stage::{Bound, Sink, Source, Stage};
use oplus_dsl::Elem;
use oplus_dsl::ir::{Axis, Op};

/// Bytes that scratch memory may take, whatever the tensors take.
const LEAST: u64 = 64 << 10;

/// The most pieces of a stage, each with launches of its own. So many may still take more than [`room`], as with tensors that repeat a
/// few elements many times: then the allocation says whether there is so much memory.
const MOST: u64 = 1 << 10;

/// The pieces in which a stage takes its rows under a schedule, in order: as few as keep to [`room`].
pub(super) fn pieces(schedule: &StateSpaceBackward, problem: &Problem<'_>) -> Vec<Piece> {
    let Problem { stage, bound, .. } = *problem;
    let whole = Piece::whole(problem);
    let (all, rows) = (vec![whole], whole.rows());
    // A few steps of many states take less than what is found of the states themselves.
    let [steps, states] = [stage.axis(), stage.state_axis()].map(|axis| axis.map_or(1, |axis| bound.size(axis)));
    if steps < states || !rows_axis(stage).is_some_and(|row| is_alike(stage, row)) {
        return all;
    }
    let of_count = |count: u64| whole.cut(i64::from(schedule.block_rows()), count);
    let bytes = |pieces: &[Piece]| bytes(schedule, problem, pieces);
    let (blocks, room) = ((rows as u64).div_ceil(u64::from(schedule.block_rows())), room(stage, bound));
    let least = bytes(&all).div_ceil(room);
    if least <= 1 || blocks <= 1 {
        return all;
    }
    of_count(fewest(least, blocks, |count| bytes(&of_count(count)) <= room))
}

/// The fewest pieces that there is room for, from `least` on; as many as there may be where there is not.
fn fewest(least: u64, blocks: u64, has_room: impl Fn(u64) -> bool) -> u64 {
    let most = blocks.min(MOST);
    (least..most).find(|count| has_room(*count)).unwrap_or(most)
}

/// Whether all rows are alike: their numbers change nothing.
fn is_alike(stage: &Stage, row: Axis) -> bool {
    let displaced = stage.views.iter().flatten().any(|view| view.axis == row);
    !displaced && !stage.program.nodes.iter().any(|node| [Op::Index(row), Op::Size(row)].contains(&node.op))
}

/// Bytes that the scratch memory of a stage may take: twice its tensors, less what is temporary among them.
fn room(stage: &Stage, bound: &Bound) -> u64 {
    let is_temporary = |tensor: &Tensor| match tensor {
        Tensor::Param(i) => matches!(stage.sources[*i as usize], Source::Buffer(_)),
        Tensor::Output(i) => matches!(stage.sinks[*i as usize], Sink::Buffer(_)),
    };
    let is_repeated = |tensor: &Tensor| match tensor {
        Tensor::Param(i) => stage.sources[..*i as usize].contains(&stage.sources[*i as usize]),
        Tensor::Output(_) => false,
    };
    let bytes = |temporary: bool| {
        let own = tensors(stage).filter(|t| is_temporary(t) == temporary && !is_repeated(t));
        own.map(|t| bound.bytes(stage, t)).fold(0, u64::saturating_add)
    };
    bytes(false).saturating_mul(2).saturating_sub(bytes(true)).max(LEAST)
}

/// Bytes of the scratch memory that the passes of all pieces share.
fn bytes(schedule: &StateSpaceBackward, problem: &Problem<'_>, pieces: &[Piece]) -> u64 {
    let lens = lens(schedule, problem, pieces).unwrap_or_default();
    lens.into_iter().fold(0, u64::saturating_add).saturating_mul(Elem::F32.bytes().unwrap_or(4) as u64)
}

/// The lengths of each kind of scratch memory that the passes of all pieces share; `None` when 63 bits cannot count them.
pub(super) fn lens(schedule: &StateSpaceBackward, problem: &Problem<'_>, pieces: &[Piece]) -> Option<Vec<u64>> {
    let mut lens: Vec<u64> = vec![];
    // All pieces but the last have as many rows.
    let unlike = pieces.iter().enumerate().filter(|(i, piece)| *i == 0 || piece.rows() != pieces[i - 1].rows());
    for (_, piece) in unlike {
        let own = piece.bound(problem.stage, problem.bound);
        let segments = schedule.segments(&problem.with(&own)).count;
        let mut found = scratch(problem.stage, schedule, segments, |axis| own.size(axis))?;
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
