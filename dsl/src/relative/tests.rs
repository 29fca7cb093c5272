//! The rewritten programs against the interpreter's results of those that were written.

use super::*;
use crate::interpret::{Array, Data, Mode, interpret_sized};
use crate::ir::Axis;
use crate::parse::parse;
use crate::verify::verify;

/// A sum over E of an expression of q, p of rows, k, l of columns, and a frequency.
fn program(body: &[&str]) -> Program {
    let head = [
        "f64[M, E] = param q",
        "f64[M, E] = param p",
        "f64[N, E] = param k",
        "f64[N, E] = param l",
        "f64[E] = param f",
        "i64[M] = index(M)",
        "i64[N] = index(N)",
    ];
    let lines: Vec<String> = head.iter().chain(body).enumerate().map(|(i, line)| format!("%{i}: {line};")).collect();
    let last = lines.len() - 1;
    let text = format!(
        "program p {{ axes M, N, E; param q: f64[M, E]; param p: f64[M, E]; param k: f64[N, E]; param l: f64[N, E]; param f: f64[E];
         operator Sum(s: f64) {{ identity (0.0); %0: f64 = input l.s; %1: f64 = input r.s; %2: f64 = %0 + %1; combine (%2); }}
         {} %{}: tuple[M, N] = reduce(E, Sum, (%{last})); %{}: f64[M, N] = %{}.s; output s: f64[M, N] = %{}; }}",
        lines.join("\n"),
        last + 1,
        last + 2,
        last + 1,
        last + 2,
    );
    parse(&text).unwrap_or_else(|mistakes| panic!("{mistakes:?} in {text}"))
}

/// (i − j)·f, or (i + j)·f, divided by 3.
fn angle(op: &str) -> [String; 5] {
    [
        format!("i64[M, N] = %5 {op} %6"),
        "f64[M, N] = convert(f64, %7)".to_owned(),
        "f64[M, N, E] = %8 * %4".to_owned(),
        "f64 = const 3.0".to_owned(),
        "f64[M, N, E] = %9 / %10".to_owned(),
    ]
}

fn with_angle(op: &str, body: &[&str]) -> Program {
    let angle = angle(op);
    program(&angle.iter().map(String::as_str).chain(body.iter().copied()).collect::<Vec<_>>())
}

/// The rotation of pairs.
const ROTATION: [&str; 10] = [
    "f64[M, N, E] = cos(%11)",
    "f64[M, N, E] = sin(%11)",
    "f64[M, N, E] = %0 * %2",
    "f64[M, N, E] = %1 * %3",
    "f64[M, N, E] = %14 + %15",
    "f64[M, N, E] = %16 * %12",
    "f64[M, N, E] = %1 * %2",
    "f64[M, N, E] = %0 * %3",
    "f64[M, N, E] = %18 - %19",
    "f64[M, N, E] = %20 * %13",
];

fn rotation(op: &str) -> Program {
    with_angle(op, &[&ROTATION[..], &["f64[M, N, E] = %17 + %21"]].concat())
}

fn given(program: &Program, sizes: &[usize]) -> Vec<Option<Array>> {
    let of = |axes: &[Axis], seed: usize| {
        let sizes: Vec<usize> = axes.iter().map(|axis| sizes[axis.0 as usize]).collect();
        let n: usize = sizes.iter().product();
        let data = Data::Float((0..n).map(|i| ((i * 37 + seed * 11) % 101) as f64 / 51.0 - 1.0).collect());
        Array { sizes, data }
    };
    program.params.iter().enumerate().map(|(k, param)| Some(of(&param.axes, k))).collect()
}

/// Checks that a program changes, into products without any angle of both sides, and gives what it gave.
fn assert_changes(program: &Program) -> Program {
    let changed = crate::simplify::simplify(&relative(program));
    assert_eq!(verify(&changed), Ok(()));
    let waves = changed.nodes.iter().filter(|node| matches!(node.op, Op::Unary(Unary::Cos | Unary::Sin, _)));
    let sides: Vec<AxisSet> = waves.map(|node| node.axes).collect();
    assert!(sides.iter().all(|axes| !axes.contains(Axis(0)) || !axes.contains(Axis(1))), "{changed}");
    for sizes in [[3, 4, 2], [1, 1, 1], [5, 2, 7], [0, 3, 2], [4, 3, 0]] {
        let (inputs, named) = (given(program, &sizes), (0..).map(Axis).zip(sizes).collect::<Vec<_>>());
        let of = |program: &Program| interpret_sized(program, &inputs, &named, Mode::default()).expect("runs");
        for (wanted, found) in of(program).iter().zip(of(&changed)) {
            assert_eq!(wanted.sizes, found.sizes);
            for i in 0..wanted.data.len() {
                let (a, b) = (wanted.data.get(i).as_f64(), found.data.get(i).as_f64());
                assert!((a - b).abs() < 1e-12, "{a} and {b}\n{changed}");
            }
        }
    }
    changed
}

#[test]
fn a_rotation_of_pairs_is_two_products() {
    for op in ["-", "+"] {
        let changed = assert_changes(&rotation(op));
        let is_pair = |node: &&crate::ir::Node| node.axes.contains(Axis(0)) && node.axes.contains(Axis(1));
        let products = changed.nodes.iter().filter(is_pair);
        let products = products.filter(|node| matches!(node.op, Op::Binary(Binary::Mul, ..))).count();
        assert_eq!(products, 2, "{changed}");
    }
}

#[test]
fn weights_of_angles_and_values_without_them_stay() {
    assert_changes(&with_angle("-", &["f64[M, N, E] = cos(%11)"]));
    assert_changes(&with_angle(
        "-",
        &["f64[M, N, E] = sin(%11)", "f64[M, N, E] = %0 * %12", "f64[M, N, E] = %13 * %3"],
    ));
    let both =
        ["f64[M, N, E] = cos(%11)", "f64[M, N, E] = %0 * %2", "f64[M, N, E] = neg(%13)", "f64[M, N, E] = %14 * %12"];
    assert_changes(&with_angle("+", &both));
    let beside = ["f64[M, N, E] = cos(%11)", "f64[M, N, E] = %0 * %2", "f64[M, N, E] = %12 + %13"];
    assert_changes(&with_angle("-", &beside));
}

#[test]
fn sums_that_are_no_products_of_both_sides_stay_as_they_are() {
    let same = |program: &Program| assert_eq!(relative(program), *program, "{program}");
    same(&program(&["f64[M, N, E] = %0 * %2"]));
    same(&with_angle("-", &["f64[M, N, E] = cos(%11)", "f64[M, N, E] = exp(%12)"]));
    same(&with_angle("-", &["f64[M, N, E] = cos(%11)", "f64[M, N, E] = %0 * %2", "f64[M, N, E] = max(%12, %13)"]));
    // The frequency differs along rows.
    let own =
        ["i64[M, N] = %5 - %6", "f64[M, N] = convert(f64, %7)", "f64[M, N, E] = %8 * %0", "f64[M, N, E] = cos(%9)"];
    same(&program(&own));
}

#[test]
fn the_gradient_is_that_of_the_program_as_it_was_written() {
    let program = rotation("-");
    let adjoint = crate::adjoint::adjoint(&program).expect("a gradient");
    assert_eq!(verify(&adjoint), Ok(()));
    let sizes = [3, 4, 2];
    let named: Vec<_> = (0..).map(Axis).zip(sizes).collect();
    let inputs = given(&program, &sizes);
    let loss = |inputs: &[Option<Array>]| {
        let found = interpret_sized(&program, inputs, &named, Mode::default()).expect("runs");
        (0..found[0].data.len()).map(|i| found[0].data.get(i).as_f64() * weight(i)).sum::<f64>()
    };
    let cotangent = Array { sizes: vec![3, 4], data: Data::Float((0..12).map(weight).collect()) };
    let known = |name: &str| program.params.iter().position(|p| p.name == name).and_then(|k| inputs[k].clone());
    let given: Vec<Option<Array>> =
        adjoint.params.iter().map(|param| known(&param.name).or_else(|| Some(cotangent.clone()))).collect();
    let gradients = interpret_sized(&adjoint, &given, &named, Mode::default()).expect("runs");
    for (k, gradient) in gradients.iter().enumerate() {
        for i in 0..gradient.data.len() {
            let moved = |by: f64| {
                let mut inputs = inputs.clone();
                if let Some(Array { data: Data::Float(values), .. }) = &mut inputs[k] {
                    values[i] += by;
                }
                loss(&inputs)
            };
            let slope = (moved(1e-5) - moved(-1e-5)) / 2e-5;
            let found = gradient.data.get(i).as_f64();
            assert!(
                (slope - found).abs() < 1e-6 * (1.0 + slope.abs()),
                "{}: {found} instead of {slope}",
                program.params[k].name
            );
        }
    }
}

/// The weight of a score in a loss.
fn weight(i: usize) -> f64 {
    (i * 29 % 13) as f64 / 6.0 - 1.0
}
