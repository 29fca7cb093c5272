//! Functions of `f32`.
//!
//! Exponentials and reciprocals use the special-function unit; their arguments are prepared so that its error is the
//! largest part of the whole. Coefficients are minimax for the relative error of the function on the interval named.

use oplus_dsl::Ty;
use oplus_dsl::ir::{Binary, Unary};

use super::logarithm::Logarithm;
use super::polynomial;
use super::tanh::Tanh;
use crate::build::Builder;
use crate::tile::{Expr, Operand};

/// (ln(1 + m) − m + m²/2) / m³ for |m| ≤ 1/3: relative error of the logarithm 2^−27.7.
const LN: [f64; 8] =
    [0.33333215, -0.24999797, 0.20010406, -0.16680487, 0.14005862, -0.121842675, 0.13984472, -0.12891667];

/// (ln(1 + t) − t) / t² for 0 ≤ t ≤ 1: relative error of the logarithm 2^−24.7.
const LN_1P_UNIT: [f64; 8] =
    [-0.49999648, 0.33321324, -0.24857163, 0.19153653, -0.13753799, 0.07920447, -0.030065754, 0.0053648143];

/// (tanh(x) − x) / x³ in z = x² for |x| ≤ 0.8: 2^−28.
const TANH: [f64; 6] = [-0.333333, 0.13332221, -0.05385233, 0.021302987, -0.007409549, 0.0015847512];

/// log₂ e in two parts.
const LOG2_E: [f64; 2] = [1.44269502, 1.92596303e-08];
const LN_2: f64 = 0.693147182;

fn number(x: f64) -> Operand {
    super::number(Ty::F32, x)
}

fn int(x: i32) -> Operand {
    Operand::i32(x)
}

/// 2ˣ.
pub(super) fn exp2(b: &mut Builder, x: Operand) -> Operand {
    b.let_(Ty::F32, Expr::Exp2Fast(x))
}

fn recip_fast(b: &mut Builder, x: Operand) -> Operand {
    b.let_(Ty::F32, Expr::RecipFast(x))
}

/// eˣ = 2^t·2^d with t = x·log₂e rounded and d = x·log₂e − t, of which 2^d = 1 + d·ln 2.
///
/// Where t is infinite d is not a number; the bounds of the second factor then leave the first one alone.
pub(super) fn exp(b: &mut Builder, x: Operand) -> Operand {
    let t = b.mul(x, number(LOG2_E[0]));
    let minus_t = b.unary(Unary::Neg, t);
    let d = b.fma(x, number(LOG2_E[0]), minus_t);
    let d = b.fma(x, number(LOG2_E[1]), d);
    let factor = b.fma(d, number(LN_2), number(1.0));
    let factor = b.binary(Binary::Max, factor, number(0.5));
    let factor = b.binary(Binary::Min, factor, number(2.0));
    let power = exp2(b, t);
    b.mul(power, factor)
}

/// ln(1 + m) for |m| ≤ 1/3.
fn ln_1p_small(b: &mut Builder, m: Operand) -> Operand {
    let square = b.mul(m, m);
    let p = polynomial(b, m, &LN);
    let p = b.fma(p, m, number(-0.5));
    b.fma(p, square, m)
}

/// The exponent bits of x's nearest power of two, so that x divided by it lies in 2/3 … 4/3; `i32`.
fn exponent_bits(b: &mut Builder, x: Operand) -> Operand {
    let bits = b.bits(Ty::I32, x);
    let above = b.sub(bits, int((2.0f32 / 3.0).to_bits() as i32));
    b.binary(Binary::And, above, int(!0x7f_ffff))
}

/// x divided by the power of two of those exponent bits.
fn scale_down(b: &mut Builder, x: Operand, exponent: Operand) -> Operand {
    let bits = b.bits(Ty::I32, x);
    let scaled = b.sub(bits, exponent);
    b.bits(Ty::F32, scaled)
}

/// e·ln 2 + ln(1 + m), where e is the number in the exponent bits plus `shift`.
fn ln_sum(b: &mut Builder, exponent: Operand, shift: Operand, m: Operand) -> Operand {
    let e = b.convert(Ty::F32, exponent);
    let e = b.fma(e, number(f64::from(f32::EPSILON)), shift);
    let ln = ln_1p_small(b, m);
    b.fma(e, number(LN_2), ln)
}

/// Denormals are scaled by 2²³ first.
const LOGARITHM: Logarithm = Logarithm {
    ty: Ty::F32,
    least_normal: f32::MIN_POSITIVE as f64,
    scale: 8_388_608.0,
    shift: -23.0,
    four: Operand::i32(4.0_f32.to_bits() as i32),
    exponent_bits,
    scale_down,
    sum: ln_sum,
};

pub(super) fn ln(b: &mut Builder, x: Operand) -> Operand {
    LOGARITHM.ln(b, x)
}

pub(super) fn log1p(b: &mut Builder, x: Operand) -> Operand {
    LOGARITHM.log1p(b, x)
}

pub(super) fn tanh(b: &mut Builder, x: Operand) -> Operand {
    Tanh { coefficients: &TANH, border: 0.8, exp, recip: recip_fast }.of(b, x)
}

/// 1/(1 + e⁻ˣ); e⁻ˣ = ∞ gives 0.
pub(super) fn sigmoid(b: &mut Builder, x: Operand) -> Operand {
    let minus = b.unary(Unary::Neg, x);
    let e = exp(b, minus);
    let e = b.add(e, number(1.0));
    recip_fast(b, e)
}

/// x·sigmoid(x), where −∞ must not meet the sigmoid's 0.
pub(super) fn silu(b: &mut Builder, x: Operand) -> Operand {
    let sigmoid = sigmoid(b, x);
    let x = b.binary(Binary::Max, x, number(-200.0));
    b.mul(x, sigmoid)
}

/// max(x, 0) + ln(1 + e^−|x|).
pub(super) fn softplus(b: &mut Builder, x: Operand) -> Operand {
    let size = b.unary(Unary::Abs, x);
    let minus = b.unary(Unary::Neg, size);
    let t = exp(b, minus);
    let square = b.mul(t, t);
    let p = polynomial(b, t, &LN_1P_UNIT);
    let ln = b.fma(p, square, t);
    let positive = b.binary(Binary::Max, x, number(0.0));
    b.add(positive, ln)
}
