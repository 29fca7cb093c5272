//! The sums over the axis that the matrices of a recurrence act on.

use oplus_dsl::ir::{Node, Op, Value};

use crate::stage::Stage;

/// A sum of a map of states.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Readout {
    /// The sum.
    pub value: Value,
    /// The value that is summed.
    pub element: Value,
}

/// The sums over the axis that the matrices act on.
pub(super) fn readouts(stage: &Stage) -> Vec<Readout> {
    let readout = |(k, node): (usize, &Node)| {
        let Op::Field(tuple, _) = node.op else { return None };
        let Op::Reduce { elements, .. } = &stage.program.node(tuple).op else { return None };
        Some(Readout { value: Value(k as u32), element: elements[0] })
    };
    stage.program.nodes.iter().enumerate().filter_map(readout).collect()
}
