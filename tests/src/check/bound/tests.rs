//! The evaluation with errors gives the interpreter's values, and its bounds hold for rounded evaluation.

use oplus_dsl::interpret::{Array, Data, Mode, Order, Precision, interpret_sized};
use oplus_dsl::ir::{Axis, Binary, Literal, Program};
use oplus_dsl::testing::{Ingredients, inputs, program};
use oplus_dsl::{Elem, Ty};

use super::*;

const SIZES: [[usize; 4]; 4] = [[2, 7, 3, 2], [1, 33, 2, 3], [3, 1, 1, 1], [2, 0, 3, 2]];

fn arrays(program: &Program, sizes: &[usize], seed: u64) -> Vec<Array> {
    let mut required = program.clone();
    required.params.iter_mut().for_each(|p| p.default = None);
    let mut arrays: Vec<Array> = inputs(&required, sizes, seed).into_iter().flatten().collect();
    for (array, param) in arrays.iter_mut().zip(&program.params) {
        if let Data::Float(values) = &mut array.data {
            values.iter_mut().for_each(|x| *x = oplus_dsl::scalar::round(param.elem, *x));
        }
    }
    arrays
}

fn interpreted(program: &Program, inputs: &[Array], sizes: &[usize], mode: Mode) -> Vec<Array> {
    let given: Vec<Option<Array>> = inputs.iter().cloned().map(Some).collect();
    let named: Vec<(Axis, usize)> = (0..).map(Axis).zip(sizes.iter().copied()).collect();
    interpret_sized(program, &given, &named, mode).expect("runs")
}

/// Calls `check` with every element of the outputs of random programs: its cell and what the interpreter says in a mode.
fn for_each_element(mode: Mode, mut check: impl FnMut(Cell, Literal, &Program)) {
    let ingredients = Ingredients { elems: vec![Elem::F32, Elem::F64], ..Ingredients::default() };
    for seed in 0..120 {
        let program = program(seed, &ingredients);
        let sizes = &SIZES[seed as usize % 4][..program.axes.len()];
        let given = arrays(&program, sizes, seed);
        let found = evaluate(&program, &given, sizes);
        let expected = interpreted(&program, &given, sizes, mode);
        for (cells, array) in found.iter().zip(&expected) {
            assert_eq!(cells.len(), array.data.len(), "{program}");
            cells.iter().enumerate().for_each(|(i, cell)| check(*cell, array.data.get(i), &program));
        }
    }
}

#[test]
fn values_are_those_of_the_interpreter() {
    let mut count = 0;
    for_each_element(Mode::default(), |cell, expected, program| {
        count += 1;
        let (found, expected) = (cell.value(), expected.as_f64());
        let close = (found - expected).abs() <= 1e-9 * (1.0 + expected.abs());
        let unsure = matches!(cell, Cell::Sure(_, false));
        assert!(
            close || unsure || found == expected || found.is_nan() && expected.is_nan(),
            "{found} {expected}\n{program}"
        );
    });
    assert!(count > 1000);
}

#[test]
fn rounded_evaluation_stays_within_its_bounds_in_either_order() {
    for order in [Order::Sequential, Order::Tree] {
        let (mut bounded, mut all) = (0, 0);
        for_each_element(Mode { precision: Precision::Storage, order }, |cell, found, program| {
            all += 1;
            match cell {
                Cell::Float(x) if x.error.is_finite() && x.value.is_finite() => {
                    let elem = Elem::F32;
                    let bound = SLACK * x.error + 2.0 * unit(elem) * x.value.abs() + 1e-37;
                    let error = (found.as_f64() - x.value).abs();
                    assert!(error <= bound, "{} is wrong by {error:e}, more than {bound:e}\n{program}", x.value);
                    bounded += 1;
                }
                Cell::Sure(literal, true) => {
                    assert_eq!(literal.as_f64(), found.as_f64(), "{program}");
                    bounded += 1;
                }
                _ => {}
            }
        });
        assert!(bounded * 100 > all * 95, "only {bounded} of {all} elements have a bound");
    }
}

#[test]
fn sums_of_whole_numbers_are_exact_and_others_are_not() {
    let program = oplus_dsl::parse::parse(
        "program cumsum { axes L; param x: f32[L]; operator Sum(s: f32) { identity (0.0); %0: f32 = input l.s;
        %1: f32 = input r.s; %2: f32 = %0 + %1; combine (%2); } %0: f32[L] = param x;
        %1: tuple[L] = scan(L, Sum, (%0)); %2: f32[L] = %1.s; output y: f32[L] = %2; }",
    )
    .expect("parses");
    let errors = |step: f64| -> Vec<f64> {
        let x = Array::floats(&[64], (0..64).map(|i| step * f64::from(i % 7 - 3)).collect::<Vec<_>>());
        let cells = evaluate(&program, &[x], &[64]).remove(0);
        cells.into_iter().map(|c| if let Cell::Float(x) = c { x.error } else { f64::NAN }).collect()
    };
    assert!(errors(1.0).iter().all(|e| *e == 0.0));
    let inexact = errors(0.1);
    assert!(inexact[0] == 0.0 && inexact[1..].iter().all(|e| *e > 0.0));
    let most: f64 = (0..64).map(|i| 0.1 * f64::from(i % 7 - 3).abs()).sum::<f64>() * 6.0 * 2f64.powi(-24);
    assert!(inexact[63] <= most * 1.0001, "{} is above log2(64) units of the absolute sum, {most}", inexact[63]);
}

#[test]
fn what_overflows_has_no_bound() {
    use oplus_dsl::Ty;
    use oplus_dsl::ir::Binary;
    let times = |ty, l, r| Number::binary(Binary::Mul, ty, l, r);
    let [zero, large] = [0.0, 1e30].map(Number::exact);
    let square = times(Ty::F32, large, large);
    assert!(square.error.is_infinite());
    assert!(times(Ty::F32, zero, square).error.is_infinite(), "zero times infinity is not a number");
    assert!(times(Ty::F64, large, large).error.is_finite());
}

#[test]
fn states_of_matrices_are_the_interpreters_and_keep_their_bounds() {
    let models = oplus_front::model_programs();
    let model = |name: &str| models.iter().find(|model| model.name == name).expect("a model").instantiate(Elem::F32);
    let dense = "pub fn dense(m: [T, K, J], x: [T, K, V], s0: [K, V] = 0) -> (s: [T, K, V]) {
        s = scan(T, segmented(MatrixAffine)(m, x), reset = index(T) % 4 == 2, init = s0, reverse);
    }";
    let dense = oplus_front::programs(dense.parse().expect("tokens")).expect("a kernel").remove(0);
    for program in [model("delta_rule"), model("kda"), dense.instantiate(Elem::F32)] {
        let size = |axis: &String| if axis == "T" { 9 } else { 3 };
        let sizes: Vec<usize> = program.axes.iter().map(size).collect();
        let given = arrays(&program, &sizes, 5);
        let found = evaluate(&program, &given, &sizes);
        let storage = Mode { precision: Precision::Storage, order: Order::Sequential };
        for (mode, exact) in [(Mode::default(), true), (storage, false)] {
            for (cells, array) in found.iter().zip(interpreted(&program, &given, &sizes, mode)) {
                for (k, cell) in cells.iter().enumerate() {
                    let Cell::Float(number) = cell else { panic!("{cell:?}") };
                    let apart = (number.value - array.data.get(k).as_f64()).abs();
                    let rounding = SLACK * number.error + 2.0 * unit(Elem::F32) * number.value.abs() + 1e-37;
                    let most = if exact { 1e-12 * (1.0 + number.value.abs()) } else { rounding };
                    assert!(apart <= most, "{}: {apart} > {most}", program.name);
                }
            }
        }
    }
}

#[test]
fn roundings_of_the_smallest_numbers_have_errors() {
    let product = Number::binary(Binary::Mul, Ty::F64, Number::exact(1e-200), Number::exact(1e-115));
    assert!(product.value > 0.0 && product.error > 0.0, "{product:?}");
    let exact = Number::binary(Binary::Mul, Ty::F64, Number::exact(0.0), Number::exact(1e-115));
    assert!(exact.error == 0.0, "{exact:?}");
}

#[test]
fn in_f64_the_interpreter_is_as_deep_as_a_walk() {
    let of = |elem| slack(&[], &[3, 8209], elem).factor;
    assert!(of(Elem::F64) > 8209.0 / 14.0 && of(Elem::F32) == SLACK);
}
