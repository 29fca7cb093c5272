//! Linear attention with every kind of decay, in calls of `f64`, against the plain loops.

use oplus_dsl::interpret::Order;

use crate::gated_loops::{Sizes, Tensors, backward, states};
use crate::harness::{Named, close, cotangents, floats, gradients, in_f64, inputs, run, stored};

const BOUND: f64 = 1e-12;

const SIZES: [Sizes; 4] = [
    Sizes { h: 4, t: 0, k: 2, v: 3 },
    Sizes { h: 4, t: 1, k: 1, v: 1 },
    Sizes { h: 6, t: 13, k: 3, v: 2 },
    Sizes { h: 2, t: 31, k: 2, v: 5 },
];

fn named_sizes(s: Sizes) -> [(&'static str, usize); 5] {
    [("B", 2), ("H", s.h / 2), ("T", s.t), ("K", s.k), ("V", s.v)]
}

/// Where the decay of a model at (head, time, channel) stands; `None` where it has none.
type Decay = fn(Sizes, usize, usize, usize) -> Option<usize>;

const MODELS: [(&str, Decay); 5] = [
    ("gated_linear_attention", |s, h, t, k| Some((h * s.t + t) * s.k + k)),
    ("monoid_attention", |s, h, t, _| Some(h * s.t + t)),
    ("monoid_states", |s, h, t, _| Some(h * s.t + t)),
    ("retention", |s, h, _, _| Some(h % (s.h / 2))),
    ("linear_attention", |_, _, _, _| None),
];

/// All (head, time, channel).
fn places(s: Sizes) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..s.h).flat_map(move |h| (0..s.t).flat_map(move |t| (0..s.k).map(move |k| (h, t, k))))
}

/// The recurrence's tensors: x = k⊗v where it is not given.
fn tensors(s: Sizes, given: &Named, decay: Decay) -> Tensors {
    let of = |name: &str| given.get(name).map(|array| floats(array).to_vec());
    let g = of("g").unwrap_or_default();
    let outer = || {
        let (k, v) = (of("k").unwrap_or_default(), of("v").unwrap_or_default());
        let row = |(h, t, i): (usize, usize, usize)| {
            let at = h * s.t + t;
            (0..s.v).map(|j| k[at * s.k + i] * v[at * s.v + j]).collect::<Vec<f64>>()
        };
        places(s).flat_map(row).collect()
    };
    Tensors {
        g: places(s).map(|(h, t, k)| decay(s, h, t, k).map_or(0.0, |at| g[at])).collect(),
        x: of("x").unwrap_or_else(outer),
        s0: of("s0").unwrap_or_else(|| vec![0.0; s.h * s.k * s.v]),
    }
}

/// The gradients of the readout and of the outer product, from those of the states; and the states' cotangents.
struct Around {
    q: Vec<f64>,
    k: Vec<f64>,
    v: Vec<f64>,
}

/// o = Σ over K of q·s: adds q⊗ō to the states' cotangents and gives q̄.
fn read_back(s: Sizes, q: &[f64], o_bar: &[f64], all: &[f64], s_bar: &mut [f64]) -> Vec<f64> {
    let mut q_bar = vec![0.0; q.len()];
    for (row, at) in places(s).map(|(h, t, i)| (h * s.t + t, (h * s.t + t) * s.k + i)) {
        for j in 0..s.v {
            s_bar[at * s.v + j] += q[at] * o_bar[row * s.v + j];
            q_bar[at] += all[at * s.v + j] * o_bar[row * s.v + j];
        }
    }
    q_bar
}

/// x = k⊗v.
fn outer_back(s: Sizes, given: &Named, x_bar: &[f64], around: &mut Around) {
    let (k, v) = (floats(&given["k"]), floats(&given["v"]));
    for (row, at) in places(s).map(|(h, t, i)| (h * s.t + t, (h * s.t + t) * s.k + i)) {
        for j in 0..s.v {
            around.k[at] += x_bar[at * s.v + j] * v[row * s.v + j];
            around.v[row * s.v + j] += x_bar[at * s.v + j] * k[at];
        }
    }
}

fn check((name, decay): (&str, Decay), s: Sizes, given: &Named) {
    let (program, sizes, mode) = (in_f64(name), named_sizes(s), stored(Order::Sequential));
    let (x, what) = (tensors(s, given, decay), format!("{name} at {s:?}"));
    let (all, found) = (states(s, &x), run(&program, given, &sizes, mode));
    let last = |h: usize| if s.t == 0 { &x.s0[h * s.k * s.v..] } else { &all[((h + 1) * s.t - 1) * s.k * s.v..] };
    let s_last: Vec<f64> = (0..s.h).flat_map(|h| last(h)[..s.k * s.v].to_vec()).collect();
    close(&format!("{what}: s_last"), floats(&found["s_last"]), &s_last, BOUND);
    let bars = cotangents(&found, 13);
    let mut s_bar = bars.get("s").map_or(vec![0.0; all.len()], |bar| floats(bar).to_vec());
    let mut around = Around { q: vec![], k: vec![0.0; s.h * s.t * s.k], v: vec![0.0; s.h * s.t * s.v] };
    if let Some(q) = given.get("q").map(floats) {
        let o = |(at, j): (usize, usize)| (0..s.k).map(|i| q[at * s.k + i] * all[(at * s.k + i) * s.v + j]).sum();
        let o: Vec<f64> = (0..s.h * s.t).flat_map(|at| (0..s.v).map(move |j| (at, j))).map(o).collect();
        close(&format!("{what}: o"), floats(&found["o"]), &o, BOUND);
        around.q = read_back(s, q, floats(&bars["o"]), &all, &mut s_bar);
    } else {
        close(&format!("{what}: s"), floats(&found["s"]), &all, BOUND);
    }
    let grad = backward(s, &x, &all, &s_bar, floats(&bars["s_last"]));
    let mut g = vec![0.0; given.get("g").map_or(0, |g| floats(g).len())];
    for ((h, t, k), bar) in places(s).zip(&grad.g) {
        if let Some(at) = decay(s, h, t, k) {
            g[at] += bar;
        }
    }
    // The accumulated decay is a sum of its own.
    if let Some(bar) = bars.get("g_last").map(floats) {
        g.iter_mut().enumerate().for_each(|(at, g)| *g += bar[at / s.t]);
    }
    if given.contains_key("k") {
        outer_back(s, given, &grad.x, &mut around);
    }
    let derived = gradients(&program, (given, &found, &bars), &sizes, mode);
    let by_hand = [("q", around.q), ("k", around.k), ("v", around.v), ("g", g), ("x", grad.x), ("s0", grad.s0)];
    for (name, expected) in by_hand.into_iter().filter(|(name, _)| given.contains_key(*name)) {
        close(&format!("{what}: the gradient of {name}"), floats(&derived[name]), &expected, BOUND);
    }
}

#[test]
fn decays_of_every_kind_are_those_of_the_loops() {
    for model in MODELS {
        for s in SIZES {
            let program = in_f64(model.0);
            check(model, s, &inputs(&program, &named_sizes(s), 5, |_| true));
            check(model, s, &inputs(&program, &named_sizes(s), 6, |p| p.default.is_none()));
        }
    }
}
