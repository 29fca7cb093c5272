// The standard models, continued: softmax attention.
//
// M queries and N keys of E channels, values of F channels; G heads of keys, R heads of queries for each of them.

// The element of a softmax for a key: its score and value, or nothing where it is not seen.
fn weighted(seen, score, v) -> (m, d, o) {
    if seen { (score, 1, v) } else { (-inf, 0, 0) }
}

// Of merged weights the mean of the values and the log-sum-exp of the scores: 0 and −∞ where nothing was seen.
fn mean(all) -> (o, lse) {
    let d = if all.d == 0 { 1 } else { all.d };
    (all.o / d, all.m + ln(d))
}

// Scores of queries and keys, q·k/√E.
fn scores(q, k) {
    sum(E, q * k) * rsqrt(size(E) as call)
}

/// Softmax attention: with the scores s[m, n] = Σ over E of q[m]·k[n] / √E, o[m] = Σ over N of exp(s[m, n] − lse[m])·v[n] and
/// lse[m] = ln Σ over N of exp(s[m, n]).
///
/// G heads of keys and values serve R heads of queries each: `[B, G·R, M, E]` seen as `[B, G, R, M, E]` costs nothing, and
/// `[B, M, G·R, E]` is a matter of strides. M and N are any lengths; of no keys the mean is 0 and the log-sum-exp −∞. Parts of
/// the keys may be attended to apart and [`merge`](fn@merge)d. Vaswani et al., "Attention is all you need", 2017, §3.2.1.
pub fn attention(
    q: [B, G, R, M, E], k: [B, G, N, E], v: [B, G, N, F],
) -> (o: [B, G, R, M, F], lse: state[B, G, R, M]) {
    (o, lse) = mean(reduce(N, Softmax(scores(q, k), 1, v)));
}

/// [`attention`](fn@attention) in which a query sees the keys up to its own position. The last query is at the last key:
/// query m sees the keys n ≤ m + |N| − |M|.
pub fn attention_causal(
    q: [B, G, R, M, E], k: [B, G, N, E], v: [B, G, N, F],
) -> (o: [B, G, R, M, F], lse: state[B, G, R, M]) {
    let seen = index(N) <= index(M) + (size(N) - size(M));
    let (score, one, value) = weighted(seen, scores(q, k), v);
    (o, lse) = mean(reduce(N, Softmax(score, one, value)));
}

// How far a window reaches, at most `all`; a negative distance is no limit.
fn distance(far, all) -> far {
    if far < 0 { all } else { min(far, all) }
}

/// [`attention`](fn@attention) in which a query sees the keys around its own position, `left` to the left and `right` to the
/// right of it. The last query is at the last key: query m sees the keys n with at − left ≤ n ≤ at + right for
/// at = m + |N| − |M|, so that right = 0 is causal.
///
/// A side whose distance is negative has no limit, as in FlashAttention.
///
/// Beltagy, Peters and Cohan, "Longformer: The long-document transformer", 2020, §3.1.
pub fn attention_window(
    q: [B, G, R, M, E], k: [B, G, N, E], v: [B, G, N, F], left: i64, right: i64,
) -> (o: [B, G, R, M, F], lse: state[B, G, R, M]) {
    let at = index(M) + (size(N) - size(M));
    let (left, right) = (distance(left, size(M) + size(N)), distance(right, size(M) + size(N)));
    let seen = index(N) >= at - left && index(N) <= at + right;
    let (score, one, value) = weighted(seen, scores(q, k), v);
    (o, lse) = mean(reduce(N, Softmax(score, one, value)));
}

/// [`attention`](fn@attention) with a bias added to the scores; a bias of −∞ hides a key from a query.
pub fn attention_bias(
    q: [B, G, R, M, E], k: [B, G, N, E], v: [B, G, N, F], bias: [B, G, R, M, N],
) -> (o: [B, G, R, M, F], lse: state[B, G, R, M]) {
    let (score, one, value) = weighted(bias > -inf, scores(q, k) + bias, v);
    (o, lse) = mean(reduce(N, Softmax(score, one, value)));
}

/// [`attention_causal`](fn@attention_causal) of scores s that are kept within ±cap: cap·tanh(s/cap).
///
/// Gemma Team, "Gemma 2: Improving open language models at a practical size", 2024, §2.
pub fn attention_softcap(
    q: [B, G, R, M, E], k: [B, G, N, E], v: [B, G, N, F], cap: wide,
) -> (o: [B, G, R, M, F], lse: state[B, G, R, M]) {
    let seen = index(N) <= index(M) + (size(N) - size(M));
    let (score, one, value) = weighted(seen, cap * tanh(scores(q, k) / cap), v);
    (o, lse) = mean(reduce(N, Softmax(score, one, value)));
}

// Where the sequence of a row of M lies among the N columns, and where it ends among the rows.
fn sequence(cu_rows, cu_columns) -> (from, to, end) {
    let row = index(M);
    let ended = if cu_rows > row { cu_columns } else { size(N) };
    let from = reduce(S, Max(if cu_rows <= row { cu_columns } else { 0 }));
    (from, reduce(S, Min(ended)), reduce(S, Min(if cu_rows > row { cu_rows } else { size(M) })))
}

/// [`attention`](fn@attention) of packed sequences: the queries cu_q\[s\] … cu_q\[s + 1\] − 1 see the keys
/// cu_k\[s\] … cu_k\[s + 1\] − 1.
///
/// Both lists begin with 0, are in order and as long as each other; each is of `i64` or `i32`. What lies behind their ends is one
/// more sequence.
pub fn attention_packed(
    q: [B, G, R, M, E], k: [B, G, N, E], v: [B, G, N, F], cu_q: i64 | i32[S], cu_k: i64 | i32[S],
) -> (o: [B, G, R, M, F], lse: state[B, G, R, M]) {
    let (from, to, end) = sequence(cu_q, cu_k);
    let (score, one, value) = weighted(index(N) >= from && index(N) < to, scores(q, k), v);
    (o, lse) = mean(reduce(N, Softmax(score, one, value)));
}

/// [`attention_causal`](fn@attention_causal) of packed sequences, see [`attention_packed`](fn@attention_packed): the last query
/// of a sequence is at its last key.
pub fn attention_packed_causal(
    q: [B, G, R, M, E], k: [B, G, N, E], v: [B, G, N, F], cu_q: i64 | i32[S], cu_k: i64 | i32[S],
) -> (o: [B, G, R, M, F], lse: state[B, G, R, M]) {
    let (from, to, end) = sequence(cu_q, cu_k);
    let (score, one, value) = weighted(index(N) >= from && index(N) <= index(M) + (to - end), scores(q, k), v);
    (o, lse) = mean(reduce(N, Softmax(score, one, value)));
}

/// Merges what a query read from two parts of the keys: with lse = ln(exp(lse1) + exp(lse2)),
/// o = exp(lse1 − lse)·o1 + exp(lse2 − lse)·o2.
///
/// Parts may be merged in any tree. A part of nothing is o = 0 and lse = −∞, and its gradients are 0. Milakov and Gimelshein,
/// "Online normalizer calculation for softmax", 2018, §3.1.
pub fn merge(
    o1: [B, M, F], lse1: state[B, M], o2: [B, M, F], lse2: state[B, M],
) -> (o: [B, M, F], lse: state[B, M]) {
    let m = max(lse1, lse2);
    let nothing = m == -inf;
    let from = if nothing { 0 } else { m };
    let (d1, d2) = (exp(lse1 - from), exp(lse2 - from));
    let d = if nothing { 1 } else { d1 + d2 };
    o = (d1 * o1 + d2 * o2) / d;
    lse = if nothing { -inf } else { m + ln(d) };
}

/// [`merge`](fn@merge) of any number of parts P, of which any may be nothing.
pub fn merge_parts(o: [P, B, M, F], lse: state[P, B, M]) -> (mean: [B, M, F], total: state[B, M]) {
    let (score, one, value) = weighted(lse > -inf, lse, o);
    (mean, total) = mean(reduce(P, Softmax(score, one, value)));
}
