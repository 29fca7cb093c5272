//! Which standard kernels and models have a one-step form, and why the others do not.

use oplus_dsl::Elem;
use oplus_dsl::interpret::{Array, Mode, Order};
use oplus_dsl::ir::Program;
use oplus_dsl::step::{State, Step, StepError, step};
use oplus_front::{model_programs, standard_programs};

use crate::harness::{Named, floats, inputs, model, run, stored};

#[test]
fn every_kernel_has_a_step_or_a_reason() {
    let line = |program: &oplus_dsl::ir::Program| match step(program) {
        Ok(step) => {
            let states: Vec<_> = step.states.iter().map(|s| format!("{} = {}", s.param, s.output)).collect();
            format!("{}: {}", program.name, states.join(", "))
        }
        Err(reason) => format!("{}: none, {reason}", program.name),
    };
    let lines: Vec<String> = standard_programs().iter().chain(&model_programs()).map(line).collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn the_step_of_the_selective_scan_has_no_scan_and_no_time() {
    let step = step(&model("selective_scan")).expect("a step");
    insta::assert_snapshot!(step.program);
}

/// Why the kernel `f` of this signature and body has no step.
fn refusal(signature: &str, body: &str) -> StepError {
    let block: proc_macro2::TokenStream = format!("fn f{signature} {{ {body} }}").parse().expect("tokens");
    let programs = oplus_front::programs(block).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    step(&programs[0]).expect_err("no step")
}

#[test]
fn what_has_no_step_says_why() {
    let row = "(x: [B, T], h: f32[B] = 0) -> (y: [B, T], last: f32[B])";
    let sum = "let s = scan(T, Sum(x), init = h);";
    let refused = [
        ("y = 2 * x; last = h;", "nothing is scanned"),
        (
            "y = scan(T, Sum(x), init = h, reverse); last = first(T, y);",
            "its scan along T begins at the end, which a step does not know",
        ),
        ("y = scan(T, Sum(scan(B, Sum(x)))); last = h;", "it scans along B and along T"),
        ("y = scan(T, Sum(x), init = h); last = sum(T, x);", "a reduction along T needs more than one index"),
        (
            "y = shift(T, s, -1); last = last(T, s);",
            "`shift` along T by -1 reads what comes later, which a step does not know",
        ),
        (
            "y = shift(T, x, 65); last = last(T, s);",
            "`shift` along T by 65 looks back more than 64 elements, the most that a step keeps",
        ),
        (
            "y = shift(T, x, 1, fill = 2 * h); last = last(T, s);",
            "`fill` of `shift` along T by 1 is neither a constant nor a parameter that is the one element before the first; \
             shift by 1 several times, each with a parameter of its own",
        ),
        (
            "y = shift(T, x, 1, fill = h); last = last(T, s);",
            "no output of the same element type is the last element that `shift` along T begins with in the next step",
        ),
        ("y = s * index(T) as f32; last = last(T, s);", "`index` along T needs more than one index"),
        ("y = s / size(T) as f32; last = last(T, s);", "`size` along T needs more than one index"),
        (
            "y = scan(T, Sum(x), init = 2 * h); last = last(T, y);",
            "no parameter is the initial state `s` of the scan by Sum",
        ),
        (
            "y = s; last = last(T, 2 * s);",
            "no output of the same element type is the last state `s` of the scan by Sum",
        ),
        ("y = s + h; last = last(T, s);", "`h` is an initial state, but it is also read elsewhere"),
    ];
    for (body, reason) in refused {
        assert_eq!(refusal(row, &format!("{sum} {body}")).to_string(), reason, "{body}");
    }
    let two = "(x: [T], h: f32 = 0) -> (y: [T], a: f32, b: f32)";
    let body = "y = scan(T, Sum(x), init = h); a = last(T, y); b = last(T, scan(T, Max(x), init = h));";
    assert_eq!(refusal(two, body), StepError::SharedState { param: "h".into() });
    let packed = "(x: [T], at: i32[S]) -> (y: [T])";
    let body = "y = scan(T, segmented(Sum)(x), offsets = at);";
    assert_eq!(refusal(packed, body), StepError::Whole { what: "a list of offsets", axis: "T".into() });
}

#[test]
fn an_exclusive_scan_steps_by_the_state_before() {
    let text = "fn f(x: f64[T], h: f64 = 0) -> (y: f64[T], last: f64) {
        y = scan(T, Sum(x), init = h, exclusive);
        last = last(T, scan(T, Sum(x), init = h));
    }";
    let programs = oplus_front::programs(text.parse().expect("tokens")).expect("a program");
    let step = step(&programs[0]).expect("a step");
    let given = [("x", 5.0), ("h", 2.0)].map(|(name, x)| (name.to_owned(), Array::floats(&[], [x])));
    let outputs = run(&step.program, &given.into_iter().collect(), &[], Mode::default());
    assert_eq!([&outputs["y"], &outputs["last"]].map(floats), [[2.0], [7.0]]);
}

/// The kernels of a text.
fn programs(text: &str) -> Vec<Program> {
    oplus_front::programs(text.parse().expect("tokens")).unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

/// The output `y` of single steps at each time of `x`, one after the other, from the states `given` before the first.
fn walk(step: &Step, inputs: &Named, times: std::ops::Range<usize>, given: Named) -> Vec<f64> {
    let program = step.program.instantiate(Elem::F32);
    let (mut states, mut all) = (given, vec![]);
    for t in times {
        let mut own = states.clone();
        own.extend(inputs.iter().map(|(name, x)| (name.clone(), Array::floats(&[], [floats(x)[t]]))));
        let outputs = run(&program, &own, &[], stored(Order::Sequential));
        states = step.states.iter().map(|s| (s.param.clone(), outputs[&s.output].clone())).collect();
        all.extend(floats(&outputs["y"]));
    }
    all
}

#[test]
fn a_shift_keeps_its_last_elements() {
    // Two distances of one value, one fill that is not zero, a computed value, a shift of a shift, and one of no distance.
    let text = "fn f(x: f32[T], z: f32[T], h: f32 = 0) -> (y: f32[T], last: f32) {
        let s = scan(T, Affine(0.5, x + shift(T, x, 3)), init = h).b;
        y = s + shift(T, s * s, 2) + 3 * shift(T, z, 1, fill = 0.3) - shift(T, shift(T, z, 1), 2) * shift(T, x, 1) + shift(T, z, 0);
        last = last(T, s);
    }";
    let program = programs(text).swap_remove(0);
    let step = step(&program).expect("a step");
    let names: Vec<String> = step.states.iter().map(|s| format!("{} = {}", s.param, s.output)).collect();
    insta::assert_snapshot!(names.join("\n"));
    for n in [0, 1, 2, 3, 4, 11] {
        let sizes = [("T", n)];
        let all = inputs(&program, &sizes, 7, |param| param.name != "h");
        let rounded =
            |x: &Array| Array::floats(&x.sizes, floats(x).iter().map(|x| f64::from(*x as f32)).collect::<Vec<_>>());
        let all: Named = all.iter().map(|(name, x)| (name.clone(), rounded(x))).collect();
        let whole = run(&program, &all, &sizes, stored(Order::Sequential));
        assert_eq!(walk(&step, &all, 0..n, Named::new()), floats(&whole["y"]), "{n}");
    }
}

#[test]
fn what_a_shift_keeps_is_found_in_the_shifted_value() {
    let text =
        "fn f(x: f32[T]) -> (y: f32[T]) { y = x + 2 * shift(T, x, 1, fill = 7) + 4 * shift(T, x, 3, fill = 7); }";
    let program = programs(text).swap_remove(0);
    let step = step(&program).expect("a step, although nothing is scanned");
    let all: Named = [("x".to_owned(), Array::floats(&[6], [1.0, 2.0, 3.0, 5.0, 8.0, 13.0]))].into();
    let whole = run(&program, &all, &[("T", 6)], stored(Order::Sequential));
    assert_eq!(floats(&whole["y"]), [43.0, 32.0, 35.0, 15.0, 26.0, 41.0]);
    let x = floats(&all["x"]);
    let before = (1..=3).map(|k| (format!("x_before_{k}"), Array::floats(&[], [x[4 - k]]))).collect();
    assert_eq!(walk(&step, &all, 4..6, before), [26.0, 41.0]);
}

#[test]
fn names_of_what_a_shift_keeps_are_new() {
    let text = "fn f(x: f32[T], x_last_1: f32, g: f64[T], shift_before_9: f32) -> (y: f32[T], z: f64[T]) {
        y = shift(T, x, 1) + shift(T, x, 1, fill = 1) + shift(T, x * x, 1) + x_last_1 + shift_before_9;
        z = shift(T, g, 1);
    }";
    let step = step(&programs(text)[0]).expect("a step");
    let params: Vec<String> = step.program.params.iter().skip(4).map(|p| format!("{}: {}", p.name, p.elem)).collect();
    assert_eq!(params, ["x2_before_1: f32", "x3_before_1: f32", "shift2_before_1: f32", "g_before_1: f64"]);
}

#[test]
fn a_shifted_state_that_begins_with_the_scans_is_the_state_before() {
    let text = "fn f(x: f32[T], h: f32 = 0) -> (y: f32[T], last: f32) {
        let s = scan(T, Sum(x), init = h);
        y = shift(T, s, 1, fill = h);
        last = last(T, s);
    }";
    let step = step(&programs(text)[0]).expect("a step");
    assert_eq!(step.states, [State { param: "h".into(), output: "last".into() }]);
    let given = [("x", 5.0), ("h", 2.0)].map(|(name, x)| (name.to_owned(), Array::floats(&[], [x])));
    let outputs = run(&step.program, &given.into_iter().collect(), &[], Mode::default());
    assert_eq!([&outputs["y"], &outputs["last"]].map(floats), [[2.0], [7.0]]);
}

#[test]
fn a_step_stores_what_the_whole_may_store_instead() {
    let step = step(
        &programs(
            "fn f(x: call | wide[T], y: [T], k: i32 | i64[T], h: f32 = 0) -> (z: [T], last: f32) {
        let s = scan(T, Sum(x + y + shift(T, k, 1) as f32), init = h);
        z = s;
        last = last(T, s);
    }",
        )[0],
    )
    .expect("a step");
    let stored: Vec<_> = step.program.params.iter().map(|p| (p.name.as_str(), p.elem, p.or)).collect();
    assert_eq!(stored[0], ("x", Elem::Call, Some(Elem::Wide)));
    assert_eq!(stored[2], ("k", Elem::I32, Some(Elem::I64)));
    assert_eq!(stored[4], ("k_before_1", Elem::I64, None));
}
