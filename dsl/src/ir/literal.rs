//! Constants: equality bit by bit, and conversions.

use std::hash::{Hash, Hasher};

use crate::elem::Ty;

use super::Literal;

impl PartialEq for Literal {
    /// Bitwise for floats, so that NaN equals itself and −0 differs from 0: a program equals its printed text.
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Literal::Float(a), Literal::Float(b)) => a.to_bits() == b.to_bits(),
            (Literal::Int(a), Literal::Int(b)) => a == b,
            (Literal::Bool(a), Literal::Bool(b)) => a == b,
            _ => false,
        }
    }
}

impl Eq for Literal {}

impl Hash for Literal {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Literal::Float(x) => (0, x.to_bits()).hash(state),
            Literal::Int(i) => (1, i).hash(state),
            Literal::Bool(b) => (2, b).hash(state),
        }
    }
}

impl Literal {
    /// The literal as a float; 0 and 1 for bools.
    pub fn as_f64(self) -> f64 {
        match self {
            Literal::Float(x) => x,
            Literal::Int(i) => i as f64,
            Literal::Bool(b) => f64::from(b),
        }
    }

    /// Zero of a type.
    pub fn zero(ty: Ty) -> Literal {
        match ty {
            Ty::Bool => Literal::Bool(false),
            t if t.is_int() => Literal::Int(0),
            _ => Literal::Float(0.0),
        }
    }
}
