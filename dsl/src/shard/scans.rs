//! Scans along the divided axis: which of them have the totals of another one, and which have an element of the rank before.

use crate::ir::{Axis, Op, Program, Value};
use crate::laws::algebra::splits;

use super::level::last_state;

/// An element of a scan that is shifted by one place in the direction of the walk, so that the first one of a shard belongs to the
/// rank before. The scan of a gradient has the decays of its forward scan so.
///
/// Nothing needs to be exchanged for it. A rank's scan begins with the identity in that field, and its total has the last
/// one besides, which no scan of a shard has: with the affine operator, (a, b) = (a, 0) ⊕ (1, b).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Shifted {
    /// The field of the element.
    pub(super) field: usize,
    /// The field's values before they are shifted.
    pub(super) value: Value,
    /// The value that comes in at the start of the whole axis: the identity.
    pub(super) fill: Value,
}

/// The shifted element of a scan along an axis, if it has one that can be left to the rank before. It cannot where the scan's
/// last state is asked for, which does not have the last one.
pub(super) fn shifted(program: &Program, along: Axis, scan: Value) -> Option<Shifted> {
    let Op::Scan { axis, operator, elements, reverse, .. } = &program.node(scan).op else { return None };
    let own = program.operator(*operator);
    let of_field = |(field, element): (usize, &Value)| match program.node(*element).op {
        Op::Shift { axis: shifted, by, value, fill } if shifted == along && by == if *reverse { -1 } else { 1 } => {
            Some(Shifted { field, value, fill })
        }
        _ => None,
    };
    let found = elements.iter().enumerate().find_map(of_field).filter(|_| *axis == along)?;
    let is_identity = program.node(found.fill).op == Op::Const(own.identity[found.field]);
    let has_last_state = (0..program.nodes.len() as u32)
        .any(|k| last_state(program, along, Value(k)).is_some_and(|(of, _)| is_alike(program, of, scan)));
    (is_identity && !has_last_state && splits(own, found.field)).then_some(found)
}

/// Whether two scans differ in nothing but that one gives states before their elements and the other after them.
fn is_alike(program: &Program, one: Value, other: Value) -> bool {
    let parts = |scan: Value| match &program.node(scan).op {
        Op::Scan { axis, operator, elements, init, reverse, .. } => Some((axis, operator, elements, init, reverse)),
        _ => None,
    };
    parts(one).is_some() && parts(one) == parts(other)
}

/// The first scan that is like this one, whose totals and carries are also its own.
pub(super) fn leader(program: &Program, scan: Value) -> Value {
    (0..scan.0).map(Value).find(|earlier| is_alike(program, *earlier, scan)).unwrap_or(scan)
}
