//! Packed sequences with a state each: outputs and every gradient are those of the sequences one by one.

use std::collections::HashMap;
use std::ops::Range;

use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::forward::tangent;
use oplus_dsl::interpret::{Array, Mode, Order, interpret_sized};
use oplus_dsl::ir::{Axis, Program};
use oplus_dsl::rng::Rng;

use crate::common::lowered;

/// Kernels of packed sequences, each followed by that of a single one.
const BLOCK: &str = "
    pub fn affine_packed(a: [T, D], b: [T, D], cu: i32 | i64[S + 1], h0: state[S, D] = 0) -> (h: [T, D], h_last: state[S, D]) {
        h = scan(T, segmented(Affine)(a, b), offsets = cu, init = h0).b;
        h_last = last(T, h, offsets = cu);
    }
    pub fn affine_alone(a: [T, D], b: [T, D], h0: state[D] = 0) -> (h: [T, D], h_last: state[D]) {
        h = scan(T, Affine(a, b), init = h0).b;
        h_last = last(T, h);
    }
    pub fn reverse_packed(a: [T], b: [T], cu: i64[S + 1], h0: state[S]) -> (h: [T], h_first: state[S]) {
        h = scan(T, segmented(Affine)(a, b), offsets = cu, init = h0, reverse).b;
        h_first = first(T, h, offsets = cu);
    }
    pub fn reverse_alone(a: [T], b: [T], h0: state) -> (h: [T], h_first: state) {
        h = scan(T, Affine(a, b), init = h0, reverse).b;
        h_first = first(T, h);
    }
    pub fn exclusive_packed(g: [T], x: [T, K], cu: i32[S + 1], s0: state[S, K]) -> (s: [T, K], s_last: state[S, K]) {
        s = scan(T, segmented(LogDecay)(g, x), offsets = cu, init = s0, exclusive).x;
        s_last = last(T, scan(T, segmented(LogDecay)(g, x), offsets = cu, init = s0).x, offsets = cu);
    }
    pub fn exclusive_alone(g: [T], x: [T, K], s0: state[K]) -> (s: [T, K], s_last: state[K]) {
        s = scan(T, LogDecay(g, x), init = s0, exclusive).x;
        s_last = last(T, scan(T, LogDecay(g, x), init = s0).x);
    }
    pub fn complex_packed(ar: [T], ai: [T], br: [N, T], bi: [N, T], cu: i64[S + 1], re: state[N, S], im: state[N, S])
        -> (y: [T], hr: state[N, S], hi: state[N, S]) {
        let h = scan(T, segmented(ComplexAffine)(ar, ai, br, bi), offsets = cu, init = (br: re, bi: im));
        y = sum(N, h.br - h.bi);
        let end = last(T, h, offsets = cu);
        (hr, hi) = (end.br, end.bi);
    }
    pub fn complex_alone(ar: [T], ai: [T], br: [N, T], bi: [N, T], re: state[N], im: state[N])
        -> (y: [T], hr: state[N], hi: state[N]) {
        let h = scan(T, ComplexAffine(ar, ai, br, bi), init = (br: re, bi: im));
        y = sum(N, h.br - h.bi);
        let end = last(T, h);
        (hr, hi) = (end.br, end.bi);
    }
    pub fn softmax_packed(s: [T], v: [T, V], cu: i64[S + 1], d0: state[S], o0: state[S, V])
        -> (y: [T, V], d: state[S], o: state[S, V]) {
        let all = scan(T, segmented(Softmax)(s, 1, v), offsets = cu, init = (0, 1 + d0 * d0, o0));
        y = all.o / all.d;
        let end = last(T, all, offsets = cu);
        (d, o) = (end.m + ln(end.d), end.o / end.d);
    }
    pub fn softmax_alone(s: [T], v: [T, V], d0: state, o0: state[V]) -> (y: [T, V], d: state, o: state[V]) {
        let all = scan(T, Softmax(s, 1, v), init = (0, 1 + d0 * d0, o0));
        y = all.o / all.d;
        let end = last(T, all);
        (d, o) = (end.m + ln(end.d), end.o / end.d);
    }
    pub fn matrix_packed(a: [T], b: [T], c: [T], d: [T], cu: i64[S + 1], start: state[S, D])
        -> (p: [T, D], p_last: state[S, D]) {
        let all = scan(T, segmented(Matrix2)(a, b, c, d), offsets = cu, init = (start, 0, 0, start));
        p = all.a + all.d;
        p_last = last(T, all.b, offsets = cu);
    }
    pub fn matrix_alone(a: [T], b: [T], c: [T], d: [T], start: state[D]) -> (p: [T, D], p_last: state[D]) {
        let all = scan(T, Matrix2(a, b, c, d), init = (start, 0, 0, start));
        p = all.a + all.d;
        p_last = last(T, all.b);
    }
    pub fn max_packed(x: [T], cu: i64[S + 1], m0: state[S]) -> (m: [T], m_last: state[S]) {
        m = scan(T, segmented(Max)(x), offsets = cu, init = m0);
        m_last = last(T, m, offsets = cu);
    }
    pub fn max_alone(x: [T], m0: state) -> (m: [T], m_last: state) {
        m = scan(T, Max(x), init = m0);
        m_last = last(T, m);
    }";

/// Lengths of sequences: none, empty ones at both ends and inside, of one element, and random ones.
fn lengths(rng: &mut Rng) -> Vec<Vec<usize>> {
    let random = |rng: &mut Rng| (0..rng.below(7)).map(|_| [0, 0, 1, 1, 2, 3, 7][rng.below(7)]).collect();
    let fixed = [vec![], vec![0], vec![1], vec![0, 0, 4, 0, 1, 0], vec![5, 1, 1]];
    fixed.into_iter().chain((0..4).map(|_| random(rng))).collect()
}

type Named = HashMap<String, Array>;

fn run(program: &Program, given: &Named, sizes: &[(&str, usize)], order: Order) -> Named {
    let inputs: Vec<Option<Array>> = program.params.iter().map(|param| given.get(&param.name).cloned()).collect();
    let sizes: Vec<(Axis, usize)> = sizes.iter().filter_map(|(name, n)| Some((program.axis(name)?, *n))).collect();
    let outputs = interpret_sized(program, &inputs, &sizes, Mode { order, ..Mode::default() });
    let outputs = outputs.unwrap_or_else(|error| panic!("{}: {error}\n{program}", program.name));
    program.outputs.iter().map(|output| output.name.clone()).zip(outputs).collect()
}

fn size(name: &str, times: usize, sequences: usize) -> usize {
    match name {
        "T" => times,
        "S" => sequences,
        "S.ends" => sequences + 1,
        _ => 2,
    }
}

fn random(program: &Program, axes: &[Axis], (times, sequences): (usize, usize), rng: &mut Rng) -> Array {
    let sizes: Vec<usize> = axes.iter().map(|axis| size(program.axis_name(*axis), times, sequences)).collect();
    let n = sizes.iter().product();
    Array::floats(&sizes, (0..n).map(|_| rng.between(-1.0, 1.0)).collect::<Vec<_>>())
}

/// The part of an array over the axes of a packed program that belongs to a sequence: its times, and its own index of S.
fn part(program: &Program, axes: &[Axis], array: &Array, (times, s): (Range<usize>, usize)) -> Array {
    let names: Vec<&str> = axes.iter().map(|axis| program.axis_name(*axis)).collect();
    let data = array.as_floats().expect("floats");
    let mut kept = vec![];
    for (k, x) in data.iter().enumerate() {
        let place = |d: usize| k / array.sizes[d + 1..].iter().product::<usize>() % array.sizes[d];
        let is_in = names.iter().enumerate().all(|(d, name)| match *name {
            "T" => times.contains(&place(d)),
            "S" => place(d) == s,
            _ => true,
        });
        kept.extend(is_in.then_some(*x));
    }
    let sizes = names.iter().zip(&array.sizes).filter(|(name, _)| **name != "S");
    let sizes: Vec<usize> = sizes.map(|(name, n)| if *name == "T" { times.len() } else { *n }).collect();
    Array::floats(&sizes, kept)
}

fn assert_close(what: &str, found: &Array, expected: &Array) {
    assert_eq!(found.sizes, expected.sizes, "{what}");
    for (a, b) in found.as_floats().expect("floats").iter().zip(expected.as_floats().expect("floats")) {
        assert!((a - b).abs() <= 1e-11 * (1.0 + b.abs()), "{what}: {a} instead of {b}");
    }
}

/// Cotangents `y.bar` of the outputs.
fn bars(program: &Program, place: (usize, usize), rng: &mut Rng) -> Named {
    let bar =
        |o: &oplus_dsl::ir::Output, rng: &mut Rng| (format!("{}.bar", o.name), random(program, &o.axes, place, rng));
    program.outputs.iter().map(|o| bar(o, rng)).collect()
}

fn check(packed: &Program, alone: &Program, lengths: &[usize], before: usize, rng: &mut Rng) {
    let offsets: Vec<usize> = lengths.iter().scan(before, |at, n| Some(std::mem::replace(at, *at + n))).collect();
    let end = before + lengths.iter().sum::<usize>();
    let (times, sequences) = (end + before, lengths.len());
    let ends: Vec<i64> = offsets.iter().chain([&end]).map(|at| *at as i64).collect();
    let mut given: Named = HashMap::from([("cu".to_owned(), Array::ints(&[ends.len()], ends))]);
    for param in packed.params.iter().filter(|param| param.elem.is_float()) {
        given.insert(param.name.clone(), random(packed, &param.axes, (times, sequences), rng));
    }
    let bars = bars(packed, (times, sequences), rng);
    let sizes = [("T", times), ("D", 2), ("K", 2), ("N", 2), ("V", 2)];
    for order in [Order::Sequential, Order::Tree] {
        let found = run(packed, &given, &sizes, order);
        let all: Named = given.iter().chain(&found).chain(&bars).map(|(k, x)| (k.clone(), x.clone())).collect();
        let gradients = run(&adjoint(packed).expect("a gradient"), &all, &sizes, order);
        for (s, (first, n)) in offsets.iter().zip(lengths).enumerate() {
            let own = (*first..first + n, s);
            let what = format!("{} of {lengths:?}, sequence {s}", packed.name);
            let sizes = [("T", *n), ("D", 2), ("K", 2), ("N", 2), ("V", 2)];
            let cut = |name: &str, axes: &[Axis], x: &Array| (name.to_owned(), part(packed, axes, x, own.clone()));
            let floats = packed.params.iter().filter(|param| param.elem.is_float());
            let mut inputs: Named = floats.clone().map(|p| cut(&p.name, &p.axes, &given[&p.name])).collect();
            let outputs = run(alone, &inputs, &sizes, order);
            for output in &packed.outputs {
                let (name, mine) = cut(&output.name, &output.axes, &found[&output.name]);
                assert_close(&format!("{what}: {name}"), &mine, &outputs[&name]);
                let bar = format!("{name}.bar");
                inputs.extend([cut(&bar, &output.axes, &bars[&bar])]);
            }
            inputs.extend(outputs);
            let expected = run(&adjoint(alone).expect("a gradient"), &inputs, &sizes, order);
            for param in floats {
                let (bar, mine) =
                    cut(&format!("{}.bar", param.name), &param.axes, &gradients[&format!("{}.bar", param.name)]);
                assert_close(&format!("{what}: {bar}"), &mine, &expected[&bar]);
            }
        }
    }
}

#[test]
fn packed_sequences_with_states_are_each_on_their_own() {
    let mut rng = Rng::new(3);
    let programs: Vec<Program> = lowered(BLOCK).into_iter().map(|program| program.instantiate(Elem::F64)).collect();
    for pair in programs.chunks(2) {
        for (k, lengths) in lengths(&mut rng).into_iter().enumerate() {
            check(&pair[0], &pair[1], &lengths, k % 3, &mut rng);
        }
    }
}

#[test]
fn forward_mode_agrees_with_reverse_mode() {
    let mut rng = Rng::new(5);
    for program in lowered(BLOCK).into_iter().map(|program| program.instantiate(Elem::F64)).step_by(2) {
        let place = (9, 4);
        let mut given: Named = HashMap::from([("cu".to_owned(), Array::ints(&[5], vec![0, 3, 3, 4, 9]))]);
        for param in program.params.iter().filter(|param| param.elem.is_float()) {
            given.insert(param.name.clone(), random(&program, &param.axes, place, &mut rng));
            given.insert(format!("{}.dot", param.name), random(&program, &param.axes, place, &mut rng));
        }
        let sizes = [("T", 9), ("D", 2), ("K", 2), ("N", 2), ("V", 2)];
        let bars = bars(&program, place, &mut rng);
        let tangents = run(&tangent(&program).expect("a tangent"), &given, &sizes, Order::Sequential);
        given.extend(run(&program, &given, &sizes, Order::Sequential));
        given.extend(bars.clone());
        let gradients = run(&adjoint(&program).expect("a gradient"), &given, &sizes, Order::Sequential);
        let dot = |a: &Array, b: &Array| -> f64 {
            a.as_floats().expect("floats").iter().zip(b.as_floats().expect("floats")).map(|(a, b)| a * b).sum()
        };
        let names = program.outputs.iter().map(|o| &o.name);
        let forward: f64 =
            names.map(|name| dot(&tangents[&format!("{name}.dot")], &bars[&format!("{name}.bar")])).sum();
        let floats = program.params.iter().filter(|param| param.elem.is_float()).map(|param| &param.name);
        let reverse: f64 =
            floats.map(|name| dot(&given[&format!("{name}.dot")], &gradients[&format!("{name}.bar")])).sum();
        assert!((forward - reverse).abs() <= 1e-11 * (1.0 + forward.abs()), "{}: {forward}, {reverse}", program.name);
    }
}

#[test]
fn the_list_has_one_entry_more_than_there_are_sequences() {
    let program = lowered(BLOCK).swap_remove(0).instantiate(Elem::F64);
    let call = |entries: usize, sequences: usize| {
        let (x, cu) = (Array::floats(&[3, 1], vec![0.0; 3]), Array::ints(&[entries], vec![0; entries]));
        let h0 = Array::floats(&[sequences, 1], vec![0.0; sequences]);
        interpret_sized(&program, &[Some(x.clone()), Some(x), Some(cu), Some(h0)], &[], Mode::default())
    };
    assert!(call(3, 2).is_ok());
    let message = call(3, 3).expect_err("too many states").to_string();
    assert!(message.contains("axis S has the size 3") && message.contains("which is 2 sequences"), "{message}");
    let message = call(0, 0).expect_err("no list").to_string();
    assert!(message.contains("S + 1 offsets has no entries"), "{message}");
}

#[test]
fn text_of_gathers_reads_back() {
    for program in lowered(BLOCK) {
        let text = program.to_string();
        assert_eq!(oplus_dsl::parse::parse(&text).expect("parses"), program, "{text}");
        let gradient = adjoint(&program).expect("a gradient");
        assert_eq!(oplus_dsl::parse::parse(&gradient.to_string()).expect("parses"), gradient);
        assert!(!oplus_dsl::adjoint::equations(&gradient).is_empty());
    }
}
