//! Recurrences whose decay is the same at all times, or that forget nothing, in the form of those whose decay varies.
//!
//! The cotangents of h\[t\] = d\[t\]·h[t−1] + e\[t\] are λ\[t\] = g\[t\] + d[t+1]·λ[t+1], with d\[T\] = 1 and λ\[T\] = z, the
//! cotangent of the state at the end. Where d lacks the time the adjoint has no shift, and z in g[T−1]; where d is 1 both
//! recurrences are sums. [`varying`] gives them that form again: who looks for two of them in opposite directions need not
//! know of these cases. The cotangent of a decay that lacks the time is its product with a sum; [`inward`] makes it the sum of
//! the products, which are there for decays that vary.

use oplus_dsl::Ty;
use oplus_dsl::build::Builder;
use oplus_dsl::ir::{Axis, AxisSet, Binary, Field, Literal, Node, Op, Operator, OperatorId, Program, Value};
use oplus_dsl::rewrite::{push, rewrite};
use oplus_dsl::typing::TypeError;

use super::opposite::{is_affine, is_zero};
use super::reduction::is_sum;

/// The program with such recurrences in that form, along axes that are scanned both ways.
pub(super) fn varying(program: &Program) -> Result<Program, TypeError> {
    let affine = OperatorId(program.operators.len() as u32);
    let mut extended = program.clone();
    extended.operators.push(affine_operator()?);
    let of = |tuple: Value| Role::of(program, tuple);
    Ok(rewrite(&extended, |changed, value, node| match (&program.node(value).op, &mut node.op) {
        (Op::Scan { .. }, op) => {
            if let Some(role) = of(value) {
                role.change(changed, affine, op);
            }
        }
        (Op::Field(tuple, _), Op::Field(_, k)) if of(*tuple).is_some_and(|role| role.is_sum) => *k = 1,
        (
            Op::First { value: old, .. } | Op::Last { value: old, .. },
            Op::First { value, .. } | Op::Last { value, .. },
        ) => {
            let Op::Field(tuple, _) = program.node(*old).op else { return };
            if of(tuple).is_some_and(|role| role.is_sum && role.is_back) {
                let (decay, axes) = (one(changed), changed.node(*value).axes);
                *value = push(changed, Node { op: Op::Binary(Binary::Mul, decay, *value), ty: Ty::F32, axes });
            }
        }
        _ => {}
    }))
}

/// l.a·r.a, r.a·l.b + r.b.
fn affine_operator() -> Result<Operator, TypeError> {
    let field = |name: &str| Field { name: name.to_owned(), ty: Ty::F32 };
    let mut body = Builder::body(vec![field("a"), field("b")]);
    let (l, r) = body.inputs()?;
    let a = body.binary(Binary::Mul, l[0], r[0])?;
    let product = body.binary(Binary::Mul, r[0], l[1])?;
    let b = body.binary(Binary::Add, product, r[1])?;
    body.finish_operator("Affine", vec![Literal::Float(1.0), Literal::Float(0.0)], &[a, b], None)
}

/// A scan that changes.
#[derive(Clone, Copy)]
struct Role {
    /// It is a sum; otherwise it has a decay that lacks its axis.
    is_sum: bool,
    /// It goes against the first scan along its axis.
    is_back: bool,
}

impl Role {
    /// The role of a tuple in `f32`.
    fn of(program: &Program, tuple: Value) -> Option<Role> {
        let Op::Scan { axis, operator, elements, init, reverse, exclusive } = &program.node(tuple).op else {
            return None;
        };
        let mut along = program.nodes.iter().filter_map(|node| match &node.op {
            Op::Scan { axis: own, reverse, .. } if own == axis => Some(*reverse),
            _ => None,
        });
        let first = along.next()?;
        let (is_both, is_back) = (along.any(|reverse| reverse != first), *reverse != first);
        let operator = program.operator(*operator);
        if !is_both || operator.fields[0].ty != Ty::F32 {
            return None;
        }
        if is_sum(operator) {
            return Some(Role { is_sum: true, is_back });
        }
        let is_time_invariant = is_affine(operator) && !program.node(elements[0]).axes.contains(*axis);
        (is_time_invariant && is_back && !exclusive && init.is_empty()).then_some(Role { is_sum: false, is_back })
    }

    /// Gives a scan, whose operands are in their places, that form.
    fn change(self, program: &mut Program, affine: OperatorId, op: &mut Op) {
        let Op::Scan { axis, operator, elements, init, reverse, .. } = op else { return };
        let one = one(program);
        let [mut decay, mut added] = if self.is_sum { [one, elements[0]] } else { [elements[0], elements[1]] };
        let mut end = init.first().copied();
        if self.is_back {
            decay = one_later(program, decay, *axis, *reverse, one);
        }
        if let (false, Some((source, last))) = (self.is_sum, apart(program, added, *axis, *reverse)) {
            (added, end) = (source, Some(last));
        }
        (*operator, *elements) = (affine, vec![decay, added]);
        *init = end.map_or(vec![], |end| vec![one, end]);
    }
}

/// The constant 1.
fn one(program: &mut Program) -> Value {
    let node = Node { op: Op::Const(Literal::Float(1.0)), ty: Ty::F32, axes: AxisSet::EMPTY };
    let known = program.nodes.iter().position(|own| *own == node);
    known.map_or_else(|| push(program, node), |at| Value(at as u32))
}

/// A decay that lacks the axis, one element earlier in the direction of a scan.
fn one_later(program: &mut Program, decay: Value, axis: Axis, reverse: bool, fill: Value) -> Value {
    let axes = program.node(decay).axes.with(axis);
    let value = push(program, Node { op: Op::Broadcast(decay), ty: Ty::F32, axes });
    let by = if reverse { -1 } else { 1 };
    push(program, Node { op: Op::Shift { axis, by, value, fill }, ty: Ty::F32, axes })
}

/// The addend of every element, and that of the first one in the direction of a scan alone.
fn apart(program: &Program, added: Value, axis: Axis, reverse: bool) -> Option<(Value, Value)> {
    let Op::Binary(Binary::Add, x, y) = program.node(added).op else { return None };
    let op = |v: Value| &program.node(v).op;
    let is_integer = |v: Value, wanted: i64| matches!(op(v), Op::Const(Literal::Int(n)) if *n == wanted);
    let is_first = |v: Value| match *op(v) {
        Op::Binary(Binary::Sub, size, one) => reverse && *op(size) == Op::Size(axis) && is_integer(one, 1),
        _ => !reverse && is_integer(v, 0),
    };
    let alone = |v: Value| match *op(v) {
        Op::Select(condition, own, zero) if is_zero(program, zero) => match *op(condition) {
            Op::Binary(Binary::Eq, i, first) if *op(i) == Op::Index(axis) && is_first(first) => Some(own),
            _ => None,
        },
        _ => None,
    };
    let found = alone(y).map(|own| (x, own)).or(alone(x).map(|own| (y, own)));
    found.filter(|(_, own)| !program.node(*own).axes.contains(axis))
}

/// The program with the factors of sums over these two axes and others, which lack the others, among what those sum. A factor that
/// has the first axis is one of sums over the second and others.
pub(super) fn inward(program: &Program, axes: [Axis; 2]) -> Program {
    rewrite(program, |changed, _, node| {
        let Op::Binary(Binary::Mul, x, y) = node.op else { return };
        for (factor, sum) in [(x, y), (y, x)] {
            let of_channels = changed.node(factor).axes.contains(axes[0]);
            let inner = if of_channels { &axes[1..] } else { &axes };
            if let Some(nest) = Nest::of(changed, sum, inner).filter(|nest| nest.lacks_others(changed, factor)) {
                node.op = Op::Field(nest.summed(changed, factor, inner), 0);
                return;
            }
        }
    })
}

/// A sum over several axes.
struct Nest {
    operator: OperatorId,
    /// The axes beside the inner ones, the last one summed first.
    others: Vec<Axis>,
    /// The value that is summed.
    element: Value,
}

impl Nest {
    /// A sum over these axes and others.
    fn of(program: &Program, sum: Value, inner: &[Axis]) -> Option<Nest> {
        let (mut element, mut axes, mut sums) = (sum, vec![], None);
        while let Op::Field(tuple, 0) = program.node(element).op
            && let Op::Reduce { axis, operator, elements } = &program.node(tuple).op
            && is_sum(program.operator(*operator))
        {
            axes.push(*axis);
            (element, sums) = (elements[0], Some(*operator));
        }
        let is_over_all = inner.iter().all(|axis| axes.contains(axis));
        axes.retain(|axis| !inner.contains(axis));
        sums.filter(|_| is_over_all && !axes.is_empty()).map(|operator| Nest { operator, others: axes, element })
    }

    fn lacks_others(&self, program: &Program, factor: Value) -> bool {
        self.others.iter().all(|axis| !program.node(factor).axes.contains(*axis))
    }

    /// The tuple of the sum over the other axes of the factor times the sum over the inner ones.
    fn summed(&self, program: &mut Program, factor: Value, inner: &[Axis]) -> Value {
        let inside = inner.iter().fold(self.element, |value, axis| {
            let tuple = self.sum(program, value, *axis);
            field(program, tuple)
        });
        let axes = program.node(inside).axes.union(program.node(factor).axes);
        let ty = program.node(inside).ty;
        let mut value = push(program, Node { op: Op::Binary(Binary::Mul, factor, inside), ty, axes });
        let mut tuple = value;
        for axis in self.others.iter().rev() {
            tuple = self.sum(program, value, *axis);
            value = field(program, tuple);
        }
        tuple
    }

    fn sum(&self, program: &mut Program, value: Value, axis: Axis) -> Value {
        let axes = program.node(value).axes.without(axis);
        let op = Op::Reduce { axis, operator: self.operator, elements: vec![value] };
        push(program, Node { op, ty: Ty::Tuple, axes })
    }
}

/// The first field of a tuple.
fn field(program: &mut Program, tuple: Value) -> Value {
    let axes = program.node(tuple).axes;
    let Op::Reduce { operator, .. } = program.node(tuple).op else { return tuple };
    let ty = program.operator(operator).fields[0].ty;
    push(program, Node { op: Op::Field(tuple, 0), ty, axes })
}
