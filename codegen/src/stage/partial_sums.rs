//! Partial sums over the columns of a scan, taken by the kernel that writes its states.
//!
//! The gradient of a value that is broadcast over columns is a sum over them, ḡ\[t\] = Σ over k, v of λ\[t,k,v\]·s\[t−1,k,v\], and λ itself
//! is written as x̄. The kernel of λ has all the terms at hand: every group of its lanes stores the sum over its own columns, a
//! *partial sum*, and a later stage adds the partial sums. The program gets one axis more for that, the *axis of partial sums*:
//!
//! ```text
//! part[t, p] = the sum of group p's columns;   ḡ[t] = Σ over p of part[t, p]
//! ```
//!
//! As a program it is read with such an axis of size 1, on which the sum is broadcast; the plan gives the axis its size.

use std::collections::BTreeSet;

use oplus_dsl::Ty;
use oplus_dsl::ir::{Axis, AxisSet, Node, Op, Program, Value};

use super::contraction::courses;
use super::course::Course;
use super::reduction::Sum;

/// A program with partial sums over columns.
pub(super) struct WithPartialSums {
    /// The program. The axis of partial sums is its last one.
    pub program: Program,
    /// The axis.
    pub axis: Axis,
    /// The partial sums: values to be stored.
    pub partial_sums: Vec<Value>,
    /// The tuples of the sums that stay with their scan.
    pub sums: BTreeSet<Value>,
}

/// The program with partial sums; `None` if it sums over no columns, or over several sets of them.
pub(super) fn with_partial_sums(program: &Program) -> Option<WithPartialSums> {
    let sums: Vec<ColumnSum> = (0..program.nodes.len() as u32).filter_map(|i| column_sum(program, Value(i))).collect();
    let inner: BTreeSet<Value> = sums.iter().flat_map(|s| s.tuples[1..].iter().copied()).collect();
    let outermost: Vec<&ColumnSum> = sums.iter().filter(|s| !inner.contains(&s.tuples[0])).collect();
    let (axes, course) = outermost.first().map(|s| (s.axes, s.course))?;
    if outermost.iter().any(|s| (s.axes, s.course) != (axes, course)) {
        return None;
    }
    Some(add_partial_sums(program, &outermost))
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
    let mut sum = Sum::of(program, tuple)?;
    loop {
        axes = axes.with(sum.axis);
        let Op::Field(inner, _) = program.node(sum.element).op else { break };
        let Some(next) = Sum::of(program, inner) else { break };
        tuples.push(inner);
        sum = next;
    }
    let (fields, course) = courses(program, sum.element)?;
    let along = !axes.contains(course.axis) && program.node(sum.element).axes.contains(course.axis);
    let over = fields.iter().all(|v| axes.minus(program.node(*v).axes).is_empty());
    (along && over).then_some(ColumnSum { tuples, axes, course })
}

/// Makes every field of an outermost sum the sum of its partial sums.
fn add_partial_sums(program: &Program, sums: &[&ColumnSum]) -> WithPartialSums {
    let axis = Axis(program.axes.len() as u32);
    let mut changed = program.without_nodes();
    changed.axes.push(partial_axis_name(program));
    let (mut partial_sums, mut place): (Vec<Value>, Vec<Value>) = (vec![], vec![]);
    for node in &program.nodes {
        let moved = Node { op: node.op.map_operands(|v| place[v.0 as usize]), ..node.clone() };
        let mut value = push(&mut changed, moved);
        if let Op::Field(tuple, _) = node.op
            && sums.iter().any(|s| s.tuples[0] == tuple)
            && let Op::Reduce { operator, .. } = program.node(tuple).op
        {
            let axes = node.axes.with(axis);
            value = push(&mut changed, Node { op: Op::Broadcast(value), axes, ..*node });
            partial_sums.push(value);
            let op = Op::Reduce { axis, operator, elements: vec![value] };
            value = push(&mut changed, Node { op, ty: Ty::Tuple, axes: node.axes });
            value = push(&mut changed, Node { op: Op::Field(value, 0), ..*node });
        }
        place.push(value);
    }
    changed.outputs.iter_mut().for_each(|output| output.value = place[output.value.0 as usize]);
    let sums = sums.iter().flat_map(|s| s.tuples.iter().map(|t| place[t.0 as usize])).collect();
    WithPartialSums { program: changed, axis, partial_sums, sums }
}

/// A name that no other axis has.
pub(super) fn partial_axis_name(program: &Program) -> String {
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
