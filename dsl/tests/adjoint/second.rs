//! Second and third derivatives: adjoints of adjoints, residuals being parameters like any other.

use oplus_dsl::Ty;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::interpret::{Array, Mode, interpret};
use oplus_dsl::ir::{Param, Program};
use oplus_dsl::testing::inputs;
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

/// Random values for all parameters, also for those that may be left out.
fn random(program: &Program, sizes: &[usize], seed: u64) -> Vec<Option<Array>> {
    let mut required = program.clone();
    required.params.iter_mut().for_each(|param| param.default = None);
    inputs(&required, sizes, seed)
}

/// Σ over outputs of their products with cotangents, which are the last parameters of the adjoint in the outputs' order.
fn value(program: &Program, given: &[Option<Array>], bars: &[Option<Array>]) -> f64 {
    let outputs = interpret(program, given, Mode::default()).unwrap();
    let dot = |(x, bar): (&Array, &Option<Array>)| -> f64 {
        let bar = bar.as_ref().unwrap();
        x.as_floats().unwrap().iter().zip(bar.as_floats().unwrap()).map(|(x, y)| x * y).sum()
    };
    outputs.iter().zip(bars).map(dot).sum()
}

/// The adjoint of a program against differences of the program.
fn check_differences(program: &Program, sizes: &[usize]) {
    let bar = adjoint(program).unwrap();
    let given = random(program, sizes, 5);
    let outputs = interpret(program, &given, Mode::default()).unwrap();
    let n = bar.params.len() - program.outputs.len();
    let sizes_of_bar: Vec<usize> = bar.axes.iter().map(|axis| sizes[program.axis(axis).unwrap().0 as usize]).collect();
    let all = random(&bar, &sizes_of_bar, 6);
    let bars = &all[n..];
    let known = |param: &Param, k: usize| match program.param(&param.name) {
        Some(at) => given[at as usize].clone(),
        None if k >= n => all[k].clone(),
        None => program.outputs.iter().position(|o| o.name == param.name).map(|at| outputs[at].clone()),
    };
    let named: Vec<Option<Array>> =
        bar.params.iter().enumerate().map(|(k, param)| if k >= n { all[k].clone() } else { known(param, k) }).collect();
    let gradients = interpret(&bar, &named, Mode::default()).unwrap();
    for (k, param) in program.params.iter().enumerate() {
        let at = bar.outputs.iter().position(|o| o.name == format!("{}.bar", param.name)).unwrap();
        let array = given[k].as_ref().unwrap();
        for (i, found) in gradients[at].as_floats().unwrap().iter().enumerate() {
            let moved = |by: f64| {
                let mut data = array.as_floats().unwrap().to_vec();
                data[i] += by;
                let mut moved = given.clone();
                moved[k] = Some(Array::floats(&array.sizes, data));
                value(program, &moved, bars)
            };
            let expected = (moved(1e-4) - moved(-1e-4)) / 2e-4;
            assert!((found - expected).abs() <= 1e-5 * (1.0 + expected.abs()), "{}: {found}, {expected}", param.name);
        }
    }
}

#[test]
fn third_derivatives_are_those_of_second_ones() {
    let of = |program: Program, sizes: &[usize]| {
        let second = adjoint(&adjoint(&program).unwrap()).unwrap();
        let sizes: Vec<usize> = second.axes.iter().map(|axis| sizes[program.axis(axis).unwrap().0 as usize]).collect();
        check_differences(&second, &sizes);
        let third = adjoint(&second).unwrap();
        assert_eq!(verify(&adjoint(&third).unwrap()), Ok(()));
    };
    of(programs::affine(FORWARD), &[1, 3]);
    of(programs::log_decay(FORWARD), &[2, 2, 2]);
    of(programs::totals(standard::log_sum_exp(Ty::F64)), &[1, 3]);
}
