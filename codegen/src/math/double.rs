//! Functions of `f64`, by polynomials alone. Coefficients are minimax for the relative error of the function on the
//! interval named.

use oplus_dsl::Ty;
use oplus_dsl::ir::{Binary, Unary};

use super::logarithm::Logarithm;
use super::polynomial;
use super::tanh::Tanh;
use crate::build::Builder;
use crate::tile::Operand;

/// (eʳ − 1 − r) / r² for |r| ≤ ln 2 / 2: relative error 2^−64.
const EXP: [f64; 11] = [
    0.5,
    0.16666666666666682,
    0.04166666666666609,
    0.008333333333316916,
    0.0013888888889117303,
    0.00019841269896682574,
    2.480158692453661e-05,
    2.7557234557322123e-06,
    2.755758284904654e-07,
    2.5112144958402573e-08,
    2.0826521076944228e-09,
];

/// (2·artanh(s) − 2s) / s³ in z = s² for |s| ≤ 1/5: 2^−62.7.
const ARTANH: [f64; 8] = [
    0.666666666666666,
    0.400000000000557,
    0.28571428556059175,
    0.22222224270896648,
    0.18181667378344585,
    0.15391063723182105,
    0.13174397386371528,
    0.13837712099562524,
];

/// (tanh(x) − x) / x³ in z = x² for |x| ≤ 0.6: 2^−62.6.
const TANH: [f64; 12] = [
    -0.33333333333333326,
    0.1333333333333176,
    -0.053968253967211076,
    0.021869488501409077,
    -0.008863234849919327,
    0.003592119538228169,
    -0.0014557632561717816,
    0.0005896185870995225,
    -0.0002375022930885988,
    9.247058562950262e-05,
    -3.1159137493758326e-05,
    6.4945937791233255e-06,
];

/// ln 2 in two parts.
const LN_2: [f64; 2] = [std::f64::consts::LN_2, 2.3190468138462996e-17];

/// Added to a number of at most 51 bits, it leaves the nearest integer in the low bits of the sum.
const ROUNDER: f64 = 6_755_399_441_055_744.0;

fn number(x: f64) -> Operand {
    super::number(Ty::F64, x)
}

/// eˣ = 2^k·eʳ with k the integer nearest to x·log₂e.
pub(super) fn exp(b: &mut Builder, x: Operand) -> Operand {
    let k = b.fma(x, number(std::f64::consts::LOG2_E), number(ROUNDER));
    let k = b.sub(k, number(ROUNDER));
    let r = b.fma(k, number(-LN_2[0]), x);
    let r = b.fma(k, number(-LN_2[1]), r);
    let value = exp_scaled(b, k, r);
    with_exp_limits(b, x, value, [-745.2, 709.782712893384])
}

/// 2ˣ = 2^k·e^((x − k)·ln 2) with k the integer nearest to x.
pub(super) fn exp2(b: &mut Builder, x: Operand) -> Operand {
    let k = b.add(x, number(ROUNDER));
    let k = b.sub(k, number(ROUNDER));
    let f = b.sub(x, k);
    let high = b.mul(f, number(LN_2[0]));
    let r = b.fma(f, number(LN_2[1]), high);
    let value = exp_scaled(b, k, r);
    with_exp_limits(b, x, value, [-1075.5, 1023.9999999999999])
}

/// 2^k·eʳ. The power of two is multiplied in two halves, so that it may be too large or too small for one number.
fn exp_scaled(b: &mut Builder, k: Operand, r: Operand) -> Operand {
    let square = b.mul(r, r);
    let p = polynomial(b, r, &EXP);
    let e = b.fma(p, square, r);
    let e = b.add(e, number(1.0));
    let k = b.convert(Ty::I64, k);
    let half = b.binary(Binary::Shr, k, 1);
    let rest = b.sub(k, half);
    let (half, rest) = (power_of_two(b, half), power_of_two(b, rest));
    let e = b.mul(e, half);
    b.mul(e, rest)
}

/// 2ⁿ for −1023 < n < 1024.
fn power_of_two(b: &mut Builder, n: Operand) -> Operand {
    let biased = b.add(n, 1023);
    let bits = b.binary(Binary::Shl, biased, 52);
    b.bits(Ty::F64, bits)
}

/// 0 below the limits, ∞ above.
fn with_exp_limits(b: &mut Builder, x: Operand, value: Operand, [low, high]: [f64; 2]) -> Operand {
    let below = b.lt(x, number(low));
    let value = b.select(below, number(0.0), value);
    let above = b.binary(Binary::Gt, x, number(high));
    b.select(above, number(f64::INFINITY), value)
}

/// The exponent bits of x's nearest power of two, so that x divided by it lies in 2/3 … 4/3; `i64`.
fn exponent_bits(b: &mut Builder, x: Operand) -> Operand {
    let bits = b.bits(Ty::I64, x);
    let above = b.sub(bits, (2.0f64 / 3.0).to_bits() as i64);
    b.binary(Binary::And, above, !0xf_ffff_ffff_ffff_i64)
}

/// x divided by the power of two of those exponent bits.
fn scale_down(b: &mut Builder, x: Operand, exponent: Operand) -> Operand {
    let bits = b.bits(Ty::I64, x);
    let scaled = b.sub(bits, exponent);
    b.bits(Ty::F64, scaled)
}

/// e·ln 2 + ln(1 + m) for |m| ≤ 1/3, where e is the number in the exponent bits plus `shift`.
///
/// With s = m/(2 + m), ln(1 + m) = 2·artanh(s) = m − (m²/2 − s·(m²/2 + R)), where 2·artanh(s) = 2s + s·R.
fn ln_sum(b: &mut Builder, exponent: Operand, shift: Operand, m: Operand) -> Operand {
    let e = b.convert(Ty::F64, exponent);
    let e = b.fma(e, number(f64::EPSILON), shift);
    let two = b.add(m, number(2.0));
    let s = b.binary(Binary::Div, m, two);
    let z = b.mul(s, s);
    let p = polynomial(b, z, &ARTANH);
    let r = b.mul(p, z);
    let half = b.mul(m, number(0.5));
    let square = b.mul(half, m);
    let inner = b.add(square, r);
    let low = b.mul(e, number(LN_2[1]));
    let inner = b.fma(s, inner, low);
    let inner = b.sub(square, inner);
    let ln = b.sub(m, inner);
    b.fma(e, number(LN_2[0]), ln)
}

/// Denormals are scaled by 2⁵⁴ first.
const LOGARITHM: Logarithm = Logarithm {
    ty: Ty::F64,
    least_normal: f64::MIN_POSITIVE,
    scale: 18_014_398_509_481_984.0,
    shift: -54.0,
    four: Operand::i64(4.0_f64.to_bits() as i64),
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
    let recip = |b: &mut Builder, x: Operand| b.unary(Unary::Recip, x);
    Tanh { coefficients: &TANH, border: 0.6, exp, recip }.of(b, x)
}

/// 1/(1 + e⁻ˣ) for x ≥ 0, eˣ/(1 + eˣ) below.
pub(super) fn sigmoid(b: &mut Builder, x: Operand) -> Operand {
    let e = exp_of_minus_size(b, x);
    let right = b.ge(x, number(0.0));
    let above = b.select(right, number(1.0), e);
    let below = b.add(e, number(1.0));
    b.binary(Binary::Div, above, below)
}

fn exp_of_minus_size(b: &mut Builder, x: Operand) -> Operand {
    let size = b.unary(Unary::Abs, x);
    let minus = b.unary(Unary::Neg, size);
    exp(b, minus)
}

/// x·sigmoid(x), where −∞ must not meet the sigmoid's 0.
pub(super) fn silu(b: &mut Builder, x: Operand) -> Operand {
    let sigmoid = sigmoid(b, x);
    let x = b.binary(Binary::Max, x, number(-1500.0));
    b.mul(x, sigmoid)
}

/// max(x, 0) + ln(1 + e^−|x|).
pub(super) fn softplus(b: &mut Builder, x: Operand) -> Operand {
    let e = exp_of_minus_size(b, x);
    let ln = log1p(b, e);
    let positive = b.binary(Binary::Max, x, number(0.0));
    b.add(positive, ln)
}
