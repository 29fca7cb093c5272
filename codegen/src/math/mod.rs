//! Functions as tile arithmetic, the same for the simulator and for PTX.
//!
//! Bounds of the relative error in units of ε = 2⁻²³ (`f32`) or 2⁻⁵² (`f64`), for results that are normal numbers;
//! results below the smallest normal number may be flushed to zero. On a GPU the `f32` functions use the
//! special-function unit ([`Expr::Exp2Fast`](crate::tile::Expr), [`Expr::RecipFast`](crate::tile::Expr)), whose own
//! error is included; the simulator rounds these two correctly and so lies within the same bounds.
//!
//! | function | `f32` | `f64` |
//! |---|---|---|
//! | exp | 3 | 1 |
//! | exp2 | 2 | 1 |
//! | ln, log1p | 1.5 | 1.5 |
//! | tanh | 3 | 2 |
//! | sigmoid | 5 | 2 |
//! | softplus | 4 | 2 |
//! | silu | 6, or 2⁻¹¹⁹ absolute | 3 |
//! | sin, cos, \|x\| ≤ 2⁴⁵ | 1.5 | 1.5 |
//! | sqrt, recip | 0.5 | 0.5 |
//! | rsqrt | 1.5 | 1.5 |
//! | remainder | exact | exact |
//!
//! Beyond 2⁴⁵ sine and cosine lose their argument and only stay in −1 … 1. NaN gives NaN everywhere; ±∞ and ±0 give
//! the limits of the exact function.

mod angle;
mod double;
mod logarithm;
mod remainder;
mod single;
mod tanh;
#[cfg(test)]
mod tests;

use oplus_dsl::Ty;
use oplus_dsl::ir::{Binary, Literal, Unary};

use crate::build::Builder;
use crate::tile::Operand;

/// Whether every back end has the function as one operation with one defined result. The others are expanded.
pub fn is_native(op: Unary) -> bool {
    use Unary::{Abs, Floor, Neg, Not, Recip, Relu, Sign, Sqrt};
    matches!(op, Neg | Not | Abs | Sign | Sqrt | Recip | Relu | Floor)
}

/// A number of a floating-point type.
fn number(ty: Ty, x: f64) -> Operand {
    Operand::Const(ty, Literal::Float(x))
}

/// c[0] + c[1]·x + c[2]·x² + …, by Horner's rule with fused multiply-adds.
fn polynomial(b: &mut Builder, x: Operand, coefficients: &[f64]) -> Operand {
    let ty = b.ty(x);
    let mut terms = coefficients.iter().rev().map(|c| number(ty, *c));
    let highest = terms.next().unwrap_or(number(ty, 0.0));
    terms.fold(highest, |sum, c| b.fma(sum, x, c))
}

/// Appends the statements of a function of one value; gives the result, of the type of `x`.
///
/// Native functions are one statement. The others need `f32` or `f64`: integer powers are products of squares in the
/// order of [`oplus_dsl::scalar`], transcendental functions are made here with the bounds of the
/// [module documentation](self).
pub fn expand(b: &mut Builder, op: Unary, x: Operand) -> Operand {
    match (op, b.ty(x)) {
        (Unary::Rsqrt, _) => {
            let root = b.unary(Unary::Sqrt, x);
            b.unary(Unary::Recip, root)
        }
        (Unary::Powi(n), ty) => power(b, ty, x, n),
        (_, Ty::F32) => single(b, op, x),
        (_, Ty::F64) => double(b, op, x),
        _ => b.unary(op, x),
    }
}

/// Appends the statements of a function of two values of one type; gives the result.
///
/// All are native but the remainder of floats, a loop of some ten statements for every 20 (`f32`) or 49 (`f64`) bits of
/// the quotient.
pub fn expand_binary(b: &mut Builder, op: Binary, x: Operand, y: Operand) -> Operand {
    match op {
        Binary::Rem if b.ty(x).is_float() => remainder::remainder(b, x, y),
        _ => b.binary(op, x, y),
    }
}

fn single(b: &mut Builder, op: Unary, x: Operand) -> Operand {
    match op {
        Unary::Exp => single::exp(b, x),
        Unary::Exp2 => single::exp2(b, x),
        Unary::Ln => single::ln(b, x),
        Unary::Log1p => single::log1p(b, x),
        Unary::Tanh => single::tanh(b, x),
        Unary::Sigmoid => single::sigmoid(b, x),
        Unary::Softplus => single::softplus(b, x),
        Unary::Silu => single::silu(b, x),
        Unary::Sin => angle::sin(b, x),
        Unary::Cos => angle::cos(b, x),
        _ => b.unary(op, x),
    }
}

fn double(b: &mut Builder, op: Unary, x: Operand) -> Operand {
    match op {
        Unary::Exp => double::exp(b, x),
        Unary::Exp2 => double::exp2(b, x),
        Unary::Ln => double::ln(b, x),
        Unary::Log1p => double::log1p(b, x),
        Unary::Tanh => double::tanh(b, x),
        Unary::Sigmoid => double::sigmoid(b, x),
        Unary::Softplus => double::softplus(b, x),
        Unary::Silu => double::silu(b, x),
        Unary::Sin => angle::sin(b, x),
        Unary::Cos => angle::cos(b, x),
        _ => b.unary(op, x),
    }
}

/// xⁿ by repeated squaring; negative n takes the reciprocal of the power.
fn power(b: &mut Builder, ty: Ty, x: Operand, n: i32) -> Operand {
    let (mut result, mut square, mut left) = (None, x, n.unsigned_abs());
    while left > 0 {
        if left & 1 == 1 {
            result = Some(result.map_or(square, |r| b.mul(r, square)));
        }
        left >>= 1;
        if left > 0 {
            square = b.mul(square, square);
        }
    }
    let result = result.unwrap_or(number(ty, 1.0));
    if n < 0 { b.unary(Unary::Recip, result) } else { result }
}
