"""Models of sequences from the standard library."""

from typing import NamedTuple

from ._kernel import Array, Kernel

class _affine_packed_states_outputs(NamedTuple):
    h: Array
    """h: [B, T]"""
    h_last: Array
    """h_last: state[B, S]"""

class _affine_packed_states(Kernel):
    """First-order affine recurrence of packed sequences, h[t] = a[t]·h[t−1] + b[t], where each sequence begins at a state of its own
    and gives its last one.

    Sequence s holds the times cu_seqlens[s] to cu_seqlens[s + 1] − 1. A sequence of no times keeps its state. On a GPU it is
    baked or compiled.

    fn affine_packed_states(a: [B, T], b: [B, T], cu_seqlens: i32 | i64[S + 1], h0: state[B, S] = 0) -> (h: [B, T], h_last: state[B, S])
    h[t] = if t ∈ cu_seqlens[s.ends] { if max_S (if t = (if (i64(cu_seqlens[s.ends]) | S.ends=(s)) < (i64(cu_seqlens[s.ends]) | S.ends=(s + 1)) { i64(cu_seqlens[s.ends]) | S.ends=(s) } else { −1 }) { s } else { −1 }) ≥ 0 { a[t]·(h0[s] | S=(max_S (if t = (if (i64(cu_seqlens[s.ends]) | S.ends=(s)) < (i64(cu_seqlens[s.ends]) | S.ends=(s + 1)) { i64(cu_seqlens[s.ends]) | S.ends=(s) } else { −1 }) { s } else { −1 }))) + b[t] } else { b[t] } } else { a[t]·h[t−1] + (if max_S (if t = (if (i64(cu_seqlens[s.ends]) | S.ends=(s)) < (i64(cu_seqlens[s.ends]) | S.ends=(s + 1)) { i64(cu_seqlens[s.ends]) | S.ends=(s) } else { −1 }) { s } else { −1 }) ≥ 0 { a[t]·(h0[s] | S=(max_S (if t = (if (i64(cu_seqlens[s.ends]) | S.ends=(s)) < (i64(cu_seqlens[s.ends]) | S.ends=(s + 1)) { i64(cu_seqlens[s.ends]) | S.ends=(s) } else { −1 }) { s } else { −1 }))) + b[t] } else { b[t] }) }
    w[s] = if (i64(cu_seqlens[s.ends]) | S.ends=(s)) < (i64(cu_seqlens[s.ends]) | S.ends=(s + 1)) { (i64(cu_seqlens[s.ends]) | S.ends=(s + 1)) − 1 } else { −1 }
    h_last[s] = if (i64(cu_seqlens[s.ends]) | S.ends=(s)) < (i64(cu_seqlens[s.ends]) | S.ends=(s + 1)) { h[t] | T=w[s] } else { h0[s] }"""
    def __call__(self, a: Array, b: Array, cu_seqlens: Array, h0: Array | None = None) -> _affine_packed_states_outputs: ...

affine_packed_states: _affine_packed_states

class _attention_outputs(NamedTuple):
    o: Array
    """o: [B, G, R, M, F]"""
    lse: Array
    """lse: state[B, G, R, M]"""

class _attention(Kernel):
    """Softmax attention: with the scores s[m, n] = Σ over E of q[m]·k[n] / √E, o[m] = Σ over N of exp(s[m, n] − lse[m])·v[n] and
    lse[m] = ln Σ over N of exp(s[m, n]).

    G heads of keys and values serve R heads of queries each: `[B, G·R, M, E]` seen as `[B, G, R, M, E]` costs nothing, and
    `[B, M, G·R, E]` is a matter of strides. M and N are any lengths; of no keys the mean is 0 and the log-sum-exp −∞. Parts of
    the keys may be attended to apart and `merge`d. Vaswani et al., "Attention is all you need", 2017, §3.2.1.

    fn attention(q: [B, G, R, M, E], k: [B, G, N, E], v: [B, G, N, F]) -> (o: [B, G, R, M, F], lse: state[B, G, R, M])
    (m, d, o₂) = Softmax_N((Σ_E q·k)·rsqrt(|E|), 1, v)
    o = o₂/(if d = 0 { 1 } else { d })
    lse = m + ln(if d = 0 { 1 } else { d })"""
    def __call__(self, q: Array, k: Array, v: Array) -> _attention_outputs: ...

attention: _attention

class _attention_bias_outputs(NamedTuple):
    o: Array
    """o: [B, G, R, M, F]"""
    lse: Array
    """lse: state[B, G, R, M]"""

class _attention_bias(Kernel):
    """`attention` with a bias added to the scores; a bias of −∞ hides a key from a query.

    fn attention_bias(q: [B, G, R, M, E], k: [B, G, N, E], v: [B, G, N, F], bias: [B, G, R, M, N]) -> (o: [B, G, R, M, F], lse: state[B, G, R, M])
    (m, d, o₂) = Softmax_N(if bias > −∞ { (Σ_E q·k)·rsqrt(|E|) + bias } else { −∞ }, if bias > −∞ { 1 } else { 0 }, if bias > −∞ { v } else { 0 })
    o = o₂/(if d = 0 { 1 } else { d })
    lse = m + ln(if d = 0 { 1 } else { d })"""
    def __call__(self, q: Array, k: Array, v: Array, bias: Array) -> _attention_bias_outputs: ...

attention_bias: _attention_bias

class _attention_causal_outputs(NamedTuple):
    o: Array
    """o: [B, G, R, M, F]"""
    lse: Array
    """lse: state[B, G, R, M]"""

class _attention_causal(Kernel):
    """`attention` in which a query sees the keys up to its own position. The last query is at the last key:
    query m sees the keys n ≤ m + |N| − |M|.

    fn attention_causal(q: [B, G, R, M, E], k: [B, G, N, E], v: [B, G, N, F]) -> (o: [B, G, R, M, F], lse: state[B, G, R, M])
    w[m, n] = n ≤ m + |N| − |M|
    (m[m], d[m], o₂[m]) = Softmax_N(if w[m, n] { (Σ_E q[m]·k[n])·rsqrt(|E|) } else { −∞ }, if w[m, n] { 1 } else { 0 }, if w[m, n] { v[n] } else { 0 })
    o[m] = o₂[m]/(if d[m] = 0 { 1 } else { d[m] })
    lse[m] = m[m] + ln(if d[m] = 0 { 1 } else { d[m] })"""
    def __call__(self, q: Array, k: Array, v: Array) -> _attention_causal_outputs: ...

attention_causal: _attention_causal

class _attention_packed_outputs(NamedTuple):
    o: Array
    """o: [B, G, R, M, F]"""
    lse: Array
    """lse: state[B, G, R, M]"""

class _attention_packed(Kernel):
    """`attention` of packed sequences: the queries cu_q[s] … cu_q[s + 1] − 1 see the keys
    cu_k[s] … cu_k[s + 1] − 1.

    Both lists begin with 0, are in order and as long as each other; each is of `i64` or `i32`. What lies behind their ends is one
    more sequence.

    fn attention_packed(q: [B, G, R, M, E], k: [B, G, N, E], v: [B, G, N, F], cu_q: i64 | i32[S], cu_k: i64 | i32[S]) -> (o: [B, G, R, M, F], lse: state[B, G, R, M])
    w[m, n] = (n ≥ max_S (if cu_q ≤ m { cu_k } else { 0 })) & (n < min_S (if cu_q > m { cu_k } else { |N| }))
    (m[m], d[m], o₂[m]) = Softmax_N(if w[m, n] { (Σ_E q[m]·k[n])·rsqrt(|E|) } else { −∞ }, if w[m, n] { 1 } else { 0 }, if w[m, n] { v[n] } else { 0 })
    o[m] = o₂[m]/(if d[m] = 0 { 1 } else { d[m] })
    lse[m] = m[m] + ln(if d[m] = 0 { 1 } else { d[m] })"""
    def __call__(self, q: Array, k: Array, v: Array, cu_q: Array, cu_k: Array) -> _attention_packed_outputs: ...

attention_packed: _attention_packed

class _attention_packed_causal_outputs(NamedTuple):
    o: Array
    """o: [B, G, R, M, F]"""
    lse: Array
    """lse: state[B, G, R, M]"""

class _attention_packed_causal(Kernel):
    """`attention_causal` of packed sequences, see `attention_packed`: the last query
    of a sequence is at its last key.

    fn attention_packed_causal(q: [B, G, R, M, E], k: [B, G, N, E], v: [B, G, N, F], cu_q: i64 | i32[S], cu_k: i64 | i32[S]) -> (o: [B, G, R, M, F], lse: state[B, G, R, M])
    w[m, n] = (n ≥ max_S (if cu_q ≤ m { cu_k } else { 0 })) & (n ≤ m + min_S (if cu_q > m { cu_k } else { |N| }) − min_S (if cu_q > m { cu_q } else { |M| }))
    (m[m], d[m], o₂[m]) = Softmax_N(if w[m, n] { (Σ_E q[m]·k[n])·rsqrt(|E|) } else { −∞ }, if w[m, n] { 1 } else { 0 }, if w[m, n] { v[n] } else { 0 })
    o[m] = o₂[m]/(if d[m] = 0 { 1 } else { d[m] })
    lse[m] = m[m] + ln(if d[m] = 0 { 1 } else { d[m] })"""
    def __call__(self, q: Array, k: Array, v: Array, cu_q: Array, cu_k: Array) -> _attention_packed_causal_outputs: ...

attention_packed_causal: _attention_packed_causal

class _attention_softcap_outputs(NamedTuple):
    o: Array
    """o: [B, G, R, M, F]"""
    lse: Array
    """lse: state[B, G, R, M]"""

class _attention_softcap(Kernel):
    """`attention_causal` of scores s that are kept within ±cap: cap·tanh(s/cap).

    Gemma Team, "Gemma 2: Improving open language models at a practical size", 2024, §2.

    fn attention_softcap(q: [B, G, R, M, E], k: [B, G, N, E], v: [B, G, N, F], cap: wide) -> (o: [B, G, R, M, F], lse: state[B, G, R, M])
    w[m, n] = n ≤ m + |N| − |M|
    (m[m], d[m], o₂[m]) = Softmax_N(if w[m, n] { cap·tanh((Σ_E q[m]·k[n])·rsqrt(|E|)/cap) } else { −∞ }, if w[m, n] { 1 } else { 0 }, if w[m, n] { v[n] } else { 0 })
    o[m] = o₂[m]/(if d[m] = 0 { 1 } else { d[m] })
    lse[m] = m[m] + ln(if d[m] = 0 { 1 } else { d[m] })"""
    def __call__(self, q: Array, k: Array, v: Array, cap: Array) -> _attention_softcap_outputs: ...

attention_softcap: _attention_softcap

class _attention_window_outputs(NamedTuple):
    o: Array
    """o: [B, G, R, M, F]"""
    lse: Array
    """lse: state[B, G, R, M]"""

class _attention_window(Kernel):
    """`attention` in which a query sees the keys around its own position, `left` to the left and `right` to the
    right of it. The last query is at the last key: query m sees the keys n with at − left ≤ n ≤ at + right for
    at = m + |N| − |M|, so that right = 0 is causal.

    A side whose distance is negative has no limit, as in FlashAttention.

    Beltagy, Peters and Cohan, "Longformer: The long-document transformer", 2020, §3.1.

    fn attention_window(q: [B, G, R, M, E], k: [B, G, N, E], v: [B, G, N, F], left: i64, right: i64) -> (o: [B, G, R, M, F], lse: state[B, G, R, M])
    w[m, n] = (n ≥ m + |N| − |M| − (if left < 0 { |M| + |N| } else { min(left, |M| + |N|) })) & (n ≤ m + |N| − |M| + (if right < 0 { |M| + |N| } else { min(right, |M| + |N|) }))
    (m[m], d[m], o₂[m]) = Softmax_N(if w[m, n] { (Σ_E q[m]·k[n])·rsqrt(|E|) } else { −∞ }, if w[m, n] { 1 } else { 0 }, if w[m, n] { v[n] } else { 0 })
    o[m] = o₂[m]/(if d[m] = 0 { 1 } else { d[m] })
    lse[m] = m[m] + ln(if d[m] = 0 { 1 } else { d[m] })"""
    def __call__(self, q: Array, k: Array, v: Array, left: Array, right: Array) -> _attention_window_outputs: ...

attention_window: _attention_window

class _delta_rule_outputs(NamedTuple):
    o: Array
    """o: [B, H, T, V]"""
    s_last: Array
    """s_last: wide[B, H, K, V]"""

class _delta_rule(Kernel):
    """The delta rule (DeltaNet): what the state gives for the key k[t] is moved by β[t] towards the value v[t],
    s[t] = s[t−1] + β[t]·k[t]⊗(v[t] − Σ over K of k[t]·s[t−1]), read by o[t] = Σ over K of q[t]·s[t].

    In matrices, S[t] = (I − β[t]·k[t]·k[t]ᵀ)·S[t−1] + β[t]·k[t]·v[t]ᵀ. The keys should have the length 1, with 0 ≤ β ≤ 2: else states
    may grow without bound. Schlag et al., "Linear transformers are secretly fast weight programmers", 2021; Yang et al.,
    "Parallelizing linear transformers with the delta rule over sequence length", 2024, §2.

    fn delta_rule(q: [B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], beta: call | wide[B, H, T], s0: wide[B, H, K, V] = 0) -> (o: [B, H, T, V], s_last: wide[B, H, K, V])
    S[t] = S[t−1] + (Σ_K S[t−1]·k[t])·(−beta[t]·k[t]) + beta[t]·k[t]·v[t]    (S[−1] = s0)
    o[t] = Σ_K q[t]·S[t]
    s_last = S[n−1]"""
    def __call__(self, q: Array, k: Array, v: Array, beta: Array, s0: Array | None = None) -> _delta_rule_outputs: ...

delta_rule: _delta_rule

class _delta_rule_packed_states_outputs(NamedTuple):
    o: Array
    """o: [B, H, T, V]"""
    s_last: Array
    """s_last: state[B, S, H, K, V]"""

class _delta_rule_packed_states(Kernel):
    """`delta_rule` of packed sequences: sequence s holds the times cu_seqlens[s] to cu_seqlens[s + 1] − 1, begins at
    s0[s] and ends with s_last[s].

    A sequence of no times keeps its state.

    fn delta_rule_packed_states(q: [B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], beta: call | wide[B, H, T], cu_seqlens: i32 | i64[S + 1], s0: state[B, S, H, K, V] = 0) -> (o: [B, H, T, V], s_last: state[B, S, H, K, V])
    S[t] = S[t−1] + (Σ_K S[t−1]·k[t])·(−beta[t]·k[t]) + (if max_S (if t = (if (i64(cu_seqlens[s.ends]) | S.ends=(s)) < (i64(cu_seqlens[s.ends]) | S.ends=(s + 1)) { i64(cu_seqlens[s.ends]) | S.ends=(s) } else { −1 }) { s } else { −1 }) ≥ 0 { (s0[s] | S=(max_S (if t = (if (i64(cu_seqlens[s.ends]) | S.ends=(s)) < (i64(cu_seqlens[s.ends]) | S.ends=(s + 1)) { i64(cu_seqlens[s.ends]) | S.ends=(s) } else { −1 }) { s } else { −1 }))) − (Σ_K (s0[s] | S=(max_S (if t = (if (i64(cu_seqlens[s.ends]) | S.ends=(s)) < (i64(cu_seqlens[s.ends]) | S.ends=(s + 1)) { i64(cu_seqlens[s.ends]) | S.ends=(s) } else { −1 }) { s } else { −1 })))·k[t])·beta[t]·k[t] } else { 0 }) + beta[t]·k[t]·v[t]    (S[t−1] = 0 where t ∈ cu_seqlens[s.ends], S[−1] = 0)
    o[t] = Σ_K q[t]·S[t]
    w[s] = if (i64(cu_seqlens[s.ends]) | S.ends=(s)) < (i64(cu_seqlens[s.ends]) | S.ends=(s + 1)) { (i64(cu_seqlens[s.ends]) | S.ends=(s + 1)) − 1 } else { −1 }
    s_last[s] = if (i64(cu_seqlens[s.ends]) | S.ends=(s)) < (i64(cu_seqlens[s.ends]) | S.ends=(s + 1)) { S[t] | T=w[s] } else { s0[s] }"""
    def __call__(self, q: Array, k: Array, v: Array, beta: Array, cu_seqlens: Array, s0: Array | None = None) -> _delta_rule_packed_states_outputs: ...

delta_rule_packed_states: _delta_rule_packed_states

class _ema_constant_outputs(NamedTuple):
    y: Array
    """y: [B, T]"""
    y_last: Array
    """y_last: state[B]"""

class _ema_constant(Kernel):
    """Exponential moving average with a weight for each row, y[t] = (1 − alpha)·y[t−1] + alpha·x[t] with y[−1] = y0.

    Roberts, "Control chart tests based on geometric moving averages", 1959.

    fn ema_constant(x: [B, T], alpha: wide[B], y0: state[B] = 0) -> (y: [B, T], y_last: state[B])
    y[t] = (1 − alpha)·y[t−1] + alpha·x[t]    (y[−1] = y0)
    y_last = y[n−1]"""
    def __call__(self, x: Array, alpha: Array, y0: Array | None = None) -> _ema_constant_outputs: ...

ema_constant: _ema_constant

class _ema_varying_outputs(NamedTuple):
    y: Array
    """y: [B, T]"""
    y_last: Array
    """y_last: state[B]"""

class _ema_varying(Kernel):
    """Exponential moving average with a weight for each element, y[t] = (1 − alpha[t])·y[t−1] + alpha[t]·x[t].

    fn ema_varying(x: [B, T], alpha: [B, T], y0: state[B] = 0) -> (y: [B, T], y_last: state[B])
    y[t] = (1 − alpha[t])·y[t−1] + alpha[t]·x[t]    (y[−1] = y0)
    y_last = y[n−1]"""
    def __call__(self, x: Array, alpha: Array, y0: Array | None = None) -> _ema_varying_outputs: ...

ema_varying: _ema_varying

class _gated_delta_rule_outputs(NamedTuple):
    o: Array
    """o: [B, H, T, V]"""
    s_last: Array
    """s_last: wide[B, H, K, V]"""

class _gated_delta_rule(Kernel):
    """The gated delta rule: the state decays by exp(g[t]) before `delta_rule` moves it,
    s[t] = d + β[t]·k[t]⊗(v[t] − Σ over K of k[t]·d) with d = exp(g[t])·s[t−1], read by o[t] = Σ over K of q[t]·s[t].

    Yang et al., "Gated delta networks: Improving Mamba2 with delta rule", 2025, §3.

    fn gated_delta_rule(q: [B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], g: call | wide[B, H, T], beta: call | wide[B, H, T], s0: wide[B, H, K, V] = 0) -> (o: [B, H, T, V], s_last: wide[B, H, K, V])
    S[t] = exp(g[t])·S[t−1] + (Σ_K S[t−1]·exp(g[t])·k[t])·(−beta[t]·k[t]) + beta[t]·k[t]·v[t]    (S[−1] = s0)
    o[t] = Σ_K q[t]·S[t]
    s_last = S[n−1]"""
    def __call__(self, q: Array, k: Array, v: Array, g: Array, beta: Array, s0: Array | None = None) -> _gated_delta_rule_outputs: ...

gated_delta_rule: _gated_delta_rule

class _gated_linear_attention_outputs(NamedTuple):
    o: Array
    """o: [B, H, T, V]"""
    s_last: Array
    """s_last: wide[B, H, K, V]"""

class _gated_linear_attention(Kernel):
    """Gated linear attention with a decay for each channel of the keys: s[t] = exp(g[t])·s[t−1] + k[t]⊗v[t] with g[K, t], read by
    o[t] = Σ over K of q[t]·s[t].

    With one decay for all channels it is `monoid_attention`. Yang et al., "Gated linear attention
    transformers with hardware-efficient training", 2023, §4.

    fn gated_linear_attention(q: [B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], g: call | wide[B, H, T, K], s0: wide[B, H, K, V] = 0) -> (o: [B, H, T, V], s_last: wide[B, H, K, V])
    x[t] = (if exp(g[t]) = 0 { 0 } else { exp(g[t])·x[t−1] }) + k[t]·v[t]    (x[−1] = s0)
    o[t] = Σ_K q[t]·x[t]
    s_last = x[n−1]"""
    def __call__(self, q: Array, k: Array, v: Array, g: Array, s0: Array | None = None) -> _gated_linear_attention_outputs: ...

gated_linear_attention: _gated_linear_attention

class _gated_linear_attention_packed_states_outputs(NamedTuple):
    o: Array
    """o: [B, H, T, V]"""
    s_last: Array
    """s_last: wide[B, S, H, K, V]"""

class _gated_linear_attention_packed_states(Kernel):
    """`gated_linear_attention` of packed sequences, each with a state of its own, see
    `monoid_attention_packed_states`.

    fn gated_linear_attention_packed_states(q: [B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], g: call | wide[B, H, T, K], cu_seqlens: i32 | i64[S + 1], s0: wide[B, S, H, K, V] = 0) -> (o: [B, H, T, V], s_last: wide[B, S, H, K, V])
    x[t] = if t ∈ cu_seqlens[s.ends] { if max_S (if t = (if (i64(cu_seqlens[s.ends]) | S.ends=(s)) < (i64(cu_seqlens[s.ends]) | S.ends=(s + 1)) { i64(cu_seqlens[s.ends]) | S.ends=(s) } else { −1 }) { s } else { −1 }) ≥ 0 { (if exp(g[t]) = 0 { 0 } else { exp(g[t])·(s0[s] | S=(max_S (if t = (if (i64(cu_seqlens[s.ends]) | S.ends=(s)) < (i64(cu_seqlens[s.ends]) | S.ends=(s + 1)) { i64(cu_seqlens[s.ends]) | S.ends=(s) } else { −1 }) { s } else { −1 }))) }) + k[t]·v[t] } else { k[t]·v[t] } } else { (if exp(if max_S (if t = (if (i64(cu_seqlens[s.ends]) | S.ends=(s)) < (i64(cu_seqlens[s.ends]) | S.ends=(s + 1)) { i64(cu_seqlens[s.ends]) | S.ends=(s) } else { −1 }) { s } else { −1 }) ≥ 0 { 0 + g[t] } else { g[t] }) = 0 { 0 } else { exp(if max_S (if t = (if (i64(cu_seqlens[s.ends]) | S.ends=(s)) < (i64(cu_seqlens[s.ends]) | S.ends=(s + 1)) { i64(cu_seqlens[s.ends]) | S.ends=(s) } else { −1 }) { s } else { −1 }) ≥ 0 { 0 + g[t] } else { g[t] })·x[t−1] }) + (if max_S (if t = (if (i64(cu_seqlens[s.ends]) | S.ends=(s)) < (i64(cu_seqlens[s.ends]) | S.ends=(s + 1)) { i64(cu_seqlens[s.ends]) | S.ends=(s) } else { −1 }) { s } else { −1 }) ≥ 0 { (if exp(g[t]) = 0 { 0 } else { exp(g[t])·(s0[s] | S=(max_S (if t = (if (i64(cu_seqlens[s.ends]) | S.ends=(s)) < (i64(cu_seqlens[s.ends]) | S.ends=(s + 1)) { i64(cu_seqlens[s.ends]) | S.ends=(s) } else { −1 }) { s } else { −1 }))) }) + k[t]·v[t] } else { k[t]·v[t] }) }
    o[t] = Σ_K q[t]·x[t]
    w[s] = if (i64(cu_seqlens[s.ends]) | S.ends=(s)) < (i64(cu_seqlens[s.ends]) | S.ends=(s + 1)) { (i64(cu_seqlens[s.ends]) | S.ends=(s + 1)) − 1 } else { −1 }
    s_last[s] = (if (i64(cu_seqlens[s.ends]) | S.ends=(s)) < (i64(cu_seqlens[s.ends]) | S.ends=(s + 1)) { x[t] | T=w[s] } else { s0[s] })"""
    def __call__(self, q: Array, k: Array, v: Array, g: Array, cu_seqlens: Array, s0: Array | None = None) -> _gated_linear_attention_packed_states_outputs: ...

gated_linear_attention_packed_states: _gated_linear_attention_packed_states

class _kda_outputs(NamedTuple):
    o: Array
    """o: [B, H, T, V]"""
    s_last: Array
    """s_last: wide[B, H, K, V]"""

class _kda(Kernel):
    """Kimi delta attention: `gated_delta_rule` with a decay exp(g[t]) for each channel K of the keys.

    Kimi team, "Kimi linear: An expressive, efficient attention architecture", 2025, §3.

    fn kda(q: [B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], g: call | wide[B, H, T, K], beta: call | wide[B, H, T], s0: wide[B, H, K, V] = 0) -> (o: [B, H, T, V], s_last: wide[B, H, K, V])
    S[t] = exp(g[t])·S[t−1] + (Σ_K S[t−1]·exp(g[t])·k[t])·(−beta[t]·k[t]) + beta[t]·k[t]·v[t]    (S[−1] = s0)
    o[t] = Σ_K q[t]·S[t]
    s_last = S[n−1]"""
    def __call__(self, q: Array, k: Array, v: Array, g: Array, beta: Array, s0: Array | None = None) -> _kda_outputs: ...

kda: _kda

class _linear_attention_outputs(NamedTuple):
    o: Array
    """o: [B, H, T, V]"""
    s_last: Array
    """s_last: wide[B, H, K, V]"""

class _linear_attention(Kernel):
    """Linear attention, which forgets nothing: s[t] = s[t−1] + k[t]⊗v[t], read by o[t] = Σ over K of q[t]·s[t].

    Katharopoulos et al., "Transformers are RNNs: Fast autoregressive transformers with linear attention", 2020, §3.3, without
    the division by Σ over K of q[t]·(k[0] + … + k[t]), which is one more column of v.

    fn linear_attention(q: [B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], s0: wide[B, H, K, V] = 0) -> (o: [B, H, T, V], s_last: wide[B, H, K, V])
    s[t] = s[t−1] + k[t]·v[t]    (s[−1] = s0)
    o[t] = Σ_K q[t]·s[t]
    s_last = s[n−1]"""
    def __call__(self, q: Array, k: Array, v: Array, s0: Array | None = None) -> _linear_attention_outputs: ...

linear_attention: _linear_attention

class _lru_outputs(NamedTuple):
    y: Array
    """y: [B, P, T]"""
    h_last_re: Array
    """h_last_re: state[B, N]"""
    h_last_im: Array
    """h_last_im: state[B, N]"""

class _lru(Kernel):
    """Linear recurrent unit: h[n, t] = lambda[n]·h[n, t−1] + exp(gamma_log[n])·x[n, t] with
    lambda = exp(−exp(nu_log) + i·exp(theta_log)), so that |lambda| < 1, and y[p, t] = Re Σ over n of c[p, n]·h[n, t], where
    x = B·u is the projected input.

    Orvieto et al., "Resurrecting recurrent neural networks for long sequences", 2023, §3.

    fn lru(x_re: [B, N, T], x_im: [B, N, T], nu_log: wide[N], theta_log: wide[N], gamma_log: wide[N], c_re: wide[P, N], c_im: wide[P, N], h0_re: state[B, N] = 0, h0_im: state[B, N] = 0) -> (y: [B, P, T], h_last_re: state[B, N], h_last_im: state[B, N])
    w = exp(−exp(nu_log))
    br[t] = (w·cos(exp(theta_log)))·br[t−1] − (w·sin(exp(theta_log)))·bi[t−1] + exp(gamma_log)·x_re[t]    (br[−1] = h0_re)
    bi[t] = (w·cos(exp(theta_log)))·bi[t−1] + (w·sin(exp(theta_log)))·br[t−1] + exp(gamma_log)·x_im[t]    (bi[−1] = h0_im)
    y[t] = Σ_N (c_re·br[t] − c_im·bi[t])
    h_last_re = br[n−1]
    h_last_im = bi[n−1]"""
    def __call__(self, x_re: Array, x_im: Array, nu_log: Array, theta_log: Array, gamma_log: Array, c_re: Array, c_im: Array, h0_re: Array | None = None, h0_im: Array | None = None) -> _lru_outputs: ...

lru: _lru

class _mamba_outputs(NamedTuple):
    y: Array
    """y: [B, G, D, T]"""
    h_last: Array
    """h_last: state[B, G, D, N]"""

class _mamba(Kernel):
    """The inside of a Mamba block: the selective scan with softplus and gate,
    y = (Σ over n of c·h + skip·u)·silu(z) for the step size softplus(delta + delta_bias).

    This is `selective_scan_fn(u, delta, A, B, C, D, z=z, delta_bias=…, delta_softplus=True)` of mamba-ssm.

    fn mamba(u: [B, G, D, T], delta: [B, G, D, T], a: wide[G, D, N], b: [B, G, N, T], c: [B, G, N, T], z: [B, G, D, T], skip: wide[G, D] = 0, delta_bias: wide[G, D] = 0, h0: state[B, G, D, N] = 0) -> (y: [B, G, D, T], h_last: state[B, G, D, N])
    s[t] = exp(softplus(delta[t] + delta_bias)·a)·s[t−1] + softplus(delta[t] + delta_bias)·u[t]·b[t]    (s[−1] = h0)
    y[t] = (Σ_N c[t]·s[t] + skip·u[t])·silu(z[t])
    h_last = s[n−1]"""
    def __call__(self, u: Array, delta: Array, a: Array, b: Array, c: Array, z: Array, skip: Array | None = None, delta_bias: Array | None = None, h0: Array | None = None) -> _mamba_outputs: ...

mamba: _mamba

class _mamba2_outputs(NamedTuple):
    y: Array
    """y: [B, T, G, H, P]"""
    h_last: Array
    """h_last: wide[B, G, H, P, N]"""

class _mamba2(Kernel):
    """The inside of a Mamba-2 block: `ssd_softplus` with a gate, its y times silu(z).

    This is `mamba_chunk_scan_combined(x, dt, A, B, C, D=…, z=z, dt_bias=…, dt_softplus=True)` of mamba-ssm.

    fn mamba2(x: [B, T, G, H, P], dt: call | wide[B, T, G, H], a: wide[G, H], b: [B, T, G, N], c: [B, T, G, N], z: [B, T, G, H, P], skip: wide[G, H] = 0, dt_bias: wide[G, H] = 0, h0: wide[B, G, H, P, N] = 0) -> (y: [B, T, G, H, P], h_last: wide[B, G, H, P, N])
    s[t] = (if exp(softplus(dt[t] + dt_bias)·a) = 0 { 0 } else { exp(softplus(dt[t] + dt_bias)·a)·s[t−1] }) + softplus(dt[t] + dt_bias)·x[t]·b[t]    (s[−1] = h0)
    y[t] = (Σ_N c[t]·s[t] + skip·x[t])·silu(z[t])
    h_last = s[n−1]"""
    def __call__(self, x: Array, dt: Array, a: Array, b: Array, c: Array, z: Array, skip: Array | None = None, dt_bias: Array | None = None, h0: Array | None = None) -> _mamba2_outputs: ...

mamba2: _mamba2

class _mamba_packed_outputs(NamedTuple):
    y: Array
    """y: [B, G, D, T]"""

class _mamba_packed(Kernel):
    """`mamba` of packed sequences: sequence s holds the times cu_seqlens[s] to cu_seqlens[s + 1] − 1, and its
    state begins at 0.

    fn mamba_packed(u: [B, G, D, T], delta: [B, G, D, T], a: wide[G, D, N], b: [B, G, N, T], c: [B, G, N, T], z: [B, G, D, T], cu_seqlens: i32 | i64[S], skip: wide[G, D] = 0, delta_bias: wide[G, D] = 0) -> (y: [B, G, D, T])
    s[t] = if t ∈ cu_seqlens { softplus(delta[t] + delta_bias)·u[t]·b[t] } else { exp(softplus(delta[t] + delta_bias)·a)·s[t−1] + softplus(delta[t] + delta_bias)·u[t]·b[t] }
    y[t] = (Σ_N c[t]·s[t] + skip·u[t])·silu(z[t])"""
    def __call__(self, u: Array, delta: Array, a: Array, b: Array, c: Array, z: Array, cu_seqlens: Array, skip: Array | None = None, delta_bias: Array | None = None) -> _mamba_packed_outputs: ...

mamba_packed: _mamba_packed

class _mamba_packed_states_outputs(NamedTuple):
    y: Array
    """y: [B, G, D, T]"""
    h_last: Array
    """h_last: state[B, S, G, D, N]"""

class _mamba_packed_states(Kernel):
    """`mamba` of packed sequences, each with a state of its own, see
    `selective_scan_packed_states`.

    fn mamba_packed_states(u: [B, G, D, T], delta: [B, G, D, T], a: wide[G, D, N], b: [B, G, N, T], c: [B, G, N, T], z: [B, G, D, T], cu_seqlens: i32 | i64[S + 1], skip: wide[G, D] = 0, delta_bias: wide[G, D] = 0, h0: state[B, S, G, D, N] = 0) -> (y: [B, G, D, T], h_last: state[B, S, G, D, N])
    w[t] = exp(softplus(delta[t] + delta_bias)·a)
    w₂[t] = softplus(delta[t] + delta_bias)·u[t]·b[t]
    s[t] = if t ∈ cu_seqlens[s.ends] { if max_S (if t = (if (i64(cu_seqlens[s.ends]) | S.ends=(s)) < (i64(cu_seqlens[s.ends]) | S.ends=(s + 1)) { i64(cu_seqlens[s.ends]) | S.ends=(s) } else { −1 }) { s } else { −1 }) ≥ 0 { w[t]·(h0[s] | S=(max_S (if t = (if (i64(cu_seqlens[s.ends]) | S.ends=(s)) < (i64(cu_seqlens[s.ends]) | S.ends=(s + 1)) { i64(cu_seqlens[s.ends]) | S.ends=(s) } else { −1 }) { s } else { −1 }))) + w₂[t] } else { w₂[t] } } else { w[t]·s[t−1] + (if max_S (if t = (if (i64(cu_seqlens[s.ends]) | S.ends=(s)) < (i64(cu_seqlens[s.ends]) | S.ends=(s + 1)) { i64(cu_seqlens[s.ends]) | S.ends=(s) } else { −1 }) { s } else { −1 }) ≥ 0 { w[t]·(h0[s] | S=(max_S (if t = (if (i64(cu_seqlens[s.ends]) | S.ends=(s)) < (i64(cu_seqlens[s.ends]) | S.ends=(s + 1)) { i64(cu_seqlens[s.ends]) | S.ends=(s) } else { −1 }) { s } else { −1 }))) + w₂[t] } else { w₂[t] }) }
    y[t] = (Σ_N c[t]·s[t] + skip·u[t])·silu(z[t])
    w₃[s] = if (i64(cu_seqlens[s.ends]) | S.ends=(s)) < (i64(cu_seqlens[s.ends]) | S.ends=(s + 1)) { (i64(cu_seqlens[s.ends]) | S.ends=(s + 1)) − 1 } else { −1 }
    h_last[s] = if (i64(cu_seqlens[s.ends]) | S.ends=(s)) < (i64(cu_seqlens[s.ends]) | S.ends=(s + 1)) { s[t] | T=w₃[s] } else { h0[s] }"""
    def __call__(self, u: Array, delta: Array, a: Array, b: Array, c: Array, z: Array, cu_seqlens: Array, skip: Array | None = None, delta_bias: Array | None = None, h0: Array | None = None) -> _mamba_packed_states_outputs: ...

mamba_packed_states: _mamba_packed_states

class _merge_outputs(NamedTuple):
    o: Array
    """o: [B, M, F]"""
    lse: Array
    """lse: state[B, M]"""

class _merge(Kernel):
    """Merges what a query read from two parts of the keys: with lse = ln(exp(lse1) + exp(lse2)),
    o = exp(lse1 − lse)·o1 + exp(lse2 − lse)·o2.

    Parts may be merged in any tree. A part of nothing is o = 0 and lse = −∞, and its gradients are 0. Milakov and Gimelshein,
    "Online normalizer calculation for softmax", 2018, §3.1.

    fn merge(o1: [B, M, F], lse1: state[B, M], o2: [B, M, F], lse2: state[B, M]) -> (o: [B, M, F], lse: state[B, M])
    w = if max(lse1, lse2) = −∞ { 0 } else { max(lse1, lse2) }
    w₂ = exp(lse1 − w)
    w₃ = exp(lse2 − w)
    w₄ = if max(lse1, lse2) = −∞ { 1 } else { w₂ + w₃ }
    o = (w₂·o1 + w₃·o2)/w₄
    lse = if max(lse1, lse2) = −∞ { −∞ } else { max(lse1, lse2) + ln(w₄) }"""
    def __call__(self, o1: Array, lse1: Array, o2: Array, lse2: Array) -> _merge_outputs: ...

merge: _merge

class _merge_parts_outputs(NamedTuple):
    mean: Array
    """mean: [B, M, F]"""
    total: Array
    """total: state[B, M]"""

class _merge_parts(Kernel):
    """`merge` of any number of parts P, of which any may be nothing.

    fn merge_parts(o: [P, B, M, F], lse: state[P, B, M]) -> (mean: [B, M, F], total: state[B, M])
    (m, d, o₂) = Softmax_P(if lse > −∞ { lse } else { −∞ }, if lse > −∞ { 1 } else { 0 }, if lse > −∞ { o } else { 0 })
    mean = o₂/(if d = 0 { 1 } else { d })
    total = m + ln(if d = 0 { 1 } else { d })"""
    def __call__(self, o: Array, lse: Array) -> _merge_parts_outputs: ...

merge_parts: _merge_parts

class _monoid_attention_outputs(NamedTuple):
    o: Array
    """o: [B, H, T, V]"""
    g_last: Array
    """g_last: wide[B, H]"""
    s_last: Array
    """s_last: wide[B, H, K, V]"""

class _monoid_attention(Kernel):
    """Log-decay (monoid) attention: s[t] = exp(g[t])·s[t−1] + k[t]⊗v[t], read by o[t] = Σ over K of q[t]·s[t], and the state at
    the end: s and the accumulated decay g0 + g[0] + … + g[T−1].

    The K×V states are not an output, and so need not be written. With g = 0 this is linear attention (Katharopoulos et
    al., "Transformers are RNNs", 2020, §3.3), with a constant g retention (Sun et al., "Retentive network", 2023, §2.1), with
    one g for a head and time Mamba-2 (Dao and Gu, "Transformers are SSMs", 2024, §5).

    fn monoid_attention(q: [B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], g: call | wide[B, H, T], g0: wide[B, H] = 0, s0: wide[B, H, K, V] = 0) -> (o: [B, H, T, V], g_last: wide[B, H], s_last: wide[B, H, K, V])
    x[t] = (if exp(g[t]) = 0 { 0 } else { exp(g[t])·x[t−1] }) + k[t]·v[t]    (x[−1] = s0)
    o[t] = Σ_K q[t]·x[t]
    s[t] = s[t−1] + g[t]    (s[−1] = g0)
    g_last = s[n−1]
    s_last = x[n−1]"""
    def __call__(self, q: Array, k: Array, v: Array, g: Array, g0: Array | None = None, s0: Array | None = None) -> _monoid_attention_outputs: ...

monoid_attention: _monoid_attention

class _monoid_attention_packed_outputs(NamedTuple):
    o: Array
    """o: [B, H, T, V]"""

class _monoid_attention_packed(Kernel):
    """`monoid_attention` of packed sequences: sequence s holds the times cu_seqlens[s] to
    cu_seqlens[s + 1] − 1, and its state begins at 0.

    fn monoid_attention_packed(q: [B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], g: call | wide[B, H, T], cu_seqlens: i32 | i64[S]) -> (o: [B, H, T, V])
    x[t] = if t ∈ cu_seqlens { k[t]·v[t] } else { (if exp(g[t]) = 0 { 0 } else { exp(g[t])·x[t−1] }) + k[t]·v[t] }
    o[t] = Σ_K q[t]·x[t]"""
    def __call__(self, q: Array, k: Array, v: Array, g: Array, cu_seqlens: Array) -> _monoid_attention_packed_outputs: ...

monoid_attention_packed: _monoid_attention_packed

class _monoid_attention_packed_states_outputs(NamedTuple):
    o: Array
    """o: [B, H, T, V]"""
    s_last: Array
    """s_last: wide[B, S, H, K, V]"""

class _monoid_attention_packed_states(Kernel):
    """`monoid_attention` of packed sequences, each with a state of its own: sequence s holds the times
    cu_seqlens[s] to cu_seqlens[s + 1] − 1, begins at s0[s] and ends with s_last[s].

    A sequence of no times keeps its state. On the CPU the K×V states of all times are stored on the way, as in
    `ssd_packed_states`. On a GPU it is baked or compiled.

    fn monoid_attention_packed_states(q: [B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], g: call | wide[B, H, T], cu_seqlens: i32 | i64[S + 1], s0: wide[B, S, H, K, V] = 0) -> (o: [B, H, T, V], s_last: wide[B, S, H, K, V])
    x[t] = if t ∈ cu_seqlens[s.ends] { if max_S (if t = (if (i64(cu_seqlens[s.ends]) | S.ends=(s)) < (i64(cu_seqlens[s.ends]) | S.ends=(s + 1)) { i64(cu_seqlens[s.ends]) | S.ends=(s) } else { −1 }) { s } else { −1 }) ≥ 0 { (if exp(g[t]) = 0 { 0 } else { exp(g[t])·(s0[s] | S=(max_S (if t = (if (i64(cu_seqlens[s.ends]) | S.ends=(s)) < (i64(cu_seqlens[s.ends]) | S.ends=(s + 1)) { i64(cu_seqlens[s.ends]) | S.ends=(s) } else { −1 }) { s } else { −1 }))) }) + k[t]·v[t] } else { k[t]·v[t] } } else { (if exp(if max_S (if t = (if (i64(cu_seqlens[s.ends]) | S.ends=(s)) < (i64(cu_seqlens[s.ends]) | S.ends=(s + 1)) { i64(cu_seqlens[s.ends]) | S.ends=(s) } else { −1 }) { s } else { −1 }) ≥ 0 { 0 + g[t] } else { g[t] }) = 0 { 0 } else { exp(if max_S (if t = (if (i64(cu_seqlens[s.ends]) | S.ends=(s)) < (i64(cu_seqlens[s.ends]) | S.ends=(s + 1)) { i64(cu_seqlens[s.ends]) | S.ends=(s) } else { −1 }) { s } else { −1 }) ≥ 0 { 0 + g[t] } else { g[t] })·x[t−1] }) + (if max_S (if t = (if (i64(cu_seqlens[s.ends]) | S.ends=(s)) < (i64(cu_seqlens[s.ends]) | S.ends=(s + 1)) { i64(cu_seqlens[s.ends]) | S.ends=(s) } else { −1 }) { s } else { −1 }) ≥ 0 { (if exp(g[t]) = 0 { 0 } else { exp(g[t])·(s0[s] | S=(max_S (if t = (if (i64(cu_seqlens[s.ends]) | S.ends=(s)) < (i64(cu_seqlens[s.ends]) | S.ends=(s + 1)) { i64(cu_seqlens[s.ends]) | S.ends=(s) } else { −1 }) { s } else { −1 }))) }) + k[t]·v[t] } else { k[t]·v[t] }) }
    o[t] = Σ_K q[t]·x[t]
    w[s] = if (i64(cu_seqlens[s.ends]) | S.ends=(s)) < (i64(cu_seqlens[s.ends]) | S.ends=(s + 1)) { (i64(cu_seqlens[s.ends]) | S.ends=(s + 1)) − 1 } else { −1 }
    s_last[s] = (if (i64(cu_seqlens[s.ends]) | S.ends=(s)) < (i64(cu_seqlens[s.ends]) | S.ends=(s + 1)) { x[t] | T=w[s] } else { s0[s] })"""
    def __call__(self, q: Array, k: Array, v: Array, g: Array, cu_seqlens: Array, s0: Array | None = None) -> _monoid_attention_packed_states_outputs: ...

monoid_attention_packed_states: _monoid_attention_packed_states

class _monoid_states_outputs(NamedTuple):
    s: Array
    """s: [B, H, T, K, V]"""
    g_last: Array
    """g_last: wide[B, H]"""
    s_last: Array
    """s_last: wide[B, H, K, V]"""

class _monoid_states(Kernel):
    """Every state of log-decay (monoid) attention, s[t] = exp(g[t])·s[t−1] + x[t], from given x = k⊗v, and the state at the
    end: s and the accumulated decay g0 + g[0] + … + g[T−1].

    g = −∞ forgets the past entirely. Katharopoulos et al., "Transformers are RNNs", 2020, §3.3, with the decay of Yang et
    al., "Gated linear attention", 2023, §4.

    fn monoid_states(g: call | wide[B, H, T], x: [B, H, T, K, V], g0: wide[B, H] = 0, s0: wide[B, H, K, V] = 0) -> (s: [B, H, T, K, V], g_last: wide[B, H], s_last: wide[B, H, K, V])
    s[t] = (if exp(g[t]) = 0 { 0 } else { exp(g[t])·s[t−1] }) + x[t]    (s[−1] = s0)
    s₂[t] = s₂[t−1] + g[t]    (s₂[−1] = g0)
    g_last = s₂[n−1]
    s_last = s[n−1]"""
    def __call__(self, g: Array, x: Array, g0: Array | None = None, s0: Array | None = None) -> _monoid_states_outputs: ...

monoid_states: _monoid_states

class _multi_state_ssm_outputs(NamedTuple):
    y: Array
    """y: [B, T]"""
    h_last: Array
    """h_last: state[B, N]"""

class _multi_state_ssm(Kernel):
    """Linear state space with N states, each with a decay of its own: h[n, t] = a[n, t]·h[n, t−1] + b[n, t]·x[t] and
    y[t] = Σ over n of c[n, t]·h[n, t].

    fn multi_state_ssm(x: [B, T], a: [B, N, T], b: [B, N, T], c: [B, N, T], h0: state[B, N] = 0) -> (y: [B, T], h_last: state[B, N])
    s[t] = a[t]·s[t−1] + b[t]·x[t]    (s[−1] = h0)
    y[t] = Σ_N c[t]·s[t]
    h_last = s[n−1]"""
    def __call__(self, x: Array, a: Array, b: Array, c: Array, h0: Array | None = None) -> _multi_state_ssm_outputs: ...

multi_state_ssm: _multi_state_ssm

class _retention_outputs(NamedTuple):
    o: Array
    """o: [B, H, T, V]"""
    s_last: Array
    """s_last: wide[B, H, K, V]"""

class _retention(Kernel):
    """Retention, a decay that is the same at all times: s[t] = exp(g)·s[t−1] + k[t]⊗v[t], read by o[t] = Σ over K of q[t]·s[t].

    Sun et al., "Retentive network: A successor to transformer for large language models", 2023, §2.1.

    fn retention(q: [B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], g: wide[H], s0: wide[B, H, K, V] = 0) -> (o: [B, H, T, V], s_last: wide[B, H, K, V])
    x[t] = (if exp(g) = 0 { 0 } else { exp(g)·x[t−1] }) + k[t]·v[t]    (x[−1] = s0)
    o[t] = Σ_K q[t]·x[t]
    s_last = x[n−1]"""
    def __call__(self, q: Array, k: Array, v: Array, g: Array, s0: Array | None = None) -> _retention_outputs: ...

retention: _retention

class _rwkv7_outputs(NamedTuple):
    o: Array
    """o: [B, H, T, V]"""
    s_last: Array
    """s_last: wide[B, H, K, V]"""

class _rwkv7(Kernel):
    """RWKV-7: s[t] = exp(w[t])·s[t−1] + b[t]⊗(Σ over K of a[t]·s[t−1]) + k[t]⊗v[t], read by o[t] = Σ over K of r[t]·s[t].

    Here w is the logarithm of the decay, and a and b are those of the recurrence: the model makes them of a normalised key,
    a = −κ and b = κ·(the rate at which it learns in context). Peng et al., "RWKV-7 "Goose" with expressive dynamic state
    evolution", 2025, §4.

    fn rwkv7(r: [B, H, T, K], w: call | wide[B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], a: [B, H, T, K], b: [B, H, T, K], s0: wide[B, H, K, V] = 0) -> (o: [B, H, T, V], s_last: wide[B, H, K, V])
    S[t] = exp(w[t])·S[t−1] + (Σ_K S[t−1]·a[t])·b[t] + k[t]·v[t]    (S[−1] = s0)
    o[t] = Σ_K r[t]·S[t]
    s_last = S[n−1]"""
    def __call__(self, r: Array, w: Array, k: Array, v: Array, a: Array, b: Array, s0: Array | None = None) -> _rwkv7_outputs: ...

rwkv7: _rwkv7

class _s4d_outputs(NamedTuple):
    y: Array
    """y: [B, D, T]"""
    h_last_re: Array
    """h_last_re: state[B, D, N]"""
    h_last_im: Array
    """h_last_im: state[B, D, N]"""

class _s4d(Kernel):
    """Diagonal state space with complex states (S4D): h[d, n, t] = exp(delta·a)·h[d, n, t−1] + ((exp(delta·a) − 1)/a)·u[d, t] and
    y[d, t] = 2·Re Σ over n of c[d, n]·h[d, n, t] + skip[d]·u[d, t], with a = a_re + i·a_im and so on.

    Of each conjugate pair of states only one is computed: hence 2·Re. Gu, Gupta, Goel and Ré, "On the parameterization and
    initialization of diagonal state space models", 2022, §3.

    fn s4d(u: [B, D, T], delta: wide[D], a_re: wide[D, N], a_im: wide[D, N], c_re: wide[D, N], c_im: wide[D, N], skip: wide[D] = 0, h0_re: state[B, D, N] = 0, h0_im: state[B, D, N] = 0) -> (y: [B, D, T], h_last_re: state[B, D, N], h_last_im: state[B, D, N])
    w = exp(delta·a_re)·cos(delta·a_im)
    w₂ = exp(delta·a_re)·sin(delta·a_im)
    w₃ = w − 1
    w₄ = a_re·a_re + a_im·a_im
    br[t] = w·br[t−1] − w₂·bi[t−1] + ((w₃·a_re + w₂·a_im)/w₄)·u[t]    (br[−1] = h0_re)
    bi[t] = w·bi[t−1] + w₂·br[t−1] + ((w₂·a_re − w₃·a_im)/w₄)·u[t]    (bi[−1] = h0_im)
    y[t] = 2·(Σ_N (c_re·br[t] − c_im·bi[t])) + skip·u[t]
    h_last_re = br[n−1]
    h_last_im = bi[n−1]"""
    def __call__(self, u: Array, delta: Array, a_re: Array, a_im: Array, c_re: Array, c_im: Array, skip: Array | None = None, h0_re: Array | None = None, h0_im: Array | None = None) -> _s4d_outputs: ...

s4d: _s4d

class _s5_outputs(NamedTuple):
    y: Array
    """y: [B, P, T]"""
    h_last_re: Array
    """h_last_re: state[B, N]"""
    h_last_im: Array
    """h_last_im: state[B, N]"""

class _s5(Kernel):
    """Diagonal state space with complex states that many inputs and outputs share (S5):
    h[n, t] = exp(delta·a)·h[n, t−1] + ((exp(delta·a) − 1)/a)·x[n, t] and y[p, t] = 2·Re Σ over n of c[p, n]·h[n, t], where
    x = B·u is the projected input and a = a_re + i·a_im, and so on.

    Smith, Warrington and Linderman, "Simplified state space layers for sequence modeling", 2023, §3.

    fn s5(x_re: [B, N, T], x_im: [B, N, T], delta: wide[N], a_re: wide[N], a_im: wide[N], c_re: wide[P, N], c_im: wide[P, N], h0_re: state[B, N] = 0, h0_im: state[B, N] = 0) -> (y: [B, P, T], h_last_re: state[B, N], h_last_im: state[B, N])
    w = exp(delta·a_re)·cos(delta·a_im)
    w₂ = exp(delta·a_re)·sin(delta·a_im)
    w₃ = w − 1
    w₄ = a_re·a_re + a_im·a_im
    w₅ = ((w₃·a_re + w₂·a_im)/w₄)
    w₆ = ((w₂·a_re − w₃·a_im)/w₄)
    br[t] = w·br[t−1] − w₂·bi[t−1] + w₅·x_re[t] − w₆·x_im[t]    (br[−1] = h0_re)
    bi[t] = w·bi[t−1] + w₂·br[t−1] + w₅·x_im[t] + w₆·x_re[t]    (bi[−1] = h0_im)
    y[t] = 2·(Σ_N (c_re·br[t] − c_im·bi[t]))
    h_last_re = br[n−1]
    h_last_im = bi[n−1]"""
    def __call__(self, x_re: Array, x_im: Array, delta: Array, a_re: Array, a_im: Array, c_re: Array, c_im: Array, h0_re: Array | None = None, h0_im: Array | None = None) -> _s5_outputs: ...

s5: _s5

class _selective_scan_outputs(NamedTuple):
    y: Array
    """y: [B, G, D, T]"""
    h_last: Array
    """h_last: state[B, G, D, N]"""

class _selective_scan(Kernel):
    """Mamba's S6 selective scan: h[d, n, t] = exp(delta[d, t]·a[d, n])·h[d, n, t−1] + delta[d, t]·b[n, t]·u[d, t] and
    y[d, t] = Σ over n of c[n, t]·h[d, n, t] + skip[d]·u[d, t], with delta + delta_bias in place of delta.

    G groups of D channels each share b and c; `[B, G·D, T]` seen as `[B, G, D, T]` costs nothing. This is
    `selective_scan_fn(u, delta, A, B, C, D, delta_bias=…)` of mamba-ssm. Gu and Dao, "Mamba: Linear-time sequence modeling
    with selective state spaces", 2023, §3.2 and algorithm 2.

    # Memory on a GPU, beside inputs and outputs

    * Forward: nothing, or where rows are too few for the device and time is cut into S segments 8·(S − 1)·B·G·D·N bytes. A
      recorded call the states before every eighth step, 4·B·G·D·⌈T/8⌉·N bytes.
    * Backward: these states, unless the call was recorded; the sums of b̄ and c̄ over the rows of each of ⌈D/R⌉ blocks,
      8·B·G·⌈D/R⌉·N·T bytes where R is 2 for N up to 256, 16 up to 64, 32 to 128 below; and ā, skip and bias before they
      are added over batches, 4·B·G·D·(N + 2) bytes. N and T count in fours. Where that would be more than twice the inputs
      and gradients, and there are as many steps as states, the rows are taken in pieces of P:
      B·G·(4·P·⌈T/8⌉·N + 8·(P/R + 1)·N·T) bytes for the first two.

    fn selective_scan(u: [B, G, D, T], delta: [B, G, D, T], a: wide[G, D, N], b: [B, G, N, T], c: [B, G, N, T], skip: wide[G, D] = 0, delta_bias: wide[G, D] = 0, h0: state[B, G, D, N] = 0) -> (y: [B, G, D, T], h_last: state[B, G, D, N])
    s[t] = exp((delta[t] + delta_bias)·a)·s[t−1] + (delta[t] + delta_bias)·u[t]·b[t]    (s[−1] = h0)
    y[t] = Σ_N c[t]·s[t] + skip·u[t]
    h_last = s[n−1]"""
    def __call__(self, u: Array, delta: Array, a: Array, b: Array, c: Array, skip: Array | None = None, delta_bias: Array | None = None, h0: Array | None = None) -> _selective_scan_outputs: ...

selective_scan: _selective_scan

class _selective_scan_complex_outputs(NamedTuple):
    y: Array
    """y: [B, G, D, T]"""
    h_last_re: Array
    """h_last_re: state[B, G, D, N]"""
    h_last_im: Array
    """h_last_im: state[B, G, D, N]"""

class _selective_scan_complex(Kernel):
    """`selective_scan` with complex states: h[d, n, t] = exp(delta[d, t]·a[d, n])·h[d, n, t−1] +
    delta[d, t]·b[n, t]·u[d, t] and y[d, t] = (2·Re Σ over n of c[n, t]·h[d, n, t] + skip[d]·u[d, t])·silu(z[d, t]), with
    a = a_re + i·a_im and so on, and delta + delta_bias in place of delta, or its softplus where `delta_softplus` holds.

    Of each conjugate pair of states only one is computed: hence 2·Re. `z` = ∞, which it is when it is left out, means no gate.
    This is `selective_scan_fn` of mamba-ssm with complex `A`. On a GPU it is baked or compiled. Gu and Dao, "Mamba: Linear-time
    sequence modeling with selective state spaces", 2023, §3.6.

    fn selective_scan_complex(u: [B, G, D, T], delta: [B, G, D, T], a_re: wide[G, D, N], a_im: wide[G, D, N], b_re: [B, G, N, T], b_im: [B, G, N, T], c_re: [B, G, N, T], c_im: [B, G, N, T], z: [B, G, D, T] = inf, skip: wide[G, D] = 0, delta_bias: wide[G, D] = 0, delta_softplus: bool = 0, h0_re: state[B, G, D, N] = 0, h0_im: state[B, G, D, N] = 0) -> (y: [B, G, D, T], h_last_re: state[B, G, D, N], h_last_im: state[B, G, D, N])
    w[t] = if delta_softplus { softplus(delta[t] + delta_bias) } else { delta[t] + delta_bias }
    w₂[t] = exp(w[t]·a_re)
    w₃[t] = w[t]·a_im
    w₄[t] = w[t]·u[t]
    br[t] = w₂[t]·cos(w₃[t])·br[t−1] − w₂[t]·sin(w₃[t])·bi[t−1] + w₄[t]·b_re[t]    (br[−1] = h0_re)
    bi[t] = w₂[t]·cos(w₃[t])·bi[t−1] + w₂[t]·sin(w₃[t])·br[t−1] + w₄[t]·b_im[t]    (bi[−1] = h0_im)
    y[t] = (2·(Σ_N (c_re[t]·br[t] − c_im[t]·bi[t])) + skip·u[t])·(if z[t] = ∞ { 1 } else { silu(if z[t] = ∞ { 0 } else { z[t] }) })
    h_last_re = br[n−1]
    h_last_im = bi[n−1]"""
    def __call__(self, u: Array, delta: Array, a_re: Array, a_im: Array, b_re: Array, b_im: Array, c_re: Array, c_im: Array, z: Array | None = None, skip: Array | None = None, delta_bias: Array | None = None, delta_softplus: Array | None = None, h0_re: Array | None = None, h0_im: Array | None = None) -> _selective_scan_complex_outputs: ...

selective_scan_complex: _selective_scan_complex

class _selective_scan_complex_constant_outputs(NamedTuple):
    y: Array
    """y: [B, G, D, T]"""
    h_last_re: Array
    """h_last_re: state[B, G, D, N]"""
    h_last_im: Array
    """h_last_im: state[B, G, D, N]"""

class _selective_scan_complex_constant(Kernel):
    """`selective_scan_complex` with an input projection and a readout that do not depend on the time:
    `B` and `C` of shape `(dim, dstate)`.

    fn selective_scan_complex_constant(u: [B, G, D, T], delta: [B, G, D, T], a_re: wide[G, D, N], a_im: wide[G, D, N], b_re: wide[G, D, N], b_im: wide[G, D, N], c_re: wide[G, D, N], c_im: wide[G, D, N], z: [B, G, D, T] = inf, skip: wide[G, D] = 0, delta_bias: wide[G, D] = 0, delta_softplus: bool = 0, h0_re: state[B, G, D, N] = 0, h0_im: state[B, G, D, N] = 0) -> (y: [B, G, D, T], h_last_re: state[B, G, D, N], h_last_im: state[B, G, D, N])
    w[t] = if delta_softplus { softplus(delta[t] + delta_bias) } else { delta[t] + delta_bias }
    w₂[t] = exp(w[t]·a_re)
    w₃[t] = w[t]·a_im
    w₄[t] = w[t]·u[t]
    br[t] = w₂[t]·cos(w₃[t])·br[t−1] − w₂[t]·sin(w₃[t])·bi[t−1] + w₄[t]·b_re    (br[−1] = h0_re)
    bi[t] = w₂[t]·cos(w₃[t])·bi[t−1] + w₂[t]·sin(w₃[t])·br[t−1] + w₄[t]·b_im    (bi[−1] = h0_im)
    y[t] = (2·(Σ_N (c_re·br[t] − c_im·bi[t])) + skip·u[t])·(if z[t] = ∞ { 1 } else { silu(if z[t] = ∞ { 0 } else { z[t] }) })
    h_last_re = br[n−1]
    h_last_im = bi[n−1]"""
    def __call__(self, u: Array, delta: Array, a_re: Array, a_im: Array, b_re: Array, b_im: Array, c_re: Array, c_im: Array, z: Array | None = None, skip: Array | None = None, delta_bias: Array | None = None, delta_softplus: Array | None = None, h0_re: Array | None = None, h0_im: Array | None = None) -> _selective_scan_complex_constant_outputs: ...

selective_scan_complex_constant: _selective_scan_complex_constant

class _selective_scan_complex_constant_b_outputs(NamedTuple):
    y: Array
    """y: [B, G, D, T]"""
    h_last_re: Array
    """h_last_re: state[B, G, D, N]"""
    h_last_im: Array
    """h_last_im: state[B, G, D, N]"""

class _selective_scan_complex_constant_b(Kernel):
    """`selective_scan_complex` with an input projection b[d, n] of each channel that does not depend
    on the time: `B` of shape `(dim, dstate)`.

    fn selective_scan_complex_constant_b(u: [B, G, D, T], delta: [B, G, D, T], a_re: wide[G, D, N], a_im: wide[G, D, N], b_re: wide[G, D, N], b_im: wide[G, D, N], c_re: [B, G, N, T], c_im: [B, G, N, T], z: [B, G, D, T] = inf, skip: wide[G, D] = 0, delta_bias: wide[G, D] = 0, delta_softplus: bool = 0, h0_re: state[B, G, D, N] = 0, h0_im: state[B, G, D, N] = 0) -> (y: [B, G, D, T], h_last_re: state[B, G, D, N], h_last_im: state[B, G, D, N])
    w[t] = if delta_softplus { softplus(delta[t] + delta_bias) } else { delta[t] + delta_bias }
    w₂[t] = exp(w[t]·a_re)
    w₃[t] = w[t]·a_im
    w₄[t] = w[t]·u[t]
    br[t] = w₂[t]·cos(w₃[t])·br[t−1] − w₂[t]·sin(w₃[t])·bi[t−1] + w₄[t]·b_re    (br[−1] = h0_re)
    bi[t] = w₂[t]·cos(w₃[t])·bi[t−1] + w₂[t]·sin(w₃[t])·br[t−1] + w₄[t]·b_im    (bi[−1] = h0_im)
    y[t] = (2·(Σ_N (c_re[t]·br[t] − c_im[t]·bi[t])) + skip·u[t])·(if z[t] = ∞ { 1 } else { silu(if z[t] = ∞ { 0 } else { z[t] }) })
    h_last_re = br[n−1]
    h_last_im = bi[n−1]"""
    def __call__(self, u: Array, delta: Array, a_re: Array, a_im: Array, b_re: Array, b_im: Array, c_re: Array, c_im: Array, z: Array | None = None, skip: Array | None = None, delta_bias: Array | None = None, delta_softplus: Array | None = None, h0_re: Array | None = None, h0_im: Array | None = None) -> _selective_scan_complex_constant_b_outputs: ...

selective_scan_complex_constant_b: _selective_scan_complex_constant_b

class _selective_scan_complex_constant_c_outputs(NamedTuple):
    y: Array
    """y: [B, G, D, T]"""
    h_last_re: Array
    """h_last_re: state[B, G, D, N]"""
    h_last_im: Array
    """h_last_im: state[B, G, D, N]"""

class _selective_scan_complex_constant_c(Kernel):
    """`selective_scan_complex` with a readout c[d, n] that does not depend on the time: `C` of shape
    `(dim, dstate)`.

    fn selective_scan_complex_constant_c(u: [B, G, D, T], delta: [B, G, D, T], a_re: wide[G, D, N], a_im: wide[G, D, N], b_re: [B, G, N, T], b_im: [B, G, N, T], c_re: wide[G, D, N], c_im: wide[G, D, N], z: [B, G, D, T] = inf, skip: wide[G, D] = 0, delta_bias: wide[G, D] = 0, delta_softplus: bool = 0, h0_re: state[B, G, D, N] = 0, h0_im: state[B, G, D, N] = 0) -> (y: [B, G, D, T], h_last_re: state[B, G, D, N], h_last_im: state[B, G, D, N])
    w[t] = if delta_softplus { softplus(delta[t] + delta_bias) } else { delta[t] + delta_bias }
    w₂[t] = exp(w[t]·a_re)
    w₃[t] = w[t]·a_im
    w₄[t] = w[t]·u[t]
    br[t] = w₂[t]·cos(w₃[t])·br[t−1] − w₂[t]·sin(w₃[t])·bi[t−1] + w₄[t]·b_re[t]    (br[−1] = h0_re)
    bi[t] = w₂[t]·cos(w₃[t])·bi[t−1] + w₂[t]·sin(w₃[t])·br[t−1] + w₄[t]·b_im[t]    (bi[−1] = h0_im)
    y[t] = (2·(Σ_N (c_re·br[t] − c_im·bi[t])) + skip·u[t])·(if z[t] = ∞ { 1 } else { silu(if z[t] = ∞ { 0 } else { z[t] }) })
    h_last_re = br[n−1]
    h_last_im = bi[n−1]"""
    def __call__(self, u: Array, delta: Array, a_re: Array, a_im: Array, b_re: Array, b_im: Array, c_re: Array, c_im: Array, z: Array | None = None, skip: Array | None = None, delta_bias: Array | None = None, delta_softplus: Array | None = None, h0_re: Array | None = None, h0_im: Array | None = None) -> _selective_scan_complex_constant_c_outputs: ...

selective_scan_complex_constant_c: _selective_scan_complex_constant_c

class _selective_scan_constant_outputs(NamedTuple):
    y: Array
    """y: [B, G, D, T]"""
    h_last: Array
    """h_last: state[B, G, D, N]"""

class _selective_scan_constant(Kernel):
    """`selective_scan_constant_b` with a readout c[d, n] that does not depend on the time either:
    `B` and `C` of shape `(dim, dstate)`. Only the step size is selective.

    fn selective_scan_constant(u: [B, G, D, T], delta: [B, G, D, T], a: wide[G, D, N], b: wide[G, D, N], c: wide[G, D, N], z: [B, G, D, T] = inf, skip: wide[G, D] = 0, delta_bias: wide[G, D] = 0, delta_softplus: bool = 0, h0: state[B, G, D, N] = 0) -> (y: [B, G, D, T], h_last: state[B, G, D, N])
    w[t] = if delta_softplus { softplus(delta[t] + delta_bias) } else { delta[t] + delta_bias }
    s[t] = exp(w[t]·a)·s[t−1] + w[t]·u[t]·b    (s[−1] = h0)
    y[t] = (Σ_N c·s[t] + skip·u[t])·(if z[t] = ∞ { 1 } else { silu(if z[t] = ∞ { 0 } else { z[t] }) })
    h_last = s[n−1]"""
    def __call__(self, u: Array, delta: Array, a: Array, b: Array, c: Array, z: Array | None = None, skip: Array | None = None, delta_bias: Array | None = None, delta_softplus: Array | None = None, h0: Array | None = None) -> _selective_scan_constant_outputs: ...

selective_scan_constant: _selective_scan_constant

class _selective_scan_constant_b_outputs(NamedTuple):
    y: Array
    """y: [B, G, D, T]"""
    h_last: Array
    """h_last: state[B, G, D, N]"""

class _selective_scan_constant_b(Kernel):
    """`selective_scan` with an input projection b[d, n] of each channel that does not depend on the time:
    h[d, n, t] = exp(delta[d, t]·a[d, n])·h[d, n, t−1] + delta[d, t]·b[d, n]·u[d, t] and
    y[d, t] = (Σ over n of c[n, t]·h[d, n, t] + skip[d]·u[d, t])·silu(z[d, t]), with delta + delta_bias in place of delta, or its
    softplus where `delta_softplus` holds.

    `z` = ∞, which it is when it is left out, means no gate. This is `selective_scan_fn(u, delta, A, B, C, D, z, delta_bias,
    delta_softplus)` of mamba-ssm with `B` of shape `(dim, dstate)`. On a GPU it is baked or compiled. Gu and Dao, "Mamba:
    Linear-time sequence modeling with selective state spaces", 2023, table 1 for what may be selective.

    fn selective_scan_constant_b(u: [B, G, D, T], delta: [B, G, D, T], a: wide[G, D, N], b: wide[G, D, N], c: [B, G, N, T], z: [B, G, D, T] = inf, skip: wide[G, D] = 0, delta_bias: wide[G, D] = 0, delta_softplus: bool = 0, h0: state[B, G, D, N] = 0) -> (y: [B, G, D, T], h_last: state[B, G, D, N])
    w[t] = if delta_softplus { softplus(delta[t] + delta_bias) } else { delta[t] + delta_bias }
    s[t] = exp(w[t]·a)·s[t−1] + w[t]·u[t]·b    (s[−1] = h0)
    y[t] = (Σ_N c[t]·s[t] + skip·u[t])·(if z[t] = ∞ { 1 } else { silu(if z[t] = ∞ { 0 } else { z[t] }) })
    h_last = s[n−1]"""
    def __call__(self, u: Array, delta: Array, a: Array, b: Array, c: Array, z: Array | None = None, skip: Array | None = None, delta_bias: Array | None = None, delta_softplus: Array | None = None, h0: Array | None = None) -> _selective_scan_constant_b_outputs: ...

selective_scan_constant_b: _selective_scan_constant_b

class _selective_scan_constant_c_outputs(NamedTuple):
    y: Array
    """y: [B, G, D, T]"""
    h_last: Array
    """h_last: state[B, G, D, N]"""

class _selective_scan_constant_c(Kernel):
    """`selective_scan_constant_b` with a readout c[d, n] that does not depend on the time instead
    of the input projection: `C` of shape `(dim, dstate)`.

    fn selective_scan_constant_c(u: [B, G, D, T], delta: [B, G, D, T], a: wide[G, D, N], b: [B, G, N, T], c: wide[G, D, N], z: [B, G, D, T] = inf, skip: wide[G, D] = 0, delta_bias: wide[G, D] = 0, delta_softplus: bool = 0, h0: state[B, G, D, N] = 0) -> (y: [B, G, D, T], h_last: state[B, G, D, N])
    w[t] = if delta_softplus { softplus(delta[t] + delta_bias) } else { delta[t] + delta_bias }
    s[t] = exp(w[t]·a)·s[t−1] + w[t]·u[t]·b[t]    (s[−1] = h0)
    y[t] = (Σ_N c·s[t] + skip·u[t])·(if z[t] = ∞ { 1 } else { silu(if z[t] = ∞ { 0 } else { z[t] }) })
    h_last = s[n−1]"""
    def __call__(self, u: Array, delta: Array, a: Array, b: Array, c: Array, z: Array | None = None, skip: Array | None = None, delta_bias: Array | None = None, delta_softplus: Array | None = None, h0: Array | None = None) -> _selective_scan_constant_c_outputs: ...

selective_scan_constant_c: _selective_scan_constant_c

class _selective_scan_gated_outputs(NamedTuple):
    y: Array
    """y: [B, G, D, T]"""
    h_last: Array
    """h_last: state[B, G, D, N]"""

class _selective_scan_gated(Kernel):
    """The selective scan with a gate: the y of `selective_scan` times silu(z).

    This is `selective_scan_fn(u, delta, A, B, C, D, z=z, delta_bias=…)` of mamba-ssm.

    fn selective_scan_gated(u: [B, G, D, T], delta: [B, G, D, T], a: wide[G, D, N], b: [B, G, N, T], c: [B, G, N, T], z: [B, G, D, T], skip: wide[G, D] = 0, delta_bias: wide[G, D] = 0, h0: state[B, G, D, N] = 0) -> (y: [B, G, D, T], h_last: state[B, G, D, N])
    s[t] = exp((delta[t] + delta_bias)·a)·s[t−1] + (delta[t] + delta_bias)·u[t]·b[t]    (s[−1] = h0)
    y[t] = (Σ_N c[t]·s[t] + skip·u[t])·silu(z[t])
    h_last = s[n−1]"""
    def __call__(self, u: Array, delta: Array, a: Array, b: Array, c: Array, z: Array, skip: Array | None = None, delta_bias: Array | None = None, h0: Array | None = None) -> _selective_scan_gated_outputs: ...

selective_scan_gated: _selective_scan_gated

class _selective_scan_packed_outputs(NamedTuple):
    y: Array
    """y: [B, G, D, T]"""

class _selective_scan_packed(Kernel):
    """`selective_scan` of packed sequences: sequence s holds the times cu_seqlens[s] to
    cu_seqlens[s + 1] − 1, and its state begins at 0.

    fn selective_scan_packed(u: [B, G, D, T], delta: [B, G, D, T], a: wide[G, D, N], b: [B, G, N, T], c: [B, G, N, T], cu_seqlens: i32 | i64[S], skip: wide[G, D] = 0, delta_bias: wide[G, D] = 0) -> (y: [B, G, D, T])
    s[t] = if t ∈ cu_seqlens { (delta[t] + delta_bias)·u[t]·b[t] } else { exp((delta[t] + delta_bias)·a)·s[t−1] + (delta[t] + delta_bias)·u[t]·b[t] }
    y[t] = Σ_N c[t]·s[t] + skip·u[t]"""
    def __call__(self, u: Array, delta: Array, a: Array, b: Array, c: Array, cu_seqlens: Array, skip: Array | None = None, delta_bias: Array | None = None) -> _selective_scan_packed_outputs: ...

selective_scan_packed: _selective_scan_packed

class _selective_scan_packed_states_outputs(NamedTuple):
    y: Array
    """y: [B, G, D, T]"""
    h_last: Array
    """h_last: state[B, S, G, D, N]"""

class _selective_scan_packed_states(Kernel):
    """`selective_scan` of packed sequences, each with a state of its own: sequence s holds the times
    cu_seqlens[s] to cu_seqlens[s + 1] − 1, begins at h0[s] and ends with h_last[s].

    A sequence of no times keeps its state. The states of all times are stored on the way, 4·B·G·D·N·T bytes and as much again for
    the gradient; where all states begin at 0 and none is wanted, `selective_scan_packed` stores none.
    On a GPU it is baked or compiled.

    fn selective_scan_packed_states(u: [B, G, D, T], delta: [B, G, D, T], a: wide[G, D, N], b: [B, G, N, T], c: [B, G, N, T], cu_seqlens: i32 | i64[S + 1], skip: wide[G, D] = 0, delta_bias: wide[G, D] = 0, h0: state[B, S, G, D, N] = 0) -> (y: [B, G, D, T], h_last: state[B, S, G, D, N])
    w[t] = exp((delta[t] + delta_bias)·a)
    w₂[t] = (delta[t] + delta_bias)·u[t]·b[t]
    s[t] = if t ∈ cu_seqlens[s.ends] { if max_S (if t = (if (i64(cu_seqlens[s.ends]) | S.ends=(s)) < (i64(cu_seqlens[s.ends]) | S.ends=(s + 1)) { i64(cu_seqlens[s.ends]) | S.ends=(s) } else { −1 }) { s } else { −1 }) ≥ 0 { w[t]·(h0[s] | S=(max_S (if t = (if (i64(cu_seqlens[s.ends]) | S.ends=(s)) < (i64(cu_seqlens[s.ends]) | S.ends=(s + 1)) { i64(cu_seqlens[s.ends]) | S.ends=(s) } else { −1 }) { s } else { −1 }))) + w₂[t] } else { w₂[t] } } else { w[t]·s[t−1] + (if max_S (if t = (if (i64(cu_seqlens[s.ends]) | S.ends=(s)) < (i64(cu_seqlens[s.ends]) | S.ends=(s + 1)) { i64(cu_seqlens[s.ends]) | S.ends=(s) } else { −1 }) { s } else { −1 }) ≥ 0 { w[t]·(h0[s] | S=(max_S (if t = (if (i64(cu_seqlens[s.ends]) | S.ends=(s)) < (i64(cu_seqlens[s.ends]) | S.ends=(s + 1)) { i64(cu_seqlens[s.ends]) | S.ends=(s) } else { −1 }) { s } else { −1 }))) + w₂[t] } else { w₂[t] }) }
    y[t] = Σ_N c[t]·s[t] + skip·u[t]
    w₃[s] = if (i64(cu_seqlens[s.ends]) | S.ends=(s)) < (i64(cu_seqlens[s.ends]) | S.ends=(s + 1)) { (i64(cu_seqlens[s.ends]) | S.ends=(s + 1)) − 1 } else { −1 }
    h_last[s] = if (i64(cu_seqlens[s.ends]) | S.ends=(s)) < (i64(cu_seqlens[s.ends]) | S.ends=(s + 1)) { s[t] | T=w₃[s] } else { h0[s] }"""
    def __call__(self, u: Array, delta: Array, a: Array, b: Array, c: Array, cu_seqlens: Array, skip: Array | None = None, delta_bias: Array | None = None, h0: Array | None = None) -> _selective_scan_packed_states_outputs: ...

selective_scan_packed_states: _selective_scan_packed_states

class _selective_scan_softplus_outputs(NamedTuple):
    y: Array
    """y: [B, G, D, T]"""
    h_last: Array
    """h_last: state[B, G, D, N]"""

class _selective_scan_softplus(Kernel):
    """The selective scan with a positive step size: `selective_scan` of softplus(delta + delta_bias).

    This is `selective_scan_fn(u, delta, A, B, C, D, delta_bias=…, delta_softplus=True)` of mamba-ssm.

    fn selective_scan_softplus(u: [B, G, D, T], delta: [B, G, D, T], a: wide[G, D, N], b: [B, G, N, T], c: [B, G, N, T], skip: wide[G, D] = 0, delta_bias: wide[G, D] = 0, h0: state[B, G, D, N] = 0) -> (y: [B, G, D, T], h_last: state[B, G, D, N])
    s[t] = exp(softplus(delta[t] + delta_bias)·a)·s[t−1] + softplus(delta[t] + delta_bias)·u[t]·b[t]    (s[−1] = h0)
    y[t] = Σ_N c[t]·s[t] + skip·u[t]
    h_last = s[n−1]"""
    def __call__(self, u: Array, delta: Array, a: Array, b: Array, c: Array, skip: Array | None = None, delta_bias: Array | None = None, h0: Array | None = None) -> _selective_scan_softplus_outputs: ...

selective_scan_softplus: _selective_scan_softplus

class _ssd_outputs(NamedTuple):
    y: Array
    """y: [B, T, G, H, P]"""
    h_last: Array
    """h_last: wide[B, G, H, P, N]"""

class _ssd(Kernel):
    """Mamba-2's state-space dual: h[t] = exp(dt[t]·a)·h[t−1] + dt[t]·x[t]⊗b[t] for the P×N state of each head, and
    y[p, t] = Σ over N of c[n, t]·h[p, n, t] + skip·x[p, t], with dt + dt_bias in place of dt.

    G groups of H heads each share b and c; `[B, T, G·H, P]` seen as `[B, T, G, H, P]` costs nothing. This is
    `mamba_chunk_scan_combined(x, dt, A, B, C, D=…, dt_bias=…)` of mamba-ssm. Dao and Gu, "Transformers are SSMs: Generalized
    models and efficient algorithms through structured state space duality", 2024, §5 and §6.

    fn ssd(x: [B, T, G, H, P], dt: call | wide[B, T, G, H], a: wide[G, H], b: [B, T, G, N], c: [B, T, G, N], skip: wide[G, H] = 0, dt_bias: wide[G, H] = 0, h0: wide[B, G, H, P, N] = 0) -> (y: [B, T, G, H, P], h_last: wide[B, G, H, P, N])
    s[t] = (if exp((dt[t] + dt_bias)·a) = 0 { 0 } else { exp((dt[t] + dt_bias)·a)·s[t−1] }) + (dt[t] + dt_bias)·x[t]·b[t]    (s[−1] = h0)
    y[t] = Σ_N c[t]·s[t] + skip·x[t]
    h_last = s[n−1]"""
    def __call__(self, x: Array, dt: Array, a: Array, b: Array, c: Array, skip: Array | None = None, dt_bias: Array | None = None, h0: Array | None = None) -> _ssd_outputs: ...

ssd: _ssd

class _ssd_combined_outputs(NamedTuple):
    y: Array
    """y: [B, T, G, H, P]"""
    h_last: Array
    """h_last: wide[B, G, H, P, N]"""

class _ssd_combined(Kernel):
    """Mamba-2's state-space dual with all options at once: `ssd` with the step size
    min(max(dt + dt_bias, dt_min), dt_max), or of softplus(dt + dt_bias) where `dt_softplus` holds, and
    y[p, t] = (Σ over N of c[n, t]·h[p, n, t] + (skip + skip_channels[p])·x[p, t])·silu(z[p, t]).

    Where a step size is beyond a limit, its cotangent goes to the limit instead of dt and dt_bias; a limit that is left out is
    none. `z` = ∞, which it is when it is left out, means no gate. This is
    `mamba_chunk_scan_combined(x, dt, A, B, C, D=…, z=z, dt_bias=…, dt_softplus=…, dt_limit=(dt_min, dt_max))` of mamba-ssm, where
    `D` has the shape `(nheads,)` (`skip`) or `(nheads, headdim)` (`skip_channels`). On a GPU it is baked or compiled. Dao and Gu,
    "Transformers are SSMs: Generalized models and efficient algorithms through structured state space duality", 2024, §5 to §7.

    fn ssd_combined(x: [B, T, G, H, P], dt: call | wide[B, T, G, H], a: wide[G, H], b: [B, T, G, N], c: [B, T, G, N], z: [B, T, G, H, P] = inf, skip: wide[G, H] = 0, skip_channels: wide[G, H, P] = 0, dt_bias: wide[G, H] = 0, dt_softplus: bool = 0, dt_min: wide = -inf, dt_max: wide = inf, h0: wide[B, G, H, P, N] = 0) -> (y: [B, T, G, H, P], h_last: wide[B, G, H, P, N])
    w[t] = min(max(if dt_softplus { softplus(dt[t] + dt_bias) } else { dt[t] + dt_bias }, dt_min), dt_max)
    s[t] = (if exp(w[t]·a) = 0 { 0 } else { exp(w[t]·a)·s[t−1] }) + w[t]·x[t]·b[t]    (s[−1] = h0)
    y[t] = (Σ_N c[t]·s[t] + (skip + skip_channels)·x[t])·(if z[t] = ∞ { 1 } else { silu(if z[t] = ∞ { 0 } else { z[t] }) })
    h_last = s[n−1]"""
    def __call__(self, x: Array, dt: Array, a: Array, b: Array, c: Array, z: Array | None = None, skip: Array | None = None, skip_channels: Array | None = None, dt_bias: Array | None = None, dt_softplus: Array | None = None, dt_min: Array | None = None, dt_max: Array | None = None, h0: Array | None = None) -> _ssd_combined_outputs: ...

ssd_combined: _ssd_combined

class _ssd_packed_outputs(NamedTuple):
    y: Array
    """y: [B, T, G, H, P]"""

class _ssd_packed(Kernel):
    """`ssd_softplus` of packed sequences: sequence s holds the times cu_seqlens[s] to
    cu_seqlens[s + 1] − 1, and its state begins at 0.

    fn ssd_packed(x: [B, T, G, H, P], dt: call | wide[B, T, G, H], a: wide[G, H], b: [B, T, G, N], c: [B, T, G, N], cu_seqlens: i32 | i64[S], skip: wide[G, H] = 0, dt_bias: wide[G, H] = 0) -> (y: [B, T, G, H, P])
    s[t] = if t ∈ cu_seqlens { softplus(dt[t] + dt_bias)·x[t]·b[t] } else { (if exp(softplus(dt[t] + dt_bias)·a) = 0 { 0 } else { exp(softplus(dt[t] + dt_bias)·a)·s[t−1] }) + softplus(dt[t] + dt_bias)·x[t]·b[t] }
    y[t] = Σ_N c[t]·s[t] + skip·x[t]"""
    def __call__(self, x: Array, dt: Array, a: Array, b: Array, c: Array, cu_seqlens: Array, skip: Array | None = None, dt_bias: Array | None = None) -> _ssd_packed_outputs: ...

ssd_packed: _ssd_packed

class _ssd_packed_states_outputs(NamedTuple):
    y: Array
    """y: [B, T, G, H, P]"""
    h_last: Array
    """h_last: wide[B, S, G, H, P, N]"""

class _ssd_packed_states(Kernel):
    """`ssd_softplus` of packed sequences, each with a state of its own: sequence s holds the times
    cu_seqlens[s] to cu_seqlens[s + 1] − 1, begins at h0[s] and ends with h_last[s].

    A sequence of no times keeps its state. On a GPU, where it is baked or compiled, each sequence has blocks of its own, also in the gradient. On
    the CPU the P×N states of all times are stored on the way: for long sequences call
    `ssd_softplus` for each, or `ssd_packed` where all states begin at 0 and none is wanted.

    fn ssd_packed_states(x: [B, T, G, H, P], dt: call | wide[B, T, G, H], a: wide[G, H], b: [B, T, G, N], c: [B, T, G, N], cu_seqlens: i32 | i64[S + 1], skip: wide[G, H] = 0, dt_bias: wide[G, H] = 0, h0: wide[B, S, G, H, P, N] = 0) -> (y: [B, T, G, H, P], h_last: wide[B, S, G, H, P, N])
    w[t] = softplus(dt[t] + dt_bias)·a
    w₂[t] = exp(w[t])
    w₃[t] = softplus(dt[t] + dt_bias)·x[t]·b[t]
    s[t] = if t ∈ cu_seqlens[s.ends] { if max_S (if t = (if (i64(cu_seqlens[s.ends]) | S.ends=(s)) < (i64(cu_seqlens[s.ends]) | S.ends=(s + 1)) { i64(cu_seqlens[s.ends]) | S.ends=(s) } else { −1 }) { s } else { −1 }) ≥ 0 { (if w₂[t] = 0 { 0 } else { w₂[t]·(h0[s] | S=(max_S (if t = (if (i64(cu_seqlens[s.ends]) | S.ends=(s)) < (i64(cu_seqlens[s.ends]) | S.ends=(s + 1)) { i64(cu_seqlens[s.ends]) | S.ends=(s) } else { −1 }) { s } else { −1 }))) }) + w₃[t] } else { w₃[t] } } else { (if exp(if max_S (if t = (if (i64(cu_seqlens[s.ends]) | S.ends=(s)) < (i64(cu_seqlens[s.ends]) | S.ends=(s + 1)) { i64(cu_seqlens[s.ends]) | S.ends=(s) } else { −1 }) { s } else { −1 }) ≥ 0 { 0 + w[t] } else { w[t] }) = 0 { 0 } else { exp(if max_S (if t = (if (i64(cu_seqlens[s.ends]) | S.ends=(s)) < (i64(cu_seqlens[s.ends]) | S.ends=(s + 1)) { i64(cu_seqlens[s.ends]) | S.ends=(s) } else { −1 }) { s } else { −1 }) ≥ 0 { 0 + w[t] } else { w[t] })·s[t−1] }) + (if max_S (if t = (if (i64(cu_seqlens[s.ends]) | S.ends=(s)) < (i64(cu_seqlens[s.ends]) | S.ends=(s + 1)) { i64(cu_seqlens[s.ends]) | S.ends=(s) } else { −1 }) { s } else { −1 }) ≥ 0 { (if w₂[t] = 0 { 0 } else { w₂[t]·(h0[s] | S=(max_S (if t = (if (i64(cu_seqlens[s.ends]) | S.ends=(s)) < (i64(cu_seqlens[s.ends]) | S.ends=(s + 1)) { i64(cu_seqlens[s.ends]) | S.ends=(s) } else { −1 }) { s } else { −1 }))) }) + w₃[t] } else { w₃[t] }) }
    y[t] = Σ_N c[t]·s[t] + skip·x[t]
    w₄[s] = if (i64(cu_seqlens[s.ends]) | S.ends=(s)) < (i64(cu_seqlens[s.ends]) | S.ends=(s + 1)) { (i64(cu_seqlens[s.ends]) | S.ends=(s + 1)) − 1 } else { −1 }
    h_last[s] = (if (i64(cu_seqlens[s.ends]) | S.ends=(s)) < (i64(cu_seqlens[s.ends]) | S.ends=(s + 1)) { s[t] | T=w₄[s] } else { h0[s] })"""
    def __call__(self, x: Array, dt: Array, a: Array, b: Array, c: Array, cu_seqlens: Array, skip: Array | None = None, dt_bias: Array | None = None, h0: Array | None = None) -> _ssd_packed_states_outputs: ...

ssd_packed_states: _ssd_packed_states

class _ssd_softplus_outputs(NamedTuple):
    y: Array
    """y: [B, T, G, H, P]"""
    h_last: Array
    """h_last: wide[B, G, H, P, N]"""

class _ssd_softplus(Kernel):
    """`ssd` with a positive step size, softplus(dt + dt_bias): `dt_softplus=True` of mamba-ssm.

    fn ssd_softplus(x: [B, T, G, H, P], dt: call | wide[B, T, G, H], a: wide[G, H], b: [B, T, G, N], c: [B, T, G, N], skip: wide[G, H] = 0, dt_bias: wide[G, H] = 0, h0: wide[B, G, H, P, N] = 0) -> (y: [B, T, G, H, P], h_last: wide[B, G, H, P, N])
    s[t] = (if exp(softplus(dt[t] + dt_bias)·a) = 0 { 0 } else { exp(softplus(dt[t] + dt_bias)·a)·s[t−1] }) + softplus(dt[t] + dt_bias)·x[t]·b[t]    (s[−1] = h0)
    y[t] = Σ_N c[t]·s[t] + skip·x[t]
    h_last = s[n−1]"""
    def __call__(self, x: Array, dt: Array, a: Array, b: Array, c: Array, skip: Array | None = None, dt_bias: Array | None = None, h0: Array | None = None) -> _ssd_softplus_outputs: ...

ssd_softplus: _ssd_softplus

class _ssm_constant_outputs(NamedTuple):
    y: Array
    """y: [B, T]"""
    h_last: Array
    """h_last: state[B]"""

class _ssm_constant(Kernel):
    """First-order linear state space of each row, h[t] = a·h[t−1] + b·x[t] and y[t] = c·h[t] with h[−1] = h0.

    Kalman, "A new approach to linear filtering and prediction problems", 1960, without the noise.

    fn ssm_constant(x: [B, T], a: wide[B], b: wide[B], c: wide[B], h0: state[B] = 0) -> (y: [B, T], h_last: state[B])
    s[t] = a·s[t−1] + b·x[t]    (s[−1] = h0)
    y[t] = c·s[t]
    h_last = s[n−1]"""
    def __call__(self, x: Array, a: Array, b: Array, c: Array, h0: Array | None = None) -> _ssm_constant_outputs: ...

ssm_constant: _ssm_constant

class _ssm_varying_outputs(NamedTuple):
    y: Array
    """y: [B, T]"""
    h_last: Array
    """h_last: state[B]"""

class _ssm_varying(Kernel):
    """First-order linear state space with coefficients that vary, h[t] = a[t]·h[t−1] + b[t]·x[t] and y[t] = c[t]·h[t].

    fn ssm_varying(x: [B, T], a: [B, T], b: [B, T], c: [B, T], h0: state[B] = 0) -> (y: [B, T], h_last: state[B])
    s[t] = a[t]·s[t−1] + b[t]·x[t]    (s[−1] = h0)
    y[t] = c[t]·s[t]
    h_last = s[n−1]"""
    def __call__(self, x: Array, a: Array, b: Array, c: Array, h0: Array | None = None) -> _ssm_varying_outputs: ...

ssm_varying: _ssm_varying
