//! The kernels of a Mamba beside its matrix products and the selective scan of `oplus::models`.

use oplus::scan;

scan! {
    /// Causal convolution of width 4 of each channel, then silu. What its shifts keep goes in and out, so that it has a one-step form.
    pub fn short_conv(
        x: [B, T, D], w0: f32[D], w1: f32[D], w2: f32[D], w3: f32[D], bias: f32[D],
        x1: f32[B, D] = 0, x2: f32[B, D] = 0, x3: f32[B, D] = 0,
    ) -> (u: [B, T, D], x1_last: f32[B, D], x2_last: f32[B, D], x3_last: f32[B, D]) {
        let once = shift(T, x, 1, fill = x1);
        let twice = shift(T, once, 1, fill = x2);
        let thrice = shift(T, twice, 1, fill = x3);
        u = silu(w0 * x + w1 * once + w2 * twice + w3 * thrice + bias);
        x1_last = last(T, x, empty = x1);
        x2_last = last(T, once, empty = x2);
        x3_last = last(T, twice, empty = x3);
    }

    /// Each row over its root mean square, times w (Zhang and Sennrich, "Root mean square layer normalization", 2019, §4).
    pub fn norm(x: [R, C], w: f32[C]) -> (y: [R, C]) {
        y = w * x * rsqrt(sum(C, x * x) / size(C) as f32 + 1e-5);
    }

    /// The decay rates of the states, always negative.
    pub fn decay_rates(a_log: f32[G, D, N]) -> (a: f32[G, D, N]) {
        a = -exp(a_log);
    }

    /// The mean over rows of −ln softmax(x)\[target\], in nats.
    pub fn cross_entropy(x: [R, V], target: i64[R]) -> (loss: f32) {
        let picked = sum(V, if index(V) == target { x } else { 0 });
        loss = sum(R, reduce(V, LogSumExp(x)) - picked) / size(R) as f32;
    }

    /// The sum of what P ranks have, in their order.
    pub fn total(parts: [P, N]) -> (y: [N]) {
        y = sum(P, parts);
    }

    /// a + b.
    pub fn plus(a: [R, C], b: [R, C]) -> (y: [R, C]) {
        y = a + b;
    }

    /// A row for each byte, with 1 at its place among all bytes: times a table, the table's rows of the bytes.
    pub fn one_hot(byte: i64[R], all: i64[V]) -> (y: f32[R, V]) {
        y = if all == byte { 1 } else { 0 };
    }

    /// The product of two matrices, on a GPU without cuBLAS.
    pub fn product(a: [M, K], b: [K, N]) -> (y: [M, N]) {
        y = sum(K, a * b);
    }

    /// One step of Adam with beta1 = 0.9 and beta2 = 0.99; c1 = 1 − beta1ᵗ and c2 = 1 − beta2ᵗ after t steps (Kingma and Ba,
    /// "Adam", 2015, algorithm 1).
    pub fn adam(
        w: [P], g: [P], m: [P], v: [P], rate: f32, c1: f32, c2: f32,
    ) -> (w_next: [P], m_next: [P], v_next: [P]) {
        m_next = 0.9 * m + 0.1 * g;
        v_next = 0.99 * v + 0.01 * g * g;
        w_next = w - rate * (m_next / c1) / (sqrt(v_next / c2) + 1e-8);
    }
}
