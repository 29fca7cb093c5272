//! Recurrences whose state is multiplied by a matrix at every step.

use oplus_dsl::ir::Term;

use super::delta::DeltaRule;
use super::readouts::{Readout, readouts};
use crate::stage::{Refusal, Stage};

/// A recurrence of a stage, with the sums of its states.
#[derive(Clone, Debug, PartialEq)]
pub struct Recurrence {
    /// The sums over the axis that the matrices act on, in the order in which they may be computed.
    pub readouts: Vec<Readout>,
    /// Whether a step has a whole matrix.
    pub has_dense: bool,
    /// Whether a block has one of several sequences.
    pub is_of_sequences: bool,
    /// The form in which it is computed in chunks of times, or what it lacks.
    pub delta: Result<DeltaRule, Refusal>,
}

impl Recurrence {
    /// The recurrence of a stage, if it has one.
    pub(super) fn of(stage: &Stage) -> Option<Recurrence> {
        let recurrence = stage.recurrence()?;
        let is_dense = |term: &Term| matches!(term, Term::Dense { .. });
        let has_dense = recurrence.scan.terms.iter().any(is_dense);
        let (is_of_sequences, delta) = (stage.sequences().is_some(), DeltaRule::of(stage, recurrence));
        Some(Recurrence { readouts: readouts(stage), has_dense, is_of_sequences, delta })
    }
}
