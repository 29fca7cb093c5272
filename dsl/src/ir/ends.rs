//! Lists with one entry more than there are sequences.

use thiserror::Error;

use super::{Axis, Op, Program, Value};

/// The end of the name of an axis that has one index more than the axis of the name before it.
pub const ENDS: &str = ".ends";

/// Sizes of an axis and of the list of its ends that do not belong together.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum EndsError {
    /// Another number of sequences than the list has.
    #[error("axis {axis} has the size {size}, but a list of {axis} + 1 offsets has {entries} entries, which is {} sequences", entries - 1)]
    Differ {
        /// The axis of the sequences.
        axis: String,
        /// Its size.
        size: usize,
        /// The size of the list, not 0.
        entries: usize,
    },
    /// A matrix that should be square.
    #[error(
        "axis {axis} has the size {size} and axis {other} the size {other_size}, but both are axes of a square matrix"
    )]
    Square {
        /// One axis.
        axis: String,
        /// Its size.
        size: usize,
        /// The other axis.
        other: String,
        /// Its size.
        other_size: usize,
    },
    /// A list without entries.
    #[error("a list of {axis} + 1 offsets has no entries; it has one even where there is no sequence")]
    Empty {
        /// The axis of the sequences.
        axis: String,
    },
}

impl Program {
    /// The axis whose list of ends runs along an axis: `S` of `S.ends`.
    pub fn ends(&self, list: Axis) -> Option<Axis> {
        self.axis(self.axis_name(list).strip_suffix(ENDS)?)
    }

    /// An axis and the other name that a gather gives it, if it does no more than that. A list of ends and its sequences have
    /// different sizes, so a gather between them is none.
    pub fn renaming(&self, op: &Op) -> Option<[Axis; 2]> {
        let Op::Gather { axis, to, index, inverse, .. } = op else { return None };
        let is_index = |value: &Value, of: &Axis| self.node(*value).op == Op::Index(*of);
        let is_list = self.ends(*axis) == Some(*to) || self.ends(*to) == Some(*axis);
        (is_index(index, to) && is_index(inverse, axis) && !is_list).then_some([*axis, *to])
    }

    /// Pairs of axes that must have one size: those of the matrices of a [`super::MatrixScan`], and an axis and its other name.
    pub fn squares(&self) -> Vec<[Axis; 2]> {
        let mut squares = vec![];
        for node in &self.nodes {
            match &node.op {
                Op::MatrixScan(scan) => squares.extend(scan.others().map(|other| [scan.along, other])),
                op => squares.extend(self.renaming(op)),
            }
        }
        squares
    }

    /// Finds the sizes that follow from others: an axis `S.ends` has one index more than `S`, and [`Self::squares`] are square.
    ///
    /// # Errors
    /// [`EndsError`] for sizes of which this is not true.
    pub fn complete(&self, sizes: &mut [Option<usize>]) -> Result<(), EndsError> {
        self.complete_squares(sizes)?;
        for list in (0..self.axes.len() as u32).map(Axis) {
            let Some(axis) = self.ends(list) else { continue };
            let name = || self.axis_name(axis).to_owned();
            let (own, entries) = (sizes[axis.0 as usize], sizes[list.0 as usize]);
            match (own, entries) {
                (_, Some(0)) => return Err(EndsError::Empty { axis: name() }),
                (Some(size), Some(entries)) if size + 1 != entries => {
                    return Err(EndsError::Differ { axis: name(), size, entries });
                }
                (None, Some(entries)) => sizes[axis.0 as usize] = Some(entries - 1),
                (Some(size), None) => sizes[list.0 as usize] = size.checked_add(1),
                _ => {}
            }
        }
        Ok(())
    }

    fn complete_squares(&self, sizes: &mut [Option<usize>]) -> Result<(), EndsError> {
        for [axis, other] in self.squares() {
            let (at, beside) = (axis.0 as usize, other.0 as usize);
            match (sizes[at], sizes[beside]) {
                (Some(size), Some(other_size)) if size != other_size => {
                    let (axis, other) = (self.axis_name(axis).to_owned(), self.axis_name(other).to_owned());
                    return Err(EndsError::Square { axis, size, other, other_size });
                }
                (known, or) => (sizes[at], sizes[beside]) = (known.or(or), or.or(known)),
            }
        }
        Ok(())
    }

    /// The name of an axis as users write it: `S + 1` for `S.ends`.
    pub fn axis_in_words(&self, axis: Axis) -> String {
        let name = self.axis_name(axis);
        name.strip_suffix(ENDS).map_or_else(|| name.to_owned(), |axis| format!("{axis} + 1"))
    }
}
