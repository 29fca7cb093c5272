//! The selective scan as plain loops, written from the paper's equations, with gradients derived by hand.
//!
//! Nothing here comes from the compiler. Gu and Dao, "Mamba", 2023, equations (2) and (4); the options are those of
//! mamba-ssm's `selective_scan_ref`.

/// Sizes: batch, groups, channels of a group, states, times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) b: usize,
    pub(crate) g: usize,
    pub(crate) d: usize,
    pub(crate) n: usize,
    pub(crate) t: usize,
}

/// The inputs of the scan, or their gradients. Row-major, axes in the order batch, group, channel, state, time.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Tensors {
    pub(crate) u: Vec<f64>,
    pub(crate) delta: Vec<f64>,
    pub(crate) a: Vec<f64>,
    pub(crate) b: Vec<f64>,
    pub(crate) c: Vec<f64>,
    pub(crate) z: Option<Vec<f64>>,
    pub(crate) skip: Vec<f64>,
    pub(crate) delta_bias: Vec<f64>,
    pub(crate) h0: Vec<f64>,
}

/// The options of a selective scan.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// The step size is softplus(delta + bias) instead of delta + bias.
    pub(crate) softplus: bool,
    /// Times before which the state is forgotten.
    pub(crate) starts: Vec<usize>,
}

/// The outputs, and what the gradients need again.
#[derive(Clone, Debug)]
pub(crate) struct Outputs {
    pub(crate) y: Vec<f64>,
    pub(crate) h_last: Vec<f64>,
    /// The state after each time, and before the first: times + 1 for each row and state.
    states: Vec<f64>,
    /// The output before the gate.
    ungated: Vec<f64>,
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// One row (a channel of a group of a batch) of the loops.
struct Row {
    /// Its first element in [b, g, d, t].
    at: usize,
    /// Its group's first element in [b, g, n, t].
    group: usize,
    /// Its channel in [g, d].
    channel: usize,
    /// Its number among the rows.
    index: usize,
}

fn rows(s: Sizes) -> impl Iterator<Item = Row> {
    (0..s.b * s.g * s.d).map(move |index| Row {
        at: index * s.t,
        group: index / s.d * s.n * s.t,
        channel: index % (s.g * s.d),
        index,
    })
}

/// The step size at a time, and its derivative by delta.
fn step_size(x: &Tensors, o: &Options, row: &Row, t: usize) -> (f64, f64) {
    let raw = x.delta[row.at + t] + x.delta_bias[row.channel];
    if o.softplus { (raw.exp().ln_1p(), sigmoid(raw)) } else { (raw, 1.0) }
}

/// h = exp(Δa)·h + Δ·b·u, y = (Σ c·h + skip·u)·silu(z).
pub(crate) fn forward(s: Sizes, x: &Tensors, o: &Options) -> Outputs {
    let len = s.b * s.g * s.d * s.t;
    let mut out = Outputs {
        y: vec![0.0; len],
        h_last: vec![],
        states: vec![0.0; s.b * s.g * s.d * s.n * (s.t + 1)],
        ungated: vec![0.0; len],
    };
    for row in rows(s) {
        for n in 0..s.n {
            let states = (row.index * s.n + n) * (s.t + 1);
            out.states[states] = x.h0[row.index * s.n + n];
            for t in 0..s.t {
                let (step, _) = step_size(x, o, &row, t);
                let before = if o.starts.contains(&t) { 0.0 } else { out.states[states + t] };
                let input = step * x.b[row.group + n * s.t + t] * x.u[row.at + t];
                out.states[states + t + 1] = (step * x.a[row.channel * s.n + n]).exp() * before + input;
                out.ungated[row.at + t] += x.c[row.group + n * s.t + t] * out.states[states + t + 1];
            }
            out.h_last.push(out.states[states + s.t]);
        }
        for t in 0..s.t {
            out.ungated[row.at + t] += x.skip[row.channel] * x.u[row.at + t];
            let gate = x.z.as_ref().map_or(1.0, |z| z[row.at + t] * sigmoid(z[row.at + t]));
            out.y[row.at + t] = out.ungated[row.at + t] * gate;
        }
    }
    out
}

/// The gradient of Σ y·ȳ + Σ h_last·h̄_last.
pub(crate) fn backward(s: Sizes, x: &Tensors, o: &Options, out: &Outputs, y_bar: &[f64], h_bar: &[f64]) -> Tensors {
    let zeros = |like: &[f64]| vec![0.0; like.len()];
    let mut grad = Tensors {
        u: zeros(&x.u),
        delta: zeros(&x.delta),
        a: zeros(&x.a),
        b: zeros(&x.b),
        c: zeros(&x.c),
        z: x.z.as_deref().map(zeros),
        skip: zeros(&x.skip),
        delta_bias: zeros(&x.delta_bias),
        h0: zeros(&x.h0),
    };
    for row in rows(s) {
        let ungated_bar = gate_backward(s, x, &row, out, y_bar, &mut grad);
        for (t, bar) in ungated_bar.iter().enumerate() {
            grad.u[row.at + t] += bar * x.skip[row.channel];
            grad.skip[row.channel] += bar * x.u[row.at + t];
        }
        for n in 0..s.n {
            state_backward(s, x, o, (&row, n), out, &ungated_bar, h_bar, &mut grad);
        }
    }
    grad
}

/// Through y = p·silu(z): p̄ = ȳ·silu(z), z̄ = ȳ·p·σ(z)·(1 + z·(1 − σ(z))).
fn gate_backward(s: Sizes, x: &Tensors, row: &Row, out: &Outputs, y_bar: &[f64], grad: &mut Tensors) -> Vec<f64> {
    let span = row.at..row.at + s.t;
    let (Some(z), Some(z_bar)) = (&x.z, &mut grad.z) else { return y_bar[span].to_vec() };
    let through = |k: usize| {
        let sigma = sigmoid(z[k]);
        z_bar[k] = y_bar[k] * out.ungated[k] * sigma * (1.0 + z[k] * (1.0 - sigma));
        y_bar[k] * z[k] * sigma
    };
    span.map(through).collect()
}

/// Through the recurrence of one state, from the last time to the first: h̄[t] = c[t]·p̄[t] + exp(Δ[t+1]a)·h̄[t+1].
#[allow(clippy::too_many_arguments)]
fn state_backward(
    s: Sizes,
    x: &Tensors,
    o: &Options,
    (row, n): (&Row, usize),
    out: &Outputs,
    p_bar: &[f64],
    h_last_bar: &[f64],
    grad: &mut Tensors,
) {
    let states = (row.index * s.n + n) * (s.t + 1);
    let a = x.a[row.channel * s.n + n];
    let mut h_bar = h_last_bar[row.index * s.n + n];
    for t in (0..s.t).rev() {
        let (at, at_n) = (row.at + t, row.group + n * s.t + t);
        let (step, step_by_delta) = step_size(x, o, row, t);
        let (decay, forgets) = ((step * a).exp(), o.starts.contains(&t));
        let before = if forgets { 0.0 } else { out.states[states + t] };
        h_bar += x.c[at_n] * p_bar[t];
        grad.c[at_n] += out.states[states + t + 1] * p_bar[t];
        grad.b[at_n] += h_bar * step * x.u[at];
        grad.u[at] += h_bar * step * x.b[at_n];
        grad.a[row.channel * s.n + n] += h_bar * before * decay * step;
        let step_bar = h_bar * (before * decay * a + x.b[at_n] * x.u[at]);
        grad.delta[at] += step_bar * step_by_delta;
        grad.delta_bias[row.channel] += step_bar * step_by_delta;
        h_bar = if forgets { 0.0 } else { decay * h_bar };
    }
    grad.h0[row.index * s.n + n] = h_bar;
}
