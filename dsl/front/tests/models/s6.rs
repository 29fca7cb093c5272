//! The selective scan, with every option, against the plain loops.

use oplus_dsl::interpret::{Array, Order};

use crate::harness::{Named, close, cotangents, floats, gradients, in_f64, inputs, model, run, stored};
use crate::s6_loops::{Options, Sizes, Tensors, backward, forward};

/// A model and its options.
struct Variant {
    name: &'static str,
    softplus: bool,
    packed: bool,
}

const VARIANTS: [Variant; 6] = [
    Variant { name: "selective_scan", softplus: false, packed: false },
    Variant { name: "selective_scan_gated", softplus: false, packed: false },
    Variant { name: "selective_scan_softplus", softplus: true, packed: false },
    Variant { name: "mamba", softplus: true, packed: false },
    Variant { name: "selective_scan_packed", softplus: false, packed: true },
    Variant { name: "mamba_packed", softplus: true, packed: true },
];

/// Awkward sizes: times 0, 1, 2, primes; one channel and an odd number of them; states 1, 3, 16, 17; one to four groups.
const SIZES: [Sizes; 7] = [
    Sizes { b: 1, g: 1, d: 1, n: 1, t: 1 },
    Sizes { b: 2, g: 1, d: 3, n: 3, t: 0 },
    Sizes { b: 2, g: 1, d: 5, n: 16, t: 2 },
    Sizes { b: 1, g: 2, d: 3, n: 17, t: 13 },
    Sizes { b: 3, g: 4, d: 1, n: 3, t: 31 },
    Sizes { b: 1, g: 3, d: 2, n: 1, t: 7 },
    Sizes { b: 1, g: 1, d: 1, n: 16, t: 101 },
];

/// The optional parameters that a call gives.
const GIVEN: [&[&str]; 3] = [&[], &["skip", "delta_bias", "h0"], &["skip"]];

/// The loops' tensors; what a call leaves out is zero.
fn tensors(s: Sizes, given: &Named) -> Tensors {
    let of = |name: &str, n: usize| given.get(name).map_or(vec![0.0; n], |array| floats(array).to_vec());
    let (channels, rows) = (s.g * s.d, s.b * s.g * s.d);
    Tensors {
        u: of("u", rows * s.t),
        delta: of("delta", rows * s.t),
        a: of("a", channels * s.n),
        b: of("b", s.b * s.g * s.n * s.t),
        c: of("c", s.b * s.g * s.n * s.t),
        z: given.get("z").map(|z| floats(z).to_vec()),
        skip: of("skip", channels),
        delta_bias: of("delta_bias", channels),
        h0: of("h0", rows * s.n),
    }
}

fn named(x: &Tensors) -> Vec<(&'static str, &[f64])> {
    let z = x.z.as_deref().map(|z| ("z", z));
    let all: [(&str, &[f64]); 8] = [
        ("u", &x.u),
        ("delta", &x.delta),
        ("a", &x.a),
        ("b", &x.b),
        ("c", &x.c),
        ("skip", &x.skip),
        ("delta_bias", &x.delta_bias),
        ("h0", &x.h0),
    ];
    all.into_iter().chain(z).collect()
}

fn check(variant: &Variant, s: Sizes, optional: &[&str], order: Order) {
    let program = in_f64(variant.name);
    let sizes = [("B", s.b), ("G", s.g), ("D", s.d), ("N", s.n), ("T", s.t), ("S", 6)];
    let wanted = |p: &oplus_dsl::ir::Param| p.default.is_none() || optional.contains(&p.name.as_str());
    let given = inputs(&program, &sizes, 7 + s.t as u64, wanted);
    let offsets = given.get("cu_seqlens").and_then(Array::as_ints).unwrap_or_default();
    let starts = if variant.packed { offsets.iter().map(|at| *at as usize).collect() } else { vec![] };
    let (x, options) = (tensors(s, &given), Options { softplus: variant.softplus, starts });

    let mode = stored(order);
    let (found, expected) = (run(&program, &given, &sizes, mode), forward(s, &x, &options));
    let what = format!("{} at {s:?} with {optional:?}", variant.name);
    close(&format!("{what}: y"), floats(&found["y"]), &expected.y, 1e-13);

    let bars = cotangents(&found, 11);
    let none = vec![0.0; s.b * s.g * s.d * s.n];
    let h_bar = bars.get("h_last").map_or(&none[..], floats);
    if let Some(h_last) = found.get("h_last") {
        close(&format!("{what}: h_last"), floats(h_last), &expected.h_last, 1e-13);
    }
    let derived = gradients(&program, (&given, &found, &bars), &sizes, mode);
    let by_hand = backward(s, &x, &options, &expected, floats(&bars["y"]), h_bar);
    for (name, expected) in named(&by_hand) {
        if let Some(found) = derived.get(name) {
            close(&format!("{what}: the gradient of {name}"), floats(found), expected, 1e-12);
        }
    }
    let count = named(&by_hand).len() - usize::from(variant.packed);
    assert_eq!(derived.len(), count, "{what}");
}

#[test]
fn outputs_and_derived_gradients_are_those_of_the_loops() {
    for variant in &VARIANTS {
        for s in SIZES {
            for optional in GIVEN {
                check(variant, s, optional, Order::Sequential);
            }
        }
    }
}

#[test]
fn the_order_of_combination_does_not_matter() {
    for variant in &VARIANTS {
        check(variant, SIZES[3], GIVEN[1], Order::Tree);
    }
}

#[test]
fn the_loops_gradients_are_those_of_differences() {
    let s = Sizes { b: 2, g: 2, d: 2, n: 2, t: 5 };
    let program = model("mamba");
    let sizes = [("B", s.b), ("G", s.g), ("D", s.d), ("N", s.n), ("T", s.t)];
    let x = tensors(s, &inputs(&program, &sizes, 3, |_| true));
    let options = Options { softplus: true, starts: vec![3] };
    let out = forward(s, &x, &options);
    let weights = |n: usize| (0..n).map(|k| (k as f64 * 0.7).sin()).collect::<Vec<_>>();
    let (y_bar, h_bar) = (weights(out.y.len()), weights(out.h_last.len()));
    let value = |x: &Tensors| {
        let out = forward(s, x, &options);
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        dot(&out.y, &y_bar) + dot(&out.h_last, &h_bar)
    };
    let grad = backward(s, &x, &options, &out, &y_bar, &h_bar);
    let fields: [fn(&mut Tensors) -> &mut Vec<f64>; 8] = [
        |x| &mut x.u,
        |x| &mut x.delta,
        |x| &mut x.a,
        |x| &mut x.b,
        |x| &mut x.c,
        |x| &mut x.skip,
        |x| &mut x.delta_bias,
        |x| &mut x.h0,
    ];
    for field in fields {
        let mut moved = x.clone();
        let mut difference = |k: usize| {
            let at = field(&mut moved)[k];
            let mut value_at = |to: f64| {
                field(&mut moved)[k] = to;
                value(&moved)
            };
            let slope = (value_at(at + 1e-5) - value_at(at - 1e-5)) / 2e-5;
            field(&mut moved)[k] = at;
            slope
        };
        let expected = field(&mut grad.clone()).clone();
        let found: Vec<f64> = (0..expected.len()).map(&mut difference).collect();
        close("differences", &found, &expected, 1e-8);
    }
}
