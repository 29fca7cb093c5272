//! Sine and cosine: the angle is reduced to a quarter turn number and a rest r, |r| ≤ π/4, by subtracting multiples
//! of π/2 in three parts (Cody and Waite); two polynomials in r² give both functions.

use oplus_dsl::Ty;
use oplus_dsl::ir::{Binary, Unary};

use super::{number, polynomial};
use crate::build::Builder;
use crate::tile::{Expr, Operand, Stmt};

/// The constants of the reduction and the polynomials for a type.
struct Constants {
    ty: Ty,
    /// The integer type of the same size.
    bits: Ty,
    two_over_pi: f64,
    /// π/2 in three parts; the first difference is exact.
    half_pi: [f64; 3],
    /// Added to a number, it leaves the nearest integer in the low bits of the sum.
    rounder: f64,
    /// (sin(r) − r) / r³ in z = r².
    sin: &'static [f64],
    /// (cos(r) − 1 + r²/2) / r⁴ in z = r².
    cos: &'static [f64],
}

/// Relative errors of the polynomials: 2^−27.9 and 2^−32.9.
const SINGLE: Constants = Constants {
    ty: Ty::F32,
    bits: Ty::I32,
    two_over_pi: 0.636619747,
    half_pi: [1.57079637, -4.37113883e-08, -1.71512451e-15],
    rounder: 12_582_912.0,
    sin: &[-0.16666654, 0.008332114, -0.00019508773],
    cos: &[0.041666646, -0.0013887251, 2.4425719e-05],
};

/// Relative errors of the polynomials: 2^−57.7 and 2^−63.5.
const DOUBLE: Constants = Constants {
    ty: Ty::F64,
    bits: Ty::I64,
    two_over_pi: std::f64::consts::FRAC_2_PI,
    half_pi: [std::f64::consts::FRAC_PI_2, 6.123233995736766e-17, -1.4973849048591698e-33],
    rounder: 6_755_399_441_055_744.0,
    sin: &[
        -0.16666666666666627,
        0.008333333333320947,
        -0.0001984126982862401,
        2.75573132778397e-06,
        -2.5050692761245184e-08,
        1.5892978345518847e-10,
    ],
    cos: &[
        0.0416666666666666,
        -0.001388888888887378,
        2.4801587289035252e-05,
        -2.755731417576443e-07,
        2.0875694474263536e-09,
        -1.1357964523525325e-11,
    ],
};

/// Angles up to here are reduced in `f32`, larger ones in `f64`.
const FAST: f64 = 65536.0;

/// sin x.
pub(super) fn sin(b: &mut Builder, x: Operand) -> Operand {
    let (quarter, r) = reduce(b, x);
    turn(b, quarter, r)
}

/// cos x, the sine a quarter turn ahead.
pub(super) fn cos(b: &mut Builder, x: Operand) -> Operand {
    let (quarter, r) = reduce(b, x);
    let quarter = b.add(quarter, 1);
    turn(b, quarter, r)
}

/// x = quarter·π/2 + r. The quarter is `i32`, right modulo 4.
fn reduce(b: &mut Builder, x: Operand) -> (Operand, Operand) {
    if b.ty(x) == Ty::F64 { reduce_double(b, x) } else { reduce_single(b, x) }
}

fn reduce_single(b: &mut Builder, x: Operand) -> (Operand, Operand) {
    let (quarter, r) = subtract_quarters(b, &SINGLE, x);
    let Operand::Reg(to_quarter) = quarter else { return (quarter, r) };
    let Operand::Reg(to_r) = r else { return (quarter, r) };
    let size = b.unary(Unary::Abs, x);
    let large = b.binary(Binary::Gt, size, number(Ty::F32, FAST));
    b.if_(large, |b| {
        let wide = b.convert(Ty::F64, x);
        let (quarter, r) = reduce_double(b, wide);
        b.assign(to_quarter, quarter);
        b.push(Stmt::Let(to_r, Expr::Convert(oplus_dsl::Elem::F32, r)));
    });
    (quarter, r)
}

/// Where so many quarters were subtracted that r is wrong, r = 0 keeps the result within −1 … 1.
fn reduce_double(b: &mut Builder, x: Operand) -> (Operand, Operand) {
    let (quarter, r) = subtract_quarters(b, &DOUBLE, x);
    let size = b.unary(Unary::Abs, r);
    let wrong = b.binary(Binary::Gt, size, number(Ty::F64, 1.0));
    (quarter, b.select(wrong, number(Ty::F64, 0.0), r))
}

fn subtract_quarters(b: &mut Builder, constants: &Constants, x: Operand) -> (Operand, Operand) {
    let number = |x| number(constants.ty, x);
    let rounded = b.fma(x, number(constants.two_over_pi), number(constants.rounder));
    let k = b.sub(rounded, number(constants.rounder));
    let quarter = b.bits(constants.bits, rounded);
    let quarter = b.convert(Ty::I32, quarter);
    let r = constants.half_pi.iter().fold(x, |r, part| b.fma(k, number(-part), r));
    (quarter, r)
}

/// sin(quarter·π/2 + r).
fn turn(b: &mut Builder, quarter: Operand, r: Operand) -> Operand {
    let constants = if b.ty(r) == Ty::F64 { DOUBLE } else { SINGLE };
    let number = |x| number(constants.ty, x);
    let z = b.mul(r, r);
    let p = polynomial(b, z, constants.sin);
    let p = b.mul(p, z);
    let sin = b.fma(p, r, r);
    let p = polynomial(b, z, constants.cos);
    let square = b.mul(z, z);
    let base = b.fma(z, number(-0.5), number(1.0));
    let cos = b.fma(p, square, base);
    let has = |b: &mut Builder, bit| {
        let bit = b.binary(Binary::And, quarter, bit);
        b.ne(bit, 0)
    };
    let odd = has(b, 1);
    let value = b.select(odd, cos, sin);
    let minus = b.unary(Unary::Neg, value);
    let second_half = has(b, 2);
    b.select(second_half, minus, value)
}
