//! Running blocks in the interpreter.

use oplus_dsl::interpret::{Array, Mode, Order, interpret_sized};
use oplus_dsl::ir::Program;
use oplus_front::programs;
use proc_macro2::TokenStream;

/// The programs of a correct block.
pub(crate) fn lowered(block: &str) -> Vec<Program> {
    let tokens: TokenStream = block.parse().expect("tokens");
    programs(tokens).unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

/// One row of floats.
pub(crate) fn row(data: &[f64]) -> Array {
    Array::floats(&[1, data.len()], data)
}

/// One row of integers.
pub(crate) fn int_row(data: &[i64]) -> Array {
    Array::ints(&[1, data.len()], data)
}

/// The outputs of a program in f64; inputs by name, those not named are left out. Both orders of combination must agree
/// to rounding; the sequential one's result is given.
pub(crate) fn run(program: &Program, inputs: &[(&str, Array)]) -> Vec<Array> {
    let of = |name: &str| inputs.iter().find(|(given, _)| *given == name).map(|(_, array)| array.clone());
    let given: Vec<Option<Array>> = program.params.iter().map(|param| of(&param.name)).collect();
    let [sequential, tree] = [Order::Sequential, Order::Tree].map(|order| {
        let mode = Mode { order, ..Mode::default() };
        interpret_sized(program, &given, &[], mode).unwrap_or_else(|error| panic!("{}: {error}", program.name))
    });
    for (a, b) in sequential.iter().zip(&tree) {
        match (a.as_floats(), b.as_floats()) {
            (Some(a), Some(b)) => close(a, b),
            _ => assert_eq!(a, b),
        }
    }
    sequential
}

/// Asserts that floats agree to rounding; NaN and infinities exactly.
pub(crate) fn close(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (k, (a, b)) in found.iter().zip(expected).enumerate() {
        let same = a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= 1e-12 * (1.0 + b.abs());
        assert!(same, "at {k}: {a} instead of {b}\nfound    {found:?}\nexpected {expected:?}");
    }
}
