//! Bodies of operators on numbers with error bounds.

use crate::elem::{Elem, Ty};
use crate::ir::{Binary, Literal, Node, Op, Operator, Unary, Value};
use crate::scalar;

use super::approx::Approx;

/// A scalar of a state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Number {
    /// Its value as computed.
    pub(super) literal: Literal,
    /// The bound of the error, if it is a float.
    error: f64,
    /// Whether it hangs on a comparison that rounding may have turned.
    turned: bool,
    /// Whether an integer on its way exceeded the range of its type.
    pub(super) wrapped: bool,
    /// The node that computed it, where that is known: a maximum is one of its operands, and equal to it for sure.
    origin: Option<usize>,
}

impl From<Literal> for Number {
    fn from(literal: Literal) -> Number {
        Number { literal, error: 0.0, turned: false, wrapped: false, origin: None }
    }
}

impl From<Approx> for Number {
    fn from(Approx { x, error }: Approx) -> Number {
        Number { error, ..Literal::Float(x).into() }
    }
}

impl Number {
    /// The number as a float, if it is one.
    pub(super) fn approx(self) -> Option<Approx> {
        if let Literal::Float(x) = self.literal { Some(Approx { x, error: self.error }) } else { None }
    }

    /// Whether the two are the same number; `None` when that cannot be told.
    pub(super) fn agrees(self, other: Number) -> Option<bool> {
        let agree = match (self.approx(), other.approx()) {
            (Some(a), Some(b)) if a.is_known() && b.is_known() => a.agrees(b),
            (Some(_), _) | (_, Some(_)) => return None,
            _ => self.literal == other.literal,
        };
        (agree || !(self.turned || other.turned)).then_some(agree)
    }

    /// Whether a truth value is true; `None` when rounding may have turned it.
    pub(super) fn truth(self) -> Option<bool> {
        (!self.turned).then_some(self.literal == Literal::Bool(true))
    }

    /// The number, with what is known of the others that it depends on.
    fn after(self, others: &[Number]) -> Number {
        let turned = self.turned || others.iter().any(|other| other.turned);
        let wrapped = self.wrapped || others.iter().any(|other| other.wrapped);
        Number { turned, wrapped, ..self }
    }
}

/// l ⊕ r.
pub(super) fn combine(operator: &Operator, l: &[Number], r: &[Number]) -> Vec<Number> {
    let values = evaluate(&operator.body, &[l, r].concat());
    operator.combine.iter().map(|v| values[v.0 as usize]).collect()
}

/// The values of all nodes of a body; `Input(k)` is the input of number k.
pub(super) fn evaluate(body: &[Node], inputs: &[Number]) -> Vec<Number> {
    let mut values: Vec<Number> = Vec::with_capacity(body.len());
    for (i, node) in body.iter().enumerate() {
        let number = match node.op {
            Op::Input(k) => Number { origin: None, ..inputs[k as usize] },
            _ => map(body, node, |v| values[v.0 as usize]),
        };
        values.push(Number { origin: number.origin.or(Some(i)), ..number });
    }
    values
}

fn map(body: &[Node], node: &Node, value: impl Fn(Value) -> Number) -> Number {
    let ty = |v: Value| body[v.0 as usize].ty;
    match node.op {
        Op::Const(literal) => literal.into(),
        Op::Unary(op, a) => unary(op, ty(a), value(a)).after(&[value(a)]),
        Op::Binary(op, a, b) => binary(op, ty(a), value(a), value(b)).after(&[value(a), value(b)]),
        Op::Select(c, a, b) => value(if value(c).literal == Literal::Bool(true) { a } else { b }).after(&[value(c)]),
        Op::Convert(elem, a) => convert(ty(a), elem, value(a)).after(&[value(a)]),
        _ => Literal::zero(node.ty).into(),
    }
}

fn unary(op: Unary, ty: Ty, a: Number) -> Number {
    match a.approx() {
        Some(approx) => Approx::unary(op, approx).into(),
        None => {
            let wrapped = match (op, a.literal) {
                (Unary::Neg, Literal::Int(x)) => exceeds(ty, -scalar::widen(ty, x)),
                (Unary::Abs, Literal::Int(x)) => exceeds(ty, scalar::widen(ty, x).abs()),
                _ => false,
            };
            Number { wrapped, ..scalar::unary(op, ty, a.literal).into() }
        }
    }
}

fn binary(op: Binary, ty: Ty, l: Number, r: Number) -> Number {
    let plain = || Number::from(scalar::binary(op, ty, l.literal, r.literal));
    match (l.approx(), r.approx()) {
        (Some(_), Some(_)) if l.origin == r.origin && (op.is_comparison() || op == Binary::Sub) => plain(),
        (Some(a), Some(b)) if matches!(op, Binary::Max | Binary::Min) => {
            let result = Approx::binary(op, a, b);
            Number { origin: if result.x == a.x { l.origin } else { r.origin }, ..result.into() }
        }
        (Some(l), Some(r)) if op.is_comparison() => {
            let difference = Approx { x: l.x, error: l.error + r.error };
            Number { turned: difference.may_reach(r.x), ..plain() }
        }
        (Some(l), Some(r)) => Approx::binary(op, l, r).into(),
        _ => Number { wrapped: wraps(op, ty, l.literal, r.literal), ..plain() },
    }
}

/// Whether the exact result of integers exceeds the range of their type.
fn wraps(op: Binary, ty: Ty, l: Literal, r: Literal) -> bool {
    let (Literal::Int(l), Literal::Int(r)) = (l, r) else { return false };
    let (l, r) = (scalar::widen(ty, l), scalar::widen(ty, r));
    let exact = match op {
        Binary::Add => l.checked_add(r),
        Binary::Sub => l.checked_sub(r),
        Binary::Mul => l.checked_mul(r),
        Binary::Div => Some(l.checked_div(r).unwrap_or(0)),
        _ => return false,
    };
    exact.is_none_or(|x| exceeds(ty, x))
}

/// Whether an integer is outside the range of a type.
fn exceeds(ty: Ty, exact: i128) -> bool {
    scalar::widen(ty, scalar::wrap(ty, exact)) != exact
}

fn convert(from: Ty, elem: Elem, a: Number) -> Number {
    let to = if elem.is_float() { Elem::F64 } else { elem };
    let at = |literal: Literal| scalar::convert(from, to, literal);
    let converted = at(a.literal);
    match (a.approx(), a.literal, converted) {
        (Some(_), _, Literal::Float(_)) => a,
        (Some(Approx { x, error }), ..) => {
            let same = [x - error, x + error].into_iter().all(|x| at(Literal::Float(x)) == converted);
            Number { turned: error != 0.0 && !same, ..converted.into() }
        }
        (None, Literal::Int(i), Literal::Float(x)) => {
            let error = (scalar::widen(from, i) - x as i128).unsigned_abs() as f64;
            Approx { x, error }.into()
        }
        (None, Literal::Int(i), Literal::Int(j)) => {
            let wrapped = scalar::widen(from, i) != scalar::widen(elem.value(), j);
            Number { wrapped, ..converted.into() }
        }
        _ => converted.into(),
    }
}
