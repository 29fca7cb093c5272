//! Reading a value at other indices than those of the tile.

use oplus_dsl::ir::{Axis, AxisSet, Value};

/// Where along an axis a value is read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Move {
    /// This many steps before the tile's index.
    Shift(i64),
    /// At one index.
    Pin(usize),
    /// This many steps before the index that another value is, itself moved.
    Gather { index: Value, moves: Moves, by: i64 },
}

impl Move {
    /// The move of a value that a shift by so much reads, in a gather.
    pub(super) fn shifted(self, further: i64) -> Move {
        match self {
            Move::Gather { index, moves, by } => Move::Gather { index, moves, by: by.saturating_add(further) },
            other => other,
        }
    }
}

/// The moves of several axes; axes that are not listed are read at the tile's index.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Moves(Vec<(Axis, Move)>);

impl Moves {
    /// The move of an axis.
    pub(super) fn of(&self, axis: Axis) -> Move {
        self.0.iter().find(|(a, _)| *a == axis).map_or(Move::Shift(0), |(_, by)| by.clone())
    }

    /// Replaces the move of one axis.
    pub(super) fn with(&self, axis: Axis, by: Move) -> Moves {
        let mut all: Vec<(Axis, Move)> = self.0.iter().filter(|(a, _)| *a != axis).cloned().collect();
        if by != Move::Shift(0) {
            all.push((axis, by));
        }
        all.sort_by_key(|(axis, _)| *axis);
        Moves(all)
    }

    /// The moves of some axes only.
    pub(super) fn along(&self, axes: AxisSet) -> Moves {
        Moves(self.0.iter().filter(|(axis, _)| axes.contains(*axis)).cloned().collect())
    }
}
