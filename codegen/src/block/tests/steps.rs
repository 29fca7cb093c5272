//! States that combined elements lose: which fields can be, and when one is.

use super::{X, Y, builder, index, run, thread};
use crate::block::carry::{Fields, Monoid};
use crate::build::{Builder, f32};
use crate::tile::Operand;
use oplus_dsl::ir::Operator;
use oplus_dsl::testing::operators;
use oplus_dsl::{Elem, Ty};

#[test]
fn fields_are_at_risk_that_are_products_of_both_elements() {
    let at_risk = |operator: &Operator| Monoid::new(operator, &vec![true; operator.fields.len()]).at_risk();
    assert_eq!(at_risk(&operators::affine(Ty::F32)), [0, 1]);
    assert_eq!(at_risk(&operators::log_decay(Ty::F32)), [1]);
    assert_eq!(at_risk(&operators::product(Ty::F32)), [0]);
    assert_eq!(at_risk(&operators::sum(Ty::F32)), [0; 0]);
    assert_eq!(at_risk(&operators::max(Ty::F32)), [0; 0]);
    // A field that nothing reads is not combined.
    let affine = operators::affine(Ty::F32);
    assert_eq!(Monoid::new(&affine, &[true, false]).at_risk(), [0]);
}

/// The lane's fields from the element on.
fn fields(b: &mut Builder, own: Operand, from: i32) -> Fields {
    (0..2)
        .map(|field| {
            let at = index(b, own, 4, from + field);
            b.load1(X, at)
        })
        .collect()
}

#[test]
fn a_state_is_lost_that_was_finite_and_is_not() {
    const KINDS: [f64; 4] = [1.5, f64::NAN, f64::INFINITY, -0.25];
    let operator = operators::affine(Ty::F32);
    let monoid = Monoid::new(&operator, &[true, true]);
    let mut b = builder(256, Elem::F32);
    let own = thread(&mut b);
    let (before, after) = (fields(&mut b, own, 0), fields(&mut b, own, 2));
    let loses = monoid.loses(&mut b, &before, &after);
    let (at, value) = (index(&mut b, own, 1, 0), b.select(loses, f32(1.0), f32(0.0)));
    b.store(Y, at, &[value], None);
    // Every combination of kinds of numbers.
    let states: Vec<[f64; 4]> = (0..256).map(|i| [0, 2, 4, 6].map(|shift| KINDS[i >> shift & 3])).collect();
    let found = run(&b.finish(), &states.concat(), 256);
    for ([a, v, next_a, next_v], found) in states.into_iter().zip(found) {
        let wanted = (a.is_finite() || v.is_finite()) && !(next_a.is_finite() && next_v.is_finite());
        assert_eq!(found, f64::from(u8::from(wanted)), "({a}, {v}) → ({next_a}, {next_v})");
    }
}
