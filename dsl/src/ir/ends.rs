//! Lists with one entry more than there are sequences.

use thiserror::Error;

use super::{Axis, Program};

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

    /// Finds the sizes that follow from others: an axis `S.ends` has one index more than `S`.
    ///
    /// # Errors
    /// [`EndsError`] for sizes of which this is not true.
    pub fn complete(&self, sizes: &mut [Option<usize>]) -> Result<(), EndsError> {
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

    /// The name of an axis as users write it: `S + 1` for `S.ends`.
    pub fn axis_in_words(&self, axis: Axis) -> String {
        let name = self.axis_name(axis);
        name.strip_suffix(ENDS).map_or_else(|| name.to_owned(), |axis| format!("{axis} + 1"))
    }
}
