//! Softmax attention against plain loops, and in half precision.

use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::interpret::{Array, Data, Mode, Order, Precision};
use oplus_dsl::ir::Op;
use oplus_dsl::rng::Rng;
use oplus_dsl::scalar::round;

use crate::harness::{Named, cotangents, floats, gradients, in_f64, inputs, model, numbers, run, stored};
use crate::softmax_loops::{Outputs, Sizes, Tensors, backward, forward};

/// Awkward sizes: no queries, no keys, more of either, primes, groups.
const SIZES: [Sizes; 8] = [
    Sizes { b: 1, g: 1, r: 1, m: 1, n: 1, e: 1, f: 1 },
    Sizes { b: 1, g: 2, r: 1, m: 0, n: 3, e: 2, f: 2 },
    Sizes { b: 2, g: 1, r: 2, m: 3, n: 0, e: 2, f: 3 },
    Sizes { b: 2, g: 2, r: 3, m: 2, n: 5, e: 3, f: 2 },
    Sizes { b: 1, g: 1, r: 2, m: 7, n: 4, e: 4, f: 3 },
    Sizes { b: 1, g: 2, r: 1, m: 13, n: 13, e: 2, f: 5 },
    Sizes { b: 1, g: 1, r: 1, m: 31, n: 37, e: 3, f: 2 },
    Sizes { b: 1, g: 1, r: 1, m: 1, n: 67, e: 5, f: 4 },
];

/// The models, by how they hide keys from queries.
pub(crate) const MODELS: [&str; 7] = [
    "attention",
    "attention_causal",
    "attention_window",
    "attention_bias",
    "attention_softcap",
    "attention_packed",
    "attention_packed_causal",
];

pub(crate) fn named_sizes(s: Sizes) -> Vec<(&'static str, usize)> {
    vec![("B", s.b), ("G", s.g), ("R", s.r), ("M", s.m), ("N", s.n), ("E", s.e), ("F", s.f), ("S", 4)]
}

/// Inputs with the integers that models of attention take: lists of offsets, and distances of a window.
pub(crate) fn with_integers(mut given: Named, sizes: &[(&str, usize)]) -> Named {
    let size = |axis: &str| sizes.iter().find(|(name, _)| *name == axis).map_or(0, |(_, n)| *n as i64);
    let offsets = |n: i64| Data::Int(vec![0, n / 3, n / 3, n - n / 4]);
    let integers = [
        ("left", Data::Int(vec![2])),
        ("right", Data::Int(vec![1])),
        ("cu_q", offsets(size("M"))),
        ("cu_k", offsets(size("N"))),
    ];
    for (name, data) in integers {
        if let Some(array) = given.get_mut(name) {
            array.data = data;
        }
    }
    // Some keys are hidden by their bias, and all keys from the first query.
    if let Some(Array { data: Data::Float(bias), .. }) = given.get_mut("bias") {
        let hidden = |k: &usize| k.is_multiple_of(3) || *k < size("N") as usize;
        (0..bias.len()).filter(hidden).for_each(|k| bias[k] = f64::NEG_INFINITY);
    }
    given
}

/// The sequence of a position, by a list of offsets; where it begins and ends.
fn sequence(offsets: &[i64], at: usize, n: usize) -> (usize, usize, usize) {
    let index = offsets.iter().filter(|from| **from as usize <= at).count() - 1;
    (index, offsets[index] as usize, offsets.get(index + 1).map_or(n, |to| *to as usize))
}

/// Whether a model shows key n to query m.
fn seen(name: &str, s: Sizes, given: &Named, m: usize, n: usize) -> bool {
    let (at, key) = ((m + s.n) as i64 - s.m as i64, n as i64);
    let list = |name: &str| given[name].as_ints().expect("offsets").to_vec();
    match name {
        "attention_causal" | "attention_softcap" => key <= at,
        "attention_window" => (at - 2..=at + 1).contains(&key),
        "attention_packed" | "attention_packed_causal" => {
            let (cu_q, cu_k) = (list("cu_q"), list("cu_k"));
            let (sequence, _, end) = sequence(&cu_q, m, s.m);
            let (from, to) = (cu_k[sequence], cu_k.get(sequence + 1).copied().unwrap_or(s.n as i64));
            let causal = key <= m as i64 + to - end as i64;
            (from..to).contains(&key) && (name == "attention_packed" || causal)
        }
        _ => true,
    }
}

fn tensors(given: &Named) -> Tensors {
    let of = |name: &str| floats(&given[name]).to_vec();
    let bias = given.get("bias").map(|bias| floats(bias).to_vec());
    Tensors { q: of("q"), k: of("k"), v: of("v"), bias, cap: given.get("cap").map(|cap| floats(cap)[0]) }
}

/// Asserts that values agree, and are infinite alike.
pub(crate) fn same(what: &str, found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let largest = expected.iter().filter(|x| x.is_finite()).fold(1.0f64, |m, x| m.max(x.abs()));
    for (k, (x, y)) in found.iter().zip(expected).enumerate() {
        assert!(x == y || (x - y).abs() <= 1e-12 * largest, "{what}, element {k}: {x} instead of {y}");
    }
}

fn check(name: &str, s: Sizes, order: Order) {
    let (program, sizes) = (in_f64(name), named_sizes(s));
    let given = with_integers(inputs(&program, &sizes, 5, |_| true), &sizes);
    let mode = stored(order);
    let found = run(&program, &given, &sizes, mode);
    let (x, seen) = (tensors(&given), |m: usize, n: usize| seen(name, s, &given, m, n));
    let (expected, bars) = (forward(s, &x, &seen), cotangents(&found, 13));
    let what = format!("{name} at {s:?}");
    same(&format!("{what}: o"), floats(&found["o"]), &expected.o);
    same(&format!("{what}: lse"), floats(&found["lse"]), &expected.lse);
    let bar = Outputs { o: floats(&bars["o"]).to_vec(), lse: floats(&bars["lse"]).to_vec() };
    let by_hand = backward(s, &x, &seen, &expected, &bar);
    let derived = gradients(&program, (&given, &found, &bars), &sizes, mode);
    for (name, expected) in [("q", &by_hand.q), ("k", &by_hand.k), ("v", &by_hand.v)] {
        same(&format!("{what}: the gradient of {name}"), floats(&derived[name]), expected);
    }
    if let Some(bias) = &by_hand.bias {
        same(&format!("{what}: the gradient of the bias"), floats(&derived["bias"]), bias);
    }
}

#[test]
fn outputs_and_derived_gradients_are_those_of_the_loops() {
    for name in MODELS {
        for s in SIZES {
            check(name, s, Order::Sequential);
        }
        check(name, SIZES[5], Order::Tree);
    }
}

#[test]
fn a_window_without_limits_hides_nothing() {
    let (window, all, s) = (in_f64("attention_window"), in_f64("attention"), SIZES[4]);
    let sizes = named_sizes(s);
    let mut given = with_integers(inputs(&window, &sizes, 5, |_| true), &sizes);
    for distance in [-1, i64::MIN, 1 << 20, i64::MAX] {
        for side in ["left", "right"] {
            given.insert(side.into(), Array { sizes: vec![], data: Data::Int(vec![distance]) });
        }
        let mode = stored(Order::Sequential);
        let (found, expected) = (run(&window, &given, &sizes, mode), run(&all, &given, &sizes, mode));
        assert_eq!(found, expected, "{distance}");
    }
}

#[test]
fn the_gradient_reads_what_the_forward_pass_gave() {
    for elem in [Elem::Call, Elem::F64, Elem::F32, Elem::Bf16, Elem::F16] {
        for name in MODELS {
            let forward = if elem == Elem::Call { model(name) } else { model(name).instantiate(elem) };
            let bar = adjoint(&forward).expect("a gradient");
            let merges = |op: &Op| match op {
                Op::Reduce { operator, .. } => bar.operator(*operator).name == "Softmax",
                Op::Scan { .. } => true,
                _ => false,
            };
            assert!(!bar.nodes.iter().any(|node| merges(&node.op)), "{name} in {elem}: nothing is merged again");
            assert!(bar.param("o").is_some() && bar.param("lse").is_some(), "{name} in {elem}");
        }
    }
}

#[test]
fn the_gradient_is_flash_attention() {
    let bar = adjoint(&model("attention").instantiate(Elem::Bf16)).expect("a gradient");
    insta::assert_snapshot!(oplus_dsl::adjoint::equations(&bar));
}

/// The largest difference.
fn apart(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).fold(0.0, |m, (a, b)| m.max((a - b).abs()))
}

/// Attention as it is written without any care, each matrix stored in the element type.
fn plain(s: Sizes, x: &Tensors, elem: Elem) -> Vec<f64> {
    let rounded = |x: f64| round(elem, x);
    let mut o = vec![];
    for row in 0..s.m {
        let k = |n: usize, e: usize| rounded(x.k[n * s.e + e] / (s.e as f64).sqrt());
        let score = |n: usize| rounded((0..s.e).map(|e| x.q[row * s.e + e] * k(n, e)).sum());
        let scores: Vec<f64> = (0..s.n).map(score).collect();
        let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = scores.iter().map(|s| (s - largest).exp()).sum();
        let p: Vec<f64> = scores.iter().map(|s| rounded((s - largest).exp() / sum)).collect();
        o.extend((0..s.f).map(|f| rounded((0..s.n).map(|n| p[n] * x.v[n * s.f + f]).sum())));
    }
    o
}

#[test]
fn half_precision_is_no_worse_than_twice_a_plain_implementation() {
    // The rule of flash attention's own tests.
    for (elem, seed) in [(Elem::Bf16, 1), (Elem::F16, 2)] {
        for (m, n) in [(1, 1), (31, 37), (113, 203), (128, 217)] {
            let s = Sizes { b: 1, g: 1, r: 1, m, n, e: 32, f: 8 };
            let mut rng = Rng::new(seed);
            let mut tensor = |rows: usize, width: usize| {
                let data = numbers(rows * width, &mut rng, -2.0, 2.0).into_iter().map(|x| round(elem, x));
                Array::floats(&[1, 1, rows, width], data.collect::<Vec<_>>())
            };
            let (mut q, k, v) = (tensor(m, s.e), tensor(n, s.e), tensor(n, s.f));
            q.sizes.insert(0, 1);
            let given: Named =
                [("q", q), ("k", k), ("v", v)].map(|(name, x)| (name.to_owned(), x)).into_iter().collect();
            let mode = Mode { precision: Precision::Storage, ..Mode::default() };
            let found = run(&model("attention").instantiate(elem), &given, &named_sizes(s), mode);
            let x = tensors(&given);
            let exact = forward(s, &x, &|_, _| true).o;
            let moved: Vec<f64> = exact.iter().map(|x| round(elem, round(elem, x + 0.3) - 0.3)).collect();
            let bound = 2.0 * apart(&plain(s, &x, elem), &exact) + 2.0 * apart(&moved, &exact);
            let error = apart(floats(&found["o"]), &exact);
            assert!(error <= bound, "{elem}, {m} queries, {n} keys: {error} > {bound}");
        }
    }
}
