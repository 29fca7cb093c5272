//! Recurrences of matrices by plain loops over whole matrices, in `f64`.

/// Sizes: heads, times, channels of keys and values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) h: usize,
    pub(crate) t: usize,
    pub(crate) k: usize,
    pub(crate) v: usize,
}

/// The matrix of one step, K × K by rows, and what it adds, K × V: S ← M·S + X.
pub(crate) struct Step {
    pub(crate) m: Vec<f64>,
    pub(crate) x: Vec<f64>,
}

/// The matrix I − β·k·kᵀ, times a decay of each channel, and β·k·vᵀ.
pub(crate) fn delta(beta: f64, k: &[f64], v: &[f64], decay: impl Fn(usize) -> f64) -> Step {
    let n = k.len();
    let m = |at: usize| (f64::from(u8::from(at / n == at % n)) - beta * k[at / n] * k[at % n]) * decay(at % n);
    let x = k.iter().flat_map(|k| v.iter().map(move |v| beta * k * v)).collect();
    Step { m: (0..n * n).map(m).collect(), x }
}

/// The outputs o and the last states, of states that begin at `s0`.
pub(crate) fn run(s: Sizes, q: &[f64], s0: &[f64], step: impl Fn(usize) -> Step) -> (Vec<f64>, Vec<f64>) {
    let (mut o, mut last) = (vec![], vec![]);
    for h in 0..s.h {
        let mut state = s0[h * s.k * s.v..][..s.k * s.v].to_vec();
        for at in h * s.t..(h + 1) * s.t {
            let Step { m, x } = step(at);
            let product = |c: usize| -> f64 { (0..s.k).map(|j| m[c / s.v * s.k + j] * state[j * s.v + c % s.v]).sum() };
            state = (0..s.k * s.v).map(|c| product(c) + x[c]).collect();
            o.extend((0..s.v).map(|v| (0..s.k).map(|k| q[at * s.k + k] * state[k * s.v + v]).sum::<f64>()));
        }
        last.extend(state);
    }
    (o, last)
}
