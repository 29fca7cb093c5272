// The standard models, continued: recurrences of a matrix-valued state that is the sum of outer products.
//
// K and V are the axes of the state, or P and N; the time T comes before them. What decays are made of may be f32 beside half
// precision, as it is summed over many times.

/// Every state of log-decay (monoid) attention, s[t] = exp(g[t])·s[t−1] + x[t], from given x = k⊗v, and the state at the
/// end: s and the accumulated decay g0 + g\[0\] + … + g\[T−1\].
///
/// g = −∞ forgets the past entirely. Katharopoulos et al., "Transformers are RNNs", 2020, §3.3, with the decay of Yang et
/// al., "Gated linear attention", 2023, §4.
pub fn monoid_states(
    g: call | wide[B, H, T], x: [B, H, T, K, V], g0: wide[B, H] = 0, s0: wide[B, H, K, V] = 0,
) -> (s: [B, H, T, K, V], g_last: wide[B, H], s_last: wide[B, H, K, V]) {
    g_last = last(T, scan(T, Sum(g), init = g0));
    s = scan(T, LogDecay(g, x), init = s0).x;
    s_last = last(T, s);
}

/// Log-decay (monoid) attention: s[t] = exp(g[t])·s[t−1] + k[t]⊗v[t], read by o[t] = Σ over K of q[t]·s[t], and the state at
/// the end: s and the accumulated decay g0 + g\[0\] + … + g\[T−1\].
///
/// The K×V states are not an output, and so need not be written. With g = 0 this is linear attention (Katharopoulos et
/// al., "Transformers are RNNs", 2020, §3.3), with a constant g retention (Sun et al., "Retentive network", 2023, §2.1), with
/// one g for a head and time Mamba-2 (Dao and Gu, "Transformers are SSMs", 2024, §5).
pub fn monoid_attention(
    q: [B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], g: call | wide[B, H, T], g0: wide[B, H] = 0, s0: wide[B, H, K, V] = 0,
) -> (o: [B, H, T, V], g_last: wide[B, H], s_last: wide[B, H, K, V]) {
    g_last = last(T, scan(T, Sum(g), init = g0));
    let s = scan(T, LogDecay(g, k * v), init = s0).x;
    o = sum(K, q * s);
    s_last = last(T, s);
}

/// [`monoid_attention`](fn@monoid_attention) of packed sequences: sequence s holds the times cu_seqlens\[s\] to
/// cu_seqlens\[s + 1\] − 1, and its state begins at 0.
pub fn monoid_attention_packed(
    q: [B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], g: call | wide[B, H, T], cu_seqlens: i32 | i64[S],
) -> (o: [B, H, T, V]) {
    let s = scan(T, segmented(LogDecay)(g, k * v), offsets = cu_seqlens).x;
    o = sum(K, q * s);
}

// One time of Mamba-2 for a step size: the logarithm of the decay and the input of the P×N state.
fn dual(x, dt, a, b) -> (g, u) {
    (dt * a, dt * x * b)
}

/// Mamba-2's state-space dual: h[t] = exp(dt[t]·a)·h[t−1] + dt[t]·x[t]⊗b[t] for the P×N state of each head, and
/// y[p, t] = Σ over N of c[n, t]·h[p, n, t] + skip·x[p, t], with dt + dt_bias in place of dt.
///
/// G groups of H heads each share b and c; `[B, T, G·H, P]` seen as `[B, T, G, H, P]` costs nothing. This is
/// `mamba_chunk_scan_combined(x, dt, A, B, C, D=…, dt_bias=…)` of mamba-ssm. Dao and Gu, "Transformers are SSMs: Generalized
/// models and efficient algorithms through structured state space duality", 2024, §5 and §6.
pub fn ssd(
    x: [B, T, G, H, P], dt: call | wide[B, T, G, H], a: wide[G, H], b: [B, T, G, N], c: [B, T, G, N],
    skip: wide[G, H] = 0, dt_bias: wide[G, H] = 0, h0: wide[B, G, H, P, N] = 0,
) -> (y: [B, T, G, H, P], h_last: wide[B, G, H, P, N]) {
    let (g, u) = dual(x, dt + dt_bias, a, b);
    let h = scan(T, LogDecay(g, u), init = h0).x;
    y = sum(N, c * h) + skip * x;
    h_last = last(T, h);
}

/// [`ssd`](fn@ssd) with a positive step size, softplus(dt + dt_bias): `dt_softplus=True` of mamba-ssm.
pub fn ssd_softplus(
    x: [B, T, G, H, P], dt: call | wide[B, T, G, H], a: wide[G, H], b: [B, T, G, N], c: [B, T, G, N],
    skip: wide[G, H] = 0, dt_bias: wide[G, H] = 0, h0: wide[B, G, H, P, N] = 0,
) -> (y: [B, T, G, H, P], h_last: wide[B, G, H, P, N]) {
    let (g, u) = dual(x, softplus(dt + dt_bias), a, b);
    let h = scan(T, LogDecay(g, u), init = h0).x;
    y = sum(N, c * h) + skip * x;
    h_last = last(T, h);
}

/// The inside of a Mamba-2 block: [`ssd_softplus`](fn@ssd_softplus) with a gate, its y times silu(z).
///
/// This is `mamba_chunk_scan_combined(x, dt, A, B, C, D=…, z=z, dt_bias=…, dt_softplus=True)` of mamba-ssm.
pub fn mamba2(
    x: [B, T, G, H, P], dt: call | wide[B, T, G, H], a: wide[G, H], b: [B, T, G, N], c: [B, T, G, N], z: [B, T, G, H, P],
    skip: wide[G, H] = 0, dt_bias: wide[G, H] = 0, h0: wide[B, G, H, P, N] = 0,
) -> (y: [B, T, G, H, P], h_last: wide[B, G, H, P, N]) {
    let (g, u) = dual(x, softplus(dt + dt_bias), a, b);
    let h = scan(T, LogDecay(g, u), init = h0).x;
    y = (sum(N, c * h) + skip * x) * silu(z);
    h_last = last(T, h);
}

/// [`ssd_softplus`](fn@ssd_softplus) of packed sequences: sequence s holds the times cu_seqlens\[s\] to
/// cu_seqlens\[s + 1\] − 1, and its state begins at 0.
pub fn ssd_packed(
    x: [B, T, G, H, P], dt: call | wide[B, T, G, H], a: wide[G, H], b: [B, T, G, N], c: [B, T, G, N], cu_seqlens: i32 | i64[S],
    skip: wide[G, H] = 0, dt_bias: wide[G, H] = 0,
) -> (y: [B, T, G, H, P]) {
    let (g, u) = dual(x, softplus(dt + dt_bias), a, b);
    let h = scan(T, segmented(LogDecay)(g, u), offsets = cu_seqlens).x;
    y = sum(N, c * h) + skip * x;
}

/// Retention, a decay that is the same at all times: s[t] = exp(g)·s[t−1] + k[t]⊗v[t], read by o[t] = Σ over K of q[t]·s[t].
///
/// Sun et al., "Retentive network: A successor to transformer for large language models", 2023, §2.1.
pub fn retention(
    q: [B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], g: wide[H], s0: wide[B, H, K, V] = 0,
) -> (o: [B, H, T, V], s_last: wide[B, H, K, V]) {
    let s = scan(T, LogDecay(g, k * v), init = s0).x;
    o = sum(K, q * s);
    s_last = last(T, s);
}

/// Linear attention, which forgets nothing: s[t] = s[t−1] + k[t]⊗v[t], read by o[t] = Σ over K of q[t]·s[t].
///
/// Katharopoulos et al., "Transformers are RNNs: Fast autoregressive transformers with linear attention", 2020, §3.3, without
/// the division by Σ over K of q[t]·(k\[0\] + … + k[t]), which is one more column of v.
pub fn linear_attention(
    q: [B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], s0: wide[B, H, K, V] = 0,
) -> (o: [B, H, T, V], s_last: wide[B, H, K, V]) {
    let s = scan(T, Sum(k * v), init = s0);
    o = sum(K, q * s);
    s_last = last(T, s);
}

/// Gated linear attention with a decay for each channel of the keys: s[t] = exp(g[t])·s[t−1] + k[t]⊗v[t] with g[K, t], read by
/// o[t] = Σ over K of q[t]·s[t].
///
/// With one decay for all channels it is [`monoid_attention`](fn@monoid_attention). Yang et al., "Gated linear attention
/// transformers with hardware-efficient training", 2023, §4.
pub fn gated_linear_attention(
    q: [B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], g: call | wide[B, H, T, K], s0: wide[B, H, K, V] = 0,
) -> (o: [B, H, T, V], s_last: wide[B, H, K, V]) {
    let s = scan(T, LogDecay(g, k * v), init = s0).x;
    o = sum(K, q * s);
    s_last = last(T, s);
}
