use crate::parse::parse;
use crate::testing::texts::AFFINE;

use super::*;

/// The outputs of a program in text form.
fn run(text: &str, inputs: &[Option<Array>], mode: Mode) -> Result<Vec<Array>, InterpretError> {
    interpret(&parse(text).unwrap(), inputs, mode)
}

/// The only output of a program without inputs that computes one value from constants.
fn value(ty: &str, op: &str) -> Data {
    let text = format!("program p {{ {op}; output y: {ty} = %{}; }}", op.matches(';').count());
    run(&text, &[], Mode::default()).unwrap().remove(0).data
}

fn scan(flags: &str) -> String {
    format!(
        "program p {{ axes L, B; param a: f32[L]; param b: f32[B, L]; param h: f32[B] = 0.0; {AFFINE}
        %0: f32[L] = param a;
        %1: f32[L, B] = param b;
        %2: f32[B] = param h;
        %3: f32 = const 1.0;
        %4: tuple[L, B] = scan(L, Affine, (%0, %1), init (%3, %2){flags});
        %5: f32[L, B] = %4.b;
        %6: f32[B] = last(L, %5, %2);
        output y: f32[B, L] = %5;
        output last: f32[B] = %6; }}"
    )
}

/// h[t] = a[t]·h[t−1] + b[t] by a plain loop over each row of b.
fn recurrence(a: &[f64], b: &[f64], h: &[f64], reverse: bool, exclusive: bool) -> Vec<f64> {
    let n = a.len();
    let mut y = vec![0.0; b.len()];
    for (row, mut state) in h.iter().copied().enumerate() {
        for visit in 0..n {
            let t = if reverse { n - 1 - visit } else { visit };
            let next = a[t] * state + b[row * n + t];
            y[row * n + t] = if exclusive { state } else { next };
            state = next;
        }
    }
    y
}

fn numbers(n: usize, seed: u64) -> Vec<f64> {
    (0..n as u64).map(|i| ((i * 7919 + seed * 104_729) % 1000) as f64 / 500.0 - 1.0).collect()
}

#[test]
fn scans_agree_with_a_loop_in_both_orders_and_directions() {
    for n in [0, 1, 2, 3, 7, 8, 31, 64, 101] {
        for (reverse, exclusive) in [(false, false), (true, false), (false, true), (true, true)] {
            // Few rows are scanned one after the other, many side by side.
            for rows in [3, 20, 600] {
                agrees_with_a_loop(n, rows, reverse, exclusive);
            }
        }
    }
}

fn agrees_with_a_loop(n: usize, rows: usize, reverse: bool, exclusive: bool) {
    let (a, b, h) = (numbers(n, 1), numbers(rows * n, 2), numbers(rows, 3));
    let flags = [(reverse, ", reverse"), (exclusive, ", exclusive")];
    let flags: String = flags.into_iter().filter(|(on, _)| *on).map(|(_, word)| word).collect();
    let expected = recurrence(&a, &b, &h, reverse, exclusive);
    let inputs = [(vec![n], a), (vec![rows, n], b), (vec![rows], h.clone())];
    let inputs = inputs.map(|(sizes, data)| Some(Array::floats(&sizes, data)));
    for order in [Order::Sequential, Order::Tree] {
        let mode = Mode { order, ..Mode::default() };
        let outputs = run(&scan(&flags), &inputs, mode).unwrap();
        let y = outputs[0].as_floats().unwrap();
        assert_eq!(outputs[0].sizes, [rows, n]);
        let close = |(x, y): (&f64, &f64)| (x - y).abs() <= 1e-14 * (1.0 + x.abs());
        assert!(y.iter().zip(&expected).all(close), "{n} {flags} {order:?}: {y:?} {expected:?}");
        let last: Vec<f64> = (0..rows).map(|row| if n == 0 { h[row] } else { y[row * n + n - 1] }).collect();
        assert_eq!(outputs[1].as_floats().unwrap(), last);
    }
}

#[test]
fn a_reduction_of_nothing_is_the_identity() {
    let text = format!(
        "program p {{ axes N, B; param b: f32[N, B]; {AFFINE} %0: f32[N, B] = param b;
        %1: tuple[B] = reduce(N, Affine, (%0, %0)); %2: f32[B] = %1.a; output a: f32[B] = %2; }}"
    );
    let of = |sizes: &[usize], data: &[f64]| {
        run(&text, &[Some(Array::floats(sizes, data))], Mode { order: Order::Tree, ..Mode::default() })
            .unwrap()
            .remove(0)
    };
    assert_eq!(of(&[0, 2], &[]), Array::floats(&[2], [1.0, 1.0]));
    assert_eq!(of(&[2, 0], &[]), Array::floats(&[0], []));
    assert_eq!(of(&[3, 1], &[2.0, 3.0, 5.0]), Array::floats(&[1], [30.0]));
}

#[test]
fn values_are_broadcast_by_name_and_stored_in_memory_order() {
    let text = "program p { axes A, B, C; param x: i64[B]; param y: i64[C, A]; %0: i64[B] = param x;
        %1: i64[A, C] = param y; %2: i64[A, B, C] = %0 + %1; output s: i64[C, B, A] = %2; }";
    let inputs = [Some(Array::ints(&[2], [100, 200])), Some(Array::ints(&[2, 3], [1, 2, 3, 4, 5, 6]))];
    let expected = [101, 102, 103, 201, 202, 203, 104, 105, 106, 204, 205, 206];
    assert_eq!(run(text, &inputs, Mode::default()).unwrap(), [Array::ints(&[2, 2, 3], expected)]);
}

#[test]
fn positions() {
    let text =
        |op: &str| format!("program p {{ axes L; param x: i64[L]; %0: i64[L] = param x; %1: i64 = const 9; {op}; }}");
    let of = |op: &str, x: &[i64]| {
        let inputs = [Some(Array::ints(&[x.len()], x))];
        run(&text(op), &inputs, Mode::default()).unwrap().remove(0).as_ints().unwrap().to_vec()
    };
    let shift = |by: i64| format!("%2: i64[L] = shift(L, {by}, %0, %1); output y: i64[L] = %2");
    assert_eq!(of(&shift(1), &[1, 2, 3]), [9, 1, 2]);
    assert_eq!(of(&shift(-2), &[1, 2, 3]), [3, 9, 9]);
    assert_eq!(of(&shift(i64::MIN), &[1, 2]), [9, 9]);
    assert_eq!(of(&shift(0), &[]), [0; 0]);
    let end = |op: &str| format!("%2: i64 = {op}(L, %0, %1); output y: i64 = %2");
    assert_eq!(of(&end("first"), &[4, 5]), [4]);
    assert_eq!(of(&end("last"), &[4, 5]), [5]);
    assert_eq!(of(&end("last"), &[]), [9]);
    let ends_of_constant = "%2: i64 = last(L, %1, %1); output y: i64 = %2";
    assert_eq!(of(ends_of_constant, &[1]), [9]);
    assert_eq!(of("%2: i64[L] = index(L); output y: i64[L] = %2", &[7, 7, 7]), [0, 1, 2]);
    assert_eq!(of("%2: i64 = size(L); output y: i64 = %2", &[7, 7, 7]), [3]);
}

#[test]
fn segments_start_where_offsets_say() {
    let text = "program p { axes L, S; param o: i32[S]; %0: i32[S] = param o; %1: bool[L] = starts(L, S, %0);
        output y: bool[L] = %1; }";
    let program = parse(text).unwrap();
    let offsets = [Some(Array::ints(&[5], [0, 2, 2, 4, -1]))];
    let sized = |n| interpret_sized(&program, &offsets, &[(Axis(0), n)], Mode::default()).unwrap().remove(0);
    assert_eq!(sized(4).as_bools().unwrap(), [true, false, true, false]);
    assert_eq!(sized(0).as_bools().unwrap(), [false; 0]);
}

#[test]
fn integers_are_exact_in_all_64_bits() {
    let big =
        |op: &str| value("u64", &format!("%0: u64 = const -1; %1: u64 = const 10; %2: u64 = {op}").replace("; ", ";"));
    assert_eq!(big("%0 / %1"), Data::Int(vec![1_844_674_407_370_955_161]));
    assert_eq!(big("%0 % %1"), Data::Int(vec![5]));
    assert_eq!(big("max(%0, %1)"), Data::Int(vec![-1]));
    assert_eq!(
        value("i64", "%0: i64 = const 9007199254740993;%1: i64 = neg(%0)"),
        Data::Int(vec![-9_007_199_254_740_993])
    );
}

#[test]
fn the_branch_not_taken_has_no_effect() {
    let ops = "%0: bool = const true;%1: f64 = const 1.0;%2: f64 = const nan;%3: f64 = select(%0, %1, %2)";
    assert_eq!(value("f64", ops), Data::Float(vec![1.0]));
}

#[test]
fn storage_precision_rounds_every_operation_and_exact_none() {
    let text = "program p { param x: bf16; %0: f32 = param x; %1: f32 = const 0.1; %2: f32 = %0 * %1;
        %3: f32 = convert(f16, %2); output y: f32 = %2; output h: f32 = %3; output b: bf16 = %2; }";
    let inputs = [Some(Array::floats(&[], [1.001]))];
    let of = |precision| {
        let outputs = run(text, &inputs, Mode { precision, ..Mode::default() }).unwrap();
        outputs.iter().map(|y| y.as_floats().unwrap()[0]).collect::<Vec<_>>()
    };
    assert_eq!(of(Precision::Exact), [1.001 * 0.1; 3]);
    let product = f64::from(0.1f32);
    let half = half::f16::from_f32(0.1).to_f64();
    assert_eq!(of(Precision::Storage), [product, half, half::bf16::from_f32(0.1).to_f64()]);
}

#[test]
fn errors_name_axes_tensors_and_sizes() {
    let rows = |n: usize, m: usize| Some(Array::floats(&[n, m], vec![0.0; n * m]));
    let row = |n: usize| Some(Array::floats(&[n], vec![0.0; n]));
    let error = |inputs: &[Option<Array>]| run(&scan(""), inputs, Mode::default()).unwrap_err().to_string();
    assert_eq!(error(&[row(5), rows(2, 6), None]), "axis `L` has size 5 in `a`, but 6 in `b`");
    assert_eq!(error(&[row(5), None, None]), "parameter `b` is required");
    assert_eq!(error(&[row(5)]), "the program has 3 parameter(s), but 1 input(s) are given");
    assert_eq!(error(&[row(5), row(5), None]), "`b` has the axes [B, L], but 1 size(s) are given");
    assert_eq!(error(&[Some(Array::ints(&[1], [1])), rows(1, 1), None]), "`a` stores `f32`, but integers are given");
    let short = Some(Array::floats(&[2], [1.0]));
    assert_eq!(error(&[short, rows(1, 2), None]), "`a` has 2 element(s), but 1 are given");
    let unbound = "program p { axes L; %0: i64[L] = index(L); output y: i64[L] = %0; }";
    let unbound = parse(unbound).unwrap();
    let sized = |sizes: &[(Axis, usize)]| interpret_sized(&unbound, &[], sizes, Mode::default());
    assert_eq!(sized(&[]).unwrap_err().to_string(), "no input has axis `L`: its size must be given");
    assert_eq!(sized(&[(Axis(0), 2)]).unwrap(), [Array::ints(&[2], [0, 1])]);
    let huge = sized(&[(Axis(0), usize::MAX)]).unwrap_err();
    assert_eq!(huge.to_string(), "node %0 would have more than 4294967296 elements");
    assert!(matches!(sized(&[(Axis(0), 2), (Axis(0), 3)]), Err(InterpretError::Size { .. })));
}

#[test]
fn an_invalid_program_is_refused() {
    let invalid = run("program p { %0: f32 = const 1; }", &[], Mode::default());
    assert!(matches!(invalid, Err(InterpretError::Invalid(errors)) if errors.len() == 1));
}
