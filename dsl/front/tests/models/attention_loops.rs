//! Log-decay attention as plain loops, written from its equations, with gradients derived by hand.
//!
//! Nothing here comes from the compiler. For one head: s[t] = exp(g[t])·s[t−1] + k[t]⊗v[t], o[t] = q[t]ᵀ·s[t].

/// Sizes: heads (of all batches), times, keys, values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) h: usize,
    pub(crate) t: usize,
    pub(crate) k: usize,
    pub(crate) v: usize,
}

/// The inputs of the scan, or their gradients. Row-major: [h, t, k], [h, t, v], [h, t], [h, k, v].
#[derive(Clone, Debug)]
pub(crate) struct Tensors {
    pub(crate) q: Vec<f64>,
    pub(crate) k: Vec<f64>,
    pub(crate) v: Vec<f64>,
    pub(crate) g: Vec<f64>,
    pub(crate) g0: Vec<f64>,
    pub(crate) s0: Vec<f64>,
}

/// The outputs, or their cotangents.
#[derive(Clone, Debug)]
pub(crate) struct Outputs {
    pub(crate) o: Vec<f64>,
    pub(crate) g_last: Vec<f64>,
    pub(crate) s_last: Vec<f64>,
}

/// The state before each time and after the last one: [h, t + 1, k, v].
fn states(s: Sizes, x: &Tensors, starts: &[usize]) -> Vec<f64> {
    let kv = s.k * s.v;
    let mut states = vec![0.0; s.h * (s.t + 1) * kv];
    for h in 0..s.h {
        let first = h * (s.t + 1) * kv;
        states[first..first + kv].copy_from_slice(&x.s0[h * kv..][..kv]);
        for t in 0..s.t {
            let decay = x.g[h * s.t + t].exp();
            for (k, v) in (0..s.k).flat_map(|k| (0..s.v).map(move |v| (k, v))) {
                let at = first + t * kv + k * s.v + v;
                let kept = if starts.contains(&t) { 0.0 } else { decay * states[at] };
                states[at + kv] = kept + x.k[(h * s.t + t) * s.k + k] * x.v[(h * s.t + t) * s.v + v];
            }
        }
    }
    states
}

/// The outputs; `starts` are the times before which the state is forgotten.
pub(crate) fn forward(s: Sizes, x: &Tensors, starts: &[usize]) -> Outputs {
    let (kv, states) = (s.k * s.v, states(s, x, starts));
    let mut o = vec![0.0; s.h * s.t * s.v];
    for (h, t) in (0..s.h).flat_map(|h| (0..s.t).map(move |t| (h, t))) {
        for (k, v) in (0..s.k).flat_map(|k| (0..s.v).map(move |v| (k, v))) {
            let state = states[(h * (s.t + 1) + t + 1) * kv + k * s.v + v];
            o[(h * s.t + t) * s.v + v] += x.q[(h * s.t + t) * s.k + k] * state;
        }
    }
    let g_last = (0..s.h).map(|h| x.g0[h] + x.g[h * s.t..(h + 1) * s.t].iter().sum::<f64>()).collect();
    let s_last = (0..s.h).flat_map(|h| states[(h * (s.t + 1) + s.t) * kv..][..kv].to_vec()).collect();
    Outputs { o, g_last, s_last }
}

/// The gradient for the outputs' cotangents: s̄[t] = q[t]⊗ō[t] + exp(g[t+1])·s̄[t+1] from the last time to the first, and
/// ḡ[t] = exp(g[t])·Σ s[t−1]·s̄[t], q̄[t] = s[t]·ō[t], k̄[t] = s̄[t]·v[t], v̄[t] = s̄[t]ᵀ·k[t].
pub(crate) fn backward(s: Sizes, x: &Tensors, starts: &[usize], bar: &Outputs) -> Tensors {
    let (kv, states) = (s.k * s.v, states(s, x, starts));
    let zeros = |like: &Vec<f64>| vec![0.0; like.len()];
    let mut grad = Tensors {
        q: zeros(&x.q),
        k: zeros(&x.k),
        v: zeros(&x.v),
        g: zeros(&x.g),
        g0: bar.g_last.clone(),
        s0: zeros(&x.s0),
    };
    for h in 0..s.h {
        let mut s_bar = bar.s_last[h * kv..][..kv].to_vec();
        for t in (0..s.t).rev() {
            let (at, decay) = (h * s.t + t, x.g[h * s.t + t].exp());
            let before = &states[(h * (s.t + 1) + t) * kv..][..kv];
            let after = &states[(h * (s.t + 1) + t + 1) * kv..][..kv];
            grad.g[at] += bar.g_last[h];
            for (k, v) in (0..s.k).flat_map(|k| (0..s.v).map(move |v| (k, v))) {
                let kept = if starts.contains(&t) { 0.0 } else { decay };
                let s_bar = &mut s_bar[k * s.v + v];
                *s_bar += x.q[at * s.k + k] * bar.o[at * s.v + v];
                grad.q[at * s.k + k] += after[k * s.v + v] * bar.o[at * s.v + v];
                grad.k[at * s.k + k] += *s_bar * x.v[at * s.v + v];
                grad.v[at * s.v + v] += *s_bar * x.k[at * s.k + k];
                grad.g[at] += kept * before[k * s.v + v] * *s_bar;
                *s_bar *= kept;
            }
        }
        grad.s0[h * kv..][..kv].copy_from_slice(&s_bar);
    }
    grad
}
