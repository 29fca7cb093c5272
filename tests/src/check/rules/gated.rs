//! Recurrences of matrices in forms that no model has.

use oplus::scan;

scan! {
    /// With keys and queries that heads share: s[t] = exp(g[t])·s[t−1] + k[t]⊗v[t], read by o[t] = Σ over K of q[t]·s[t].
    pub fn shared_linear_attention(
        q: [B, T, K], k: [B, T, K], v: [B, H, T, V], g: [B, H, T, K], s0: f32[B, H, K, V] = 0,
    ) -> (o: [B, H, T, V], s_last: f32[B, H, K, V]) {
        let s = scan(T, LogDecay(g, k * v), init = s0).x;
        o = sum(K, q * s);
        s_last = last(T, s);
    }

    /// With decays that are the same at all times.
    pub fn time_invariant_linear_attention(
        q: [B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], g: [H, K], s0: f32[B, H, K, V] = 0,
    ) -> (o: [B, H, T, V], s_last: f32[B, H, K, V]) {
        let s = scan(T, LogDecay(g, k * v), init = s0).x;
        o = sum(K, q * s);
        s_last = last(T, s);
    }

    /// With decays of a rate for every channel, times a step for every time.
    pub fn rates_linear_attention(
        q: [B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], g: [H, K], dt: [B, H, T], s0: f32[B, H, K, V] = 0,
    ) -> (o: [B, H, T, V], s_last: f32[B, H, K, V]) {
        let s = scan(T, LogDecay(g * dt, k * v), init = s0).x;
        o = sum(K, q * s);
        s_last = last(T, s);
    }

    /// The gated delta rule of packed sequences, each with a first and a last state of its own.
    pub fn packed_delta_rule(
        q: [B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], g: wide[B, H, T], beta: wide[B, H, T], cu_seqlens: i32[S + 1],
        s0: wide[B, S, H, K, V],
    ) -> (o: [B, H, T, V], s_last: wide[B, S, H, K, V]) {
        let s = scan(T, segmented(GatedDeltaRule)(g, beta, k, v), offsets = cu_seqlens, init = s0);
        o = sum(K, q * s);
        s_last = last(T, s, offsets = cu_seqlens);
    }

    /// The gated delta rule that is only read at its end.
    pub fn ending_delta_rule(
        k: [B, H, T, K], v: [B, H, T, V], g: wide[B, H, T], beta: wide[B, H, T], s0: wide[B, H, K, V],
    ) -> (s_last: wide[B, H, K, V]) {
        s_last = last(T, scan(T, GatedDeltaRule(g, beta, k, v), init = s0));
    }
}
