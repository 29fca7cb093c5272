//! Numbers of 11 bits: rounding, high and low parts, and products of both.

use super::matmul::{WIDTH, expected, kernel, with_factors};
use super::{X, Y, builder, index, run, thread};
use crate::block::matmul::ROWS;
use crate::block::tf32::{HALF, cut_off, multiply, rounded, split};
use crate::build::Builder;
use crate::tile::Operand;
use oplus_dsl::{Elem, Ty};

/// Numbers of all 24 bits and many exponents, of both signs.
fn floats(count: usize) -> Vec<f64> {
    let of =
        |i: usize| f64::from((((i * 7919 + 13) % 10_007) as f32 / 997.0 - 5.0) * (2.0_f32).powi(i as i32 % 41 - 20));
    (0..count).map(of).collect()
}

/// The nearest number of 11 bits; of two that are as near, the larger magnitude.
fn nearest(x: f64) -> f64 {
    if x == 0.0 || !x.is_finite() {
        return x;
    }
    let unit = (x.abs().log2().floor() - 10.0).exp2();
    ((x.abs() / unit + 0.5).floor() * unit).copysign(x)
}

/// The results of a function of each of 32 numbers, `results` for each.
fn made(x: &[f64], results: i32, of: impl Fn(&mut Builder, Operand) -> Vec<Operand>) -> Vec<f64> {
    let mut b = builder(32, Elem::F32);
    let own = thread(&mut b);
    let at = index(&mut b, own, 1, 0);
    let value = b.load1(X, at);
    for (k, result) in (0..).zip(of(&mut b, value)) {
        let at = index(&mut b, own, results, k);
        b.store(Y, at, &[result], None);
    }
    run(&b.finish(), x, 32 * results as usize)
}

#[test]
fn numbers_are_rounded_to_the_nearest_of_eleven_bits() {
    let ties = [1.0 + 1.0 / 2048.0, -1.0 - 3.0 / 2048.0, 0.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN];
    for x in [floats(32), [floats(26), ties.to_vec()].concat()] {
        let y = made(&x, 1, |b, x| {
            let near = rounded(b, x);
            vec![cut_off(b, near)]
        });
        let same = |(x, y): (&f64, &f64)| if x.is_nan() { y.is_nan() } else { nearest(*x) == *y };
        assert!(x.iter().zip(&y).all(same), "{x:?}\n{y:?}");
    }
}

#[test]
fn high_and_low_parts_are_the_number_again() {
    let x = floats(32);
    let y = made(&x, 2, |b, x| {
        let bits = b.bits(Ty::U32, x);
        let [[high], [low]] = split(b, [bits], HALF);
        [high, low].map(|part| b.bits(Ty::F32, part)).to_vec()
    });
    for (x, parts) in x.iter().zip(y.chunks(2)) {
        assert_eq!((parts[0], parts[0] + parts[1]), (nearest(*x), *x));
        assert!(parts[1].abs() <= x.abs() / 1024.0, "{x}: {parts:?}");
    }
}

#[test]
fn products_of_split_factors_have_errors_of_f32() {
    for depth in [16, 64, 128] {
        let kernel = kernel(Elem::F32, [WIDTH, depth], depth, |b, sums, lane, (left, right)| {
            with_factors(b, lane, (left, right), |b, left, right| multiply(b, sums, left, right));
        });
        let x: Vec<f64> =
            (0..(ROWS + WIDTH) * depth).map(|i| f64::from(((f64::from(i) * 0.7).sin() * 3.0) as f32)).collect();
        let magnitudes: Vec<f64> = x.iter().map(|x| x.abs()).collect();
        let place = |k: usize, n: usize| n * depth as usize + k;
        let [wanted, all] = [&x, &magnitudes].map(|x| expected(x, depth as usize, place));
        let y = run(&kernel, &x, (ROWS * WIDTH) as usize);
        let error = |((y, wanted), all): ((&f64, &f64), &f64)| (y - wanted).abs() / all;
        let worst = y.iter().zip(&wanted).zip(&all).map(error).fold(0.0, f64::max);
        assert!(worst < (-20.0_f64).exp2(), "depth {depth}: {worst}");
        // A product of the high parts alone would be wrong by more.
        let high: Vec<f64> = x.iter().map(|x| nearest(*x)).collect();
        let of_high = expected(&high, depth as usize, place);
        assert!(of_high.iter().zip(&wanted).zip(&all).map(error).fold(0.0, f64::max) > (-16.0_f64).exp2());
    }
}
