//! The meaning of each part of the language, by small programs with known results.

use crate::common::{close, int_row, lowered, row, run};
use oplus_dsl::interpret::Array;

/// The first output, of floats, for the row x.
fn of_row(block: &str, x: &[f64]) -> Vec<f64> {
    let programs = lowered(block);
    let outputs = run(programs.last().expect("a kernel"), &[("x", row(x))]);
    outputs[0].as_floats().expect("floats").to_vec()
}

/// The row `y` of a kernel with this body.
fn body(statements: &str, x: &[f64]) -> Vec<f64> {
    of_row(&format!("fn kernel(x: [B, T]) -> (y: [B, T]) {{ {statements} }}"), x)
}

#[test]
fn precedence_is_that_of_rust() {
    assert_eq!(body("y = 2 + 3 * x - 1;", &[2.0]), [7.0]);
    assert_eq!(body("y = -x * 2;", &[2.0]), [-4.0]);
    assert_eq!(body("y = 8 / 2 / 2 * x;", &[1.0]), [2.0]);
    assert_eq!(body("y = if x > 1 && x < 3 || x == 7 { 1 } else { 0 };", &[1.0, 2.0, 7.0]), [0.0, 1.0, 1.0]);
    assert_eq!(body("y = (1 << 2 + 1 | 3 & 2 ^ 1) as f32 * x;", &[1.0]), [11.0]);
    assert_eq!(body("y = x * -index(T) as f32;", &[1.0, 1.0]), [0.0, -1.0]);
}

#[test]
fn literals_take_the_type_they_meet_and_divide_exactly() {
    assert_eq!(body("y = 1 / 4 * x;", &[2.0]), [0.5]);
    assert_eq!(body("let half = 0.5; y = half * x;", &[2.0]), [1.0]);
    close(&body("y = cos(pi) * x + exp(ln(2));", &[2.0]), &[0.0]);
    assert_eq!(body("y = max(x, -inf);", &[2.0]), [2.0]);
    assert_eq!(body("y = 1_000 * x + 0x10 + 1e-1;", &[1.0]), [1016.1]);
}

#[test]
fn functions_of_one_and_two_values() {
    assert_eq!(body("y = abs(x) + sign(x) + floor(x);", &[-1.5]), [-1.5]);
    assert_eq!(body("y = powi(x, 3) + powi(x, -1) + relu(x);", &[2.0]), [10.5]);
    assert_eq!(body("y = min(x, 1) + max(x, 1) + select(x > 1, 10, 20);", &[2.0]), [13.0]);
    close(&body("y = sqrt(x) * rsqrt(x) + recip(x) + exp2(x);", &[4.0]), &[17.25]);
    close(&body("y = silu(x) - x * sigmoid(x) + softplus(x) - log1p(exp(x)) + tanh(x);", &[1.0]), &[1f64.tanh()]);
    close(&body("y = sin(x) * sin(x) + cos(x) * cos(x);", &[0.3]), &[1.0]);
}

#[test]
fn blocks_tuples_and_conditions_over_tuples() {
    assert_eq!(body("y = { let a = x + 1; let a = a * 2; a };", &[1.0]), [4.0]);
    assert_eq!(body("let (a, (b, _)) = (x, (2 * x, 0)); y = a + b;", &[1.0]), [3.0]);
    assert_eq!(body("let (a, b) = if x > 0 { (x, 1) } else { (0, 2) }; y = a + b;", &[5.0, -5.0]), [6.0, 2.0]);
    assert_eq!(body("y = if x > 1 { 1 } else if x > 0 { 2 } else { 3 };", &[2.0, 0.5, -1.0]), [1.0, 2.0, 3.0]);
}

#[test]
fn helper_functions_are_inlined_with_their_own_names() {
    let block = "
        fn twice(x) { x + x }
        fn swap(a, b) -> (p, q) { (b, a) }
        fn kernel(x: [B, T]) -> (y: [B, T]) { let a = 5; let (p, q) = swap(a, twice(x)); y = p - q; }
    ";
    assert_eq!(of_row(block, &[3.0]), [1.0]);
}

#[test]
fn scans_run_both_ways_with_and_without_the_element() {
    let x = [1.0, 2.0, 4.0];
    assert_eq!(body("y = scan(T, Sum(x));", &x), [1.0, 3.0, 7.0]);
    assert_eq!(body("y = scan(T, Sum(x), exclusive);", &x), [0.0, 1.0, 3.0]);
    assert_eq!(body("y = scan(T, Sum(x), reverse);", &x), [7.0, 6.0, 4.0]);
    assert_eq!(body("y = scan(T, Sum(x), reverse, exclusive, init = 10);", &x), [16.0, 14.0, 10.0]);
}

#[test]
fn a_single_init_means_the_payload() {
    assert_eq!(body("y = scan(T, Affine(2, x), init = 1).b;", &[1.0, 1.0]), [3.0, 7.0]);
    assert_eq!(body("y = scan(T, Affine(2, x), init = (b: 1)).b;", &[1.0, 1.0]), [3.0, 7.0]);
    assert_eq!(body("y = scan(T, Affine(2, x), init = (5, 1)).a;", &[1.0, 1.0]), [10.0, 20.0]);
    assert_eq!(body("y = scan(T, Affine(2, x), init = (a: 5)).a;", &[1.0, 1.0]), [10.0, 20.0]);
    let carried = "let s = last(T, scan(T, Affine(2, x))); y = scan(T, Affine(2, x), init = s).b;";
    assert_eq!(body(carried, &[1.0, 1.0]), [7.0, 15.0]);
}

#[test]
fn segments_by_flags_and_by_offsets_in_all_directions() {
    let x = [1.0, 2.0, 4.0, 8.0];
    let flags = "scan(T, segmented(Sum)(x), reset = x == 4 || x == 8";
    assert_eq!(body(&format!("y = {flags}, init = 10);"), &x), [11.0, 13.0, 4.0, 8.0]);
    assert_eq!(body(&format!("y = {flags}, exclusive);"), &x), [0.0, 1.0, 0.0, 0.0]);
    assert_eq!(body(&format!("y = {flags}, reverse);"), &x), [7.0, 6.0, 4.0, 8.0]);
    for (direction, expected) in [
        ("", [1.0, 3.0, 4.0, 12.0]),
        (", exclusive", [0.0, 1.0, 0.0, 4.0]),
        (", reverse", [3.0, 2.0, 12.0, 8.0]),
        (", reverse, exclusive", [2.0, 0.0, 8.0, 0.0]),
    ] {
        let block = format!(
            "fn kernel(x: [B, T], cu: i32[S]) -> (y: [B, T]) {{
                y = scan(T, segmented(Sum)(x), offsets = cu{direction});
            }}"
        );
        let offsets = Array::ints(&[3], [0, 2, 4]);
        let outputs = run(&lowered(&block)[0], &[("x", row(&x)), ("cu", offsets)]);
        assert_eq!(outputs[0].as_floats().expect("floats"), expected, "{direction}");
    }
}

#[test]
fn reductions_positions_and_shifts() {
    assert_eq!(body("y = x + sum(T, x);", &[1.0, 2.0]), [4.0, 5.0]);
    assert_eq!(body("y = x * reduce(T, Max(x));", &[1.0, 2.0]), [2.0, 4.0]);
    assert_eq!(body("y = x - sum(T, x) / size(T) as f32;", &[1.0, 3.0]), [-1.0, 1.0]);
    assert_eq!(body("y = first(T, x) + 10 * last(T, x) + 0 * x;", &[1.0, 3.0]), [31.0, 31.0]);
    assert_eq!(body("y = shift(T, x, 1) + 10 * shift(T, x, -1, fill = 7);", &[1.0, 2.0]), [20.0, 71.0]);
}

#[test]
fn the_end_of_nothing_is_the_initial_state() {
    let block = "fn kernel(x: [B, T]) -> (s: [B], plain: [B], given: [B]) {
        s = last(T, scan(T, Affine(2, x), init = 5).b);
        plain = last(T, x);
        given = first(T, x, empty = 9);
    }";
    let outputs = run(&lowered(block)[0], &[("x", row(&[]))]);
    let ends: Vec<&[f64]> = outputs.iter().filter_map(Array::as_floats).collect();
    assert_eq!(ends, [[5.0], [0.0], [9.0]]);
}

#[test]
fn broadcasting_is_by_name() {
    let block = "fn outer(a: [I], b: [J]) -> (ab: [J, I], s: [I]) { ab = a * b; s = sum(J, ab); }";
    let inputs = [("a", Array::floats(&[2], [1.0, 2.0])), ("b", Array::floats(&[3], [1.0, 10.0, 100.0]))];
    let outputs = run(&lowered(block)[0], &inputs);
    assert_eq!(outputs[0].as_floats().expect("floats"), [1.0, 2.0, 10.0, 20.0, 100.0, 200.0]);
    assert_eq!(outputs[1].as_floats().expect("floats"), [111.0, 222.0]);
}

#[test]
fn operators_take_the_types_of_their_elements() {
    let block = "fn kernel(i: i32[B, T], f: f32[B, T], d: f64[B, T]) -> (n: i32[B], m: i32[B], s: f64[B]) {
        n = sum(T, i);
        m = reduce(T, Max(i));
        s = last(T, scan(T, Affine(f, d)).b);
    }";
    let program = &lowered(block)[0];
    let fields: Vec<String> = program
        .operators
        .iter()
        .map(|o| format!("{} {}", o.name, o.fields.iter().map(|f| f.ty.name()).collect::<Vec<_>>().join(" ")))
        .collect();
    assert_eq!(fields, ["Sum i32", "Max i32", "Affine f32 f64"]);
    let inputs = [("i", int_row(&[-3, -2])), ("f", row(&[2.0, 3.0])), ("d", row(&[1.0, 1.0]))];
    let outputs = run(program, &inputs);
    assert_eq!(outputs[0], Array::ints(&[1], [-5]));
    assert_eq!(outputs[1], Array::ints(&[1], [-2]));
    assert_eq!(outputs[2].as_floats().expect("floats"), [4.0]);
    let outputs = run(program, &[("i", int_row(&[])), ("f", row(&[])), ("d", row(&[]))]);
    assert_eq!(
        outputs[1],
        Array::ints(&[1], [i64::from(i32::MIN)]),
        "the identity of integers is their smallest value"
    );
}

#[test]
fn a_block_may_replace_a_standard_operator() {
    let block = "
        op Max(m) { identity (0); combine(l, r) (l.m + r.m); }
        fn kernel(x: [B, T]) -> (y: [B, T]) { y = scan(T, Max(x)); }
    ";
    assert_eq!(of_row(block, &[1.0, 2.0]), [1.0, 3.0]);
}
