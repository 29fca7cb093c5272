//! Compiled sweeps beside loops over one lane after the other.

use oplus_dsl::ir::{Binary, Unary};

use super::{Action, Float, Function, Input, LANES, Node, Number, Source, Steps, Sweep, Tensors, compile};

fn node(action: Action, operands: &[Source]) -> Node {
    Node { action, is_flag: false, operands: operands.to_vec() }
}

fn binary(op: Binary, a: Source, b: Source) -> Node {
    Node { action: Action::Binary(op), is_flag: op.is_comparison(), operands: vec![a, b] }
}

/// s ← max(s·x0, x1) + c, kept as u: t ← t − s; results s + x0 where s > t else the state before, and t.
fn sweep(number: Number, is_reversed: bool) -> Sweep {
    let (before, after, input) = (Source::Before, Source::After, Source::Input);
    Sweep {
        number,
        is_reversed,
        lanes: LANES,
        inputs: vec![Input::Each, Input::Each, Input::One],
        nodes: vec![
            binary(Binary::Mul, before(0), input(0)),
            binary(Binary::Max, Source::Node(0), input(1)),
            binary(Binary::Add, Source::Node(1), input(2)),
            binary(Binary::Sub, before(1), before(0)),
        ],
        next: vec![Some(Source::Node(2)), Some(Source::Node(3)), None],
        after: vec![
            binary(Binary::Add, after(0), input(0)),
            binary(Binary::Gt, after(0), after(1)),
            node(Action::Select, &[Source::Node(5), Source::Node(4), before(0)]),
            node(Action::Unary(Unary::Neg), &[Source::Node(6)]),
        ],
        outputs: vec![Source::Node(7), after(1)],
        may_leave_out: true,
        is_closed: true,
        keeps: false,
    }
}

/// The step of [`sweep`] for one lane.
macro_rules! plain {
    ($t:ty, $name:ident) => {
        fn $name(x: [&[$t]; 3], starts: &[$t], last: &[$t], steps: usize, reversed: bool, out: bool) -> [Vec<$t>; 3] {
            let n = LANES * steps;
            let mut results = [vec![0.0; n], vec![0.0; n], starts.to_vec()];
            for lane in 0..LANES {
                let mut state = [starts[lane], starts[LANES + lane]];
                for t in 0..steps {
                    let visit = lane * steps + t;
                    let at = if reversed { n - 1 - visit } else { visit };
                    let before = state;
                    let product = before[0] * x[0][at];
                    let larger = if product > x[1][at] { product } else { x[1][at] };
                    state = [larger + x[2][0], before[1] - before[0]];
                    if visit == 0 && out {
                        state = before;
                    }
                    let known = if visit == n - 1 { [last[0], last[1]] } else { state };
                    let chosen = if known[0] > known[1] { known[0] + x[0][at] } else { before[0] };
                    (results[0][at], results[1][at]) = (-chosen, known[1]);
                }
                (results[2][lane], results[2][LANES + lane]) = (state[0], state[1]);
            }
            results
        }
    };
}
plain!(f32, plain_f32);
plain!(f64, plain_f64);

/// Numbers between −1 and 1.
fn numbers(n: usize, seed: u64) -> Vec<f64> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / (1 << 23) as f64 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

fn compiled<T: Float + Default>(
    function: &Function,
    x: [&[T]; 3],
    starts: &[T],
    last: &[T],
    steps: usize,
    leaves_out: bool,
) -> [Vec<T>; 3] {
    let n = LANES * steps;
    let mut results = [vec![T::default(); n], vec![T::default(); n], vec![T::default(); 3 * LANES]];
    let [a, b, ends] = &mut results;
    let tensors = Tensors { inputs: &x, outputs: &mut [&mut a[..], &mut b[..]], starts, last, ends, squares: &mut [] };
    function.call(Steps { of_lane: steps, leaves_out, streams: false }, tensors);
    results
}

#[test]
fn a_compiled_sweep_has_the_bits_of_a_plain_loop() {
    for reversed in [false, true] {
        let singles = compile(&sweep(Number::F32, reversed)).unwrap();
        let doubles = compile(&sweep(Number::F64, reversed)).unwrap();
        for (steps, leaves_out) in [(16, false), (32, true), (256, false)] {
            let wide = [1, 2].map(|seed| numbers(LANES * steps, seed));
            let (starts, last) = (numbers(3 * LANES, 3), [0.5, -0.25, 2.0]);
            let x = [&wide[0][..], &wide[1][..], &[0.125][..]];
            let expected = plain_f64(x, &starts, &last, steps, reversed, leaves_out);
            assert_eq!(compiled(&doubles, x, &starts, &last, steps, leaves_out), expected, "{steps} {reversed}");
            let narrow = |all: &[f64]| all.iter().map(|x| *x as f32).collect::<Vec<f32>>();
            let x = x.map(narrow);
            let (x, starts, last) = ([&x[0][..], &x[1][..], &x[2][..]], narrow(&starts), narrow(&last));
            let expected = plain_f32(x, &starts, &last, steps, reversed, leaves_out);
            assert_eq!(compiled(&singles, x, &starts, &last, steps, leaves_out), expected, "{steps} {reversed}");
        }
    }
}

/// Processors have vectors of 128, 256 or 512 bits; LLVM makes several of one that is too wide.
#[test]
fn vectors_of_every_width_give_the_same_bits() {
    let x = [1, 2].map(|seed| numbers(LANES * 32, seed).iter().map(|x| *x as f32).collect::<Vec<f32>>());
    let (x, starts) = ([&x[0][..], &x[1][..], &[0.125][..]], vec![0.5_f32; 3 * LANES]);
    for reversed in [false, true] {
        let sweep = sweep(Number::F32, reversed);
        let expected = plain_f32(x, &starts, &[0.5, -0.25], 32, reversed, true);
        for width in [2, 4, 8, 16, 32] {
            let text = super::text::write(&sweep, width).unwrap();
            let address = super::machine::Machine::here().unwrap().load(&text, super::text::NAME).unwrap();
            let function = Function::new(&sweep, width, address);
            assert_eq!(compiled(&function, x, &starts, &[0.5, -0.25, 2.0], 32, true), expected, "{width} {reversed}");
        }
    }
}

/// A first sweep that keeps its squares, and the sweep that reads these instead of the tensors and writes whole lines past the caches.
#[test]
fn squares_that_are_kept_and_lines_past_the_caches_give_the_same_bits() {
    let n = LANES * 32;
    let x = [1, 2].map(|seed| numbers(n, seed).iter().map(|x| *x as f32).collect::<Vec<f32>>());
    let (x, starts, last) = ([&x[0][..], &x[1][..], &[0.125][..]], vec![0.5_f32; 3 * LANES], [0.5, -0.25, 2.0]);
    for reversed in [false, true] {
        let of_results = sweep(Number::F32, reversed);
        let of_totals = Sweep { outputs: vec![], after: vec![], is_closed: false, keeps: true, ..of_results.clone() };
        let of_results = Sweep { inputs: vec![Input::Kept, Input::Kept, Input::One], ..of_results };
        let [totals, results] = [of_totals, of_results].map(|sweep| compile(&sweep).unwrap());
        assert_eq!((totals.squares(32), results.squares(32)), (2 * n, 2 * n));
        let (mut squares, mut ends) = (vec![f32::NAN; 2 * n], vec![0.0; 3 * LANES]);
        let tensors = Tensors {
            inputs: &x,
            outputs: &mut [],
            starts: &starts,
            last: &last,
            ends: &mut ends,
            squares: &mut squares,
        };
        totals.call(Steps { of_lane: 32, leaves_out: true, streams: true }, tensors);
        let expected = plain_f32(x, &starts, &last, 32, reversed, true);
        assert_eq!(ends, expected[2]);
        for (shift, streams) in [(0, true), (1, true), (0, false)] {
            let mut memory = [vec![0.0_f32; n + 32], vec![0.0; n + 32]];
            let [a, b] = memory.each_mut().map(|all| {
                let from = all.as_ptr().align_offset(64) + shift;
                &mut all[from..][..n]
            });
            let tensors = Tensors {
                inputs: &[&[], &[], x[2]],
                outputs: &mut [&mut *a, &mut *b],
                starts: &starts,
                last: &last,
                ends: &mut ends,
                squares: &mut squares,
            };
            results.call(Steps { of_lane: 32, leaves_out: true, streams }, tensors);
            assert_eq!([&*a, &*b], [&expected[0][..], &expected[1][..]], "{reversed} {shift} {streams}");
        }
    }
}

/// Maps read w, which no step does, and two of three results are maps: they are computed in rows.
#[test]
fn maps_in_rows_have_the_bits_of_a_plain_loop() {
    let (after, input, steps) = (Source::After(0), Source::Input, 48);
    let n = LANES * steps;
    let [x, w] = [1, 2].map(|seed| numbers(n, seed).iter().map(|x| *x as f32).collect::<Vec<f32>>());
    for (is_reversed, width, streams) in [(false, 16, true), (true, 16, true), (false, 8, false), (true, 4, false)] {
        let sweep = Sweep {
            inputs: vec![Input::Each, Input::One, Input::Each],
            nodes: vec![
                binary(Binary::Mul, Source::Before(0), input(0)),
                binary(Binary::Add, Source::Node(0), input(1)),
            ],
            next: vec![Some(Source::Node(1))],
            after: vec![binary(Binary::Mul, after, input(2)), binary(Binary::Sub, input(2), Source::Node(2))],
            outputs: vec![after, Source::Node(2), Source::Node(3)],
            ..sweep(Number::F32, is_reversed)
        };
        let text = super::text::write(&sweep, width).unwrap();
        assert!(text.contains("row.begin"));
        let address = super::machine::Machine::here().unwrap().load(&text, super::text::NAME).unwrap();
        let mut memory = [(); 3].map(|()| vec![0.0_f32; n + 32]);
        let mut outputs = memory.each_mut().map(|all| {
            let from = all.as_ptr().align_offset(64);
            &mut all[from..][..n]
        });
        let (starts, mut ends) = (vec![0.5; LANES], vec![0.0; LANES]);
        let (inputs, last) = ([&x[..], &[0.125], &w], [3.0]);
        let tensors = Tensors {
            inputs: &inputs,
            outputs: &mut outputs,
            starts: &starts,
            last: &last,
            ends: &mut ends,
            squares: &mut [],
        };
        Function::new(&sweep, width, address).call(Steps { of_lane: steps, leaves_out: false, streams }, tensors);
        for (lane, end) in ends.iter().enumerate() {
            let mut state = 0.5_f32;
            for visit in lane * steps..(lane + 1) * steps {
                let at = if is_reversed { n - 1 - visit } else { visit };
                state = state * x[at] + 0.125;
                let known = if visit == n - 1 { 3.0 } else { state };
                let expected = [known, known * w[at], w[at] - known * w[at]];
                assert_eq!([0, 1, 2].map(|k: usize| outputs[k][at]), expected, "{width} {is_reversed} {visit}");
            }
            assert_eq!(*end, state);
        }
    }
}

#[test]
#[should_panic(expected = "there are too few squares")]
fn too_few_squares_are_refused() {
    let sweep = Sweep { keeps: true, ..sweep(Number::F32, false) };
    let (x, starts) = (vec![0.0_f32; LANES * 16], vec![0.0; 3 * LANES]);
    compiled(&compile(&sweep).unwrap(), [&x, &x, &[1.0]], &starts, &[], 16, false);
}

#[test]
fn what_has_no_machine_code_is_refused_in_words() {
    let mut exponential = sweep(Number::F32, false);
    exponential.nodes[3] = node(Action::Unary(Unary::Exp), &[Source::Before(0)]);
    let refused = compile(&exponential).unwrap_err().to_string();
    assert_eq!(refused, "cannot be lowered: no machine code for Unary(Exp)");
    let mut unknown = sweep(Number::F32, false);
    unknown.next[0] = Some(Source::After(0));
    assert_eq!(compile(&unknown).unwrap_err().to_string(), "cannot be lowered: there is no After(0)");
}

#[test]
#[should_panic(expected = "an input is too short")]
fn short_tensors_are_refused() {
    let function = compile(&sweep(Number::F32, false)).unwrap();
    let (short, long, starts) = (vec![0.0_f32; LANES * 16 - 1], vec![0.0; LANES * 16], vec![0.0; 3 * LANES]);
    compiled(&function, [&short, &long, &[1.0]], &starts, &[], 16, false);
}

#[test]
fn one_lane_takes_one_step_after_the_other() {
    let before = Source::Before;
    let product = binary(Binary::Mul, before(0), Source::Input(0));
    let running = Sweep {
        number: Number::F64,
        is_reversed: false,
        lanes: 1,
        inputs: vec![Input::Each],
        nodes: vec![product],
        next: vec![Some(Source::Node(0))],
        after: vec![],
        outputs: vec![before(0)],
        may_leave_out: false,
        is_closed: false,
        keeps: false,
    };
    let function = compile(&running).unwrap();
    assert!(function.takes(1) && function.takes(7) && !function.takes(0));
    let (mut out, mut ends) = ([0.0; 5], [0.0]);
    let tensors = Tensors {
        inputs: &[&[2.0, 3.0, 5.0, 7.0, 11.0]],
        outputs: &mut [&mut out[..]],
        starts: &[1.0],
        last: &[],
        ends: &mut ends,
        squares: &mut [],
    };
    function.call(Steps { of_lane: 5, ..Steps::default() }, tensors);
    assert_eq!((out, ends), ([1.0, 2.0, 6.0, 30.0, 210.0], [2310.0]));
}
