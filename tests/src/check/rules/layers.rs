//! Delta rules whose readouts go on through a gate or a norm in the same program.

use oplus::scan;

scan! {
    /// The gated delta rule with a gate z at its output: y[t] = silu(z[t])·Σ over K of q[t]·s[t].
    pub fn gated_delta_layer(
        q: [B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], g: wide[B, H, T], beta: wide[B, H, T], z: [B, H, T, V],
        s0: wide[B, H, K, V] = 0,
    ) -> (y: [B, H, T, V], s_last: wide[B, H, K, V]) {
        let s = scan(T, GatedDeltaRule(g, beta, k, v), init = s0);
        y = sum(K, q * s) * silu(z);
        s_last = last(T, s);
    }

    /// With the root mean square over V as a norm before the gate, and a weight w for each element.
    pub fn normed_delta_layer(
        q: [B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], g: wide[B, H, T], beta: wide[B, H, T], z: [B, H, T, V],
        w: wide[V],
    ) -> (y: [B, H, T, V]) {
        let s = scan(T, GatedDeltaRule(g, beta, k, v));
        let o = sum(K, q * s);
        y = o * rsqrt(sum(V, o * o) / (size(V) as call) + 0.00001) * w * silu(z);
    }

    /// Kimi delta attention with a gate at its output.
    pub fn gated_kda_layer(
        q: [B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], g: wide[B, H, T, K], beta: wide[B, H, T], z: [B, H, T, V],
    ) -> (y: [B, H, T, V]) {
        let s = scan(T, ChannelDeltaRule(g, beta, k, v));
        y = sum(K, q * s) * sigmoid(z);
    }
}
