//! The standard functions that are made of others, against other implementations, in f64 and in f32.

use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::interpret::{Array, Mode, Order, Precision, interpret};
use oplus_dsl::ir::Program;

use crate::common::lowered;

/// A kernel of one of the functions.
fn kernel(call: &str) -> Program {
    lowered(&format!("pub fn f(x: [T], y: [T]) -> (z: [T]) {{ z = {call}; }}")).swap_remove(0)
}

/// The values at some points in calls of a type.
fn values(call: &str, elem: Elem, points: &[(f64, f64)]) -> Vec<f64> {
    let array = |data: Vec<f64>| Some(Array::floats(&[data.len()], data));
    let (x, y) = points.iter().copied().unzip();
    let mode = Mode { precision: Precision::Storage, order: Order::Sequential };
    let program = kernel(call).instantiate(elem);
    interpret(&program, &[array(x), array(y)], mode).expect("runs")[0].as_floats().expect("floats").to_vec()
}

/// The derivatives by x and by y.
fn slopes(call: &str, points: &[(f64, f64)]) -> [Vec<f64>; 2] {
    let bar = adjoint(&kernel(call).instantiate(Elem::F64)).expect("a gradient");
    let (x, y): (Vec<f64>, Vec<f64>) = points.iter().copied().unzip();
    let given = bar.params.iter().map(|param| {
        Some(Array::floats(
            &[points.len()],
            match param.name.as_str() {
                "x" => x.clone(),
                "y" => y.clone(),
                _ => vec![1.0; points.len()],
            },
        ))
    });
    let outputs = interpret(&bar, &given.collect::<Vec<_>>(), Mode::default()).expect("runs");
    let of = |name: &str| {
        let k = bar.outputs.iter().position(|o| o.name == name).expect("an output");
        outputs[k].as_floats().expect("floats").to_vec()
    };
    [of("x.bar"), of("y.bar")]
}

/// erf by its series, and 1 − erfc by its continued fraction: neither is what the library does.
fn erf(x: f64) -> f64 {
    let (size, scale) = (x.abs(), 2.0 / std::f64::consts::PI.sqrt());
    if size < 2.0 {
        let mut term = size;
        let mut sum = size;
        for n in 1..120 {
            term *= -size * size / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        return scale * sum.copysign(x);
    }
    let fraction = (1..200).rev().fold(size, |rest, n| size + f64::from(n) / 2.0 / rest);
    (1.0 - (-size * size).exp() / (std::f64::consts::PI.sqrt() * fraction)).copysign(x)
}

fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + erf(x / 2.0f64.sqrt()))
}

type Reference = fn(f64, f64) -> f64;

/// Call, reference, bounds in units of ε relative to the value plus this much: f64, f32, and the part that is absolute.
const CASES: [(&str, Reference, [f64; 2], f64); 7] = [
    ("expm1(x)", |x, _| x.exp_m1(), [6.0, 6.0], 0.0),
    ("log2(abs(x))", |x, _| x.abs().log2(), [2.0, 2.0], 0.0),
    ("round(x)", |x, _| x.round_ties_even(), [0.0, 0.0], 0.0),
    ("erf(x)", |x, _| erf(x), [8.0, 4.0], 0.0),
    ("gelu(x)", |x, _| gelu(x), [8.0, 6.0], 1.0),
    ("atan2(y, x)", |x, y| y.atan2(x), [3.0, 3.0], 0.0),
    ("pow(abs(x), y)", |x, y| x.abs().powf(y), [3.0, 3.0], 0.0),
];

fn points() -> Vec<(f64, f64)> {
    let near = (-600..600).map(|k| f64::from(k) * 0.0131 + 0.0007);
    let tiny = [1e-12, -3e-9, 2.5e-5, 0.5, 1.5, 2.5, -0.5, -1.5, 0.84375, 1.25, 2.857_142_8, 5.9];
    let all: Vec<f64> = near.chain(tiny).collect();
    all.iter().enumerate().map(|(k, x)| (*x, all[(k * 7 + 3) % all.len()])).collect()
}

#[test]
fn values_are_within_their_bounds() {
    for elem in [Elem::F64, Elem::F32] {
        let round = |x: f64| if elem == Elem::F32 { f64::from(x as f32) } else { x };
        let points: Vec<(f64, f64)> = points().into_iter().map(|(x, y)| (round(x), round(y))).collect();
        let epsilon = if elem == Elem::F32 { f64::from(f32::EPSILON) } else { f64::EPSILON };
        for (call, exact, bounds, absolute) in CASES {
            let bound = bounds[usize::from(elem == Elem::F32)];
            for (found, (x, y)) in values(call, elem, &points).into_iter().zip(&points) {
                let exact = exact(*x, *y);
                // The bounds are those of results that are normal numbers.
                let (smallest, largest) = match elem {
                    Elem::F32 => (f64::from(f32::MIN_POSITIVE), f64::from(f32::MAX)),
                    _ => (f64::MIN_POSITIVE, f64::MAX),
                };
                if exact != 0.0 && exact.abs() < smallest || exact.abs() > largest {
                    let limit = if exact.abs() > largest { f64::INFINITY } else { smallest };
                    assert!(
                        found.abs() <= limit && (limit == smallest || found.abs() == limit),
                        "{call} of {x:e}, {y:e}"
                    );
                    continue;
                }
                // An error of y·ln x is as large relative to the power as it is itself.
                let bound = if call.starts_with("pow") { bound * (1.0 + exact.ln().abs()) } else { bound };
                let error = (found - exact).abs() / (epsilon * (exact.abs() + absolute).max(f64::MIN_POSITIVE));
                assert!(error <= bound, "{call} of {x:e}, {y:e} in {elem}: {found:e}, not {exact:e}, {error} ε");
            }
        }
    }
}

#[test]
fn derivatives_are_those_of_the_functions() {
    let points: Vec<(f64, f64)> = points().into_iter().filter(|(x, y)| x.abs() > 1e-3 && y.abs() > 1e-3).collect();
    let scale = 2.0 / std::f64::consts::PI.sqrt();
    type Slopes = fn(f64, f64, f64) -> [f64; 2];
    let cases: [(&str, Slopes); 6] = [
        ("expm1(x)", |x, _, _| [x.exp(), 0.0]),
        ("log2(abs(x))", |x, _, _| [1.0 / (x * std::f64::consts::LN_2), 0.0]),
        ("erf(x)", |x, _, scale| [scale * (-x * x).exp(), 0.0]),
        ("gelu(x)", |x, _, scale| {
            let density = scale * 0.5 / 2.0f64.sqrt() * (-x * x / 2.0).exp();
            [0.5 * (1.0 + erf(x / 2.0f64.sqrt())) + x * density, 0.0]
        }),
        ("atan2(y, x)", |x, y, _| [-y / (x * x + y * y), x / (x * x + y * y)]),
        ("pow(abs(x), y)", |x, y, _| [y * x.abs().powf(y) / x, x.abs().powf(y) * x.abs().ln()]),
    ];
    for (call, exact) in cases {
        let [by_x, by_y] = slopes(call, &points);
        for ((found, (x, y)), other) in by_x.into_iter().zip(&points).zip(by_y) {
            let exact = exact(*x, *y, scale);
            for (found, exact) in [found, other].into_iter().zip(exact) {
                let close = (found - exact).abs() <= 2e-12 * (1.0 + exact.abs());
                assert!(close, "{call} at {x}, {y}: {found:e}, not {exact:e}");
            }
        }
    }
}

#[test]
fn limits_and_special_values() {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    let of = |call: &str, points: &[(f64, f64)]| values(call, Elem::F64, points);
    let all = [(0.0, 0.0), (inf, 0.0), (-inf, 0.0)];
    assert_eq!(of("expm1(x)", &all), [0.0, inf, -1.0]);
    assert_eq!(of("erf(x)", &all), [0.0, 1.0, -1.0]);
    assert_eq!(of("gelu(x)", &all), [0.0, inf, 0.0]);
    assert_eq!(of("log2(x)", &all[..2]), [-inf, inf]);
    assert_eq!(of("round(x)", &all), [0.0, inf, -inf]);
    assert_eq!(of("pow(x, y)", &[(0.0, 0.0), (0.0, 2.0), (0.0, -1.0), (-2.0, 3.0), (-2.0, 2.0)])[..3], [1.0, 0.0, inf]);
    let powers = of("pow(x, y)", &[(-2.0, 3.0), (-2.0, 2.0), (2.0, -1.0)]);
    assert!(powers.iter().zip([-8.0, 4.0, 0.5]).all(|(found, exact)| (found - exact).abs() < 1e-14), "{powers:?}");
    assert!(of("pow(x, y)", &[(-2.0, 0.5), (0.0, nan), (nan, 1.0)]).into_iter().all(f64::is_nan));
    assert_eq!(of("atan2(y, x)", &[(0.0, 0.0), (-1.0, 0.0), (1.0, 0.0)]), [0.0, std::f64::consts::PI, 0.0]);
    for call in ["expm1(x)", "erf(x)", "gelu(x)", "log2(x)", "round(x)", "atan2(y, x)", "atan2(x, y)"] {
        assert!(of(call, &[(nan, 1.0)])[0].is_nan(), "{call}");
    }
    let [by_x, _] = slopes("erf(x) + gelu(x) + expm1(x) + atan2(x, y)", &[(700.0, 1.0), (-700.0, 1.0), (0.0, 1.0)]);
    assert!(by_x.iter().all(|slope| slope.is_finite()), "{by_x:?}");
}

#[test]
fn a_function_of_the_same_name_goes_first() {
    let block = "fn round(x) { 3 * x } pub fn f(x: [T]) -> (z: [T]) { z = round(x); }";
    let x = Array::floats(&[2], vec![1.5, 2.0]);
    let found = interpret(&lowered(block)[0], &[Some(x)], Mode::default()).expect("runs");
    assert_eq!(found[0].as_floats().expect("floats"), [4.5, 6.0]);
}
