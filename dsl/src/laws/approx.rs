//! Floats with a bound of their rounding error, so that two ways of computing one number can be told from two numbers.

use std::cmp::Ordering;

use crate::ir::{Binary, Unary};
use crate::scalar;

/// A float computed from exact inputs: the true result is within `error` (to first order). An infinite error means
/// that nothing is known, as after an overflow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Approx {
    pub(super) x: f64,
    pub(super) error: f64,
}

/// Relative error of an elementary function: a few units in the last place.
const FUNCTION: f64 = 4.0 * f64::EPSILON;

impl Approx {
    pub(super) fn exact(x: f64) -> Approx {
        Approx { x, error: 0.0 }
    }

    /// Whether the error may hide which side of a limit the number lies on.
    pub(super) fn may_reach(self, limit: f64) -> bool {
        let distance = (self.x - limit).abs();
        self.error != 0.0 && distance.partial_cmp(&self.error) != Some(Ordering::Greater)
    }

    /// Whether the two can be the same number.
    pub(super) fn agrees(self, other: Approx) -> bool {
        self.x == other.x || (self.x - other.x).abs() <= 8.0 * (self.error + other.error)
    }

    /// Whether a comparison with another number can be trusted.
    pub(super) fn is_known(self) -> bool {
        !self.x.is_nan() && self.error.is_finite()
    }

    pub(super) fn unary(op: Unary, a: Approx) -> Approx {
        let x = scalar::float_unary(op, a.x);
        let rounding = if x.is_finite() { FUNCTION * x.abs() + f64::MIN_POSITIVE } else { 0.0 };
        let e = a.error;
        let error = match op {
            Unary::Neg | Unary::Abs | Unary::Relu | Unary::Not => e,
            Unary::Sign if a.may_reach(0.0) => f64::INFINITY,
            Unary::Floor if (a.x - e).floor() != (a.x + e).floor() => f64::INFINITY,
            Unary::Sign | Unary::Floor => 0.0,
            Unary::Exp => rounding + scaled(x, e.exp_m1()),
            Unary::Exp2 => rounding + scaled(x, (e * std::f64::consts::LN_2).exp_m1()),
            Unary::Ln => rounding + relative(e, a.x),
            Unary::Log1p => rounding + relative(e, 1.0 + a.x),
            Unary::Sqrt => rounding + scaled(x, relative(e, a.x)),
            Unary::Rsqrt | Unary::Recip => rounding + scaled(x, relative(e, a.x)),
            Unary::Tanh | Unary::Sigmoid | Unary::Softplus | Unary::Sin | Unary::Cos => rounding + e,
            Unary::Silu => rounding + 1.1 * e,
            Unary::Powi(n) => f64::from(n.unsigned_abs()) * (rounding + scaled(x, relative(e, a.x))),
        };
        Approx { x, error: overflow(x, &[a.x], error) }
    }

    /// l op r for operations that give a float.
    pub(super) fn binary(op: Binary, l: Approx, r: Approx) -> Approx {
        let x = scalar::float_binary(op, l.x, r.x);
        let error = match op {
            Binary::Add => l.error + r.error + finite(sum_rounding(l.x, r.x)),
            Binary::Sub => l.error + r.error + finite(sum_rounding(l.x, -r.x)),
            Binary::Mul => {
                let lost = finite(l.x.mul_add(r.x, -x)) + underflow(x, &[l.x, r.x]);
                scaled(l.x, r.error) + scaled(r.x, l.error) + l.error * r.error + lost
            }
            Binary::Div => {
                let denominator = relative(r.error, r.x);
                let lost = finite(x.mul_add(r.x, -l.x) / r.x) + underflow(x, &[l.x]);
                scaled(x, denominator) + scaled(1.0 / r.x, l.error) + lost
            }
            Binary::Rem if l.error + r.error > 0.0 => f64::INFINITY,
            Binary::Max | Binary::Min if (l.x - r.x).abs() > l.error + r.error => {
                if x == l.x {
                    l.error
                } else {
                    r.error
                }
            }
            Binary::Max | Binary::Min => l.error.max(r.error),
            _ => 0.0,
        };
        Approx { x, error: overflow(x, &[l.x, r.x], error) }
    }
}

/// |w|·e, and 0 for no error even when w is infinite.
fn scaled(w: f64, e: f64) -> f64 {
    if e == 0.0 { 0.0 } else { w.abs() * e }
}

/// The error e relative to x; unknown when x may be 0.
fn relative(e: f64, x: f64) -> f64 {
    match () {
        () if e == 0.0 => 0.0,
        () if e < 0.5 * x.abs() => 2.0 * e / x.abs(),
        () => f64::INFINITY,
    }
}

/// The exact rounding error of a sum.
fn sum_rounding(a: f64, b: f64) -> f64 {
    let s = a + b;
    let b_part = s - a;
    (a - (s - b_part)) + (b - b_part)
}

/// The error that a product or a quotient may have where it is so small that its digits are cut off.
fn underflow(x: f64, factors: &[f64]) -> f64 {
    let small = x.abs() < f64::MIN_POSITIVE / f64::EPSILON && factors.iter().all(|factor| *factor != 0.0);
    if small { f64::MIN_POSITIVE } else { 0.0 }
}

/// A rounding error where it is a number.
fn finite(error: f64) -> f64 {
    if error.is_finite() { error.abs() } else { 0.0 }
}

/// The error, unknown where finite operands gave an infinite or undefined result.
fn overflow(x: f64, operands: &[f64], error: f64) -> f64 {
    let overflowed = !x.is_finite() && operands.iter().all(|operand| operand.is_finite());
    if overflowed || error.is_nan() { f64::INFINITY } else { error }
}
