//! Softmax attention as plain loops, with the gradients of flash attention's paper derived by hand.
//!
//! Nothing here comes from the compiler. Dao et al., "FlashAttention", 2022, algorithms 1 and 4, and for the log-sum-exp's
//! own cotangent: with p = exp(s − lse) and delta = Σ over F of ō·o,
//!
//! ```text
//! v̄ = Σ over M of p·ō      s̄ = p·(Σ over F of ō·v − delta + l̄se)
//! ```

/// Sizes: batch, heads of keys, heads of queries for each, queries, keys, channels of keys, channels of values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) b: usize,
    pub(crate) g: usize,
    pub(crate) r: usize,
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) e: usize,
    pub(crate) f: usize,
}

/// The inputs of attention, or their gradients; row-major, axes as in the model's text.
#[derive(Clone, Debug)]
pub(crate) struct Tensors {
    pub(crate) q: Vec<f64>,
    pub(crate) k: Vec<f64>,
    pub(crate) v: Vec<f64>,
    pub(crate) bias: Option<Vec<f64>>,
    pub(crate) cap: Option<f64>,
}

/// The outputs, or their cotangents.
#[derive(Clone, Debug)]
pub(crate) struct Outputs {
    pub(crate) o: Vec<f64>,
    pub(crate) lse: Vec<f64>,
}

/// Which query sees which key.
pub(crate) type Seen<'a> = &'a dyn Fn(usize, usize) -> bool;

/// One query: its number among all, its head's first key among all.
fn rows(s: Sizes) -> impl Iterator<Item = (usize, usize)> {
    (0..s.b * s.g * s.r * s.m).map(move |row| (row, row / s.m / s.r * s.n))
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The scores of a query, each with its derivative by q·k; −∞ where it does not see the key.
fn scores(s: Sizes, x: &Tensors, seen: Seen<'_>, (row, first): (usize, usize)) -> Vec<(f64, f64)> {
    let q = &x.q[row * s.e..][..s.e];
    let score = |n: usize| {
        let scale = (s.e as f64).sqrt().recip();
        let plain = scale * dot(q, &x.k[(first + n) * s.e..][..s.e]);
        let bias = x.bias.as_ref().map_or(0.0, |bias| bias[row * s.n + n]);
        let (score, slope) = match x.cap {
            Some(cap) => (cap * (plain / cap).tanh(), scale * (1.0 - (plain / cap).tanh().powi(2))),
            None => (plain + bias, scale),
        };
        if seen(row % s.m, n) && bias > f64::NEG_INFINITY { (score, slope) } else { (f64::NEG_INFINITY, 0.0) }
    };
    (0..s.n).map(score).collect()
}

fn weights(scores: &[(f64, f64)], lse: f64) -> Vec<f64> {
    scores.iter().map(|(s, _)| if *s == f64::NEG_INFINITY { 0.0 } else { (s - lse).exp() }).collect()
}

/// o and lse; 0 and −∞ where nothing is seen.
pub(crate) fn forward(s: Sizes, x: &Tensors, seen: Seen<'_>) -> Outputs {
    let mut out = Outputs { o: vec![0.0; s.b * s.g * s.r * s.m * s.f], lse: vec![] };
    for (row, first) in rows(s) {
        let scores = scores(s, x, seen, (row, first));
        let largest = scores.iter().map(|(s, _)| *s).fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = weights(&scores, largest).iter().sum();
        let lse = if sum == 0.0 { f64::NEG_INFINITY } else { largest + sum.ln() };
        for (n, p) in weights(&scores, lse).into_iter().enumerate() {
            let v = &x.v[(first + n) * s.f..][..s.f];
            out.o[row * s.f..][..s.f].iter_mut().zip(v).for_each(|(o, v)| *o += p * v);
        }
        out.lse.push(lse);
    }
    out
}

/// The gradients for the outputs' cotangents.
pub(crate) fn backward(s: Sizes, x: &Tensors, seen: Seen<'_>, out: &Outputs, bar: &Outputs) -> Tensors {
    let zeros = |like: &[f64]| vec![0.0; like.len()];
    let bias = x.bias.as_deref().map(zeros);
    let mut grad = Tensors { q: zeros(&x.q), k: zeros(&x.k), v: zeros(&x.v), bias, cap: None };
    for (row, first) in rows(s) {
        let scores = scores(s, x, seen, (row, first));
        let o_bar = &bar.o[row * s.f..][..s.f];
        let delta = dot(o_bar, &out.o[row * s.f..][..s.f]);
        for (n, p) in weights(&scores, out.lse[row]).into_iter().enumerate() {
            let (key, value) = ((first + n) * s.e, (first + n) * s.f);
            let score_bar = p * (dot(o_bar, &x.v[value..][..s.f]) - delta + bar.lse[row]);
            (0..s.f).for_each(|f| grad.v[value + f] += p * o_bar[f]);
            if let Some(bias) = &mut grad.bias {
                bias[row * s.n + n] += score_bar;
            }
            for e in 0..s.e {
                grad.q[row * s.e + e] += scores[n].1 * score_bar * x.k[key + e];
                grad.k[key + e] += scores[n].1 * score_bar * x.q[row * s.e + e];
            }
        }
    }
    grad
}
