//! Corner cases of values: infinities, ties, zeros, and a known trap.

use std::collections::HashMap;

use oplus_dsl::Ty;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::interpret::Array;
use oplus_dsl::ir::Program;
use oplus_dsl::specialize::without_param;
use oplus_dsl::testing::operators as standard;

use crate::harness::{Case, floats};
use crate::operators;
use crate::programs::{self, FORWARD};

const INF: f64 = f64::INFINITY;

/// The gradient of one parameter when the cotangents of one output are all 1.
fn gradient(case: &Case<'_>, output: &str, param: &str) -> Vec<f64> {
    let adjoint = adjoint(case.program).unwrap();
    let ones = case.run(case.program, &case.inputs)[output].clone();
    let ones = Array::floats(&ones.sizes, vec![1.0; ones.data.len()]);
    let gradients = case.gradients(&adjoint, &HashMap::from([(output.to_owned(), ones)]));
    floats(&gradients[&format!("{param}.bar")])
}

/// ā[t] = λ[t]·h[t−1] couples the two fields of the affine operator; a well-known framework left it out.
#[test]
fn affine_a_gradient_couples_fields() {
    let program = programs::affine(FORWARD);
    let case = Case::new(&program, &[("B", 1), ("L", 3)], 0);
    let case = case.with("a", [0.5, 2.0, 3.0]).with("b", [1.0, 10.0, 100.0]).with("h0", [4.0]);
    // h = 3, 16, 148; λ = 1 + 2·(1 + 3·1), 1 + 3·1, 1.
    assert_eq!(gradient(&case, "h", "a"), [9.0 * 4.0, 4.0 * 3.0, 16.0]);
    assert_eq!(gradient(&case, "h", "b"), [9.0, 4.0, 1.0]);
    assert_eq!(gradient(&case, "h", "h0"), [4.5]);
    // Of the last state alone: λ = 6, 3, 1.
    assert_eq!(gradient(&case, "h_last", "a"), [6.0 * 4.0, 3.0 * 3.0, 16.0]);
}

#[test]
fn a_decay_of_minus_infinity_forgets_without_nan() {
    let program = programs::log_decay(FORWARD);
    let case = Case::new(&program, &[("L", 4), ("K", 2), ("V", 2)], 1).with("g", [-0.5, -INF, -0.25, -INF]);
    let g = gradient(&case, "y", "g");
    assert!(g[0] != 0.0 && g[1] == 0.0 && g[2] != 0.0 && g[3] == 0.0, "{g:?}");
    for param in ["k", "v", "q", "x0"] {
        assert!(gradient(&case, "y", param).iter().all(|x| x.is_finite()), "{param}");
    }
    let total = programs::log_decay_total();
    let case = Case::new(&total, &[("L", 3), ("K", 2)], 1).with("g", [-INF, -0.5, -INF]);
    assert_eq!(gradient(&case, "y", "g"), [0.0; 3]);
    assert_eq!(gradient(&case, "y", "x"), [0.0, 0.0, 0.0, 0.0, 1.0, 1.0]);
}

#[test]
fn masked_scores_get_no_gradient() {
    let program = programs::attention();
    let case = Case::new(&program, &[("Q", 1), ("T", 4), ("V", 2)], 2).with("s", [-INF, 0.5, -INF, -1.0]);
    let s = gradient(&case, "lse", "s");
    assert!(s[0] == 0.0 && s[2] == 0.0 && (s[1] + s[3] - 1.0).abs() < 1e-15, "{s:?}");
    assert!(gradient(&case, "y", "s").iter().all(|x| x.is_finite()));
    let scan = programs::attention_scan(FORWARD);
    let case = Case::new(&scan, &[("T", 3), ("V", 2)], 3);
    let case = case.with("s", [-INF, 0.5, -INF]).with("m0", [0.25]).with("d0", [1.0]);
    let s = gradient(&case, "y", "s");
    assert!(s[0] == 0.0 && s[1].is_finite() && s[2] == 0.0, "{s:?}");
}

#[test]
fn ties_go_to_the_lowest_index() {
    let tied = [3.0, 7.0, 7.0, 7.0, 1.0];
    for (program, name) in [(programs::totals(standard::max(Ty::F64)), "m"), (programs::argmax(), "x")] {
        let output = program.outputs[0].name.clone();
        let case = Case::new(&program, &[("B", 1), ("T", 5)], 0).with(name, tied);
        assert_eq!(gradient(&case, &output, name), [0.0, 1.0, 0.0, 0.0, 0.0]);
    }
    let min = programs::totals(operators::min());
    let case = Case::new(&min, &[("B", 1), ("T", 3)], 0).with("m", [2.0, 2.0, 5.0]);
    assert_eq!(gradient(&case, "m_out", "m"), [1.0, 0.0, 0.0]);
}

#[test]
fn nothing_wins_among_elements_equal_to_the_identity() {
    let program = programs::totals(standard::max(Ty::F64));
    let case = Case::new(&program, &[("B", 1), ("T", 2)], 0).with("m", [-INF, -INF]);
    assert_eq!(gradient(&case, "m_out", "m"), [0.0, 0.0]);
}

#[test]
fn log_sum_exp_of_nothing_is_flat() {
    let program = programs::totals(standard::log_sum_exp(Ty::F64));
    let case = Case::new(&program, &[("B", 2), ("T", 2)], 0).with("s", [-INF, -INF, -INF, 0.5]);
    assert_eq!(gradient(&case, "s_out", "s"), [0.0, 0.0, 0.0, 1.0]);
}

/// The gradients of a program when a cotangent is zero, and when it is absent.
fn zero_and_absent(program: &Program, inputs: &[(&str, Vec<f64>)], cotangent: &str) -> [Vec<f64>; 2] {
    let adjoint = adjoint(program).unwrap();
    let case = Case::new(program, &[("B", 1), ("L", 2)], 4);
    let case = inputs.iter().fold(case, |case, (name, xs)| case.with(name, xs.clone()));
    let absent = without_param(&adjoint, &format!("{cotangent}.bar"));
    let ones = |name: &str| {
        let output = case.run(program, &case.inputs)[name].clone();
        Array::floats(&output.sizes, vec![1.0; output.data.len()])
    };
    let given = HashMap::from([("h_last".to_owned(), ones("h_last"))]);
    [&adjoint, &absent].map(|bar| floats(&case.gradients(bar, &given)["a.bar"]))
}

#[test]
fn an_absent_cotangent_is_a_zero_and_stops_infinities() {
    let [zero, absent] = zero_and_absent(&programs::affine(FORWARD), &[], "h");
    assert_eq!(zero, absent);
    let infinite = [("b", vec![INF, 0.0])];
    let adjoint = adjoint(&programs::affine(FORWARD)).unwrap();
    let nothing = without_param(&without_param(&adjoint, "h.bar"), "h_last.bar");
    let program = programs::affine(FORWARD);
    let case = Case::new(&program, &[("B", 1), ("L", 2)], 4).with("b", infinite[0].1.clone());
    assert_eq!(floats(&case.gradients(&nothing, &HashMap::new())["a.bar"]), [0.0, 0.0]);
}
