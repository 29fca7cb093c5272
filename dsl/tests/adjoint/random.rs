//! Random operators and programs: reverse mode against forward mode, simplification against the interpreter.

use std::collections::HashMap;

use oplus_dsl::Elem;
use oplus_dsl::adjoint::{AdjointError, adjoint, equations};
use oplus_dsl::forward::tangent;
use oplus_dsl::interpret::{Array, Data, Mode, interpret_sized};
use oplus_dsl::ir::{Axis, Op, Output, Program, Value};
use oplus_dsl::rng::Rng;
use oplus_dsl::simplify::simplify;
use oplus_dsl::specialize::without_param;
use oplus_dsl::testing::{Ingredients, inputs, program};
use oplus_dsl::verify::verify;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

type Tensors = HashMap<String, Array>;

fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, rng_seed: RngSeed::Fixed(0x00ad_7017), failure_persistence: None, ..Default::default() }
}

fn sizes() -> impl Strategy<Value = [usize; 4]> {
    let size = prop::sample::select(vec![0usize, 1, 2, 3, 5, 7]);
    [size.clone(), size.clone(), size.clone(), size]
}

/// A random differentiable program. It may read any field of a state, so no field is declared a gauge.
fn differentiable(seed: u64, steps: usize, elems: &[Elem]) -> Program {
    let mut program = program(seed, &Ingredients { elems: elems.to_vec(), steps, differentiable: true });
    program.operators.iter_mut().for_each(|operator| operator.gauge = None);
    program
}

/// The outputs by name, for parameters by name.
fn run(program: &Program, tensors: &Tensors, sizes: &[usize]) -> Tensors {
    let given: Vec<_> = program.params.iter().map(|p| tensors.get(&p.name).cloned()).collect();
    let sizes: Vec<_> = sizes.iter().take(program.axes.len()).enumerate().map(|(k, n)| (Axis(k as u32), *n)).collect();
    let outputs = interpret_sized(program, &given, &sizes, Mode::default());
    let outputs = outputs.unwrap_or_else(|error| panic!("{error}\n{program}"));
    program.outputs.iter().map(|o| o.name.clone()).zip(outputs).collect()
}

fn named_inputs(program: &Program, sizes: &[usize], seed: u64) -> Tensors {
    let given = program.params.iter().zip(inputs(program, sizes, seed));
    given.filter_map(|(param, input)| Some((param.name.clone(), input?))).collect()
}

/// A random tensor of the shape of each float one, its name with a suffix.
fn directions(like: &Tensors, suffix: &str, rng: &mut Rng) -> Tensors {
    let mut names: Vec<&String> = like.keys().collect();
    names.sort();
    let mut direction = |name: &&String| {
        let n = like[*name].as_floats()?.len();
        let xs: Vec<f64> = (0..n).map(|_| rng.between(-1.0, 1.0)).collect();
        Some((format!("{name}{suffix}"), Array::floats(&like[*name].sizes, xs)))
    };
    names.iter().filter_map(&mut direction).collect()
}

/// Σ x·y and Σ |x·y| over tensors with the same names up to their suffixes.
fn inner(xs: &Tensors, x_suffix: &str, ys: &Tensors, y_suffix: &str) -> (f64, f64) {
    let mut sums = (0.0, 0.0);
    for (name, x) in xs {
        let stem = name.strip_suffix(x_suffix).expect("the suffix is there");
        let y = &ys[&format!("{stem}{y_suffix}")];
        for (x, y) in x.as_floats().unwrap().iter().zip(y.as_floats().unwrap()) {
            sums = (sums.0 + x * y, sums.1 + (x * y).abs());
        }
    }
    sums
}

/// Whether all values are finite: the maximum of nothing is −∞, and 0 times what is computed from it is NaN, in an
/// output or where no output shows it.
fn is_finite(program: &Program, tensors: &Tensors, sizes: &[usize]) -> bool {
    let mut all = program.clone();
    all.outputs.clear();
    for (k, node) in program.nodes.iter().enumerate() {
        if let (true, Some(elem)) = (node.ty.is_float(), node.ty.elem()) {
            let (name, axes) = (format!("v{k}"), node.axes.iter().collect());
            all.outputs.push(Output { name, axes, elem, value: Value(k as u32) });
        }
    }
    let constant = |name: &String| {
        let value = name[1..].parse::<usize>().expect("a number after the letter");
        matches!(program.nodes[value].op, Op::Const(_))
    };
    let values = run(&all, tensors, sizes);
    let computed = values.iter().filter(|(name, _)| !constant(name)).filter_map(|(_, value)| value.as_floats());
    computed.flatten().all(|x| x.is_finite())
}

/// ⟨ȳ, ẏ⟩ = ⟨p̄, ṗ⟩ for random ȳ and ṗ, where all values are finite.
fn check_duality(program: &Program, sizes: &[usize], seed: u64) {
    let bar = match adjoint(program) {
        Ok(bar) => bar,
        Err(AdjointError::NothingToDifferentiate { .. }) => return,
        Err(error) => panic!("{error}\n{program}"),
    };
    assert_eq!(verify(&bar), Ok(()), "{bar}");
    let tangent = tangent(program).unwrap();
    assert_eq!(verify(&tangent), Ok(()), "{tangent}");

    let mut rng = Rng::new(seed);
    let given = named_inputs(program, sizes, seed);
    if !is_finite(program, &given, sizes) {
        return;
    }
    let outputs = run(program, &given, sizes);
    let (dots, bars) = (directions(&given, ".dot", &mut rng), directions(&outputs, ".bar", &mut rng));
    let forward = run(&tangent, &given.clone().into_iter().chain(dots.clone()).collect(), sizes);
    let known = outputs.into_iter().chain(given).chain(bars.clone()).collect();
    let reverse = run(&bar, &known, sizes);
    let ((left, scale), (right, other)) =
        (inner(&bars, ".bar", &forward, ".dot"), inner(&dots, ".dot", &reverse, ".bar"));
    let tolerance = 1e-12 * scale.max(other).max(1.0);
    assert!((left - right).abs() <= tolerance, "{left} by forward mode, {right} by reverse mode\n{program}\n{bar}");
}

/// Whether two tensors are the same up to rounding.
fn close(x: &Array, y: &Array) -> bool {
    let (Some(x), Some(y)) = (x.as_floats(), y.as_floats()) else { return false };
    let scale = x.iter().fold(1.0f64, |scale, x| scale.max(x.abs()));
    x.len() == y.len() && x.iter().zip(y).all(|(x, y)| (x - y).abs() <= 1e-12 * scale)
}

/// Whether two tensors are the same bit by bit, any NaN being equal to any.
fn same(x: &Array, y: &Array) -> bool {
    match (&x.data, &y.data) {
        (Data::Float(x), Data::Float(y)) => {
            x.iter().zip(y).all(|(x, y)| x.to_bits() == y.to_bits() || (x.is_nan() && y.is_nan()))
        }
        (x, y) => x == y,
    }
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn reverse_mode_is_dual_to_forward_mode(seed: u64, steps in 1usize..12, sizes in sizes()) {
        check_duality(&differentiable(seed, steps, &[Elem::F64]), &sizes, seed);
    }

    /// Exact precision leaves the conversions between float types out, so duality holds to the same tolerance.
    #[test]
    fn types_of_cotangents_follow_those_of_values(seed: u64, steps in 1usize..8, sizes in sizes()) {
        let elems = [Elem::Call, Elem::F64, Elem::F32, Elem::Bf16];
        let program = differentiable(seed, steps, &elems[seed as usize % 4..]);
        check_duality(&program, &sizes, seed);
        if let Ok(bar) = adjoint(&program) {
            prop_assert_eq!(verify(&bar.instantiate(Elem::F16)), Ok(()), "{}", bar);
        }
    }

    #[test]
    fn equations_can_be_written_of_anything(seed: u64, steps in 1usize..16) {
        let program = program(seed, &Ingredients { steps, ..Ingredients::default() });
        let text = equations(&program);
        for output in &program.outputs {
            prop_assert!(text.contains(&output.name), "{}\n{}", program, text);
        }
    }

    #[test]
    fn an_absent_parameter_is_its_default(seed: u64, steps in 1usize..12, sizes in sizes()) {
        let program = program(seed, &Ingredients { steps, ..Ingredients::default() });
        let without = without_param(&program, "optional");
        prop_assert_eq!(verify(&without), Ok(()), "{}", without);
        prop_assert_eq!(without.param("optional"), None);
        let mut given = named_inputs(&program, &sizes, seed);
        given.remove("optional");
        let (before, after) = (run(&program, &given, &sizes), run(&without, &given, &sizes));
        for (name, x) in &before {
            prop_assert!(same(x, &after[name]), "{}\n{}", program, without);
        }
    }

    #[test]
    fn an_absent_cotangent_is_zero(seed: u64, steps in 1usize..10, sizes in sizes()) {
        let program = differentiable(seed, steps, &[Elem::F64]);
        let Ok(bar) = adjoint(&program) else { return Ok(()) };
        let absent = without_param(&bar, "y0.bar");
        prop_assert_eq!(verify(&absent), Ok(()), "{}", absent);
        let given = named_inputs(&program, &sizes, seed);
        if is_finite(&program, &given, &sizes) {
            let outputs = run(&program, &given, &sizes);
            let mut bars = directions(&outputs, ".bar", &mut Rng::new(seed));
            bars.remove("y0.bar");
            let known: Tensors = outputs.into_iter().chain(given).chain(bars).collect();
            let (zero, absent) = (run(&bar, &known, &sizes), run(&absent, &known, &sizes));
            for (name, x) in &zero {
                prop_assert!(close(x, &absent[name]), "{}\n{:?}\n{:?}", bar, x, absent[name]);
            }
        }
    }

    #[test]
    fn simplification_keeps_the_bits(seed: u64, steps in 1usize..16, sizes in sizes()) {
        let program = program(seed, &Ingredients { steps, ..Ingredients::default() });
        let simple = simplify(&program);
        prop_assert_eq!(verify(&simple), Ok(()), "{}", simple);
        prop_assert_eq!(&simplify(&simple), &simple);
        let given = named_inputs(&program, &sizes, seed);
        let (before, after) = (run(&program, &given, &sizes), run(&simple, &given, &sizes));
        for (name, x) in &before {
            prop_assert!(same(x, &after[name]), "{}\n{}", program, simple);
        }
    }
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn adjoints_have_adjoints(seed: u64, steps in 1usize..6, sizes in sizes()) {
        if let Ok(bar) = adjoint(&differentiable(seed, steps, &[Elem::F64])) {
            check_duality(&bar, &sizes, seed);
        }
    }
}
