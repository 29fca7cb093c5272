//! Properties of random programs: their text, their verification and their meaning.

use oplus_dsl::build::Builder;
use oplus_dsl::interpret::{Array, Data, Mode, Order, Precision, interpret_sized};
use oplus_dsl::ir::{Axis, Program};
use oplus_dsl::laws;
use oplus_dsl::parse::parse;
use oplus_dsl::rng::Rng;
use oplus_dsl::testing::{Ingredients, family, inputs, program};
use oplus_dsl::verify::verify;
use oplus_dsl::{Elem, Ty};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// Awkward sizes of axes.
const SIZES: [usize; 8] = [0, 1, 2, 3, 7, 8, 17, 33];

/// A fixed seed, so that every run tries the same cases.
fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, rng_seed: RngSeed::Fixed(0x0005_ca45), failure_persistence: None, ..Default::default() }
}

fn ingredients() -> impl Strategy<Value = Ingredients> {
    let elems = proptest::collection::vec(
        prop_oneof![Just(Elem::Call), Just(Elem::F64), Just(Elem::F32), Just(Elem::Bf16), Just(Elem::F16)],
        1..4,
    );
    let other = (1usize..16, any::<bool>());
    (elems, other).prop_map(|(elems, (steps, differentiable))| Ingredients { elems, steps, differentiable })
}

fn run(program: &Program, sizes: &[usize], seed: u64, mode: Mode) -> Vec<Array> {
    let inputs = inputs(program, sizes, seed);
    let bound = |axis: &Axis| {
        let tensors = program.params.iter().zip(&inputs);
        tensors.filter(|(_, input)| input.is_some()).any(|(param, _)| param.axes.contains(axis))
    };
    let axes = (0..program.axes.len() as u32).map(Axis).filter(|axis| !bound(axis));
    let free: Vec<(Axis, usize)> = axes.map(|axis| (axis, sizes[axis.0 as usize])).collect();
    interpret_sized(program, &inputs, &free, mode).unwrap_or_else(|error| panic!("{error}\n{program}"))
}

/// The largest difference relative to max(1, |x|); infinite where only one is NaN, or integers or bools differ.
fn difference(xs: &Array, ys: &Array) -> f64 {
    let float = |(x, y): (&f64, &f64)| match () {
        () if x == y || (x.is_nan() && y.is_nan()) => 0.0,
        () if x.is_nan() || y.is_nan() => f64::INFINITY,
        () => (x - y).abs() / x.abs().max(1.0),
    };
    match (&xs.data, &ys.data) {
        (Data::Float(x), Data::Float(y)) => x.iter().zip(y).map(float).fold(0.0, f64::max),
        (x, y) if x == y => 0.0,
        _ => f64::INFINITY,
    }
}

fn sizes() -> impl Strategy<Value = [usize; 4]> {
    let size = prop::sample::select(SIZES.to_vec());
    [size.clone(), size.clone(), size.clone(), size]
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn random_programs_verify(seed: u64, ingredients in ingredients()) {
        let program = program(seed, &ingredients);
        prop_assert_eq!(verify(&program), Ok(()), "{}", program);
        for elem in [Elem::F64, Elem::F32, Elem::Bf16, Elem::F16] {
            let instance = program.instantiate(elem);
            prop_assert_eq!(verify(&instance), Ok(()), "{}", instance);
            prop_assert!(!instance.is_generic());
        }
    }

    #[test]
    fn text_reads_back_to_the_same_program(seed: u64, ingredients in ingredients()) {
        let program = program(seed, &ingredients);
        let text = program.to_string();
        let back = parse(&text);
        prop_assert_eq!(back.as_ref(), Ok(&program), "{}", text);
        prop_assert_eq!(back.map(|p| p.to_string()), Ok(text));
    }

    #[test]
    fn a_builder_keeps_a_program_that_it_continues(seed: u64, ingredients in ingredients()) {
        let program = program(seed, &ingredients);
        let mut builder = Builder::from_program(program.clone());
        for node in &program.nodes {
            builder.append(node.op.clone(), node.ty, node.axes).expect("the node is valid");
        }
        prop_assert_eq!(builder.finish(), program);
    }

    #[test]
    fn random_operators_keep_the_laws(seed: u64, differentiable: bool) {
        let family = family(&mut Rng::new(seed), Ty::Call, differentiable);
        prop_assert_eq!(laws::check(&family.operator).err(), None, "{}", family.operator);
        prop_assert_eq!(family.domains.len(), family.operator.fields.len());
    }

    #[test]
    fn sequential_and_tree_order_agree(seed: u64, ingredients in ingredients(), sizes in sizes()) {
        let program = program(seed, &ingredients);
        let of = |order| run(&program, &sizes, seed, Mode { order, ..Mode::default() });
        for (x, y) in of(Order::Sequential).iter().zip(&of(Order::Tree)) {
            prop_assert!(difference(x, y) < 1e-9, "{}\n{:?}\n{:?}", program, x, y);
        }
    }

    #[test]
    fn exact_and_f64_storage_are_the_same_bits(seed: u64, sizes in sizes()) {
        let program = program(seed, &Ingredients { elems: vec![Elem::F64], ..Ingredients::default() });
        let of = |precision| run(&program, &sizes, seed, Mode { precision, ..Mode::default() });
        let (exact, storage) = (of(Precision::Exact), of(Precision::Storage));
        for (x, y) in exact.iter().zip(&storage) {
            prop_assert_eq!(difference(x, y), 0.0, "{}", program);
        }
    }

    #[test]
    fn single_precision_is_close_to_exact(seed: u64, sizes in sizes()) {
        let ingredients = Ingredients { elems: vec![Elem::F32], steps: 4, differentiable: true };
        let program = program(seed, &ingredients);
        let of = |precision| run(&program, &sizes, seed, Mode { precision, ..Mode::default() });
        for (x, y) in of(Precision::Exact).iter().zip(&of(Precision::Storage)) {
            prop_assert!(difference(x, y) < 1e-3, "{}\n{:?}\n{:?}", program, x, y);
        }
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC{0,200}") {
        prop_assert!(parse(&text).is_err() || text.contains("program"));
    }

    #[test]
    fn damaged_text_is_an_error_or_a_program_that_can_be_judged(seed: u64, ingredients in ingredients(), harm: u64) {
        let text = damaged(&program(seed, &ingredients).to_string(), harm);
        if let Ok(program) = parse(&text) {
            prop_assert_eq!(parse(&program.to_string()), Ok(program.clone()), "{}", text);
            let sizes = vec![2; program.axes.len()];
            let free: Vec<(Axis, usize)> = (0..sizes.len() as u32).map(|k| (Axis(k), 2)).collect();
            let valid = verify(&program).is_ok();
            if valid || program.params.iter().all(|p| p.axes.iter().all(|axis| (axis.0 as usize) < sizes.len())) {
                let run = interpret_sized(&program, &inputs(&program, &sizes, harm), &free, Mode::default());
                prop_assert!(valid || run.is_err());
            }
        }
    }
}

/// The text with a few tokens replaced by others of its own.
fn damaged(text: &str, harm: u64) -> String {
    let mut rng = Rng::new(harm);
    let mut words: Vec<&str> = text.split_inclusive([' ', '\n', '(', '[', ',', ';', '%']).collect();
    for _ in 0..1 + rng.below(3) {
        let (to, from) = (rng.below(words.len()), rng.below(words.len()));
        if rng.once_in(3) {
            words.remove(to);
        } else {
            words[to] = words[from];
        }
    }
    words.concat()
}
