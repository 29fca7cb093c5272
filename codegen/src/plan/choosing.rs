//! How a plan chooses among the schedules that fit.

use super::Launch;

/// Whether the kernel of a launch is there, in whatever place the asker takes kernels from.
pub type IsThere<'a> = dyn Fn(&Launch) -> bool + 'a;

/// Which of the schedules that fit a stage a plan takes.
#[derive(Clone, Copy, Default)]
pub(super) struct Choosing<'a> {
    /// How many faster ones it leaves out.
    pub rank: usize,
    /// Takes only schedules whose kernels are there.
    pub is_there: Option<&'a IsThere<'a>>,
}

impl<'a> Choosing<'a> {
    /// The `rank`-th after the fastest.
    pub(super) fn ranked(rank: usize) -> Choosing<'a> {
        Choosing { rank, is_there: None }
    }

    /// The fastest of those whose kernels are there.
    pub(super) fn among(is_there: &'a IsThere<'a>) -> Choosing<'a> {
        Choosing { rank: 0, is_there: Some(is_there) }
    }
}
