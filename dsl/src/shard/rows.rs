//! Axes over which a program computes every index by itself.

use crate::ir::{Axis, Op, Program};

/// The axes whose indices do not depend on each other: every output has them, and no operation combines, moves or counts along them. From a
/// part of the indices of such an axis, the same part of all tensors that have it, the program computes that part of its outputs.
pub fn independent_axes(program: &Program) -> Vec<Axis> {
    let has = |axis: Axis| program.outputs.iter().all(|output| output.axes.contains(&axis));
    let is_free = |axis: Axis| program.nodes.iter().all(|node| !reads_along(&node.op, axis));
    let axes = (0..program.axes.len()).map(|k| Axis(k as u32));
    axes.filter(|axis| !program.outputs.is_empty() && has(*axis) && is_free(*axis)).collect()
}

/// Whether an operation knows more of an axis than one index at a time.
fn reads_along(op: &Op, own: Axis) -> bool {
    match op {
        Op::Param(_) | Op::Input(_) | Op::Const(_) => false,
        Op::Unary(..) | Op::Binary(..) | Op::Select(..) | Op::Convert(..) => false,
        Op::Broadcast(_) | Op::Field(..) => false,
        Op::Index(axis) | Op::Size(axis) => *axis == own,
        Op::Reduce { axis, .. } | Op::Scan { axis, .. } => *axis == own,
        Op::Last { axis, .. } | Op::First { axis, .. } | Op::Shift { axis, .. } => *axis == own,
        Op::Starts { axis, list, .. } => [*axis, *list].contains(&own),
        Op::Gather { axis, to, .. } => [*axis, *to].contains(&own),
        Op::MatrixScan(scan) => [scan.axis, scan.along].contains(&own) || scan.others().any(|other| other == own),
    }
}
