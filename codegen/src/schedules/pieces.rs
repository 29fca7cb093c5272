//! Pieces of rows: less memory for what the kernels of a stage hand to one another.

use oplus_dsl::ir::Axis;

use super::problem::Problem;
use crate::abi;
use crate::stage::tensor::{Tensor, elem};
use crate::stage::{Bound, Stage};

/// Rows that the kernels of a stage take together: all of them, but where memory is short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    first: i64,
    rows: i64,
    /// The number that [`abi::Role::Piece`] passes to the kernels.
    pub bits: i64,
}

impl Piece {
    /// All rows.
    pub fn whole(problem: &Problem<'_>) -> Piece {
        Piece { first: 0, rows: rows_axis(problem.stage).map_or(1, |row| problem.size(row)), bits: 0 }
    }

    /// The number of rows.
    pub fn rows(self) -> i64 {
        self.rows
    }

    /// The rows in at most so many pieces of whole blocks.
    pub(crate) fn cut(self, block: i64, count: u64) -> Vec<Piece> {
        let rows = self.rows;
        let blocks = (rows as u64).div_ceil(block as u64);
        let each = block * blocks.div_ceil(count) as i64;
        let piece = |first: i64| {
            let continues = if first > 0 { abi::Piece::CONTINUES } else { 0 };
            let goes_on = if first + each < rows { abi::Piece::GOES_ON } else { 0 };
            Piece { first, rows: each.min(rows - first), bits: continues | goes_on }
        };
        (0..rows).step_by(each as usize).map(piece).collect()
    }

    /// A stage's sizes for the piece.
    pub fn bound(self, stage: &Stage, bound: &Bound) -> Bound {
        let mut own = bound.clone();
        if let Some(row) = rows_axis(stage) {
            own.sizes[row.0 as usize] = self.rows;
        }
        own
    }

    /// Bytes from a tensor's first element to that of the piece.
    pub fn offset(self, stage: &Stage, tensor: Tensor, bound: &Bound) -> i64 {
        if self.first == 0 {
            return 0;
        }
        let stride = rows_axis(stage).and_then(|row| bound.stride(stage, tensor, row)).unwrap_or(0);
        self.first * stride * elem(stage, tensor).bytes().unwrap_or(8) as i64
    }
}

/// The axis of the rows that pieces divide.
pub(crate) fn rows_axis(stage: &Stage) -> Option<Axis> {
    stage.outer_axes().iter().last()
}
