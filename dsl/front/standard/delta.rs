// The standard models, continued: recurrences of a matrix-valued state whose transition is a matrix too.
//
// K and V are the axes of the state; the time T comes before them. Decays, step sizes and states may be f32 beside half precision.

/// The delta rule (DeltaNet): what the state gives for the key k[t] is moved by β[t] towards the value v[t],
/// s[t] = s[t−1] + β[t]·k[t]⊗(v[t] − Σ over K of k[t]·s[t−1]), read by o[t] = Σ over K of q[t]·s[t].
///
/// In matrices, S[t] = (I − β[t]·k[t]·k[t]ᵀ)·S[t−1] + β[t]·k[t]·v[t]ᵀ. The keys should have the length 1, with 0 ≤ β ≤ 2: else states
/// may grow without bound. Schlag et al., "Linear transformers are secretly fast weight programmers", 2021; Yang et al.,
/// "Parallelizing linear transformers with the delta rule over sequence length", 2024, §2.
pub fn delta_rule(
    q: [B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], beta: call | wide[B, H, T], s0: wide[B, H, K, V] = 0,
) -> (o: [B, H, T, V], s_last: wide[B, H, K, V]) {
    let s = scan(T, DeltaRule(beta, k, v), init = s0);
    o = sum(K, q * s);
    s_last = last(T, s);
}

/// [`delta_rule`](fn@delta_rule) of packed sequences: sequence s holds the times cu_seqlens\[s\] to cu_seqlens\[s + 1\] − 1, begins at
/// s0\[s\] and ends with s_last\[s\].
///
/// A sequence of no times keeps its state.
pub fn delta_rule_packed_states(
    q: [B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], beta: call | wide[B, H, T], cu_seqlens: i32 | i64[S + 1],
    s0: state[B, S, H, K, V] = 0,
) -> (o: [B, H, T, V], s_last: state[B, S, H, K, V]) {
    let s = scan(T, segmented(DeltaRule)(beta, k, v), offsets = cu_seqlens, init = s0);
    o = sum(K, q * s);
    s_last = last(T, s, offsets = cu_seqlens);
}

/// The gated delta rule: the state decays by exp(g[t]) before [`delta_rule`](fn@delta_rule) moves it,
/// s[t] = d + β[t]·k[t]⊗(v[t] − Σ over K of k[t]·d) with d = exp(g[t])·s[t−1], read by o[t] = Σ over K of q[t]·s[t].
///
/// Yang et al., "Gated delta networks: Improving Mamba2 with delta rule", 2025, §3.
pub fn gated_delta_rule(
    q: [B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], g: call | wide[B, H, T], beta: call | wide[B, H, T],
    s0: wide[B, H, K, V] = 0,
) -> (o: [B, H, T, V], s_last: wide[B, H, K, V]) {
    let s = scan(T, GatedDeltaRule(g, beta, k, v), init = s0);
    o = sum(K, q * s);
    s_last = last(T, s);
}

/// Kimi delta attention: [`gated_delta_rule`](fn@gated_delta_rule) with a decay exp(g[t]) for each channel K of the keys.
///
/// Kimi team, "Kimi linear: An expressive, efficient attention architecture", 2025, §3.
pub fn kda(
    q: [B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], g: call | wide[B, H, T, K], beta: call | wide[B, H, T],
    s0: wide[B, H, K, V] = 0,
) -> (o: [B, H, T, V], s_last: wide[B, H, K, V]) {
    let s = scan(T, ChannelDeltaRule(g, beta, k, v), init = s0);
    o = sum(K, q * s);
    s_last = last(T, s);
}

/// RWKV-7: s[t] = exp(w[t])·s[t−1] + b[t]⊗(Σ over K of a[t]·s[t−1]) + k[t]⊗v[t], read by o[t] = Σ over K of r[t]·s[t].
///
/// Here w is the logarithm of the decay, and a and b are those of the recurrence: the model makes them of a normalised key,
/// a = −κ and b = κ·(the rate at which it learns in context). Peng et al., "RWKV-7 \"Goose\" with expressive dynamic state
/// evolution", 2025, §4.
pub fn rwkv7(
    r: [B, H, T, K], w: call | wide[B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], a: [B, H, T, K], b: [B, H, T, K],
    s0: wide[B, H, K, V] = 0,
) -> (o: [B, H, T, V], s_last: wide[B, H, K, V]) {
    let s = scan(T, DiagonalPlusPair(exp(w), a, b, k * v), init = s0);
    o = sum(K, r * s);
    s_last = last(T, s);
}
