//! Gated linear attention in forms that no model has.

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
    pub fn steady_linear_attention(
        q: [B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], g: [H, K], s0: f32[B, H, K, V] = 0,
    ) -> (o: [B, H, T, V], s_last: f32[B, H, K, V]) {
        let s = scan(T, LogDecay(g, k * v), init = s0).x;
        o = sum(K, q * s);
        s_last = last(T, s);
    }
}
