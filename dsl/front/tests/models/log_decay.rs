//! Log-decay attention, fused and with its states written, against the plain loops; and the limits of the decay.

use oplus_dsl::interpret::{Array, Mode, Order};

use crate::attention_loops::{Outputs, Sizes, Tensors, backward, forward};
use crate::harness::{Named, close, cotangents, floats, gradients, in_f64, inputs, model, run, stored};

/// Awkward sizes; the heads are those of two batches where there are more than one.
const SIZES: [Sizes; 6] = [
    Sizes { h: 1, t: 1, k: 1, v: 1 },
    Sizes { h: 2, t: 0, k: 3, v: 2 },
    Sizes { h: 4, t: 2, k: 1, v: 17 },
    Sizes { h: 2, t: 13, k: 16, v: 3 },
    Sizes { h: 6, t: 31, k: 3, v: 1 },
    Sizes { h: 1, t: 101, k: 2, v: 5 },
];

fn named_sizes(s: Sizes) -> Vec<(&'static str, usize)> {
    let b = if s.h > 1 { 2 } else { 1 };
    vec![("B", b), ("H", s.h / b), ("T", s.t), ("K", s.k), ("V", s.v), ("S", 5)]
}

fn tensors(s: Sizes, given: &Named) -> Tensors {
    let of = |name: &str, n: usize| given.get(name).map_or(vec![0.0; n], |array| floats(array).to_vec());
    Tensors {
        q: of("q", s.h * s.t * s.k),
        k: of("k", s.h * s.t * s.k),
        v: of("v", s.h * s.t * s.v),
        g: of("g", s.h * s.t),
        g0: of("g0", s.h),
        s0: of("s0", s.h * s.k * s.v),
    }
}

/// Checks the fused model at these inputs.
fn check(name: &str, s: Sizes, given: &Named, order: Order) {
    let (program, sizes) = (in_f64(name), named_sizes(s));
    let offsets = given.get("cu_seqlens").and_then(Array::as_ints).unwrap_or_default();
    let starts: Vec<usize> = offsets.iter().map(|at| *at as usize).collect();
    let mode = stored(order);
    let (found, x) = (run(&program, given, &sizes, mode), tensors(s, given));
    let (expected, bars) = (forward(s, &x, &starts), cotangents(&found, 13));
    let of = |name: &str, n: usize| bars.get(name).map_or(vec![0.0; n], |bar| floats(bar).to_vec());
    let bar = Outputs { o: of("o", expected.o.len()), g_last: of("g_last", s.h), s_last: of("s_last", x.s0.len()) };
    let what = format!("{name} at {s:?}");
    close(&format!("{what}: o"), floats(&found["o"]), &expected.o, 1e-13);
    for (output, expected) in [("g_last", &expected.g_last), ("s_last", &expected.s_last)] {
        if let Some(found) = found.get(output) {
            close(&format!("{what}: {output}"), floats(found), expected, 1e-13);
        }
    }
    let derived = gradients(&program, (given, &found, &bars), &sizes, mode);
    let by_hand = backward(s, &x, &starts, &bar);
    let all = [
        ("q", &by_hand.q),
        ("k", &by_hand.k),
        ("v", &by_hand.v),
        ("g", &by_hand.g),
        ("g0", &by_hand.g0),
        ("s0", &by_hand.s0),
    ];
    for (name, expected) in all.iter().filter(|(name, _)| program.param(name).is_some()) {
        close(&format!("{what}: the gradient of {name}"), floats(&derived[*name]), expected, 1e-12);
    }
}

#[test]
fn outputs_and_derived_gradients_are_those_of_the_loops() {
    for name in ["monoid_attention", "monoid_attention_packed"] {
        for s in SIZES {
            let program = model(name);
            check(name, s, &inputs(&program, &named_sizes(s), 5, |_| true), Order::Sequential);
            check(name, s, &inputs(&program, &named_sizes(s), 6, |p| p.default.is_none()), Order::Sequential);
        }
    }
}

#[test]
fn the_order_of_combination_does_not_matter() {
    let given = inputs(&model("monoid_attention"), &named_sizes(SIZES[3]), 5, |_| true);
    check("monoid_attention", SIZES[3], &given, Order::Tree);
}

#[test]
fn written_states_are_those_that_the_readout_sees() {
    let s = SIZES[3];
    let (fused, written, sizes) = (model("monoid_attention"), model("monoid_states"), named_sizes(s));
    let mut given = inputs(&fused, &sizes, 8, |_| true);
    let out = run(&fused, &given, &sizes, Mode::default());
    let (k, v) = (floats(&given["k"]), floats(&given["v"]));
    let outer = |at: usize| (0..s.k).flat_map(move |i| (0..s.v).map(move |j| k[at * s.k + i] * v[at * s.v + j]));
    let x: Vec<f64> = (0..s.h * s.t).flat_map(outer).collect();
    given.insert("x".into(), Array::floats(&[2, s.h / 2, s.t, s.k, s.v], x));
    let states = run(&written, &given, &sizes, Mode::default());
    assert_eq!((&states["g_last"], &states["s_last"]), (&out["g_last"], &out["s_last"]));
    let (q, all) = (floats(&given["q"]), floats(&states["s"]));
    let read = |at: usize, j: usize| (0..s.k).map(|i| q[at * s.k + i] * all[(at * s.k + i) * s.v + j]).sum::<f64>();
    let o: Vec<f64> = (0..s.h * s.t).flat_map(|at| (0..s.v).map(move |j| (at, j))).map(|(a, j)| read(a, j)).collect();
    close("o", floats(&out["o"]), &o, 1e-13);
}

#[test]
fn no_decay_makes_a_number_that_is_none() {
    let s = Sizes { h: 1, t: 8, k: 2, v: 3 };
    let mut given = inputs(&model("monoid_attention"), &named_sizes(s), 9, |_| true);
    let g = [0.0, f64::MIN_POSITIVE, -1e-30, -1e4, f64::NEG_INFINITY, f64::NEG_INFINITY, 0.0, -1e4];
    given.insert("g".into(), Array::floats(&[1, 1, 8], g));
    for order in [Order::Sequential, Order::Tree] {
        for name in ["monoid_attention", "monoid_states"] {
            let program = model(name);
            let mut given = given.clone();
            given.extend(inputs(&program, &named_sizes(s), 9, |p| p.name == "x"));
            let (sizes, mode) = (named_sizes(s), Mode { order, ..Mode::default() });
            let found = run(&program, &given, &sizes, mode);
            let bars = cotangents(&found, 2);
            let derived = gradients(&program, (&given, &found, &bars), &sizes, mode);
            let numbers = found.iter().chain(&derived).filter(|(name, _)| *name != "g_last");
            for (what, array) in numbers {
                assert!(floats(array).iter().all(|x| x.is_finite()), "{name}, {what}: {array:?}");
            }
            assert_eq!(floats(&found["g_last"]), [f64::NEG_INFINITY], "the accumulated decay forgets everything too");
        }
    }
}
