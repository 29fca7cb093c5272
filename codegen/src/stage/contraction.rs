//! Sums over a state axis that stay with the scan beneath them.
//!
//! The sum over N of c·h, where h is a state with the axis N of a scan along T, can be taken where the states are: they
//! need not be stored. Such a sum is a *contraction*, N the *state axis*.

use std::collections::BTreeSet;

use oplus_dsl::ir::{Axis, Op, Program, Value};

use super::course::{Course, course, depends};
use super::reduction::Sum;

/// The tuples of all contractions of a program, over one state axis.
pub(super) fn contractions(program: &Program) -> BTreeSet<Value> {
    let all: Vec<(Value, Axis)> = (0..program.nodes.len() as u32)
        .map(Value)
        .filter_map(|tuple| Some((tuple, Sum::of(program, tuple).filter(|c| is_contraction(program, c))?.axis)))
        .collect();
    let Some((_, axis)) = all.first().copied() else { return BTreeSet::new() };
    all.into_iter().filter(|(_, own)| *own == axis).map(|(tuple, _)| tuple).collect()
}

/// The contraction of a tuple in `sums`, unless the values `read` from memory leave no scan beneath it.
pub(super) fn contraction(
    program: &Program,
    sums: &BTreeSet<Value>,
    tuple: Value,
    read: &BTreeSet<Value>,
) -> Option<Sum> {
    let found = Sum::of(program, tuple).filter(|_| sums.contains(&tuple))?;
    depends(program, found.element, read).then_some(found)
}

/// Whether a sum is over states of one course that all have its axis.
fn is_contraction(program: &Program, sum: &Sum) -> bool {
    let Some((fields, course)) = courses(program, sum.element) else { return false };
    let along = course.axis != sum.axis && program.node(sum.element).axes.contains(course.axis);
    along && fields.iter().all(|v| program.node(*v).axes.contains(sum.axis))
}

/// The states that a map of states and point values takes, and their course; `None` if there are none or several.
pub(super) fn courses(program: &Program, value: Value) -> Option<(BTreeSet<Value>, Course)> {
    let fields = states(program, value)?;
    let courses: BTreeSet<Course> = fields.iter().map(|v| course(program, *v)).collect::<Option<_>>()?;
    let course = courses.iter().next().copied().filter(|_| courses.len() == 1)?;
    Some((fields, course))
}

/// The fields of scans that a map of states and point values takes; `None` if it is something else.
fn states(program: &Program, value: Value) -> Option<BTreeSet<Value>> {
    let (mut fields, mut seen, mut stack) = (BTreeSet::new(), BTreeSet::new(), vec![value]);
    let nothing = BTreeSet::new();
    while let Some(value) = stack.pop() {
        if !seen.insert(value) || !depends(program, value, &nothing) {
            continue;
        }
        match &program.node(value).op {
            Op::Field(tuple, _) if matches!(program.node(*tuple).op, Op::Scan { .. }) => _ = fields.insert(value),
            op if op.is_map() => stack.extend(op.operands()),
            _ => return None,
        }
    }
    Some(fields)
}
