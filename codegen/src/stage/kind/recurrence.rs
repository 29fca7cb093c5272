//! Recurrences whose state is multiplied by a matrix at every step.

use oplus_dsl::ir::{Op, Term, Value};

use crate::stage::Stage;

/// A recurrence of a stage, with the sums of its states.
#[derive(Clone, Debug, PartialEq)]
pub struct Recurrence {
    /// The sums over the axis that the matrices act on, in the order in which they may be computed.
    pub readouts: Vec<Readout>,
    /// Whether a step has a whole matrix.
    pub has_dense: bool,
}

/// A sum of a map of states.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Readout {
    /// The sum.
    pub value: Value,
    /// What is summed.
    pub element: Value,
}

impl Recurrence {
    /// That of a stage, if it has one.
    pub(super) fn of(stage: &Stage) -> Option<Recurrence> {
        let scan = stage.recurrence()?.scan;
        let readout = |(k, node): (usize, &oplus_dsl::ir::Node)| {
            let Op::Field(tuple, _) = node.op else { return None };
            let Op::Reduce { elements, .. } = &stage.program.node(tuple).op else { return None };
            Some(Readout { value: Value(k as u32), element: elements[0] })
        };
        let readouts = stage.program.nodes.iter().enumerate().filter_map(readout).collect();
        let has_dense = scan.terms.iter().any(|term| matches!(term, Term::Dense { .. }));
        Some(Recurrence { readouts, has_dense })
    }
}
