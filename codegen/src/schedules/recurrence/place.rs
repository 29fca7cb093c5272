//! Where values of a row are taken.

/// Which of the lane's places, and how many indices after the step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) state: u32,
    pub(super) offset: i64,
}
