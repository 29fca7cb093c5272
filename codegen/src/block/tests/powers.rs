//! Powers of two near numbers.

use super::{X, Y, builder, index, run, thread};
use crate::block::powers::{MOST, at_most, inverse};
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
