//! Running stages one after another by the interpreter.

use std::collections::HashMap;

use oplus_codegen::stage::{Cut, Sink, Source, View};
use oplus_dsl::Ty;
use oplus_dsl::interpret::{Array, Data, Mode, interpret_sized};
use oplus_dsl::ir::{Axis, Param, Program};
use oplus_dsl::verify::verify;

/// The program of a text.
pub(crate) fn program(text: &str) -> Program {
    let program = oplus_dsl::parse::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    if let Err(errors) = verify(&program) {
        panic!("{program}\n{errors:?}");
    }
    program
}

/// The stages of a cut give what the program gives, for several sizes.
pub(crate) fn check(program: &Program, cut: &Cut) {
    check_all_within(program, cut, 1e-12);
}

/// The stages of a cut give what the program gives within a bound, for several sizes.
pub(crate) fn check_all_within(program: &Program, cut: &Cut, bound: f64) {
    for stage in &cut.stages {
        assert_eq!(verify(&stage.program), Ok(()), "{}", stage.program);
        let scans = stage.program.nodes.iter().filter(|n| matches!(n.op, oplus_dsl::ir::Op::Scan { .. })).count();
        assert!(scans <= 2, "{}", stage.program);
    }
    for sizes in [[3, 5, 2, 3], [2, 1, 3, 2], [1, 7, 1, 1], [2, 0, 2, 2], [0, 3, 2, 1]] {
        check_within(program, cut, &sizes[..program.axes.len()], bound);
    }
}

/// The stages of a cut give what the program gives, for these sizes.
pub(crate) fn check_at(program: &Program, cut: &Cut, sizes: &[usize]) {
    check_within(program, cut, sizes, 1e-12);
}

/// The stages of a cut give what the program gives within a bound, for these sizes.
pub(crate) fn check_within(program: &Program, cut: &Cut, sizes: &[usize], bound: f64) {
    let inputs: Vec<Array> =
        program.params.iter().enumerate().map(|(i, p)| input(sizes, &p.axes, p.elem.value(), i)).collect();
    let given: Vec<Option<Array>> = inputs.iter().cloned().map(Some).collect();
    let mode = Mode::default();
    let named: Vec<(Axis, usize)> = (0..).map(Axis).zip(sizes.iter().copied()).collect();
    let wanted = interpret_sized(program, &given, &named, mode).expect("the program runs");
    let mut written: HashMap<Sink, Array> = HashMap::new();
    for stage in &cut.stages {
        let read = |(source, (views, param)): (&Source, (&Vec<View>, &Param))| {
            let array = match source {
                Source::Param(i) => inputs[*i as usize].clone(),
                Source::Output(i) => written[&Sink::Output(*i)].clone(),
                Source::Buffer(i) => written[&Sink::Buffer(*i)].clone(),
            };
            Some(views.iter().fold(array, |array, view| displaced(&array, &param.axes, view)))
        };
        let params = stage.views.iter().zip(&stage.program.params);
        let inputs: Vec<Option<Array>> = stage.sources.iter().zip(params).map(read).collect();
        // The part axis is none of the program's.
        let size = |group: &Vec<Axis>| group.iter().map(|a| sizes.get(a.0 as usize).copied().unwrap_or(1)).product();
        let named: Vec<(Axis, usize)> = (0..).map(Axis).zip(stage.axes.iter().map(size)).collect();
        let outputs = interpret_sized(&stage.program, &inputs, &named, mode).expect("the stage runs");
        written.extend(stage.sinks.iter().copied().zip(outputs));
    }
    for (i, wanted) in wanted.iter().enumerate() {
        let found = &written[&Sink::Output(i as u32)];
        assert!(same(wanted, found, bound), "{program}\n{wanted:?}\n{found:?}\n{cut:#?}");
    }
}

/// An array seen through a view.
fn displaced(array: &Array, axes: &[Axis], view: &View) -> Array {
    let mut moved = array.clone();
    let Some(k) = axes.iter().position(|a| *a == view.axis) else { return moved };
    let (size, inner) = (array.sizes[k] as i64, array.sizes[k + 1..].iter().product::<usize>());
    for i in 0..array.data.len() {
        let index = (i / inner) as i64 % size;
        let from = (index - view.by).clamp(0, size - 1);
        moved.data.set(i, array.data.get((i as i64 + (from - index) * inner as i64) as usize));
    }
    moved
}

/// Some numbers: floats in (−1, 1), integers that rise, flags.
fn input(sizes: &[usize], axes: &[Axis], ty: Ty, seed: usize) -> Array {
    let sizes: Vec<usize> = axes.iter().map(|a| sizes[a.0 as usize]).collect();
    let n = sizes.iter().product::<usize>();
    let noise = |i: usize| ((i + 1) as f64 * 0.618_034 + (seed + 1) as f64 * 0.414_214).fract();
    match ty {
        Ty::Bool => Array::bools(&sizes, (0..n).map(|i| noise(i) < 0.3).collect::<Vec<_>>()),
        t if t.is_int() => Array::ints(&sizes, (0..n as i64).collect::<Vec<_>>()),
        _ => Array::floats(&sizes, (0..n).map(|i| 2.0 * noise(i) - 1.0).collect::<Vec<_>>()),
    }
}

fn same(wanted: &Array, found: &Array, bound: f64) -> bool {
    let close = |a: &f64, b: &f64| (a - b).abs() <= bound * (1.0 + a.abs()) || (a.is_nan() && b.is_nan()) || a == b;
    wanted.sizes == found.sizes
        && match (&wanted.data, &found.data) {
            (Data::Float(a), Data::Float(b)) => a.iter().zip(b).all(|(a, b)| close(a, b)),
            (a, b) => a == b,
        }
}
