//! Sums over the columns of a scan, taken in parts by the kernel that writes its states.
//!
//! The gradient of what is broadcast over columns is a sum over them, ḡ\[t\] = Σ over k, v of λ\[t,k,v\]·s\[t−1,k,v\], and λ itself
//! is written as x̄. The kernel of λ has all the terms at hand: every group of its lanes stores the sum over its own columns, a
//! *part*, and a later stage adds the parts. The program gets one axis more for that, the *part axis*:
//!
//! ```text
//! part[t, p] = the sum of group p's columns;   ḡ[t] = Σ over p of part[t, p]
//! ```
//!
//! As a program it is read with a part axis of size 1, on which the sum is broadcast; the plan gives the axis its size.

use std::collections::BTreeSet;

use oplus_dsl::Ty;
use oplus_dsl::ir::{Axis, AxisSet, Node, Op, Program, Value};

use super::contraction::{courses, reduction};
use super::course::Course;

/// A program whose sums over columns are taken in parts.
pub(super) struct ProgramInParts {
    /// The program with the part axis, its last one.
    pub program: Program,
    /// The axis.
    pub axis: Axis,
    /// The parts of each sum: values to be stored.
    pub parts: Vec<Value>,
    /// The tuples of the sums that stay with their scan.
    pub sums: BTreeSet<Value>,
}

/// The program with its sums in parts; `None` if it has none, or over several sets of columns.
pub(super) fn in_parts(program: &Program) -> Option<ProgramInParts> {
    let sums: Vec<ColumnSum> = (0..program.nodes.len() as u32).filter_map(|i| column_sum(program, Value(i))).collect();
    let inner: BTreeSet<Value> = sums.iter().flat_map(|s| s.tuples[1..].iter().copied()).collect();
    let outermost: Vec<&ColumnSum> = sums.iter().filter(|s| !inner.contains(&s.tuples[0])).collect();
    let (axes, course) = outermost.first().map(|s| (s.axes, s.course))?;
    if outermost.iter().any(|s| (s.axes, s.course) != (axes, course)) {
        return None;
    }
    Some(with_parts(program, &outermost))
}

/// A sum over axes of the states of one scan that keeps the scan axis.
struct ColumnSum {
    /// The reductions, the outermost first.
    tuples: Vec<Value>,
    /// The axis that they sum over.
    axes: AxisSet,
    course: Course,
}

fn column_sum(program: &Program, tuple: Value) -> Option<ColumnSum> {
    let (mut tuples, mut axes) = (vec![tuple], AxisSet::EMPTY);
    let mut sum = reduction(program, tuple)?;
    loop {
        axes = axes.with(sum.axis);
        let Op::Field(inner, _) = program.node(sum.element).op else { break };
        let Some(next) = reduction(program, inner) else { break };
        tuples.push(inner);
        sum = next;
    }
    let (fields, course) = courses(program, sum.element)?;
    let along = !axes.contains(course.axis) && program.node(sum.element).axes.contains(course.axis);
    let over = fields.iter().all(|v| axes.minus(program.node(*v).axes).is_empty());
    (along && over).then_some(ColumnSum { tuples, axes, course })
}

/// Every field of an outermost sum becomes the sum over the part axis of what is stored in parts.
fn with_parts(program: &Program, sums: &[&ColumnSum]) -> ProgramInParts {
    let axis = Axis(program.axes.len() as u32);
    let mut changed = program.without_nodes();
    changed.axes.push(part_name(program));
    let (mut parts, mut place): (Vec<Value>, Vec<Value>) = (vec![], vec![]);
    for node in &program.nodes {
        let moved = Node { op: node.op.map_operands(|v| place[v.0 as usize]), ..node.clone() };
        let mut value = push(&mut changed, moved);
        if let Op::Field(tuple, _) = node.op
            && sums.iter().any(|s| s.tuples[0] == tuple)
            && let Op::Reduce { operator, .. } = program.node(tuple).op
        {
            let axes = node.axes.with(axis);
            value = push(&mut changed, Node { op: Op::Broadcast(value), axes, ..*node });
            parts.push(value);
            let op = Op::Reduce { axis, operator, elements: vec![value] };
            value = push(&mut changed, Node { op, ty: Ty::Tuple, axes: node.axes });
            value = push(&mut changed, Node { op: Op::Field(value, 0), ..*node });
        }
        place.push(value);
    }
    changed.outputs.iter_mut().for_each(|output| output.value = place[output.value.0 as usize]);
    let sums = sums.iter().flat_map(|s| s.tuples.iter().map(|t| place[t.0 as usize])).collect();
    ProgramInParts { program: changed, axis, parts, sums }
}

/// A name that no other axis has.
pub(super) fn part_name(program: &Program) -> String {
    let mut name = "part".to_owned();
    while program.axes.contains(&name) {
        name.push('_');
    }
    name
}

fn push(program: &mut Program, node: Node) -> Value {
    program.nodes.push(node);
    Value(program.nodes.len() as u32 - 1)
}
