//! Mamba-2's dual with all options at once, in calls of `f64`, against the chunks of [`crate::ssd_loops`].
//!
//! Step size, limits, skips and gate stand around the chunks; their derivatives here are by hand.

use oplus_dsl::interpret::{Array, Data, Order};

use crate::harness::{Named, close, cotangents, floats, gradients, in_f64, inputs, run, stored};
use crate::ssd_loops::{Options, Outputs, Sizes, Tensors, backward, forward};

const BOUND: f64 = 1e-12;

const SIZES: [Sizes; 3] = [
    Sizes { b: 2, t: 0, g: 1, h: 2, p: 2, n: 3 },
    Sizes { b: 2, t: 5, g: 2, h: 2, p: 2, n: 3 },
    Sizes { b: 1, t: 31, g: 3, h: 1, p: 3, n: 4 },
];

/// The optional tensors and limits that a call gives.
#[derive(Clone, Copy, Debug)]
struct Given {
    z: bool,
    skips: bool,
    softplus: bool,
    limits: Option<(f64, f64)>,
}

const GIVEN: [Given; 5] = [
    Given { z: false, skips: false, softplus: false, limits: None },
    Given { z: true, skips: true, softplus: true, limits: None },
    Given { z: false, skips: true, softplus: true, limits: Some((0.4, 0.9)) },
    Given { z: true, skips: true, softplus: false, limits: Some((-0.3, 0.3)) },
    // No step size is at these.
    Given { z: true, skips: false, softplus: true, limits: Some((0.0, f64::INFINITY)) },
];

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// The model at a point.
struct Point {
    s: Sizes,
    o: Given,
    given: Named,
}

impl Point {
    fn of(s: Sizes, o: Given) -> Point {
        let wanted = |name: &str| match name {
            "z" => o.z,
            "skip" | "skip_channels" => o.skips,
            "dt_softplus" | "dt_min" | "dt_max" => false,
            _ => true,
        };
        let mut given = inputs(&in_f64("ssd_combined"), &named_sizes(s), 5, |p| wanted(&p.name));
        if o.softplus {
            given.insert("dt_softplus".into(), Array { sizes: vec![], data: Data::Bool(vec![true]) });
        }
        if let Some((low, high)) = o.limits {
            given.insert("dt_min".into(), Array::floats(&[], [low]));
            given.insert("dt_max".into(), Array::floats(&[], [high]));
        }
        Point { s, o, given }
    }

    fn tensor(&self, name: &str) -> Option<&[f64]> {
        self.given.get(name).map(floats)
    }

    fn heads(&self) -> usize {
        self.s.g * self.s.h
    }

    /// The step size before its limits, and its derivative by dt.
    fn unlimited(&self, k: usize) -> (f64, f64) {
        let raw = floats(&self.given["dt"])[k] + floats(&self.given["dt_bias"])[k % self.heads()];
        if self.o.softplus { (raw.exp().ln_1p(), sigmoid(raw)) } else { (raw, 1.0) }
    }

    /// The inputs of the chunks: the step size, neither skip nor gate.
    fn inside(&self) -> Tensors {
        let of = |name: &str| floats(&self.given[name]).to_vec();
        let (low, high) = self.o.limits.unwrap_or((f64::NEG_INFINITY, f64::INFINITY));
        let steps = of("dt").len();
        Tensors {
            x: of("x"),
            dt: (0..steps).map(|k| self.unlimited(k).0.clamp(low, high)).collect(),
            a: of("a"),
            b: of("b"),
            c: of("c"),
            z: None,
            skip: vec![0.0; self.heads()],
            dt_bias: vec![0.0; self.heads()],
            h0: of("h0"),
        }
    }

    /// The head and the head's channel of an element of x.
    fn place(&self, k: usize) -> (usize, usize) {
        (k / self.s.p % self.heads(), k % (self.heads() * self.s.p))
    }

    fn skip(&self, k: usize) -> f64 {
        let (head, channel) = self.place(k);
        let of = |name: &str, k: usize| self.tensor(name).map_or(0.0, |tensor| tensor[k]);
        of("skip", head) + of("skip_channels", channel)
    }

    /// The gate and its derivative.
    fn gate(&self, k: usize) -> (f64, f64) {
        let Some(z) = self.tensor("z").map(|z| z[k]) else { return (1.0, 0.0) };
        (z * sigmoid(z), sigmoid(z) * (1.0 + z * (1.0 - sigmoid(z))))
    }

    /// The gradients of all that is given, from those of the chunks and the cotangents of y before the gate.
    fn gradients(
        &self,
        ungated: &[f64],
        y_bar: &[f64],
        inner_bar: &[f64],
        inner: Tensors,
    ) -> Vec<(&'static str, Vec<f64>)> {
        let (x, channels) = (floats(&self.given["x"]), self.heads() * self.s.p);
        let (mut skip, mut skip_channels) = (vec![0.0; self.heads()], vec![0.0; channels]);
        let mut x_bar = inner.x;
        for (k, bar) in inner_bar.iter().enumerate() {
            let (head, channel) = self.place(k);
            skip[head] += bar * x[k];
            skip_channels[channel] += bar * x[k];
            x_bar[k] += bar * self.skip(k);
        }
        let (mut dt, mut dt_bias) = (vec![0.0; inner.dt.len()], vec![0.0; self.heads()]);
        let (mut low, mut high) = (0.0, 0.0);
        for (k, bar) in inner.dt.iter().enumerate() {
            let (step, slope) = self.unlimited(k);
            match self.o.limits {
                Some((limit, _)) if step < limit => low += bar,
                Some((_, limit)) if step > limit => high += bar,
                _ => {
                    dt[k] = slope * bar;
                    dt_bias[k % self.heads()] += slope * bar;
                }
            }
        }
        let z = (0..y_bar.len()).map(|k| y_bar[k] * ungated[k] * self.gate(k).1).collect();
        vec![
            ("x", x_bar),
            ("dt", dt),
            ("a", inner.a),
            ("b", inner.b),
            ("c", inner.c),
            ("z", z),
            ("skip", skip),
            ("skip_channels", skip_channels),
            ("dt_bias", dt_bias),
            ("dt_min", vec![low]),
            ("dt_max", vec![high]),
            ("h0", inner.h0),
        ]
    }
}

fn named_sizes(s: Sizes) -> Vec<(&'static str, usize)> {
    vec![("B", s.b), ("T", s.t), ("G", s.g), ("H", s.h), ("P", s.p), ("N", s.n)]
}

fn check(s: Sizes, o: Given) {
    let (point, program, sizes) = (Point::of(s, o), in_f64("ssd_combined"), named_sizes(s));
    let (inside, options) = (point.inside(), Options { softplus: false, starts: vec![], chunk: 4 });
    let mut expected = forward(s, &inside, &options);
    expected.y.iter_mut().enumerate().for_each(|(k, y)| *y += point.skip(k) * inside.x[k]);
    let ungated = expected.y.clone();
    expected.y.iter_mut().enumerate().for_each(|(k, y)| *y *= point.gate(k).0);
    let found = run(&program, &point.given, &sizes, stored(Order::Sequential));
    let what = format!("{s:?} with {o:?}");
    close(&format!("{what}: y"), floats(&found["y"]), &expected.y, BOUND);
    close(&format!("{what}: h_last"), floats(&found["h_last"]), &expected.h_last, BOUND);

    let bars = cotangents(&found, 13);
    let y_bar = floats(&bars["y"]);
    let inner_bar: Vec<f64> = y_bar.iter().enumerate().map(|(k, bar)| bar * point.gate(k).0).collect();
    let bar = Outputs { y: inner_bar.clone(), h_last: floats(&bars["h_last"]).to_vec() };
    let by_hand = point.gradients(&ungated, y_bar, &inner_bar, backward(s, &inside, &options, &bar));
    let derived = gradients(&program, (&point.given, &found, &bars), &sizes, stored(Order::Sequential));
    for (name, expected) in by_hand.into_iter().filter(|(name, _)| point.given.contains_key(*name)) {
        close(&format!("{what}: the gradient of {name}"), floats(&derived[name]), &expected, BOUND);
    }
}

#[test]
fn all_options_at_once_are_those_of_the_chunks() {
    for s in SIZES {
        GIVEN.into_iter().for_each(|given| check(s, given));
    }
}
