//! `combine` on numbers with error bounds.

use crate::elem::{Elem, Ty};
use crate::ir::{Binary, Literal, Node, Op, Operator, Unary, Value};
use crate::scalar;

use super::approx::Approx;

/// A scalar of a state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Number {
    /// Its value as computed.
    pub(super) literal: Literal,
    /// Of a float, the bound of its error.
    error: f64,
    /// Whether it hangs on a comparison that rounding may have turned.
    turned: bool,
    /// The node that computed it, where that is known: a maximum is one of its operands, and equal to it for sure.
    origin: Option<usize>,
}

impl From<Literal> for Number {
    fn from(literal: Literal) -> Number {
        Number { literal, error: 0.0, turned: false, origin: None }
    }
}

impl From<Approx> for Number {
    fn from(Approx { x, error }: Approx) -> Number {
        Number { literal: Literal::Float(x), error, turned: false, origin: None }
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

    /// The number, hanging on the others' comparisons, too.
    fn after(self, others: &[Number]) -> Number {
        Number { turned: self.turned || others.iter().any(|other| other.turned), ..self }
    }
}

/// l ⊕ r.
pub(super) fn combine(operator: &Operator, l: &[Number], r: &[Number]) -> Vec<Number> {
    let inputs = [l, r].concat();
    let mut values: Vec<Number> = Vec::with_capacity(operator.body.len());
    for (i, node) in operator.body.iter().enumerate() {
        let number = match node.op {
            Op::Input(k) => Number { origin: None, ..inputs[k as usize] },
            _ => map(operator, node, |v| values[v.0 as usize]),
        };
        values.push(Number { origin: number.origin.or(Some(i)), ..number });
    }
    operator.combine.iter().map(|v| values[v.0 as usize]).collect()
}

fn map(operator: &Operator, node: &Node, value: impl Fn(Value) -> Number) -> Number {
    let ty = |v: Value| operator.body[v.0 as usize].ty;
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
        None => scalar::unary(op, ty, a.literal).into(),
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
        _ => plain(),
    }
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
        _ => converted.into(),
    }
}
