//! Second derivatives: the adjoint of an adjoint, residuals being parameters like any other.

use oplus_dsl::Ty;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::ir::Program;
use oplus_dsl::testing::operators as standard;
use oplus_dsl::verify::verify;

use crate::harness::Case;
use crate::programs::{self, EXCLUSIVE, FORWARD};

fn check(program: &Program, sizes: &[(&str, usize)], positive: &[&str]) {
    let bar = adjoint(program).unwrap();
    Case::new(&bar, sizes, 21).positive(positive).check();
    assert_eq!(verify(&adjoint(&bar).unwrap()), Ok(()));
}

#[test]
fn second_derivatives_of_scans() {
    check(&programs::affine(FORWARD), &[("B", 2), ("L", 3)], &[]);
    check(&programs::affine(EXCLUSIVE), &[("B", 1), ("L", 3)], &[]);
    check(&programs::selective_scan(), &[("B", 1), ("D", 2), ("L", 2), ("N", 2)], &[]);
    check(&programs::log_decay(FORWARD), &[("L", 3), ("K", 1), ("V", 2)], &[]);
    check(&programs::states(standard::complex_affine(Ty::F64), FORWARD, true), &[("B", 1), ("T", 3)], &[]);
}

#[test]
fn second_derivatives_of_reductions() {
    check(&programs::attention(), &[("Q", 1), ("T", 3), ("V", 2)], &[]);
    check(&programs::totals(standard::product(Ty::F64)), &[("B", 1), ("T", 4)], &[]);
    check(&programs::totals(standard::log_sum_exp(Ty::F64)), &[("B", 1), ("T", 4)], &[]);
}

#[test]
fn second_derivatives_of_a_gauged_scan() {
    check(&programs::attention_scan(FORWARD), &[("T", 3), ("V", 1)], &["d0"]);
}
