//! Adjoints and equations as they read.

use oplus_dsl::Ty;
use oplus_dsl::adjoint::{adjoint, equations};
use oplus_dsl::forward::tangent;
use oplus_dsl::ir::Program;
use oplus_dsl::testing::operators as standard;

use crate::programs::{self, EXCLUSIVE, FORWARD, REVERSE};

/// The equations of a program and of its adjoint.
fn both(program: &Program) -> String {
    format!("{}\n{}", equations(program), equations(&adjoint(program).unwrap()))
}

#[test]
fn adjoint_programs() {
    insta::assert_snapshot!("affine_adjoint", adjoint(&programs::affine(FORWARD)).unwrap());
    insta::assert_snapshot!("attention_adjoint", adjoint(&programs::attention()).unwrap());
    insta::assert_snapshot!("log_decay_total_adjoint", adjoint(&programs::log_decay_total()).unwrap());
}

#[test]
fn a_tangent_program() {
    insta::assert_snapshot!("sum_tangent", tangent(&programs::totals(standard::sum(Ty::F64))).unwrap());
}

#[test]
fn equations_of_scans() {
    insta::assert_snapshot!("affine_equations", both(&programs::affine(FORWARD)));
    insta::assert_snapshot!("exclusive_affine_equations", both(&programs::affine(EXCLUSIVE)));
    insta::assert_snapshot!("ema_equations", both(&programs::ema()));
    insta::assert_snapshot!("selective_scan_equations", both(&programs::selective_scan()));
    insta::assert_snapshot!("log_decay_equations", both(&programs::log_decay(REVERSE)));
    insta::assert_snapshot!("segmented_affine_equations", both(&programs::segmented_affine()));
    insta::assert_snapshot!("complex_affine_equations", {
        both(&programs::states(standard::complex_affine(Ty::F64), FORWARD, true))
    });
}

#[test]
fn equations_of_reductions() {
    insta::assert_snapshot!("attention_equations", both(&programs::attention()));
    insta::assert_snapshot!("attention_scan_equations", both(&programs::attention_scan(FORWARD)));
    insta::assert_snapshot!("product_equations", both(&programs::totals(standard::product(Ty::F64))));
    insta::assert_snapshot!("argmax_equations", both(&programs::argmax()));
    insta::assert_snapshot!("many_uses_equations", both(&programs::many_uses()));
    insta::assert_snapshot!("positions_equations", both(&programs::positions()));
}
