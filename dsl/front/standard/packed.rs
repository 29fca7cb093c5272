// The standard models, continued: packed sequences with a state each.
//
// S sequences lie one behind the other along the time T: sequence s holds the times cu_seqlens[s] to cu_seqlens[s + 1] − 1. A
// sequence of no times keeps its state. No kernels of these are committed: on a GPU they are baked, or compiled when they are
// called.

/// First-order affine recurrence of packed sequences, h[t] = a[t]·h[t−1] + b[t], where each sequence begins at a state of its own
/// and gives its last one.
///
/// Sequence s holds the times cu_seqlens\[s\] to cu_seqlens\[s + 1\] − 1. A sequence of no times keeps its state. On a GPU it is
/// baked or compiled.
pub fn affine_packed_states(
    a: [B, T], b: [B, T], cu_seqlens: i32 | i64[S + 1], h0: state[B, S] = 0,
) -> (h: [B, T], h_last: state[B, S]) {
    h = scan(T, segmented(Affine)(a, b), offsets = cu_seqlens, init = h0).b;
    h_last = last(T, h, offsets = cu_seqlens);
}

/// [`selective_scan`](fn@selective_scan) of packed sequences, each with a state of its own: sequence s holds the times
/// cu_seqlens\[s\] to cu_seqlens\[s + 1\] − 1, begins at h0\[s\] and ends with h_last\[s\].
///
/// A sequence of no times keeps its state. The states of all times are stored on the way, 4·B·G·D·N·T bytes and as much again for
/// the gradient; where all states begin at 0 and none is wanted, [`selective_scan_packed`](fn@selective_scan_packed) stores none.
/// On a GPU it is baked or compiled.
pub fn selective_scan_packed_states(
    u: [B, G, D, T], delta: [B, G, D, T], a: wide[G, D, N], b: [B, G, N, T], c: [B, G, N, T], cu_seqlens: i32 | i64[S + 1],
    skip: wide[G, D] = 0, delta_bias: wide[G, D] = 0, h0: state[B, S, G, D, N] = 0,
) -> (y: [B, G, D, T], h_last: state[B, S, G, D, N]) {
    let (decay, input) = discretized(u, delta + delta_bias, a, b);
    let h = scan(T, segmented(Affine)(decay, input), offsets = cu_seqlens, init = h0).b;
    y = sum(N, c * h) + skip * u;
    h_last = last(T, h, offsets = cu_seqlens);
}

/// [`mamba`](fn@mamba) of packed sequences, each with a state of its own, see
/// [`selective_scan_packed_states`](fn@selective_scan_packed_states).
pub fn mamba_packed_states(
    u: [B, G, D, T], delta: [B, G, D, T], a: wide[G, D, N], b: [B, G, N, T], c: [B, G, N, T], z: [B, G, D, T],
    cu_seqlens: i32 | i64[S + 1], skip: wide[G, D] = 0, delta_bias: wide[G, D] = 0, h0: state[B, S, G, D, N] = 0,
) -> (y: [B, G, D, T], h_last: state[B, S, G, D, N]) {
    let (decay, input) = discretized(u, softplus(delta + delta_bias), a, b);
    let h = scan(T, segmented(Affine)(decay, input), offsets = cu_seqlens, init = h0).b;
    y = (sum(N, c * h) + skip * u) * silu(z);
    h_last = last(T, h, offsets = cu_seqlens);
}

/// [`ssd_softplus`](fn@ssd_softplus) of packed sequences, each with a state of its own: sequence s holds the times
/// cu_seqlens\[s\] to cu_seqlens\[s + 1\] − 1, begins at h0\[s\] and ends with h_last\[s\].
///
/// A sequence of no times keeps its state. On a GPU, where it is baked or compiled, each sequence has blocks of its own, also in the gradient. On
/// the CPU the P×N states of all times are stored on the way: for long sequences call
/// [`ssd_softplus`](fn@ssd_softplus) for each, or [`ssd_packed`](fn@ssd_packed) where all states begin at 0 and none is wanted.
pub fn ssd_packed_states(
    x: [B, T, G, H, P], dt: call | wide[B, T, G, H], a: wide[G, H], b: [B, T, G, N], c: [B, T, G, N],
    cu_seqlens: i32 | i64[S + 1], skip: wide[G, H] = 0, dt_bias: wide[G, H] = 0, h0: wide[B, S, G, H, P, N] = 0,
) -> (y: [B, T, G, H, P], h_last: wide[B, S, G, H, P, N]) {
    let (g, u) = dual(x, softplus(dt + dt_bias), a, b);
    let h = scan(T, segmented(LogDecay)(g, u), offsets = cu_seqlens, init = h0).x;
    y = sum(N, c * h) + skip * x;
    h_last = last(T, h, offsets = cu_seqlens);
}

/// [`monoid_attention`](fn@monoid_attention) of packed sequences, each with a state of its own: sequence s holds the times
/// cu_seqlens\[s\] to cu_seqlens\[s + 1\] − 1, begins at s0\[s\] and ends with s_last\[s\].
///
/// A sequence of no times keeps its state. On the CPU the K×V states of all times are stored on the way, as in
/// [`ssd_packed_states`](fn@ssd_packed_states). On a GPU it is baked or compiled.
pub fn monoid_attention_packed_states(
    q: [B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], g: call | wide[B, H, T], cu_seqlens: i32 | i64[S + 1],
    s0: wide[B, S, H, K, V] = 0,
) -> (o: [B, H, T, V], s_last: wide[B, S, H, K, V]) {
    let s = scan(T, segmented(LogDecay)(g, k * v), offsets = cu_seqlens, init = s0).x;
    o = sum(K, q * s);
    s_last = last(T, s, offsets = cu_seqlens);
}

/// [`gated_linear_attention`](fn@gated_linear_attention) of packed sequences, each with a state of its own, see
/// [`monoid_attention_packed_states`](fn@monoid_attention_packed_states).
pub fn gated_linear_attention_packed_states(
    q: [B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], g: call | wide[B, H, T, K], cu_seqlens: i32 | i64[S + 1],
    s0: wide[B, S, H, K, V] = 0,
) -> (o: [B, H, T, V], s_last: wide[B, S, H, K, V]) {
    let s = scan(T, segmented(LogDecay)(g, k * v), offsets = cu_seqlens, init = s0).x;
    o = sum(K, q * s);
    s_last = last(T, s, offsets = cu_seqlens);
}
