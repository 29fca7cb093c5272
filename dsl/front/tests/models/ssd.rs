//! Mamba-2's state-space dual against its chunked form, and its relatives against each other.

use oplus_dsl::interpret::{Array, Mode, Order};

use crate::harness::{Named, close, cotangents, floats, gradients, in_f64, inputs, model, run, stored};
use crate::ssd_loops::{Options, Outputs, Sizes, Tensors, backward, forward};

/// Awkward sizes; the chunks are of four times.
const SIZES: [Sizes; 7] = [
    Sizes { b: 1, t: 1, g: 1, h: 1, p: 1, n: 1 },
    Sizes { b: 2, t: 0, g: 1, h: 2, p: 2, n: 3 },
    Sizes { b: 1, t: 4, g: 1, h: 1, p: 3, n: 2 },
    Sizes { b: 2, t: 5, g: 2, h: 2, p: 2, n: 3 },
    Sizes { b: 1, t: 13, g: 1, h: 3, p: 5, n: 2 },
    Sizes { b: 1, t: 31, g: 3, h: 1, p: 1, n: 4 },
    Sizes { b: 1, t: 67, g: 1, h: 2, p: 2, n: 2 },
];

fn named_sizes(s: Sizes) -> Vec<(&'static str, usize)> {
    vec![("B", s.b), ("T", s.t), ("G", s.g), ("H", s.h), ("P", s.p), ("N", s.n), ("S", 5)]
}

fn tensors(s: Sizes, given: &Named) -> Tensors {
    let maybe = |name: &str| given.get(name).map(|array| floats(array).to_vec());
    let of = |name: &str, n: usize| maybe(name).unwrap_or(vec![0.0; n]);
    let (rows, heads) = (s.b * s.t * s.g * s.h, s.g * s.h);
    Tensors {
        x: of("x", rows * s.p),
        dt: of("dt", rows),
        a: of("a", heads),
        b: of("b", s.b * s.t * s.g * s.n),
        c: of("c", s.b * s.t * s.g * s.n),
        z: maybe("z"),
        skip: of("skip", heads),
        dt_bias: of("dt_bias", heads),
        h0: of("h0", s.b * heads * s.p * s.n),
    }
}

/// Checks outputs and gradients of a model.
fn check(name: &str, s: Sizes, given: &Named, order: Order) {
    let (program, sizes, mode) = (in_f64(name), named_sizes(s), stored(order));
    let offsets = given.get("cu_seqlens").and_then(Array::as_ints).unwrap_or_default();
    let starts = offsets.iter().map(|at| *at as usize).collect();
    let options = Options { softplus: name != "ssd", starts, chunk: 4 };
    let (found, x) = (run(&program, given, &sizes, mode), tensors(s, given));
    let (expected, bars) = (forward(s, &x, &options), cotangents(&found, 13));
    let what = format!("{name} at {s:?}");
    close(&format!("{what}: y"), floats(&found["y"]), &expected.y, 1e-12);
    if let Some(found) = found.get("h_last") {
        close(&format!("{what}: h_last"), floats(found), &expected.h_last, 1e-12);
    }
    let of = |name: &str, n: usize| bars.get(name).map_or(vec![0.0; n], |bar| floats(bar).to_vec());
    let bar = Outputs { y: of("y", expected.y.len()), h_last: of("h_last", expected.h_last.len()) };
    let derived = gradients(&program, (given, &found, &bars), &sizes, mode);
    let by_hand = backward(s, &x, &options, &bar);
    let none = vec![];
    let all = [
        ("x", &by_hand.x),
        ("dt", &by_hand.dt),
        ("a", &by_hand.a),
        ("b", &by_hand.b),
        ("c", &by_hand.c),
        ("z", by_hand.z.as_ref().unwrap_or(&none)),
        ("skip", &by_hand.skip),
        ("dt_bias", &by_hand.dt_bias),
        ("h0", &by_hand.h0),
    ];
    for (name, expected) in all.iter().filter(|(name, _)| program.param(name).is_some()) {
        close(&format!("{what}: the gradient of {name}"), floats(&derived[*name]), expected, 1e-12);
    }
}

#[test]
fn outputs_and_derived_gradients_are_those_of_the_chunks() {
    for name in ["ssd", "ssd_softplus", "mamba2", "ssd_packed"] {
        for s in SIZES {
            let program = model(name);
            check(name, s, &inputs(&program, &named_sizes(s), 5, |_| true), Order::Sequential);
            check(name, s, &inputs(&program, &named_sizes(s), 6, |p| p.default.is_none()), Order::Tree);
        }
    }
}

/// Renames the inputs of a model and gives what another one computes of them.
fn renamed(name: &str, given: &Named, names: &[(&str, &str)], sizes: &[(&str, usize)]) -> Named {
    let of =
        |name: &String| names.iter().find(|(from, _)| from == name).map_or(name.clone(), |(_, to)| (*to).to_owned());
    let given: Named = given.iter().map(|(name, array)| (of(name), array.clone())).collect();
    run(&model(name), &given, sizes, Mode::default())
}

#[test]
fn decays_of_every_kind_are_one_recurrence() {
    let sizes = [("B", 2), ("H", 2), ("T", 9), ("K", 3), ("V", 2)];
    let mut given = inputs(&model("gated_linear_attention"), &sizes, 3, |_| true);
    let per_time = |g: &[f64], f: &dyn Fn(usize) -> f64| (0..g.len() / 3).map(f).collect::<Vec<f64>>();
    let g = floats(&given["g"]).to_vec();
    for constant in [Some(0.0), Some(-0.3), None] {
        let decay = |at: usize| constant.unwrap_or(g[3 * at]);
        let channels: Vec<f64> = (0..g.len()).map(|k| decay(k / 3)).collect();
        given.insert("g".into(), Array::floats(&[2, 2, 9, 3], channels));
        let expected = renamed("gated_linear_attention", &given, &[], &sizes);
        given.insert("g".into(), Array::floats(&[2, 2, 9], per_time(&g, &decay)));
        let one = renamed("monoid_attention", &given, &[], &sizes);
        close("one decay", floats(&one["o"]), floats(&expected["o"]), 1e-13);
        if let Some(constant) = constant {
            given.insert("g".into(), Array::floats(&[2], [constant; 2]));
            let found = renamed("retention", &given, &[], &sizes);
            close("retention", floats(&found["o"]), floats(&expected["o"]), 1e-13);
        }
        if constant == Some(0.0) {
            let found = renamed("linear_attention", &given, &[], &sizes);
            close("no decay", floats(&found["o"]), floats(&expected["o"]), 1e-13);
        }
    }
}
