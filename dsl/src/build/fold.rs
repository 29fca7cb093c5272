//! Simplifications that a builder makes at once: of constants, and of operations that give an operand back bit by bit.

use crate::elem::{Elem, Ty};
use crate::ir::{Binary, Literal, Op, Unary, Value};
use crate::scalar;

use super::Builder;

impl Builder {
    /// The constant that a map of constants is, if it has the same bits in every type the node may get.
    pub(super) fn folded(&self, op: &Op) -> Option<Literal> {
        let (wide, narrow) = (self.evaluated(op, Elem::F64)?, self.evaluated(op, Elem::F32)?);
        (wide == narrow).then_some(wide)
    }

    /// The operand that a map is equal to, if it is.
    pub(super) fn identical_operand(&self, op: &Op) -> Option<Value> {
        match *op {
            Op::Select(_, a, b) if a == b && self.covers(a, op) => Some(a),
            Op::Select(c, a, b) => match self.literal(c)? {
                Literal::Bool(taken) => Some(if taken { a } else { b }).filter(|v| self.covers(*v, op)),
                _ => None,
            },
            Op::Unary(Unary::Powi(1), a) => Some(a),
            Op::Unary(op @ (Unary::Neg | Unary::Not), a) => match self.node(a).ok()?.op {
                Op::Unary(inner, x) if inner == op => Some(x),
                _ => None,
            },
            Op::Binary(op, a, b) if self.is_right_neutral(op, b) => Some(a),
            Op::Binary(op, a, b) if self.is_left_neutral(op, a) => Some(b),
            _ => None,
        }
    }

    /// Whether a value has all axes of the operation.
    fn covers(&self, value: Value, op: &Op) -> bool {
        let axes = |v: Value| self.axes_of(v).unwrap_or_default();
        op.operands().into_iter().all(|v| axes(value).contains_all(axes(v)))
    }

    fn is_right_neutral(&self, op: Binary, b: Value) -> bool {
        match self.literal(b) {
            Some(Literal::Float(x)) => match op {
                Binary::Mul | Binary::Div => x == 1.0,
                Binary::Sub => x.to_bits() == 0,
                Binary::Add => x.to_bits() == (-0.0f64).to_bits(),
                _ => false,
            },
            Some(Literal::Int(x)) => match op {
                Binary::Mul | Binary::Div => x == 1,
                Binary::Add | Binary::Sub | Binary::Or | Binary::Xor | Binary::Shl | Binary::Shr => x == 0,
                _ => false,
            },
            Some(Literal::Bool(x)) => match op {
                Binary::And | Binary::Eq => x,
                Binary::Or | Binary::Xor | Binary::Ne => !x,
                _ => false,
            },
            None => false,
        }
    }

    fn is_left_neutral(&self, op: Binary, a: Value) -> bool {
        let commutes =
            matches!(op, Binary::Add | Binary::Mul | Binary::And | Binary::Or | Binary::Xor | Binary::Eq | Binary::Ne);
        commutes && self.is_right_neutral(op, a)
    }

    /// The map of constants for calls of that element type.
    fn evaluated(&self, op: &Op, call: Elem) -> Option<Literal> {
        let resolve = |ty: Ty| if matches!(ty, Ty::Call | Ty::Wide) { call.value() } else { ty };
        let of = resolve(self.ty(*op.operands().first()?).ok()?);
        let literal = |v: Value| {
            let x = self.literal(v)?;
            Some(if let Literal::Float(x) = x { Literal::Float(scalar::round_to(of, x)) } else { x })
        };
        match *op {
            Op::Unary(op, a) => Some(scalar::unary(op, of, literal(a)?)),
            Op::Binary(op, a, b) => Some(scalar::binary(op, of, literal(a)?, literal(b)?)),
            Op::Convert(elem, a) => Some(scalar::convert(of, elem.in_call(call), literal(a)?)),
            _ => None,
        }
    }

    fn literal(&self, value: Value) -> Option<Literal> {
        match self.node(value).ok()?.op {
            Op::Const(literal) => Some(literal),
            _ => None,
        }
    }
}
