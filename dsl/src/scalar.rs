//! The values of maps of scalars: the numeric semantics of the IR, in one place.
//!
//! Integers of every type are held in an `i64` (of `u64` the same 64 bits) and computed in `i128`, then wrapped.
//! Floats of every type are held in an `f64`; [`round`] takes the result of an operation to the type it has.

use crate::elem::{Elem, Ty};
use crate::ir::{Binary, Literal, Unary};

/// op x for an operand of type `ty`, rounded to it (`call` computes in f64).
///
/// An operation that is not defined on the type gives the operand back; [`crate::typing`] refuses such programs.
pub fn unary(op: Unary, ty: Ty, x: Literal) -> Literal {
    match x {
        Literal::Float(x) => Literal::Float(round_to(ty, float_unary(op, x))),
        Literal::Int(x) => Literal::Int(int_unary(op, ty, x)),
        Literal::Bool(x) => Literal::Bool(if op == Unary::Not { !x } else { x }),
    }
}

/// l op r for operands of type `ty`, rounded to it (`call` computes in f64); comparisons give a bool.
///
/// Operands of different kinds give the left one back; [`crate::typing`] refuses such programs.
pub fn binary(op: Binary, ty: Ty, l: Literal, r: Literal) -> Literal {
    match (l, r) {
        (Literal::Float(l), Literal::Float(r)) if op.is_comparison() => Literal::Bool(compare(op, l, r)),
        (Literal::Float(l), Literal::Float(r)) => Literal::Float(round_to(ty, float_binary(op, l, r))),
        (Literal::Int(l), Literal::Int(r)) if op.is_comparison() => {
            Literal::Bool(compare(op, widen(ty, l), widen(ty, r)))
        }
        (Literal::Int(l), Literal::Int(r)) => Literal::Int(int_binary(op, ty, l, r)),
        (Literal::Bool(l), Literal::Bool(r)) => Literal::Bool(bool_binary(op, l, r)),
        _ => l,
    }
}

/// The conversion of a value of type `from` to an element type and back to that element's value type.
pub fn convert(from: Ty, to: Elem, x: Literal) -> Literal {
    let ty = to.value();
    match x {
        Literal::Float(x) if ty.is_float() => Literal::Float(round(to, x)),
        Literal::Float(x) if ty == Ty::Bool => Literal::Bool(x != 0.0),
        Literal::Float(x) => Literal::Int(saturate(ty, x)),
        Literal::Int(x) if ty.is_float() => Literal::Float(int_to_float(from, to, x)),
        Literal::Int(x) if ty == Ty::Bool => Literal::Bool(x != 0),
        Literal::Int(x) => Literal::Int(wrap(ty, widen(from, x))),
        Literal::Bool(x) if ty.is_float() => Literal::Float(f64::from(x)),
        Literal::Bool(x) if ty == Ty::Bool => Literal::Bool(x),
        Literal::Bool(x) => Literal::Int(i64::from(x)),
    }
}

/// The nearest number of an element type, ties to even; `call` and integers keep it.
pub fn round(elem: Elem, x: f64) -> f64 {
    match elem {
        Elem::F32 => f64::from(x as f32),
        Elem::Bf16 => half::bf16::from_f32(x as f32).to_f64(),
        Elem::F16 => half::f16::from_f32(x as f32).to_f64(),
        _ => x,
    }
}

/// The nearest number of a value type, ties to even; `call` keeps it.
pub fn round_to(ty: Ty, x: f64) -> f64 {
    if ty == Ty::F32 { f64::from(x as f32) } else { x }
}

/// op x in f64.
pub fn float_unary(op: Unary, x: f64) -> f64 {
    match op {
        Unary::Neg => -x,
        Unary::Not => x,
        Unary::Abs => x.abs(),
        Unary::Sign if x == 0.0 || x.is_nan() => x,
        Unary::Sign => x.signum(),
        Unary::Exp => x.exp(),
        Unary::Exp2 => x.exp2(),
        Unary::Ln => x.ln(),
        Unary::Log1p => x.ln_1p(),
        Unary::Sqrt => x.sqrt(),
        Unary::Rsqrt => 1.0 / x.sqrt(),
        Unary::Recip => 1.0 / x,
        Unary::Tanh => x.tanh(),
        Unary::Sigmoid => sigmoid(x),
        Unary::Softplus => x.max(0.0) + (-x.abs()).exp().ln_1p(),
        Unary::Silu if x == f64::NEG_INFINITY => -0.0,
        Unary::Silu => x * sigmoid(x),
        Unary::Relu => x.max(0.0),
        Unary::Sin => x.sin(),
        Unary::Cos => x.cos(),
        Unary::Floor => x.floor(),
        Unary::Powi(n) => power(x, n),
    }
}

/// 1/(1 + e⁻ˣ) from the side on which e does not overflow.
fn sigmoid(x: f64) -> f64 {
    let e = (-x.abs()).exp();
    if x >= 0.0 { 1.0 / (1.0 + e) } else { e / (1.0 + e) }
}

/// xⁿ by repeated squaring; negative n takes the reciprocal of the power.
fn power(x: f64, n: i32) -> f64 {
    let (mut result, mut square, mut left) = (1.0, x, n.unsigned_abs());
    while left > 0 {
        if left & 1 == 1 {
            result *= square;
        }
        square *= square;
        left >>= 1;
    }
    if n < 0 { 1.0 / result } else { result }
}

/// l op r in f64, for operations that give a float.
pub fn float_binary(op: Binary, l: f64, r: f64) -> f64 {
    match op {
        Binary::Add => l + r,
        Binary::Sub => l - r,
        Binary::Mul => l * r,
        Binary::Div => l / r,
        Binary::Rem => l % r,
        Binary::Max => max(l, r),
        Binary::Min => -max(-l, -r),
        _ => l,
    }
}

/// The larger; the other one when one is NaN; +0 is larger than −0.
fn max(l: f64, r: f64) -> f64 {
    match () {
        () if l.is_nan() => r,
        () if r.is_nan() || l > r => l,
        () if l == r && l.is_sign_positive() => l,
        () => r,
    }
}

/// op x for an integer type.
pub fn int_unary(op: Unary, ty: Ty, x: i64) -> i64 {
    let wide = widen(ty, x);
    wrap(
        ty,
        match op {
            Unary::Neg => -wide,
            Unary::Not => !wide,
            Unary::Abs => wide.abs(),
            Unary::Sign => wide.signum(),
            _ => wide,
        },
    )
}

/// l op r for an integer type, for operations that give an integer.
pub fn int_binary(op: Binary, ty: Ty, l: i64, r: i64) -> i64 {
    let (l, r) = (widen(ty, l), widen(ty, r));
    wrap(
        ty,
        match op {
            Binary::Add => l + r,
            Binary::Sub => l - r,
            Binary::Mul => l.wrapping_mul(r),
            Binary::Div => l.checked_div(r).unwrap_or(0),
            Binary::Rem => l.checked_rem(r).unwrap_or(0),
            Binary::Max => l.max(r),
            Binary::Min => l.min(r),
            Binary::And => l & r,
            Binary::Or => l | r,
            Binary::Xor => l ^ r,
            Binary::Shl if (0..bits(ty)).contains(&r) => l << r,
            Binary::Shr if (0..bits(ty)).contains(&r) => l >> r,
            Binary::Shl | Binary::Shr => 0,
            _ => l,
        },
    )
}

/// l op r for bools; comparisons other than (in)equality are not defined.
pub fn bool_binary(op: Binary, l: bool, r: bool) -> bool {
    match op {
        Binary::And => l & r,
        Binary::Or => l | r,
        Binary::Xor | Binary::Ne => l ^ r,
        Binary::Eq => l == r,
        _ => l,
    }
}

/// l op r for a comparison.
pub fn compare<T: PartialOrd>(op: Binary, l: T, r: T) -> bool {
    match op {
        Binary::Lt => l < r,
        Binary::Le => l <= r,
        Binary::Gt => l > r,
        Binary::Ge => l >= r,
        Binary::Ne => l != r,
        _ => l == r,
    }
}

/// The number that the 64 bits mean in an integer type.
pub fn widen(ty: Ty, x: i64) -> i128 {
    if ty == Ty::U64 { i128::from(x as u64) } else { i128::from(x) }
}

/// The low bits of a number as a value of an integer type.
pub fn wrap(ty: Ty, x: i128) -> i64 {
    match ty {
        Ty::I32 => i64::from(x as i32),
        Ty::U32 => i64::from(x as u32),
        _ => x as i64,
    }
}

fn bits(ty: Ty) -> i128 {
    if matches!(ty, Ty::I32 | Ty::U32) { 32 } else { 64 }
}

/// A float truncated to an integer type, saturating; NaN gives 0.
fn saturate(ty: Ty, x: f64) -> i64 {
    match ty {
        Ty::I32 => i64::from(x as i32),
        Ty::U32 => i64::from(x as u32),
        Ty::U64 => (x as u64) as i64,
        _ => x as i64,
    }
}

/// An integer rounded once to a floating-point element type, except that half precision goes through `f32`.
fn int_to_float(from: Ty, to: Elem, x: i64) -> f64 {
    let wide = widen(from, x);
    if matches!(to, Elem::F64 | Elem::Call | Elem::State | Elem::Wide) {
        wide as f64
    } else {
        round(to, f64::from(wide as f32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn int(op: Binary, ty: Ty, l: i64, r: i64) -> i64 {
        int_binary(op, ty, l, r)
    }

    #[test]
    fn integers_wrap_in_their_type() {
        assert_eq!(int(Binary::Add, Ty::I32, i64::from(i32::MAX), 1), i64::from(i32::MIN));
        assert_eq!(int(Binary::Sub, Ty::U32, 0, 1), i64::from(u32::MAX));
        assert_eq!(int(Binary::Mul, Ty::U64, -1, -1), 1);
        assert_eq!(int(Binary::Div, Ty::U64, -1, 2), i64::MAX);
        assert_eq!(int(Binary::Div, Ty::I64, i64::MIN, -1), i64::MIN);
        assert_eq!(int_unary(Unary::Neg, Ty::I64, i64::MIN), i64::MIN);
        assert_eq!(int_unary(Unary::Not, Ty::U32, 0), i64::from(u32::MAX));
    }

    #[test]
    fn division_by_zero_and_wide_shifts_give_zero() {
        assert_eq!(int(Binary::Div, Ty::I32, 5, 0), 0);
        assert_eq!(int(Binary::Rem, Ty::U64, 5, 0), 0);
        assert_eq!(int(Binary::Rem, Ty::I32, -7, 3), -1);
        assert_eq!(int(Binary::Shl, Ty::I32, 1, 32), 0);
        assert_eq!(int(Binary::Shr, Ty::I32, -1, 32), 0);
        assert_eq!(int(Binary::Shl, Ty::I32, 1, -1), 0);
        assert_eq!(int(Binary::Shr, Ty::I32, -5, 1), -3);
        assert_eq!(int(Binary::Shr, Ty::U64, -1, 63), 1);
    }

    #[test]
    fn comparison_and_order_know_unsigned() {
        assert!(compare(Binary::Gt, widen(Ty::U64, -1), widen(Ty::U64, 1)));
        assert_eq!(int(Binary::Max, Ty::U64, -1, 1), -1);
        assert_eq!(int(Binary::Max, Ty::I64, -1, 1), 1);
    }

    #[test]
    fn float_corner_cases() {
        let (inf, nan) = (f64::INFINITY, f64::NAN);
        assert_eq!(float_binary(Binary::Max, nan, 1.0), 1.0);
        assert_eq!(float_binary(Binary::Min, 1.0, nan), 1.0);
        assert!(float_binary(Binary::Max, nan, nan).is_nan());
        assert!(float_binary(Binary::Max, -0.0, 0.0).is_sign_positive());
        assert!(float_binary(Binary::Min, 0.0, -0.0).is_sign_negative());
        assert_eq!(float_unary(Unary::Sign, -3.0), -1.0);
        assert!(float_unary(Unary::Sign, nan).is_nan());
        assert_eq!(float_unary(Unary::Sigmoid, -1000.0), 0.0);
        assert_eq!(float_unary(Unary::Softplus, 1000.0), 1000.0);
        assert_eq!(float_unary(Unary::Softplus, -inf), 0.0);
        assert_eq!(float_unary(Unary::Silu, -inf), 0.0);
        assert_eq!(float_unary(Unary::Powi(0), nan), 1.0);
        assert_eq!(float_unary(Unary::Powi(-2), 2.0), 0.25);
        assert_eq!(float_unary(Unary::Powi(i32::MIN), 1.0), 1.0);
    }

    #[test]
    fn conversions_truncate_saturate_and_round() {
        let float = |to, x| convert(Ty::F64, to, Literal::Float(x));
        assert_eq!(float(Elem::I32, -2.9), Literal::Int(-2));
        assert_eq!(float(Elem::I32, 1e20), Literal::Int(i64::from(i32::MAX)));
        assert_eq!(float(Elem::U32, -1.0), Literal::Int(0));
        assert_eq!(float(Elem::U64, 1e30), Literal::Int(-1));
        assert_eq!(float(Elem::I64, f64::NAN), Literal::Int(0));
        assert_eq!(float(Elem::Bool, f64::NAN), Literal::Bool(true));
        assert_eq!(float(Elem::Bf16, 1.0 + 1.0 / 256.0), Literal::Float(1.0));
        assert_eq!(convert(Ty::U64, Elem::F64, Literal::Int(-1)), Literal::Float(1.8446744073709552e19));
        assert_eq!(convert(Ty::I64, Elem::I32, Literal::Int(1 << 32 | 7)), Literal::Int(7));
        assert_eq!(convert(Ty::Bool, Elem::F16, Literal::Bool(true)), Literal::Float(1.0));
    }
}
