//! A plan's choice among the schedules that fit.

use super::Launch;

/// Whether the caller has the kernel of a launch.
pub type IsThere<'a> = dyn Fn(&Launch) -> bool + 'a;

/// The choice of a schedule among those that fit a stage.
#[derive(Clone, Copy, Default)]
pub(super) struct Choosing<'a> {
    /// The number of faster ones that it leaves out.
    pub rank: usize,
    /// Takes only schedules whose kernels are there.
    pub is_there: Option<&'a IsThere<'a>>,
    /// Takes only schedules whose kernels the verifier accepts. That lowers every kernel which the plan takes.
    pub sound: bool,
}

impl<'a> Choosing<'a> {
    /// The `rank`-th after the fastest.
    pub(super) fn ranked(rank: usize) -> Choosing<'a> {
        Choosing { rank, ..Choosing::default() }
    }

    /// The fastest of those whose kernels the verifier accepts.
    pub(super) fn sound() -> Choosing<'a> {
        Choosing { sound: true, ..Choosing::default() }
    }

    /// The fastest of those whose kernels are there.
    pub(super) fn among(is_there: &'a IsThere<'a>) -> Choosing<'a> {
        Choosing { is_there: Some(is_there), ..Choosing::default() }
    }
}
