//! Recurrences of a matrix with a decay per channel as plain loops, with gradients derived by hand.
//!
//! Nothing here comes from the compiler. For s[t] = exp(g[t])·s[t−1] + k[t]⊗v[t] and o[t] = Σ over K of q[t]·s[t], with λ the
//! cotangent of s:
//!
//! ```text
//! λ[t] = s̄[t] + q[t]⊗ō[t] + exp(g[t+1])·λ[t+1]      ḡ[t] = exp(g[t])·Σ over V of λ[t]·s[t−1]
//! ```

/// Sizes: heads of all batches, times, channels of keys and of values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) h: usize,
    pub(crate) t: usize,
    pub(crate) k: usize,
    pub(crate) v: usize,
}

/// The inputs of the recurrence, or the gradients of it: g[h, t, k], x[h, t, k, v] = k⊗v, s0[h, k, v].
#[derive(Clone, Debug)]
pub(crate) struct Tensors {
    pub(crate) g: Vec<f64>,
    pub(crate) x: Vec<f64>,
    pub(crate) s0: Vec<f64>,
}

/// All states, after each time.
pub(crate) fn states(s: Sizes, x: &Tensors) -> Vec<f64> {
    let mut all = vec![0.0; s.h * s.t * s.k * s.v];
    for (h, t) in (0..s.h).flat_map(|h| (0..s.t).map(move |t| (h, t))) {
        for (i, j) in (0..s.k).flat_map(|i| (0..s.v).map(move |j| (i, j))) {
            let at = ((h * s.t + t) * s.k + i) * s.v + j;
            let before = if t == 0 { x.s0[(h * s.k + i) * s.v + j] } else { all[at - s.k * s.v] };
            all[at] = x.g[(h * s.t + t) * s.k + i].exp() * before + x.x[at];
        }
    }
    all
}

/// The gradients, from the cotangents of all states and of the last ones once more.
pub(crate) fn backward(s: Sizes, x: &Tensors, states: &[f64], s_bar: &[f64], last_bar: &[f64]) -> Tensors {
    let mut grad = Tensors { g: vec![0.0; x.g.len()], x: vec![0.0; x.x.len()], s0: last_bar.to_vec() };
    for (h, t) in (0..s.h).flat_map(|h| (0..s.t).rev().map(move |t| (h, t))) {
        for (i, j) in (0..s.k).flat_map(|i| (0..s.v).map(move |j| (i, j))) {
            let (at, of_head) = (((h * s.t + t) * s.k + i) * s.v + j, (h * s.k + i) * s.v + j);
            let before = if t == 0 { x.s0[of_head] } else { states[at - s.k * s.v] };
            let (lambda, decay) = (s_bar[at] + grad.s0[of_head], x.g[(h * s.t + t) * s.k + i].exp());
            grad.x[at] = lambda;
            grad.g[(h * s.t + t) * s.k + i] += decay * lambda * before;
            grad.s0[of_head] = decay * lambda;
        }
    }
    grad
}
