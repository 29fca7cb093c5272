// The standard models, continued: the rarer options of mamba-ssm.
//
// No kernels of these are committed: on a GPU they are baked, or compiled when they are called.

// The step size of a selective scan.
fn step_size(raw, delta_softplus) -> step {
    if delta_softplus { softplus(raw) } else { raw }
}

// y·silu(z), or y where z = ∞, which stands for no gate.
fn gated(y, z) -> gated {
    let none = z == inf;
    y * (if none { 1 } else { silu(if none { 0 } else { z }) })
}

/// [`selective_scan`](fn@selective_scan) with an input projection b\[d, n\] of each channel that does not depend on the time:
/// h[d, n, t] = exp(delta[d, t]·a[d, n])·h[d, n, t−1] + delta[d, t]·b[d, n]·u[d, t] and
/// y[d, t] = (Σ over n of c[n, t]·h[d, n, t] + skip[d]·u[d, t])·silu(z[d, t]), with delta + delta_bias in place of delta, or its
/// softplus where `delta_softplus` holds.
///
/// `z` = ∞, which it is when it is left out, means no gate. This is `selective_scan_fn(u, delta, A, B, C, D, z, delta_bias,
/// delta_softplus)` of mamba-ssm with `B` of shape `(dim, dstate)`. On a GPU it is baked or compiled. Gu and Dao, "Mamba:
/// Linear-time sequence modeling with selective state spaces", 2023, table 1 for what may be selective.
pub fn selective_scan_constant_b(
    u: [B, G, D, T], delta: [B, G, D, T], a: wide[G, D, N], b: wide[G, D, N], c: [B, G, N, T],
    z: [B, G, D, T] = inf, skip: wide[G, D] = 0, delta_bias: wide[G, D] = 0, delta_softplus: bool = false,
    h0: state[B, G, D, N] = 0,
) -> (y: [B, G, D, T], h_last: state[B, G, D, N]) {
    let (decay, input) = discretized(u, step_size(delta + delta_bias, delta_softplus), a, b);
    let h = scan(T, Affine(decay, input), init = h0).b;
    y = gated(sum(N, c * h) + skip * u, z);
    h_last = last(T, h);
}

/// [`selective_scan_constant_b`](fn@selective_scan_constant_b) with a readout c\[d, n\] that does not depend on the time instead
/// of the input projection: `C` of shape `(dim, dstate)`.
pub fn selective_scan_constant_c(
    u: [B, G, D, T], delta: [B, G, D, T], a: wide[G, D, N], b: [B, G, N, T], c: wide[G, D, N],
    z: [B, G, D, T] = inf, skip: wide[G, D] = 0, delta_bias: wide[G, D] = 0, delta_softplus: bool = false,
    h0: state[B, G, D, N] = 0,
) -> (y: [B, G, D, T], h_last: state[B, G, D, N]) {
    let (decay, input) = discretized(u, step_size(delta + delta_bias, delta_softplus), a, b);
    let h = scan(T, Affine(decay, input), init = h0).b;
    y = gated(sum(N, c * h) + skip * u, z);
    h_last = last(T, h);
}

/// [`selective_scan_constant_b`](fn@selective_scan_constant_b) with a readout c\[d, n\] that does not depend on the time either:
/// `B` and `C` of shape `(dim, dstate)`. Only the step size is selective.
pub fn selective_scan_constant(
    u: [B, G, D, T], delta: [B, G, D, T], a: wide[G, D, N], b: wide[G, D, N], c: wide[G, D, N],
    z: [B, G, D, T] = inf, skip: wide[G, D] = 0, delta_bias: wide[G, D] = 0, delta_softplus: bool = false,
    h0: state[B, G, D, N] = 0,
) -> (y: [B, G, D, T], h_last: state[B, G, D, N]) {
    let (decay, input) = discretized(u, step_size(delta + delta_bias, delta_softplus), a, b);
    let h = scan(T, Affine(decay, input), init = h0).b;
    y = gated(sum(N, c * h) + skip * u, z);
    h_last = last(T, h);
}

// The elements of a selective scan over the complex numbers.
fn complex_discretized(u, delta, a_re, a_im, b_re, b_im) -> (decay_re, decay_im, input_re, input_im) {
    let (decay_re, decay_im) = complex_exp(delta * a_re, delta * a_im);
    (decay_re, decay_im, delta * u * b_re, delta * u * b_im)
}

/// [`selective_scan`](fn@selective_scan) with complex states: h[d, n, t] = exp(delta[d, t]·a[d, n])·h[d, n, t−1] +
/// delta[d, t]·b[n, t]·u[d, t] and y[d, t] = (2·Re Σ over n of c[n, t]·h[d, n, t] + skip[d]·u[d, t])·silu(z[d, t]), with
/// a = a_re + i·a_im and so on, and delta + delta_bias in place of delta, or its softplus where `delta_softplus` holds.
///
/// Of each conjugate pair of states only one is computed: hence 2·Re. `z` = ∞, which it is when it is left out, means no gate.
/// This is `selective_scan_fn` of mamba-ssm with complex `A`. On a GPU it is baked or compiled. Gu and Dao, "Mamba: Linear-time
/// sequence modeling with selective state spaces", 2023, §3.6.
pub fn selective_scan_complex(
    u: [B, G, D, T], delta: [B, G, D, T], a_re: wide[G, D, N], a_im: wide[G, D, N],
    b_re: [B, G, N, T], b_im: [B, G, N, T], c_re: [B, G, N, T], c_im: [B, G, N, T],
    z: [B, G, D, T] = inf, skip: wide[G, D] = 0, delta_bias: wide[G, D] = 0, delta_softplus: bool = false,
    h0_re: state[B, G, D, N] = 0, h0_im: state[B, G, D, N] = 0,
) -> (y: [B, G, D, T], h_last_re: state[B, G, D, N], h_last_im: state[B, G, D, N]) {
    let step = step_size(delta + delta_bias, delta_softplus);
    let (decay_re, decay_im, input_re, input_im) = complex_discretized(u, step, a_re, a_im, b_re, b_im);
    let h = scan(T, ComplexAffine(decay_re, decay_im, input_re, input_im), init = (br: h0_re, bi: h0_im));
    y = gated(2 * sum(N, c_re * h.br - c_im * h.bi) + skip * u, z);
    (h_last_re, h_last_im) = (last(T, h.br), last(T, h.bi));
}

/// [`selective_scan_complex`](fn@selective_scan_complex) with an input projection b\[d, n\] of each channel that does not depend
/// on the time: `B` of shape `(dim, dstate)`.
pub fn selective_scan_complex_constant_b(
    u: [B, G, D, T], delta: [B, G, D, T], a_re: wide[G, D, N], a_im: wide[G, D, N],
    b_re: wide[G, D, N], b_im: wide[G, D, N], c_re: [B, G, N, T], c_im: [B, G, N, T],
    z: [B, G, D, T] = inf, skip: wide[G, D] = 0, delta_bias: wide[G, D] = 0, delta_softplus: bool = false,
    h0_re: state[B, G, D, N] = 0, h0_im: state[B, G, D, N] = 0,
) -> (y: [B, G, D, T], h_last_re: state[B, G, D, N], h_last_im: state[B, G, D, N]) {
    let step = step_size(delta + delta_bias, delta_softplus);
    let (decay_re, decay_im, input_re, input_im) = complex_discretized(u, step, a_re, a_im, b_re, b_im);
    let h = scan(T, ComplexAffine(decay_re, decay_im, input_re, input_im), init = (br: h0_re, bi: h0_im));
    y = gated(2 * sum(N, c_re * h.br - c_im * h.bi) + skip * u, z);
    (h_last_re, h_last_im) = (last(T, h.br), last(T, h.bi));
}

/// [`selective_scan_complex`](fn@selective_scan_complex) with a readout c\[d, n\] that does not depend on the time: `C` of shape
/// `(dim, dstate)`.
pub fn selective_scan_complex_constant_c(
    u: [B, G, D, T], delta: [B, G, D, T], a_re: wide[G, D, N], a_im: wide[G, D, N],
    b_re: [B, G, N, T], b_im: [B, G, N, T], c_re: wide[G, D, N], c_im: wide[G, D, N],
    z: [B, G, D, T] = inf, skip: wide[G, D] = 0, delta_bias: wide[G, D] = 0, delta_softplus: bool = false,
    h0_re: state[B, G, D, N] = 0, h0_im: state[B, G, D, N] = 0,
) -> (y: [B, G, D, T], h_last_re: state[B, G, D, N], h_last_im: state[B, G, D, N]) {
    let step = step_size(delta + delta_bias, delta_softplus);
    let (decay_re, decay_im, input_re, input_im) = complex_discretized(u, step, a_re, a_im, b_re, b_im);
    let h = scan(T, ComplexAffine(decay_re, decay_im, input_re, input_im), init = (br: h0_re, bi: h0_im));
    y = gated(2 * sum(N, c_re * h.br - c_im * h.bi) + skip * u, z);
    (h_last_re, h_last_im) = (last(T, h.br), last(T, h.bi));
}

/// [`selective_scan_complex`](fn@selective_scan_complex) with an input projection and a readout that do not depend on the time:
/// `B` and `C` of shape `(dim, dstate)`.
pub fn selective_scan_complex_constant(
    u: [B, G, D, T], delta: [B, G, D, T], a_re: wide[G, D, N], a_im: wide[G, D, N],
    b_re: wide[G, D, N], b_im: wide[G, D, N], c_re: wide[G, D, N], c_im: wide[G, D, N],
    z: [B, G, D, T] = inf, skip: wide[G, D] = 0, delta_bias: wide[G, D] = 0, delta_softplus: bool = false,
    h0_re: state[B, G, D, N] = 0, h0_im: state[B, G, D, N] = 0,
) -> (y: [B, G, D, T], h_last_re: state[B, G, D, N], h_last_im: state[B, G, D, N]) {
    let step = step_size(delta + delta_bias, delta_softplus);
    let (decay_re, decay_im, input_re, input_im) = complex_discretized(u, step, a_re, a_im, b_re, b_im);
    let h = scan(T, ComplexAffine(decay_re, decay_im, input_re, input_im), init = (br: h0_re, bi: h0_im));
    y = gated(2 * sum(N, c_re * h.br - c_im * h.bi) + skip * u, z);
    (h_last_re, h_last_im) = (last(T, h.br), last(T, h.bi));
}

/// Mamba-2's state-space dual with all options at once: [`ssd`](fn@ssd) with the step size
/// min(max(dt + dt_bias, dt_min), dt_max), or of softplus(dt + dt_bias) where `dt_softplus` holds, and
/// y[p, t] = (Σ over N of c[n, t]·h[p, n, t] + (skip + skip_channels[p])·x[p, t])·silu(z[p, t]).
///
/// Where a step size is beyond a limit, its cotangent goes to the limit instead of dt and dt_bias; a limit that is left out is
/// none. `z` = ∞, which it is when it is left out, means no gate. This is
/// `mamba_chunk_scan_combined(x, dt, A, B, C, D=…, z=z, dt_bias=…, dt_softplus=…, dt_limit=(dt_min, dt_max))` of mamba-ssm, where
/// `D` has the shape `(nheads,)` (`skip`) or `(nheads, headdim)` (`skip_channels`). On a GPU it is baked or compiled. Dao and Gu,
/// "Transformers are SSMs: Generalized models and efficient algorithms through structured state space duality", 2024, §5 to §7.
pub fn ssd_combined(
    x: [B, T, G, H, P], dt: call | wide[B, T, G, H], a: wide[G, H], b: [B, T, G, N], c: [B, T, G, N],
    z: [B, T, G, H, P] = inf, skip: wide[G, H] = 0, skip_channels: wide[G, H, P] = 0, dt_bias: wide[G, H] = 0,
    dt_softplus: bool = false, dt_min: wide = -inf, dt_max: wide = inf, h0: wide[B, G, H, P, N] = 0,
) -> (y: [B, T, G, H, P], h_last: wide[B, G, H, P, N]) {
    let step = min(max(step_size(dt + dt_bias, dt_softplus), dt_min), dt_max);
    let (g, input) = dual(x, step, a, b);
    let h = scan(T, LogDecay(g, input), init = h0).x;
    y = gated(sum(N, c * h) + (skip + skip_channels) * x, z);
    h_last = last(T, h);
}
