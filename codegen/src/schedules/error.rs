//! Why a stage has no kernel under a schedule.

use thiserror::Error;

use crate::stage::Refusal;
use crate::verify::VerifyError;

/// Why a stage has no kernel under a schedule.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum LowerError {
    /// The stage is not of a kind that the schedule takes.
    #[error("the schedule `{schedule}` does not take the stage: {refusal}")]
    Kind {
        /// The schedule's name.
        schedule: &'static str,
        /// [`Refusal`] says what the stage lacks.
        refusal: Refusal,
    },
    /// The schedule's numbers are out of range.
    #[error("`{schedule}` has numbers that no kernel can have")]
    Parameters {
        /// The schedule's text.
        schedule: String,
    },
}

impl LowerError {
    /// The parameters of a schedule are out of range.
    pub(crate) fn parameters(schedule: &impl ToString) -> LowerError {
        LowerError::Parameters { schedule: schedule.to_string() }
    }
}

/// Why a schedule gives a stage no kernel that can run.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum Unsound {
    /// There is no such kernel.
    #[error(transparent)]
    Lower(#[from] LowerError),
    /// The kernel breaks rules of the tile IR: a fault of the lowering, which another schedule may not have.
    #[error("its kernel is not valid: {}", first(.0))]
    Invalid(Vec<VerifyError>),
}

/// The first fault, and how many there are besides.
fn first(faults: &[VerifyError]) -> String {
    let more = faults.len().saturating_sub(1);
    let first = faults.first().map(ToString::to_string).unwrap_or_default();
    if more > 0 { format!("{first}, and {more} more") } else { first }
}
