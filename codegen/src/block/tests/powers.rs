//! Powers of two near numbers.

use super::{X, Y, builder, index, run, thread};
use crate::block::powers::{MOST, at_most, inverse, largest_finite};
use oplus_dsl::Elem;

#[test]
fn a_power_is_the_greatest_that_is_at_most_the_number() {
    let mut b = builder(32, Elem::F32);
    let own = thread(&mut b);
    let at = index(&mut b, own, 1, 0);
    let x = b.load1(X, at);
    let power = at_most(&mut b, x);
    let product = inverse(&mut b, power);
    let at = index(&mut b, own, 2, 0);
    b.store(Y, at, &[power], None);
    let at = index(&mut b, own, 2, 1);
    b.store(Y, at, &[product], None);
    let mut x = vec![0.0, 1.0, -1.0, 1.5, -1.999, 2.0, 3.0, 0.75, -0.5, 1e-30, 1e30, f64::from(f32::MAX), 1e-40];
    x.extend((0..19).map(|k| f64::from(1.37_f32) * 2.0_f64.powi(13 * (k - 9))));
    let y = run(&b.finish(), &x, 64);
    for (x, found) in x.iter().zip(y.chunks(2)) {
        let exponent = if x.abs() < 1.0 / MOST { -60 } else { (x.abs() as f32).log2().floor().min(60.0) as i32 };
        let wanted = 2.0_f64.powi(exponent);
        assert_eq!(found, [wanted, 1.0 / wanted], "{x}");
    }
}

#[test]
fn the_largest_number_is_found_among_finite_ones() {
    let mut b = builder(32, Elem::F32);
    let own = thread(&mut b);
    let numbers: Vec<_> = (0..3)
        .map(|k| {
            let at = index(&mut b, own, 3, k);
            b.load1(X, at)
        })
        .collect();
    let largest = largest_finite(&mut b, &numbers);
    let at = index(&mut b, own, 1, 0);
    b.store(Y, at, &[largest], None);
    let (inf, most) = (f64::INFINITY, f64::from(f32::MAX));
    let some = [
        ([0.0, -0.0, 0.0], 0.0),
        ([1.0, -3.0, 2.0], 3.0),
        ([inf, -0.5, 0.25], 0.5),
        ([-inf, f64::NAN, inf], 0.0),
        ([f64::NAN, 1e-40, 0.0], f64::from(1e-40_f32)),
        ([most, 1.0, -inf], most),
    ];
    let mut x: Vec<f64> = some.iter().flat_map(|(numbers, _)| *numbers).collect();
    x.resize(96, 0.0);
    let wanted: Vec<f64> = some.iter().map(|(_, largest)| *largest).collect();
    assert_eq!(run(&b.finish(), &x, 32)[..wanted.len()], wanted);
}
