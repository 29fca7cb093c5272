//! Literals: arithmetic before they have a type, and the type they take.
//!
//! Arithmetic between literals is exact where it can be: integers stay integers while the result is one, `1 / 3` is
//! the float, and a function of a literal is a float. The type comes from the operand that a literal meets. In an
//! integer type `inf` is the largest value and `-inf` the smallest.

use oplus_dsl::ir::{Binary, Literal, Unary, Value};
use oplus_dsl::{Elem, Ty, scalar};

use super::{Lower, Term, explain};
use crate::extent::Extent;
use crate::mistake::Mistake;

impl Lower<'_> {
    /// One value of a term; a literal takes `ty`.
    pub(super) fn typed(&mut self, term: Term, ty: Ty, extent: Extent) -> Option<Value> {
        match term.unwrapped() {
            Term::Literal(literal) => self.constant(literal, ty, extent),
            term => self.value(term, extent),
        }
    }

    /// One value of a term; a literal takes the type of lone literals.
    pub(super) fn value(&mut self, term: Term, extent: Extent) -> Option<Value> {
        match term.unwrapped() {
            Term::Value(value) => Some(value),
            Term::Literal(Literal::Bool(value)) => self.constant(Literal::Bool(value), Ty::Bool, extent),
            Term::Literal(literal) => self.constant(literal, self.lone, extent),
            Term::Wrong => None,
            Term::Tuple(parts) => {
                let count = crate::suggest::counted(parts.len(), "value");
                self.report(extent, Mistake::TupleAsValue { count });
                None
            }
            Term::State(state) => {
                let fields = crate::suggest::listed(state.names());
                let payload = state.names().last().unwrap_or_default().to_owned();
                self.report(extent, Mistake::StateAsValue { fields, payload });
                None
            }
        }
    }

    /// A constant of a type.
    pub(super) fn constant(&mut self, literal: Literal, ty: Ty, extent: Extent) -> Option<Value> {
        let Some(literal) = fit(literal, ty) else {
            self.report(extent, Mistake::LiteralType { literal: text(literal), ty: explain::in_words(ty) });
            return None;
        };
        let built = self.builder.constant(ty, literal);
        self.built(built, extent)
    }
}

/// The literal in a type; `None` if the type does not hold it.
pub(super) fn fit(literal: Literal, ty: Ty) -> Option<Literal> {
    match literal {
        Literal::Float(x) if x.is_infinite() && ty.is_int() => Some(scalar::convert(Ty::F64, ty.elem()?, literal)),
        Literal::Int(i) if ty.is_float() => Some(Literal::Float(i as f64)),
        Literal::Float(_) => ty.is_float().then_some(literal),
        Literal::Int(i) if ty == Ty::U64 => u64::try_from(i).ok().map(|_| literal),
        Literal::Int(i) => (ty.is_int() && scalar::wrap(ty, i128::from(i)) == i).then_some(literal),
        Literal::Bool(_) => (ty == Ty::Bool).then_some(literal),
    }
}

/// A literal as the user writes it.
pub(super) fn text(literal: Literal) -> String {
    match literal {
        Literal::Float(x) => format!("{x:?}"),
        Literal::Int(i) => i.to_string(),
        Literal::Bool(b) => b.to_string(),
    }
}

/// A function of a literal.
pub(super) fn unary(op: Unary, x: Literal) -> Option<Literal> {
    match (op, x) {
        (Unary::Not, Literal::Bool(_)) => Some(scalar::unary(op, Ty::Bool, x)),
        (Unary::Not, Literal::Int(_)) => Some(scalar::unary(op, Ty::I64, x)),
        (Unary::Not, _) | (_, Literal::Bool(_)) => None,
        (Unary::Neg | Unary::Abs | Unary::Sign, Literal::Int(_)) => Some(scalar::unary(op, Ty::I64, x)),
        _ => Some(scalar::unary(op, Ty::F64, Literal::Float(x.as_f64()))),
    }
}

/// A function of two literals.
pub(super) fn binary(op: Binary, l: Literal, r: Literal) -> Option<Literal> {
    let takes_bits = matches!(op, Binary::And | Binary::Or | Binary::Xor | Binary::Shl | Binary::Shr);
    match (l, r) {
        (Literal::Bool(_), Literal::Bool(_)) => {
            let logical = matches!(op, Binary::And | Binary::Or | Binary::Xor | Binary::Eq | Binary::Ne);
            logical.then(|| scalar::binary(op, Ty::Bool, l, r))
        }
        (Literal::Bool(_), _) | (_, Literal::Bool(_)) => None,
        (Literal::Int(a), Literal::Int(b)) if op.is_comparison() || takes_bits || is_exact(op, a, b) => {
            Some(scalar::binary(op, Ty::I64, l, r))
        }
        _ if takes_bits => None,
        _ => Some(scalar::binary(op, Ty::F64, Literal::Float(l.as_f64()), Literal::Float(r.as_f64()))),
    }
}

/// Whether integers give the integer that the equation means.
fn is_exact(op: Binary, a: i64, b: i64) -> bool {
    match op {
        Binary::Add => a.checked_add(b).is_some(),
        Binary::Sub => a.checked_sub(b).is_some(),
        Binary::Mul => a.checked_mul(b).is_some(),
        Binary::Div => a.checked_rem(b) == Some(0),
        _ => true,
    }
}

/// A literal converted to an element type.
pub(super) fn cast(literal: Literal, elem: Elem) -> Literal {
    let from = match literal {
        Literal::Float(_) => Ty::F64,
        Literal::Int(_) => Ty::I64,
        Literal::Bool(_) => Ty::Bool,
    };
    scalar::convert(from, elem, literal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_between_literals_is_exact() {
        let (one, three, six) = (Literal::Int(1), Literal::Int(3), Literal::Int(6));
        assert_eq!(binary(Binary::Div, six, three), Some(Literal::Int(2)));
        assert_eq!(binary(Binary::Div, one, three), Some(Literal::Float(1.0 / 3.0)));
        assert_eq!(binary(Binary::Mul, Literal::Int(i64::MAX), three), Some(Literal::Float(i64::MAX as f64 * 3.0)));
        assert_eq!(binary(Binary::Lt, one, three), Some(Literal::Bool(true)));
        assert_eq!(binary(Binary::And, one, Literal::Float(1.0)), None);
        assert_eq!(unary(Unary::Neg, six), Some(Literal::Int(-6)));
        assert_eq!(unary(Unary::Exp, Literal::Int(0)), Some(Literal::Float(1.0)));
    }

    #[test]
    fn infinity_is_the_limit_of_an_integer_type() {
        assert_eq!(fit(Literal::Float(f64::NEG_INFINITY), Ty::I32), Some(Literal::Int(i64::from(i32::MIN))));
        assert_eq!(fit(Literal::Float(f64::INFINITY), Ty::U64), Some(Literal::Int(-1)));
        assert_eq!(fit(Literal::Float(f64::NEG_INFINITY), Ty::U64), Some(Literal::Int(0)));
    }

    #[test]
    fn literals_fit_the_types_that_hold_them() {
        assert_eq!(fit(Literal::Int(2), Ty::Call), Some(Literal::Float(2.0)));
        assert_eq!(fit(Literal::Float(0.5), Ty::I64), None);
        assert_eq!(fit(Literal::Int(-1), Ty::U32), None);
        assert_eq!(fit(Literal::Int(-1), Ty::U64), None);
        assert_eq!(fit(Literal::Int(1), Ty::Bool), None);
    }
}
