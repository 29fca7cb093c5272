/// First-order affine recurrence, h[t] = a[t]·h[t-1] + b[t].
pub op Affine(a, b) {
    identity (1, 0);
    combine(l, r) (l.a * r.a, r.a * l.b + r.b);
}

/// Mamba's discretisation (zero-order hold for a, Euler for b).
fn discretize(a, b, delta) -> (a_bar, b_bar) { (exp(delta * a), delta * b) }

/// Mamba S6 selective scan.
pub fn selective_scan(
    u: [B, D, L], delta: [B, D, L], a: f32[D, N], b: [B, N, L], c: [B, N, L], skip: f32[D],
    h0: f32[B, D, N] = 0,
) -> (y: [B, D, L], h_last: f32[B, D, N]) {
    let (a_bar, b_bar) = discretize(a, b, delta);
    let h = scan(L, Affine(a_bar, b_bar * u), init = h0);
    y = sum(N, c * h.b) + skip * u;
    h_last = last(L, h.b);
}
