//! The delta rule and its relatives against loops over whole matrices, their gradients against differences of the loops.

use oplus_dsl::interpret::{Array, Order};
use oplus_dsl::step::step;

use crate::delta_loops::{Sizes, Step, delta, run as plain};
use crate::harness::{Named, close, cotangents, floats, gradients, in_f64, inputs, run, stored};

const SIZES: [Sizes; 5] = [
    Sizes { h: 2, t: 0, k: 2, v: 3 },
    Sizes { h: 4, t: 1, k: 1, v: 1 },
    Sizes { h: 2, t: 2, k: 3, v: 1 },
    Sizes { h: 4, t: 7, k: 3, v: 2 },
    Sizes { h: 2, t: 13, k: 2, v: 5 },
];

const MODELS: [&str; 4] = ["delta_rule", "gated_delta_rule", "kda", "rwkv7"];

fn named_sizes(s: Sizes) -> [(&'static str, usize); 5] {
    [("B", 2), ("H", s.h / 2), ("T", s.t), ("K", s.k), ("V", s.v)]
}

/// One step of a model at a head and a time.
fn step_of(name: &str, s: Sizes, given: &Named, at: usize) -> Step {
    let row = |of: &str, n: usize| floats(&given[of])[at * n..][..n].to_vec();
    let (k, v) = (row("k", s.k), row("v", s.v));
    if name == "rwkv7" {
        let (w, a, b) = (row("w", s.k), row("a", s.k), row("b", s.k));
        let m = |at: usize| if at / s.k == at % s.k { w[at % s.k].exp() } else { 0.0 } + b[at / s.k] * a[at % s.k];
        let x = k.iter().flat_map(|k| v.iter().map(move |v| k * v)).collect();
        return Step { m: (0..s.k * s.k).map(m).collect(), x };
    }
    let beta = row("beta", 1)[0];
    match name {
        "delta_rule" => delta(beta, &k, &v, |_| 1.0),
        "gated_delta_rule" => delta(beta, &k, &v, |_| row("g", 1)[0].exp()),
        _ => delta(beta, &k, &v, |c| row("g", s.k)[c].exp()),
    }
}

fn by_loops(name: &str, s: Sizes, given: &Named) -> (Vec<f64>, Vec<f64>) {
    let q = floats(&given[if name == "rwkv7" { "r" } else { "q" }]);
    let zero = vec![0.0; s.h * s.k * s.v];
    let s0 = given.get("s0").map_or(&zero[..], floats);
    plain(s, q, s0, |at| step_of(name, s, given, at))
}

#[test]
fn states_and_outputs_are_those_of_the_loops() {
    for name in MODELS {
        let program = in_f64(name);
        for s in SIZES {
            for given in [
                inputs(&program, &named_sizes(s), 5, |_| true),
                inputs(&program, &named_sizes(s), 6, |p| p.default.is_none()),
            ] {
                let found = run(&program, &given, &named_sizes(s), stored(Order::Sequential));
                let (o, last) = by_loops(name, s, &given);
                close(&format!("{name} at {s:?}: o"), floats(&found["o"]), &o, 1e-12);
                close(&format!("{name} at {s:?}: s_last"), floats(&found["s_last"]), &last, 1e-12);
            }
        }
    }
}

#[test]
fn gradients_are_differences_of_the_loops() {
    for name in MODELS {
        let program = in_f64(name);
        for s in SIZES {
            let given = inputs(&program, &named_sizes(s), 7, |_| true);
            let mode = stored(Order::Sequential);
            let found = run(&program, &given, &named_sizes(s), mode);
            let bars = cotangents(&found, 13);
            let derived = gradients(&program, (&given, &found, &bars), &named_sizes(s), mode);
            let value = |given: &Named| -> f64 {
                let (o, last) = by_loops(name, s, given);
                let products =
                    |x: Vec<f64>, bar: &Array| -> f64 { x.iter().zip(floats(bar)).map(|(x, b)| x * b).sum() };
                products(o, &bars["o"]) + products(last, &bars["s_last"])
            };
            for (param, array) in &given {
                let slope = |k: usize| {
                    let at = |by: f64| {
                        let mut moved = given.clone();
                        let mut data = floats(array).to_vec();
                        data[k] += by;
                        moved.insert(param.clone(), Array::floats(&array.sizes, data));
                        value(&moved)
                    };
                    (at(1e-5) - at(-1e-5)) / 2e-5
                };
                let expected: Vec<f64> = (0..floats(array).len()).map(slope).collect();
                close(&format!("{name} at {s:?}: the gradient of {param}"), floats(&derived[param]), &expected, 1e-7);
            }
        }
    }
}

#[test]
fn every_model_decodes() {
    for name in MODELS {
        let step = step(&in_f64(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!((step.states[0].param.as_str(), step.states[0].output.as_str()), ("s0", "s_last"));
    }
}

#[test]
fn packed_sequences_are_each_by_itself() {
    let program = in_f64("delta_rule_packed_states");
    let (times, offsets) = (9, [0, 4, 4, 5, 9]);
    let s = Sizes { h: 1, t: times, k: 3, v: 2 };
    let sizes = [("B", 1), ("H", 1), ("T", times), ("K", s.k), ("V", s.v), ("S", offsets.len() - 1)];
    let mut given = inputs(&program, &[&sizes[..], &[("S.ends", offsets.len())]].concat(), 3, |_| true);
    given.insert("cu_seqlens".into(), Array::ints(&[offsets.len()], offsets.map(|at| at as i64)));
    let mode = stored(Order::Sequential);
    let found = run(&program, &given, &sizes, mode);
    let bars = cotangents(&found, 4);
    let derived = gradients(&program, (&given, &found, &bars), &sizes, mode);
    let single = in_f64("delta_rule");
    for (sequence, bounds) in offsets.windows(2).enumerate() {
        let part = |name: &str, array: &Array| {
            let (from, to, row) = match name {
                "s0" | "s_last" => (sequence, sequence + 1, s.k * s.v),
                _ => (bounds[0], bounds[1], array.sizes[3..].iter().product()),
            };
            let data = floats(array)[from * row..to * row].to_vec();
            let whole = [&[1, 1, to - from], &array.sizes[3..]].concat();
            Array::floats(if matches!(name, "s0" | "s_last") { &[1, 1, 3, 2] } else { &whole }, data)
        };
        let parts = |all: &Named| -> Named {
            let floats = all.iter().filter(|(name, _)| *name != "cu_seqlens");
            floats.map(|(name, array)| (name.clone(), part(name, array))).collect()
        };
        let sizes = [("B", 1), ("H", 1), ("T", bounds[1] - bounds[0]), ("K", s.k), ("V", s.v)];
        let alone = run(&single, &parts(&given), &sizes, mode);
        for (name, array) in &alone {
            close(&format!("{name} of sequence {sequence}"), floats(&part(name, &found[name])), floats(array), 1e-12);
        }
        let alone = gradients(&single, (&parts(&given), &alone, &parts(&bars)), &sizes, mode);
        for (name, array) in &alone {
            let what = format!("the gradient of {name} of sequence {sequence}");
            close(&what, floats(&part(name, &derived[name])), floats(array), 1e-12);
        }
    }
}
