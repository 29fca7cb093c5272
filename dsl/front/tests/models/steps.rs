//! Which standard kernels and models have a one-step form, and why the others do not.

use oplus_dsl::interpret::{Array, Mode};
use oplus_dsl::step::{StepError, step};
use oplus_front::{model_programs, standard_programs};

use crate::harness::{floats, model, run};

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
        ("y = shift(T, s, 1); last = last(T, s);", "`shift` along T needs more than one index"),
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
