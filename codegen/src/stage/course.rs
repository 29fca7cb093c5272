//! Courses of scans, and what depends on a scan.

use std::collections::{BTreeSet, HashSet};

use oplus_dsl::ir::{Axis, Op, Program, Value};

/// The axis and the direction of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Course {
    /// The axis scanned.
    pub axis: Axis,
    /// Whether it goes from the last index to the first.
    pub reverse: bool,
}

/// The course along which a node takes a state: a field, or a `last` or `first` at the end of a scan.
pub(super) fn course(program: &Program, value: Value) -> Option<Course> {
    match &program.node(value).op {
        Op::Field(tuple, _) => match program.node(*tuple).op {
            Op::Scan { axis, reverse, .. } => Some(Course { axis, reverse }),
            Op::Reduce { axis, .. } => Some(Course { axis, reverse: false }),
            _ => None,
        },
        Op::Last { axis, .. } => Some(Course { axis: *axis, reverse: false }),
        Op::First { axis, .. } => Some(Course { axis: *axis, reverse: true }),
        _ => None,
    }
}

/// Whether a value depends on a scan that is not beneath one of the values in `read`.
pub(super) fn depends(program: &Program, value: Value, read: &BTreeSet<Value>) -> bool {
    let mut seen = HashSet::new();
    let mut stack = vec![value];
    while let Some(value) = stack.pop() {
        if read.contains(&value) || !seen.insert(value) {
            continue;
        }
        match &program.node(value).op {
            Op::Field(..) => return true,
            op => stack.extend(op.operands()),
        }
    }
    false
}
