//! The values that a gauge may change, and those that are read.

use crate::ir::{Binary, Unary};

use super::approx::Approx;
use super::evaluate::Number;

/// (m + c, p·exp(−c)).
pub(super) fn shift(state: &[Number], m: u32, c: f64) -> Vec<Number> {
    let factor = Approx::unary(Unary::Exp, Approx::exact(-c));
    map_floats(state, |k, p| match k == m as usize {
        true => Approx::binary(Binary::Add, p, Approx::exact(c)),
        false => Approx::binary(Binary::Mul, p, factor),
    })
}

/// p·exp(m) of every field, 0 for m itself.
pub(super) fn reading(state: &[Number], m: u32) -> Vec<Number> {
    let exponent = state[m as usize].approx().unwrap_or(Approx::exact(0.0));
    let factor = Approx::unary(Unary::Exp, exponent);
    map_floats(state, |k, p| match k == m as usize {
        true => Approx::exact(0.0),
        false => Approx::binary(Binary::Mul, p, factor),
    })
}

fn map_floats(state: &[Number], f: impl Fn(usize, Approx) -> Approx) -> Vec<Number> {
    let map = |(k, number): (usize, &Number)| number.approx().map_or(*number, |p| f(k, p).into());
    state.iter().enumerate().map(map).collect()
}
