//! Programs of a hundred thousand operations: every pass takes them, on a thread with a small stack and in seconds.

use std::thread;

use oplus_dsl::Elem;
use oplus_dsl::adjoint::{adjoint, equations};
use oplus_dsl::decay::decays;
use oplus_dsl::forward::tangent;
use oplus_dsl::interpret::{Array, Mode, Order, Precision, interpret};
use oplus_dsl::ir::{Literal, Op, Program, Unary};
use oplus_dsl::laws;
use oplus_dsl::parse::parse;
use oplus_dsl::rebase::rebase;
use oplus_dsl::simplify::simplify;
use oplus_dsl::specialize::for_call;
use oplus_dsl::step::step;
use oplus_dsl::testing::Deep;
use oplus_dsl::unfused::unfused;
use oplus_dsl::verify::verify;

/// Runs a test on a thread whose stack would not hold a recursion over the program.
fn on_small_stack(test: impl FnOnce() + Send + 'static) {
    let thread = thread::Builder::new().stack_size(512 << 10).spawn(test).expect("a thread");
    thread.join().expect("no panic");
}

fn interpreted(program: &Program, inputs: usize) -> Vec<Array> {
    let x = Array::floats(&[3], vec![0.5, -0.25, 0.125]);
    let mode = Mode { precision: Precision::Storage, order: Order::Sequential };
    interpret(program, &vec![Some(x); inputs], mode).expect("runs")
}

fn takes_every_pass(deep: Deep, n: usize) {
    let program = deep.program(n);
    let text = program.to_string();
    let read = parse(&text).expect("the text form");
    assert_eq!(read, program);
    verify(&read).expect("valid");
    let simple = simplify(&read);
    verify(&simple).expect("valid");
    assert!(!equations(&simple).is_empty());
    interpreted(&simple, 1);
    verify(&unfused(&decays(&rebase(&simple)))).expect("valid");
    _ = step(&simple);
    verify(&tangent(&simple).expect("a tangent")).expect("valid");
    let backward = adjoint(&simple).expect("a gradient");
    verify(&backward).expect("valid");
    assert!(!equations(&backward).is_empty());
    let names: Vec<&str> = backward.outputs.iter().map(|output| output.name.as_str()).collect();
    verify(&for_call(&backward, Elem::F32, &names, &["y.bar"])).expect("valid");
    interpreted(&backward, backward.params.len());
}

#[test]
fn every_pass_takes_a_hundred_thousand_operations() {
    for deep in [Deep::Chain, Deep::Maps, Deep::Wide] {
        on_small_stack(move || takes_every_pass(deep, 100_000));
    }
}

#[test]
fn every_pass_takes_every_kind_of_large_program() {
    for deep in Deep::ALL {
        on_small_stack(move || takes_every_pass(deep, 20_000));
    }
}

#[test]
fn the_laws_of_a_large_operator_are_checked() {
    on_small_stack(|| {
        let program = Deep::Combine.program(20_000);
        laws::check(&program.operators[0]).expect("associative");
        let mut wrong = program.operators[0].clone();
        wrong.identity[0] = Literal::Float(0.0);
        laws::check(&wrong).expect_err("0 is no identity of the maximum");
    });
}

#[test]
fn equations_have_a_bounded_length_and_say_what_they_leave_out() {
    on_small_stack(|| {
        for deep in Deep::ALL {
            let text = equations(&deep.program(3_000));
            assert!(text.len() < 1 << 20, "{deep:?}: {}", text.len());
            let left_out = text.matches('…').count();
            assert!(left_out > 1 && text.lines().last().is_some_and(|line| line.starts_with('…')), "{deep:?}: {text}");
        }
    });
}

/// A value that two later ones read may not be visited once for every path to it.
#[test]
fn selections_that_share_their_branches_are_searched_once() {
    let mut text = String::from(CHOICES);
    for k in 3..200 {
        text.push_str(&format!("%{k}: f32[T] = select(%1, %{}, %{});\n", k - 1, (k - 2).max(2)));
    }
    text.push_str("%200: tuple[T] = scan(T, Product, (%199)); %201: f32[T] = %200.p; output y: f32[T] = %201; }");
    let program = parse(&text).unwrap_or_else(|error| panic!("{error}"));
    let changed = decays(&program);
    verify(&changed).expect("valid");
    assert!(changed.nodes.iter().any(|node| matches!(node.op, Op::Unary(Unary::Exp2, _))));
}

/// The beginning of a scan of products whose elements are chosen among exponentials.
const CHOICES: &str = "program choices {
    axes T;
    param x: f32[T];
    param c: bool[T];
    operator Product(p: f32) {
        identity (1.0);
        %0: f32 = input l.p;
        %1: f32 = input r.p;
        %2: f32 = %0 * %1;
        combine (%2);
    }
    %0: f32[T] = param x;
    %1: bool[T] = param c;
    %2: f32[T] = exp(%0);
";
