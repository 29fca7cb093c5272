// The standard kernels: the body of a `scan!`, see the crate `oplus-front`.
//
// Rows come first and the time T, which is scanned, last: [B, T]. A single long row has B = 1. Kernels whose name ends in
// `_time_first` or `_channels` scan an axis that is not the fastest. States are f64 in calls of f64, else f32.

/// A copy, y[a, b, c, d] = x[a, b, c, d], whatever the strides of both; of fewer axes where sizes are 1.
pub fn copy(x: [A, B, C, D]) -> (y: [A, B, C, D]) {
    y = x;
}

/// A copy of flags, y[a, b, c, d] = x[a, b, c, d], whatever the strides of both.
pub fn copy_flags(x: bool[A, B, C, D]) -> (y: bool[A, B, C, D]) {
    y = x;
}

/// Cumulative sum of each row, y[t] = x[0] + … + x[t].
pub fn cumsum(x: [B, T]) -> (y: [B, T]) {
    y = scan(T, Sum(x));
}

/// Cumulative sum of each row without the element itself, y[t] = x[0] + … + x[t−1], and the total.
pub fn cumsum_exclusive(x: [B, T]) -> (y: [B, T], total: [B]) {
    y = scan(T, Sum(x), exclusive);
    total = sum(T, x);
}

/// Cumulative sum along the first axis, y[t] = x[0] + … + x[t] for each channel.
pub fn cumsum_time_first(x: [T, C]) -> (y: [T, C]) {
    y = scan(T, Sum(x));
}

/// Cumulative product of each row, y[t] = x[0] · … · x[t]. The gradient is right where elements are 0.
pub fn cumprod(x: [B, T]) -> (y: [B, T]) {
    y = scan(T, Product(x));
}

/// Running maximum of each row, y[t] = max(x[0], …, x[t]). The gradient goes to the earliest of equal elements.
pub fn cummax(x: [B, T]) -> (y: [B, T]) {
    y = scan(T, Max(x));
}

/// Running minimum of each row, y[t] = min(x[0], …, x[t]). The gradient goes to the earliest of equal elements.
pub fn cummin(x: [B, T]) -> (y: [B, T]) {
    y = scan(T, Min(x));
}

/// Running maximum of each row and the lowest index at which it stands.
pub fn cumargmax(x: [B, T]) -> (value: [B, T], at: i64[B, T]) {
    let best = scan(T, ArgMax(x, index(T)));
    value = best.value;
    at = best.index;
}

/// Running minimum of each row and the lowest index at which it stands.
pub fn cumargmin(x: [B, T]) -> (value: [B, T], at: i64[B, T]) {
    let best = scan(T, ArgMin(x, index(T)));
    value = best.value;
    at = best.index;
}

/// Running logarithm of a sum of exponentials, y[t] = ln(exp(x[0]) + … + exp(x[t])), without overflow.
pub fn logcumsumexp(x: [B, T]) -> (y: [B, T]) {
    y = scan(T, LogSumExp(x));
}

/// First-order affine recurrence of each row, h[t] = a[t]·h[t−1] + b[t] with h[−1] = h0.
pub fn affine(a: [B, T], b: [B, T], h0: state[B] = 0) -> (h: [B, T], h_last: state[B]) {
    let state = scan(T, Affine(a, b), init = h0);
    h = state.b;
    h_last = last(T, state.b);
}

/// First-order affine recurrence along the middle axis, h[t] = a[t]·h[t−1] + b[t] for each channel.
pub fn affine_time_first(a: [B, T, D], b: [B, T, D], h0: state[B, D] = 0) -> (h: [B, T, D], h_last: state[B, D]) {
    let state = scan(T, Affine(a, b), init = h0);
    h = state.b;
    h_last = last(T, state.b);
}

/// Exponential moving average of each row, y[t] = (1 − alpha)·y[t−1] + alpha·x[t] with y[−1] = y0.
pub fn ema(x: [B, T], alpha: wide, y0: state[B] = 0) -> (y: [B, T], y_last: state[B]) {
    let state = scan(T, Affine(1 - alpha, alpha * x), init = y0);
    y = state.b;
    y_last = last(T, state.b);
}

/// Recurrence with a decay in logarithms for each row, s[t] = exp(g[t])·s[t−1] + x[t] with s[−1] = s0.
pub fn log_decay(g: call | wide[B, T], x: [B, T], s0: state[B] = 0) -> (s: [B, T], s_last: state[B]) {
    let state = scan(T, LogDecay(g, x), init = s0);
    s = state.x;
    s_last = last(T, state.x);
}

/// Recurrence with a decay of its own for each channel, s[t] = exp(g[t])·s[t−1] + x[t] along the middle axis.
pub fn log_decay_channels(g: call | wide[B, T, D], x: [B, T, D], s0: state[B, D] = 0) -> (s: [B, T, D], s_last: state[B, D]) {
    let state = scan(T, LogDecay(g, x), init = s0);
    s = state.x;
    s_last = last(T, state.x);
}

/// Recurrence of a matrix-valued state with one decay per head, s[t] = exp(g[t])·s[t−1] + x[t]: every state of monoid
/// attention.
pub fn monoid(
    g: call | wide[B, H, T], x: [B, H, T, K, V], s0: state[B, H, K, V] = 0,
) -> (s: [B, H, T, K, V], s_last: state[B, H, K, V]) {
    let state = scan(T, LogDecay(g, x), init = s0);
    s = state.x;
    s_last = last(T, state.x);
}

/// Merges softmax-weighted sums over parts P: of part p the maximum m, the denominator d and the numerator o, as from
/// blocks of keys. Gives the weighted mean and the log-sum-exp of the scores; of nothing, where all d are 0, 0 and −∞.
pub fn softmax_merge(m: state[B, P], d: state[B, P], o: [B, P, V]) -> (mean: [B, V], lse: state[B]) {
    let all = reduce(P, Softmax(m, d, o));
    let nothing = all.d == 0;
    let d = if nothing { 1 } else { all.d };
    mean = if nothing { 0 } else { all.o / d };
    lse = if nothing { -inf } else { all.m + ln(d) };
}

/// Cumulative sum of packed sequences: sequence s is x[cu_seqlens[s]] … x[cu_seqlens[s + 1] − 1] of every row.
pub fn segmented_cumsum(x: [B, T], cu_seqlens: i32 | i64[S]) -> (y: [B, T]) {
    y = scan(T, segmented(Sum)(x), offsets = cu_seqlens);
}

/// First-order affine recurrence of packed sequences; each begins with h[−1] = 0.
pub fn segmented_affine(a: [B, T], b: [B, T], cu_seqlens: i32 | i64[S]) -> (h: [B, T]) {
    h = scan(T, segmented(Affine)(a, b), offsets = cu_seqlens).b;
}

/// First-order affine recurrence that forgets its state before each element where `reset` holds.
pub fn affine_with_resets(
    a: [B, T], b: [B, T], reset: bool[B, T], h0: state[B] = 0,
) -> (h: [B, T], h_last: state[B]) {
    let state = scan(T, segmented(Affine)(a, b), reset = reset, init = h0);
    h = state.b;
    h_last = last(T, state.b);
}

/// First-order affine recurrence over the complex numbers, h[t] = a[t]·h[t−1] + b[t], real and imaginary parts apart.
pub fn complex_affine(
    ar: [B, T], ai: [B, T], br: [B, T], bi: [B, T], hr0: state[B] = 0, hi0: state[B] = 0,
) -> (hr: [B, T], hi: [B, T], hr_last: state[B], hi_last: state[B]) {
    let state = scan(T, ComplexAffine(ar, ai, br, bi), init = (br: hr0, bi: hi0));
    (hr, hi) = (state.br, state.bi);
    (hr_last, hi_last) = (last(T, state.br), last(T, state.bi));
}

/// Running products of 2×2 matrices by rows, P[t] = M[t] · … · M[0].
pub fn matrix2(
    a: [B, T], b: [B, T], c: [B, T], d: [B, T],
) -> (pa: [B, T], pb: [B, T], pc: [B, T], pd: [B, T]) {
    (pa, pb, pc, pd) = scan(T, Matrix2(a, b, c, d));
}

/// Affine recurrence of the tropical semiring, h[t] = max(a[t] + h[t−1], b[t]) with h[−1] = −∞.
pub fn max_plus(a: [B, T], b: [B, T]) -> (h: [B, T]) {
    h = scan(T, MaxPlus(a, b)).b;
}

/// Runs a finite automaton of up to eight states: the map f[t] takes the state s to the bits 3s … 3s + 2 of f[t]. Gives the
/// state after each element, from the state `start`.
pub fn automaton(f: u32[B, T], start: u32[B] = 0) -> (state: u32[B, T]) {
    let run = scan(T, Automaton(f));
    state = run >> 3 * start & 7;
}
