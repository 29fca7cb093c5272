// The standard models: the body of a `scan!`, see the crate `oplus-front`.
//
// The time T, which is scanned, comes last, after rows, groups, channels D and states N. What is learned and
// states are f64 in calls of f64, else f32. Every model takes its state in and gives it out, so that it has a one-step form;
// packed sequences, which begin at 0, are the exception.

/// Exponential moving average with a weight for each row, y[t] = (1 − alpha)·y[t−1] + alpha·x[t] with y[−1] = y0.
///
/// Roberts, "Control chart tests based on geometric moving averages", 1959.
pub fn ema_constant(x: [B, T], alpha: wide[B], y0: state[B] = 0) -> (y: [B, T], y_last: state[B]) {
    y = scan(T, Affine(1 - alpha, alpha * x), init = y0).b;
    y_last = last(T, y);
}

/// Exponential moving average with a weight for each element, y[t] = (1 − alpha[t])·y[t−1] + alpha[t]·x[t].
pub fn ema_varying(x: [B, T], alpha: [B, T], y0: state[B] = 0) -> (y: [B, T], y_last: state[B]) {
    y = scan(T, Affine(1 - alpha, alpha * x), init = y0).b;
    y_last = last(T, y);
}

/// First-order linear state space of each row, h[t] = a·h[t−1] + b·x[t] and y[t] = c·h[t] with h[−1] = h0.
///
/// Kalman, "A new approach to linear filtering and prediction problems", 1960, without the noise.
pub fn ssm_constant(
    x: [B, T], a: wide[B], b: wide[B], c: wide[B], h0: state[B] = 0,
) -> (y: [B, T], h_last: state[B]) {
    let h = scan(T, Affine(a, b * x), init = h0).b;
    y = c * h;
    h_last = last(T, h);
}

/// First-order linear state space with coefficients that vary, h[t] = a[t]·h[t−1] + b[t]·x[t] and y[t] = c[t]·h[t].
pub fn ssm_varying(
    x: [B, T], a: [B, T], b: [B, T], c: [B, T], h0: state[B] = 0,
) -> (y: [B, T], h_last: state[B]) {
    let h = scan(T, Affine(a, b * x), init = h0).b;
    y = c * h;
    h_last = last(T, h);
}

/// Linear state space with N states, each with a decay of its own: h[n, t] = a[n, t]·h[n, t−1] + b[n, t]·x[t] and
/// y[t] = Σ over n of c[n, t]·h[n, t].
pub fn multi_state_ssm(
    x: [B, T], a: [B, N, T], b: [B, N, T], c: [B, N, T], h0: state[B, N] = 0,
) -> (y: [B, T], h_last: state[B, N]) {
    let h = scan(T, Affine(a, b * x), init = h0).b;
    y = sum(N, c * h);
    h_last = last(T, h);
}

// The elements of Mamba's selective scans: zero-order hold for the decay, Euler for the input.
fn discretized(u, delta, a, b) -> (decay, input) {
    (exp(delta * a), delta * u * b)
}

/// Mamba's S6 selective scan: h[d, n, t] = exp(delta[d, t]·a[d, n])·h[d, n, t−1] + delta[d, t]·b[n, t]·u[d, t] and
/// y[d, t] = Σ over n of c[n, t]·h[d, n, t] + skip[d]·u[d, t], with delta + delta_bias in place of delta.
///
/// G groups of D channels each share b and c; `[B, G·D, T]` seen as `[B, G, D, T]` costs nothing. This is
/// `selective_scan_fn(u, delta, A, B, C, D, delta_bias=…)` of mamba-ssm. Gu and Dao, "Mamba: Linear-time sequence modeling
/// with selective state spaces", 2023, §3.2 and algorithm 2.
///
/// # Memory on a GPU, beside inputs and outputs
///
/// * Forward: nothing, or where rows are too few for the device and time is cut into S segments 8·(S − 1)·B·G·D·N bytes. A
///   recorded call the states before every eighth step, 4·B·G·D·⌈T/8⌉·N bytes.
/// * Backward: these states, unless the call was recorded; the sums of b̄ and c̄ over the rows of each of ⌈D/R⌉ blocks,
///   8·B·G·⌈D/R⌉·N·T bytes where R is 2 for N up to 256, 16 up to 64, 32 to 128 below; and ā, skip and bias before they
///   are added over batches, 4·B·G·D·(N + 2) bytes. N and T count in fours. Where that would be more than twice the inputs
///   and gradients, and there are as many steps as states, the rows are taken in pieces of P:
///   B·G·(4·P·⌈T/8⌉·N + 8·(P/R + 1)·N·T) bytes for the first two.
pub fn selective_scan(
    u: [B, G, D, T], delta: [B, G, D, T], a: wide[G, D, N], b: [B, G, N, T], c: [B, G, N, T],
    skip: wide[G, D] = 0, delta_bias: wide[G, D] = 0, h0: state[B, G, D, N] = 0,
) -> (y: [B, G, D, T], h_last: state[B, G, D, N]) {
    let (decay, input) = discretized(u, delta + delta_bias, a, b);
    let h = scan(T, Affine(decay, input), init = h0).b;
    y = sum(N, c * h) + skip * u;
    h_last = last(T, h);
}

/// The selective scan with a gate: the y of [`selective_scan`](fn@selective_scan) times silu(z).
///
/// This is `selective_scan_fn(u, delta, A, B, C, D, z=z, delta_bias=…)` of mamba-ssm.
pub fn selective_scan_gated(
    u: [B, G, D, T], delta: [B, G, D, T], a: wide[G, D, N], b: [B, G, N, T], c: [B, G, N, T], z: [B, G, D, T],
    skip: wide[G, D] = 0, delta_bias: wide[G, D] = 0, h0: state[B, G, D, N] = 0,
) -> (y: [B, G, D, T], h_last: state[B, G, D, N]) {
    let (decay, input) = discretized(u, delta + delta_bias, a, b);
    let h = scan(T, Affine(decay, input), init = h0).b;
    y = (sum(N, c * h) + skip * u) * silu(z);
    h_last = last(T, h);
}

/// The selective scan with a positive step size: [`selective_scan`](fn@selective_scan) of softplus(delta + delta_bias).
///
/// This is `selective_scan_fn(u, delta, A, B, C, D, delta_bias=…, delta_softplus=True)` of mamba-ssm.
pub fn selective_scan_softplus(
    u: [B, G, D, T], delta: [B, G, D, T], a: wide[G, D, N], b: [B, G, N, T], c: [B, G, N, T],
    skip: wide[G, D] = 0, delta_bias: wide[G, D] = 0, h0: state[B, G, D, N] = 0,
) -> (y: [B, G, D, T], h_last: state[B, G, D, N]) {
    let (decay, input) = discretized(u, softplus(delta + delta_bias), a, b);
    let h = scan(T, Affine(decay, input), init = h0).b;
    y = sum(N, c * h) + skip * u;
    h_last = last(T, h);
}

/// The inside of a Mamba block: the selective scan with softplus and gate,
/// y = (Σ over n of c·h + skip·u)·silu(z) for the step size softplus(delta + delta_bias).
///
/// This is `selective_scan_fn(u, delta, A, B, C, D, z=z, delta_bias=…, delta_softplus=True)` of mamba-ssm.
pub fn mamba(
    u: [B, G, D, T], delta: [B, G, D, T], a: wide[G, D, N], b: [B, G, N, T], c: [B, G, N, T], z: [B, G, D, T],
    skip: wide[G, D] = 0, delta_bias: wide[G, D] = 0, h0: state[B, G, D, N] = 0,
) -> (y: [B, G, D, T], h_last: state[B, G, D, N]) {
    let (decay, input) = discretized(u, softplus(delta + delta_bias), a, b);
    let h = scan(T, Affine(decay, input), init = h0).b;
    y = (sum(N, c * h) + skip * u) * silu(z);
    h_last = last(T, h);
}

/// [`selective_scan`](fn@selective_scan) of packed sequences: sequence s holds the times cu_seqlens\[s\] to
/// cu_seqlens\[s + 1\] − 1, and its state begins at 0.
pub fn selective_scan_packed(
    u: [B, G, D, T], delta: [B, G, D, T], a: wide[G, D, N], b: [B, G, N, T], c: [B, G, N, T], cu_seqlens: i32 | i64[S],
    skip: wide[G, D] = 0, delta_bias: wide[G, D] = 0,
) -> (y: [B, G, D, T]) {
    let (decay, input) = discretized(u, delta + delta_bias, a, b);
    let h = scan(T, segmented(Affine)(decay, input), offsets = cu_seqlens).b;
    y = sum(N, c * h) + skip * u;
}

/// [`mamba`](fn@mamba) of packed sequences: sequence s holds the times cu_seqlens\[s\] to cu_seqlens\[s + 1\] − 1, and its
/// state begins at 0.
pub fn mamba_packed(
    u: [B, G, D, T], delta: [B, G, D, T], a: wide[G, D, N], b: [B, G, N, T], c: [B, G, N, T], z: [B, G, D, T],
    cu_seqlens: i32 | i64[S], skip: wide[G, D] = 0, delta_bias: wide[G, D] = 0,
) -> (y: [B, G, D, T]) {
    let (decay, input) = discretized(u, softplus(delta + delta_bias), a, b);
    let h = scan(T, segmented(Affine)(decay, input), offsets = cu_seqlens).b;
    y = (sum(N, c * h) + skip * u) * silu(z);
}

// exp(re + i·im).
fn complex_exp(re, im) -> (re, im) {
    (exp(re) * cos(im), exp(re) * sin(im))
}

// (exp(x) − 1)/a for x = delta·a: zero-order hold of the input.
fn held(exp_re, exp_im, a_re, a_im) -> (re, im) {
    let square = a_re * a_re + a_im * a_im;
    (((exp_re - 1) * a_re + exp_im * a_im) / square, (exp_im * a_re - (exp_re - 1) * a_im) / square)
}

/// Diagonal state space with complex states (S4D): h[d, n, t] = exp(delta·a)·h[d, n, t−1] + ((exp(delta·a) − 1)/a)·u[d, t] and
/// y[d, t] = 2·Re Σ over n of c[d, n]·h[d, n, t] + skip[d]·u[d, t], with a = a_re + i·a_im and so on.
///
/// Of each conjugate pair of states only one is computed: hence 2·Re. Gu, Gupta, Goel and Ré, "On the parameterization and
/// initialization of diagonal state space models", 2022, §3.
pub fn s4d(
    u: [B, D, T], delta: wide[D], a_re: wide[D, N], a_im: wide[D, N], c_re: wide[D, N], c_im: wide[D, N], skip: wide[D] = 0,
    h0_re: state[B, D, N] = 0, h0_im: state[B, D, N] = 0,
) -> (y: [B, D, T], h_last_re: state[B, D, N], h_last_im: state[B, D, N]) {
    let (decay_re, decay_im) = complex_exp(delta * a_re, delta * a_im);
    let (hold_re, hold_im) = held(decay_re, decay_im, a_re, a_im);
    let h = scan(T, ComplexAffine(decay_re, decay_im, hold_re * u, hold_im * u), init = (br: h0_re, bi: h0_im));
    y = 2 * sum(N, c_re * h.br - c_im * h.bi) + skip * u;
    (h_last_re, h_last_im) = (last(T, h.br), last(T, h.bi));
}

/// Diagonal state space with complex states that many inputs and outputs share (S5):
/// h[n, t] = exp(delta·a)·h[n, t−1] + ((exp(delta·a) − 1)/a)·x[n, t] and y[p, t] = 2·Re Σ over n of c[p, n]·h[n, t], where
/// x = B·u is the projected input and a = a_re + i·a_im, and so on.
///
/// Smith, Warrington and Linderman, "Simplified state space layers for sequence modeling", 2023, §3.
pub fn s5(
    x_re: [B, N, T], x_im: [B, N, T], delta: wide[N], a_re: wide[N], a_im: wide[N], c_re: wide[P, N], c_im: wide[P, N],
    h0_re: state[B, N] = 0, h0_im: state[B, N] = 0,
) -> (y: [B, P, T], h_last_re: state[B, N], h_last_im: state[B, N]) {
    let (decay_re, decay_im) = complex_exp(delta * a_re, delta * a_im);
    let (hold_re, hold_im) = held(decay_re, decay_im, a_re, a_im);
    let (input_re, input_im) = (hold_re * x_re - hold_im * x_im, hold_re * x_im + hold_im * x_re);
    let h = scan(T, ComplexAffine(decay_re, decay_im, input_re, input_im), init = (br: h0_re, bi: h0_im));
    y = 2 * sum(N, c_re * h.br - c_im * h.bi);
    (h_last_re, h_last_im) = (last(T, h.br), last(T, h.bi));
}

/// Linear recurrent unit: h[n, t] = lambda[n]·h[n, t−1] + exp(gamma_log[n])·x[n, t] with
/// lambda = exp(−exp(nu_log) + i·exp(theta_log)), so that |lambda| < 1, and y[p, t] = Re Σ over n of c[p, n]·h[n, t], where
/// x = B·u is the projected input.
///
/// Orvieto et al., "Resurrecting recurrent neural networks for long sequences", 2023, §3.
pub fn lru(
    x_re: [B, N, T], x_im: [B, N, T], nu_log: wide[N], theta_log: wide[N], gamma_log: wide[N],
    c_re: wide[P, N], c_im: wide[P, N], h0_re: state[B, N] = 0, h0_im: state[B, N] = 0,
) -> (y: [B, P, T], h_last_re: state[B, N], h_last_im: state[B, N]) {
    let (decay_re, decay_im) = complex_exp(-exp(nu_log), exp(theta_log));
    let gamma = exp(gamma_log);
    let h = scan(T, ComplexAffine(decay_re, decay_im, gamma * x_re, gamma * x_im), init = (br: h0_re, bi: h0_im));
    y = sum(N, c_re * h.br - c_im * h.bi);
    (h_last_re, h_last_im) = (last(T, h.br), last(T, h.bi));
}
