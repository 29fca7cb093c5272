//! Two recurrences along one axis in opposite directions, of which the second has the decay of the first one step earlier.

use std::collections::BTreeSet;

use oplus_dsl::ir::{Axis, AxisSet, Binary, Node, Op, Operator, Program, Value};
use oplus_dsl::walk::{all, follow};

use super::kind::product::is;
use super::reduction::Sum;

/// Two scans in opposite directions: their tuples.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    /// The states, inclusive and exclusive.
    pub forward: BTreeSet<Value>,
    /// The cotangents.
    pub back: Value,
    pub time: Axis,
    /// The axes of both states.
    pub axes: AxisSet,
}

impl Pair {
    /// The row axis: the last one beside time and a state axis.
    pub(super) fn row(&self, state: Axis) -> Option<Axis> {
        self.axes.without(self.time).without(state).iter().last()
    }
}

/// The reverse scans of a program, each with the scan whose decay it has.
pub(super) fn pairs(program: &Program) -> Vec<Pair> {
    let back = |(i, node): (usize, &oplus_dsl::ir::Node)| {
        let Op::Scan { axis, operator, elements, init, reverse, exclusive: false } = &node.op else { return None };
        let decay = shifted_decay(program, Value(i as u32))?;
        let points = [decay, elements[1]].iter().chain(init).all(|v| is_point(program, *v));
        let forward = forward(program, *axis, !*reverse)?;
        let own = field(program, Value(i as u32))?;
        let axes = program.node(own).axes;
        let alike = forward.iter().filter_map(|t| field(program, *t)).all(|f| program.node(f).axes == axes);
        (points && alike && is_affine(program.operator(*operator))).then_some(Pair {
            forward,
            back: Value(i as u32),
            time: *axis,
            axes,
        })
    };
    program.nodes.iter().enumerate().filter_map(back).collect()
}

/// The second scan of a program that scans in both directions, and its decay before the shift.
pub(super) fn second_scan(program: &Program) -> Option<(Value, Value)> {
    let scan = |(i, node): (usize, &Node)| match node.op {
        Op::Scan { reverse, .. } => Some((Value(i as u32), reverse)),
        _ => None,
    };
    let scans = || program.nodes.iter().enumerate().filter_map(scan);
    let goes = |backward| scans().any(|(_, reverse)| reverse == backward);
    if !goes(true) || !goes(false) {
        return None;
    }
    scans().find_map(|(value, _)| Some((value, shifted_decay(program, value)?)))
}

/// The decay of a scan whose first element at every step is the decay of the step before, in the direction of the scan. At the first
/// step a constant takes its place, which multiplies the initial state; where there is an initial state it must be 1.
pub(super) fn shifted_decay(program: &Program, scan: Value) -> Option<Value> {
    let Op::Scan { axis, elements, init, reverse, .. } = &program.node(scan).op else { return None };
    match program.node(*elements.first()?).op {
        Op::Shift { axis: own, by, value, fill } if own == *axis && by == if *reverse { -1 } else { 1 } => {
            (init.is_empty() || is(program, fill, 1.0)).then_some(value)
        }
        _ => None,
    }
}

/// The scans in a direction, if all of them are one scan, inclusive, exclusive or both, of elements that are point values.
fn forward(program: &Program, time: Axis, backward: bool) -> Option<BTreeSet<Value>> {
    let (mut found, mut same) = (BTreeSet::new(), None);
    for (i, node) in program.nodes.iter().enumerate() {
        let Op::Scan { axis, operator, elements, init, reverse, .. } = &node.op else { continue };
        if (*axis, *reverse) != (time, backward) {
            continue;
        }
        let own = (*operator, elements, init);
        if *same.get_or_insert(own) != own || !elements.iter().chain(init).all(|v| is_point(program, *v)) {
            return None;
        }
        found.insert(Value(i as u32));
    }
    (!found.is_empty()).then_some(found)
}

/// A field of a tuple that is used.
fn field(program: &Program, tuple: Value) -> Option<Value> {
    let own = |node: &oplus_dsl::ir::Node| matches!(node.op, Op::Field(t, _) if t == tuple);
    program.nodes.iter().position(own).map(|i| Value(i as u32))
}

/// Whether an operator is (l.a·r.a, r.a·l.b + r.b).
pub(super) fn is_affine(operator: &Operator) -> bool {
    let op = |v: Value| &operator.body[v.0 as usize].op;
    let product = |v: Value, of: [u32; 2]| match op(v) {
        Op::Binary(Binary::Mul, x, y) => {
            let inputs = [op(*x), op(*y)];
            inputs == [&Op::Input(of[0]), &Op::Input(of[1])] || inputs == [&Op::Input(of[1]), &Op::Input(of[0])]
        }
        _ => false,
    };
    let [a, b] = operator.combine[..] else { return false };
    let sum = match op(b) {
        Op::Binary(Binary::Add, x, y) => {
            let ends = |v: &Value| *op(*v) == Op::Input(3);
            (product(*x, [1, 2]) && ends(y)) || (product(*y, [1, 2]) && ends(x))
        }
        _ => false,
    };
    product(a, [0, 2]) && sum
}

/// Whether a value is a map of parameters at the point.
fn is_point(program: &Program, value: Value) -> bool {
    all(program, value, |v| match &program.node(v).op {
        Op::Param(_) | Op::Const(_) | Op::Index(_) | Op::Size(_) => Some(true),
        op if op.is_map() => None,
        _ => Some(false),
    })
}

/// Whether a value is 0 at every point.
pub(super) fn is_zero(program: &Program, value: Value) -> bool {
    let source = follow(value, |v| match program.node(v).op {
        Op::Convert(_, inner) | Op::Broadcast(inner) => Some(inner),
        _ => None,
    });
    matches!(program.node(source).op, Op::Const(literal) if literal.as_f64() == 0.0)
}

/// A value before it was broadcast.
pub(super) fn narrow(program: &Program, value: Value) -> Value {
    follow(value, |v| if let Op::Broadcast(inner) = program.node(v).op { Some(inner) } else { None })
}

/// A decay, and the values that remain of it as the conditions under which it is 0 are taken away one by one.
pub(super) fn bare_decays(program: &Program, decay: Value) -> Vec<Value> {
    let mut all = vec![narrow(program, decay)];
    while let Op::Select(_, zero, own) = program.node(all[all.len() - 1]).op
        && is_zero(program, zero)
    {
        all.push(own);
    }
    all
}

/// The addends of a value that is a sum over two axes, in either order.
pub(crate) fn total(program: &Program, value: Value, over: [Axis; 2]) -> Option<Value> {
    let Sum { axis: outer, element: inner, .. } = Sum::of_field(program, value)?;
    let Sum { axis, element, .. } = Sum::of_field(program, inner)?;
    ([outer, axis] == over || [axis, outer] == over).then_some(element)
}

/// The addends of a value that is a sum over one axis.
pub(crate) fn sum_over(program: &Program, value: Value, over: Axis) -> Option<Value> {
    Sum::of_field(program, value).filter(|sum| sum.axis == over).map(|sum| sum.element)
}
