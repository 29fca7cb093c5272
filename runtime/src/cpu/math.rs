//! Elementary functions of `f32` without branches, so that loops over them become vector code.
//!
//! Every function agrees with the exact result to 4 units in the last place (most to 2) for all finite arguments whose
//! result is a normal number, and has the limits of the exact function at infinities, zeros and NaN. None uses fused
//! multiply-add: results do not depend on the processor.

use std::f32::consts::LOG2_E;

/// 1.5·2²³: adding it leaves an integer in the low bits.
const ROUND: f32 = 12_582_912.0;
/// ln 2 in two parts, the first with trailing zeros so that small multiples of it are exact.
const LN2: (f32, f32) = (0.693_359_4, -2.121_944_4e-4);
const SIGN: u32 = 0x8000_0000;

/// The value of c₀ + c₁x + c₂x² + ….
#[inline(always)]
fn polynomial<const N: usize>(x: f32, coefficients: [f32; N]) -> f32 {
    let mut value = coefficients[N - 1];
    let mut k = N - 1;
    while k > 0 {
        k -= 1;
        value = value * x + coefficients[k];
    }
    value
}

/// The integer nearest to x, as a float and as an integer; |x| ≤ 2²².
#[inline(always)]
fn nearest(x: f32) -> (f32, i32) {
    let shifted = x + ROUND;
    (shifted - ROUND, shifted.to_bits().wrapping_sub(ROUND.to_bits()) as i32)
}

/// x·2ⁿ for −252 ≤ n ≤ 254.
#[inline(always)]
fn scale(x: f32, n: i32) -> f32 {
    let half = n >> 1;
    let power = |n: i32| f32::from_bits(((n + 127) as u32) << 23);
    x * power(half) * power(n - half)
}

/// eʳ for |r| ≤ ln(2)/2.
#[inline(always)]
fn exp_reduced(r: f32) -> f32 {
    let tail = polynomial(r, [0.5, 1.666_666_6e-1, 4.166_579_6e-2, 8.333_452e-3, 1.398_199_9e-3, 1.987_569_1e-4]);
    (tail * r * r + r) + 1.0
}

/// eˣ.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    let bounded = if x > 89.0 { 89.0 } else { x };
    let bounded = if bounded < -104.0 { -104.0 } else { bounded };
    let (n, k) = nearest(bounded * LOG2_E);
    let r = bounded - n * LN2.0 - n * LN2.1;
    scale(exp_reduced(r), if x.is_nan() { 0 } else { k })
}

/// 2ˣ.
#[inline(always)]
pub(super) fn exp2(x: f32) -> f32 {
    let bounded = if x > 129.0 { 129.0 } else { x };
    let bounded = if bounded < -151.0 { -151.0 } else { bounded };
    let (n, k) = nearest(bounded);
    scale(exp_reduced((bounded - n) * std::f32::consts::LN_2), if x.is_nan() { 0 } else { k })
}

/// Natural logarithm.
#[inline(always)]
pub(super) fn ln(x: f32) -> f32 {
    let tiny = x < f32::MIN_POSITIVE;
    let normal = if tiny { x * 8_388_608.0 } else { x };
    // The mantissa in [√½, √2) and its exponent.
    let shifted = normal.to_bits().wrapping_sub(0x3f35_04f3);
    let exponent = (shifted as i32 >> 23) as f32 - if tiny { 23.0 } else { 0.0 };
    let f = f32::from_bits((shifted & 0x007f_ffff).wrapping_add(0x3f35_04f3)) - 1.0;
    let square = f * f;
    let tail = polynomial(
        f,
        [
            3.333_333e-1,
            -2.499_999_4e-1,
            2.000_071_5e-1,
            -1.666_805_8e-1,
            1.424_932_3e-1,
            -1.242_014_1e-1,
            1.167_699_9e-1,
            -1.151_461e-1,
            7.037_683_6e-2,
        ],
    );
    let value = (tail * f * square + exponent * LN2.1 - 0.5 * square + f) + exponent * LN2.0;
    let value = if x == f32::INFINITY { x } else { value };
    let value = if x == 0.0 { f32::NEG_INFINITY } else { value };
    if x < 0.0 || x.is_nan() { f32::NAN } else { value }
}

/// ln(1 + x): the logarithm of the rounded sum, corrected for its rounding.
#[inline(always)]
pub(super) fn log1p(x: f32) -> f32 {
    let sum = 1.0 + x;
    let rounded = sum - 1.0;
    let value = ln(sum) * (x / rounded);
    let value = if rounded == 0.0 { x } else { value };
    if x == f32::INFINITY || sum == 0.0 { ln(sum) } else { value }
}

/// 1/(1 + e⁻ˣ), from the side on which e does not overflow.
#[inline(always)]
pub(super) fn sigmoid(x: f32) -> f32 {
    let e = exp(-x.abs());
    (if x < 0.0 { e } else { 1.0 }) / (1.0 + e)
}

/// ln(1 + eˣ).
#[inline(always)]
pub(super) fn softplus(x: f32) -> f32 {
    let positive = if x > 0.0 { x } else { 0.0 };
    let value = positive + log1p(exp(-x.abs()));
    if x.is_nan() { x } else { value }
}

/// x·sigmoid(x), −0 at −∞. The exponential is split in two so that it is a normal number wherever the result is.
#[inline(always)]
pub(super) fn silu(x: f32) -> f32 {
    let half = exp(-0.5 * x.abs());
    let value = (if x < 0.0 { x * half * half } else { x }) / (1.0 + half * half);
    if x == f32::NEG_INFINITY { -0.0 } else { value }
}

/// Hyperbolic tangent.
#[inline(always)]
pub(super) fn tanh(x: f32) -> f32 {
    let magnitude = x.abs();
    let square = x * x;
    let tail = polynomial(square, [-3.333_328e-1, 1.333_144_2e-1, -5.373_971_6e-2, 2.063_909e-2, -5.704_988_7e-3]);
    let near = (tail * square + 1.0) * x;
    let far = 1.0 - 2.0 / (exp(magnitude + magnitude) + 1.0);
    let far = f32::from_bits(far.to_bits() | (x.to_bits() & SIGN));
    if magnitude < 0.625 { near } else { far }
}

#[cfg(test)]
mod tests {
    use oplus_dsl::ir::Unary;
    use oplus_dsl::scalar::float_unary;

    use super::*;

    /// The distance in units in the last place of the exact result.
    fn ulps(found: f32, exact: f64) -> f64 {
        let rounded = exact as f32;
        if found == rounded || (found.is_nan() && exact.is_nan()) {
            return 0.0;
        }
        if !rounded.is_normal() {
            return (f64::from(found) - exact).abs() / f64::from(f32::from_bits(1));
        }
        let unit = f64::from(f32::from_bits(rounded.abs().to_bits() + 1)) - f64::from(rounded.abs());
        (f64::from(found) - exact).abs() / unit
    }

    /// Every 997th bit pattern, and the neighbourhoods of points where the branches meet.
    fn arguments() -> impl Iterator<Item = f32> {
        let near = [0.0_f32, 0.5, 0.625, 1.0, 2.0, 17.0, 87.33, 88.72, 103.97, 126.0, 128.0, 149.0, 1e-4, 1e-7, 1e-30];
        let near =
            near.into_iter().flat_map(|x| (0..200_u32).map(move |k| f32::from_bits((x.to_bits() + k).max(100) - 100)));
        (0..u32::MAX).step_by(997).map(f32::from_bits).chain(near.clone()).chain(near.map(|x| -x))
    }

    fn worst(found: fn(f32) -> f32, op: Unary) -> (f64, f32) {
        let error = |x: f32| (ulps(found(x), float_unary(op, f64::from(x))), x);
        arguments().map(error).fold((0.0, 0.0), |worst, at| if at.0 > worst.0 { at } else { worst })
    }

    #[test]
    fn errors_stay_within_four_units_in_the_last_place() {
        type Case = (fn(f32) -> f32, Unary);
        let functions: [Case; 8] = [
            (exp, Unary::Exp),
            (exp2, Unary::Exp2),
            (ln, Unary::Ln),
            (log1p, Unary::Log1p),
            (sigmoid, Unary::Sigmoid),
            (softplus, Unary::Softplus),
            (silu, Unary::Silu),
            (tanh, Unary::Tanh),
        ];
        for (found, op) in functions {
            let (error, x) = worst(found, op);
            assert!(error <= 4.0, "{op:?} of {x:e} is {:e}, {error} units off", found(x));
        }
    }

    #[test]
    fn limits_are_those_of_the_exact_functions() {
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        assert_eq!([exp(-inf), exp(inf), exp2(-inf), exp2(inf)], [0.0, inf, 0.0, inf]);
        assert_eq!([ln(0.0), ln(-0.0), ln(inf), log1p(-1.0), log1p(inf)], [-inf, -inf, inf, -inf, inf]);
        assert_eq!([sigmoid(-inf), sigmoid(inf), softplus(-inf), softplus(inf)], [0.0, 1.0, 0.0, inf]);
        assert_eq!([silu(-inf), silu(inf), tanh(-inf), tanh(inf)], [0.0, inf, -1.0, 1.0]);
        assert!(tanh(-0.0).is_sign_negative() && log1p(-0.0).is_sign_negative());
        assert!([ln(-1.0), ln(-inf), log1p(-2.0)].into_iter().all(f32::is_nan));
        assert!([exp, exp2, ln, log1p, sigmoid, softplus, silu, tanh].into_iter().all(|f| f(nan).is_nan()));
    }
}
