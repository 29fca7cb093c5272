"""Kernels of the standard library."""

from typing import NamedTuple

from ._kernel import Array, Kernel

class _affine_outputs(NamedTuple):
    h: Array
    """h: [B, T]"""
    h_last: Array
    """h_last: state[B]"""

class _affine(Kernel):
    """First-order affine recurrence of each row, h[t] = a[t]·h[t−1] + b[t] with h[−1] = h0.

    fn affine(a: [B, T], b: [B, T], h0: state[B] = 0) -> (h: [B, T], h_last: state[B])
    h[t] = a[t]·h[t−1] + b[t]    (h[−1] = h0)
    h_last = h[n−1]"""
    def __call__(self, a: Array, b: Array, h0: Array | None = None) -> _affine_outputs: ...

affine: _affine

class _affine_time_first_outputs(NamedTuple):
    h: Array
    """h: [B, T, D]"""
    h_last: Array
    """h_last: state[B, D]"""

class _affine_time_first(Kernel):
    """First-order affine recurrence along the middle axis, h[t] = a[t]·h[t−1] + b[t] for each channel.

    fn affine_time_first(a: [B, T, D], b: [B, T, D], h0: state[B, D] = 0) -> (h: [B, T, D], h_last: state[B, D])
    h[t] = a[t]·h[t−1] + b[t]    (h[−1] = h0)
    h_last = h[n−1]"""
    def __call__(self, a: Array, b: Array, h0: Array | None = None) -> _affine_time_first_outputs: ...

affine_time_first: _affine_time_first

class _affine_with_resets_outputs(NamedTuple):
    h: Array
    """h: [B, T]"""
    h_last: Array
    """h_last: state[B]"""

class _affine_with_resets(Kernel):
    """First-order affine recurrence that forgets its state before each element where `reset` holds.

    fn affine_with_resets(a: [B, T], b: [B, T], reset: bool[B, T], h0: state[B] = 0) -> (h: [B, T], h_last: state[B])
    h[t] = if reset[t] { b[t] } else { a[t]·h[t−1] + b[t] }    (h[−1] = h0)
    h_last = h[n−1]"""
    def __call__(self, a: Array, b: Array, reset: Array, h0: Array | None = None) -> _affine_with_resets_outputs: ...

affine_with_resets: _affine_with_resets

class _automaton_outputs(NamedTuple):
    state: Array
    """state: u32[B, T]"""

class _automaton(Kernel):
    """Runs a finite automaton of up to eight states: the map f[t] takes the state s to the bits 3s … 3s + 2 of f[t]. Gives the
    state after each element, from the state `start`.

    fn automaton(f: u32[B, T], start: u32[B] = 0) -> (state: u32[B, T])
    s[t] = (((((((((f[t] >> (3·(s[t−1] & 7))) & 7) | (((f[t] >> (3·((s[t−1] >> 3) & 7))) & 7) << 3)) | (((f[t] >> (3·((s[t−1] >> 6) & 7))) & 7) << 6)) | (((f[t] >> (3·((s[t−1] >> 9) & 7))) & 7) << 9)) | (((f[t] >> (3·((s[t−1] >> 12) & 7))) & 7) << 12)) | (((f[t] >> (3·((s[t−1] >> 15) & 7))) & 7) << 15)) | (((f[t] >> (3·((s[t−1] >> 18) & 7))) & 7) << 18)) | (((f[t] >> (3·((s[t−1] >> 21) & 7))) & 7) << 21)) | ((s[t−1] | f[t]) & 4278190080)
    state[t] = (s[t] >> (3·start)) & 7"""
    def __call__(self, f: Array, start: Array | None = None) -> _automaton_outputs: ...

automaton: _automaton

class _complex_affine_outputs(NamedTuple):
    hr: Array
    """hr: [B, T]"""
    hi: Array
    """hi: [B, T]"""
    hr_last: Array
    """hr_last: state[B]"""
    hi_last: Array
    """hi_last: state[B]"""

class _complex_affine(Kernel):
    """First-order affine recurrence over the complex numbers, h[t] = a[t]·h[t−1] + b[t], real and imaginary parts apart.

    fn complex_affine(ar: [B, T], ai: [B, T], br: [B, T], bi: [B, T], hr0: state[B] = 0, hi0: state[B] = 0) -> (hr: [B, T], hi: [B, T], hr_last: state[B], hi_last: state[B])
    hr[t] = ar[t]·hr[t−1] − ai[t]·hi[t−1] + br[t]    (hr[−1] = hr0)
    hi[t] = ar[t]·hi[t−1] + ai[t]·hr[t−1] + bi[t]    (hi[−1] = hi0)
    hr_last = hr[n−1]
    hi_last = hi[n−1]"""
    def __call__(self, ar: Array, ai: Array, br: Array, bi: Array, hr0: Array | None = None, hi0: Array | None = None) -> _complex_affine_outputs: ...

complex_affine: _complex_affine

class _copy_outputs(NamedTuple):
    y: Array
    """y: [A, B, C, D]"""

class _copy(Kernel):
    """A copy, y[a, b, c, d] = x[a, b, c, d], whatever the strides of both; of fewer axes where sizes are 1.

    fn copy(x: [A, B, C, D]) -> (y: [A, B, C, D])
    y = x"""
    def __call__(self, x: Array) -> _copy_outputs: ...

copy: _copy

class _copy_flags_outputs(NamedTuple):
    y: Array
    """y: bool[A, B, C, D]"""

class _copy_flags(Kernel):
    """A copy of flags, y[a, b, c, d] = x[a, b, c, d], whatever the strides of both.

    fn copy_flags(x: bool[A, B, C, D]) -> (y: bool[A, B, C, D])
    y = x"""
    def __call__(self, x: Array) -> _copy_flags_outputs: ...

copy_flags: _copy_flags

class _cumargmax_outputs(NamedTuple):
    value: Array
    """value: [B, T]"""
    at: Array
    """at: i64[B, T]"""

class _cumargmax(Kernel):
    """Running maximum of each row and the lowest index at which it stands.

    fn cumargmax(x: [B, T]) -> (value: [B, T], at: i64[B, T])
    w[t] = (x[t] > value[t−1]) | ((x[t] = value[t−1]) & (t < at[t−1]))
    value[t] = if w[t] { x[t] } else { value[t−1] }
    at[t] = if w[t] { t } else { at[t−1] }"""
    def __call__(self, x: Array) -> _cumargmax_outputs: ...

cumargmax: _cumargmax

class _cumargmin_outputs(NamedTuple):
    value: Array
    """value: [B, T]"""
    at: Array
    """at: i64[B, T]"""

class _cumargmin(Kernel):
    """Running minimum of each row and the lowest index at which it stands.

    fn cumargmin(x: [B, T]) -> (value: [B, T], at: i64[B, T])
    w[t] = (x[t] < value[t−1]) | ((x[t] = value[t−1]) & (t < at[t−1]))
    value[t] = if w[t] { x[t] } else { value[t−1] }
    at[t] = if w[t] { t } else { at[t−1] }"""
    def __call__(self, x: Array) -> _cumargmin_outputs: ...

cumargmin: _cumargmin

class _cummax_outputs(NamedTuple):
    y: Array
    """y: [B, T]"""

class _cummax(Kernel):
    """Running maximum of each row, y[t] = max(x[0], …, x[t]). The gradient goes to the earliest of equal elements.

    fn cummax(x: [B, T]) -> (y: [B, T])
    y[t] = max(y[t−1], x[t])"""
    def __call__(self, x: Array) -> _cummax_outputs: ...

cummax: _cummax

class _cummin_outputs(NamedTuple):
    y: Array
    """y: [B, T]"""

class _cummin(Kernel):
    """Running minimum of each row, y[t] = min(x[0], …, x[t]). The gradient goes to the earliest of equal elements.

    fn cummin(x: [B, T]) -> (y: [B, T])
    y[t] = min(y[t−1], x[t])"""
    def __call__(self, x: Array) -> _cummin_outputs: ...

cummin: _cummin

class _cumprod_outputs(NamedTuple):
    y: Array
    """y: [B, T]"""

class _cumprod(Kernel):
    """Cumulative product of each row, y[t] = x[0] · … · x[t]. The gradient is right where elements are 0.

    fn cumprod(x: [B, T]) -> (y: [B, T])
    y[t] = y[t−1]·x[t]"""
    def __call__(self, x: Array) -> _cumprod_outputs: ...

cumprod: _cumprod

class _cumsum_outputs(NamedTuple):
    y: Array
    """y: [B, T]"""

class _cumsum(Kernel):
    """Cumulative sum of each row, y[t] = x[0] + … + x[t].

    fn cumsum(x: [B, T]) -> (y: [B, T])
    y[t] = y[t−1] + x[t]"""
    def __call__(self, x: Array) -> _cumsum_outputs: ...

cumsum: _cumsum

class _cumsum_exclusive_outputs(NamedTuple):
    y: Array
    """y: [B, T]"""
    total: Array
    """total: [B]"""

class _cumsum_exclusive(Kernel):
    """Cumulative sum of each row without the element itself, y[t] = x[0] + … + x[t−1], and the total.

    fn cumsum_exclusive(x: [B, T]) -> (y: [B, T], total: [B])
    s[t] = s[t−1] + x[t]
    y[t] = s[t−1]
    total = Σ_T x[t]"""
    def __call__(self, x: Array) -> _cumsum_exclusive_outputs: ...

cumsum_exclusive: _cumsum_exclusive

class _cumsum_time_first_outputs(NamedTuple):
    y: Array
    """y: [T, C]"""

class _cumsum_time_first(Kernel):
    """Cumulative sum along the first axis, y[t] = x[0] + … + x[t] for each channel.

    fn cumsum_time_first(x: [T, C]) -> (y: [T, C])
    y[t] = y[t−1] + x[t]"""
    def __call__(self, x: Array) -> _cumsum_time_first_outputs: ...

cumsum_time_first: _cumsum_time_first

class _ema_outputs(NamedTuple):
    y: Array
    """y: [B, T]"""
    y_last: Array
    """y_last: state[B]"""

class _ema(Kernel):
    """Exponential moving average of each row, y[t] = (1 − alpha)·y[t−1] + alpha·x[t] with y[−1] = y0.

    fn ema(x: [B, T], alpha: wide, y0: state[B] = 0) -> (y: [B, T], y_last: state[B])
    y[t] = (1 − alpha)·y[t−1] + alpha·x[t]    (y[−1] = y0)
    y_last = y[n−1]"""
    def __call__(self, x: Array, alpha: Array, y0: Array | None = None) -> _ema_outputs: ...

ema: _ema

class _log_decay_outputs(NamedTuple):
    s: Array
    """s: [B, T]"""
    s_last: Array
    """s_last: state[B]"""

class _log_decay(Kernel):
    """Recurrence with a decay in logarithms for each row, s[t] = exp(g[t])·s[t−1] + x[t] with s[−1] = s0.

    fn log_decay(g: call | wide[B, T], x: [B, T], s0: state[B] = 0) -> (s: [B, T], s_last: state[B])
    s[t] = (if exp(g[t]) = 0 { 0 } else { exp(g[t])·s[t−1] }) + x[t]    (s[−1] = s0)
    s_last = s[n−1]"""
    def __call__(self, g: Array, x: Array, s0: Array | None = None) -> _log_decay_outputs: ...

log_decay: _log_decay

class _log_decay_channels_outputs(NamedTuple):
    s: Array
    """s: [B, T, D]"""
    s_last: Array
    """s_last: state[B, D]"""

class _log_decay_channels(Kernel):
    """Recurrence with a decay of its own for each channel, s[t] = exp(g[t])·s[t−1] + x[t] along the middle axis.

    fn log_decay_channels(g: call | wide[B, T, D], x: [B, T, D], s0: state[B, D] = 0) -> (s: [B, T, D], s_last: state[B, D])
    s[t] = (if exp(g[t]) = 0 { 0 } else { exp(g[t])·s[t−1] }) + x[t]    (s[−1] = s0)
    s_last = s[n−1]"""
    def __call__(self, g: Array, x: Array, s0: Array | None = None) -> _log_decay_channels_outputs: ...

log_decay_channels: _log_decay_channels

class _logcumsumexp_outputs(NamedTuple):
    y: Array
    """y: [B, T]"""

class _logcumsumexp(Kernel):
    """Running logarithm of a sum of exponentials, y[t] = ln(exp(x[0]) + … + exp(x[t])), without overflow.

    fn logcumsumexp(x: [B, T]) -> (y: [B, T])
    y[t] = if y[t−1] = x[t] { 0.5·y[t−1] + 0.5·x[t] + 0.6931471805599453 } else { max(y[t−1], x[t]) + log1p(exp(min(y[t−1], x[t]) − max(y[t−1], x[t]))) }"""
    def __call__(self, x: Array) -> _logcumsumexp_outputs: ...

logcumsumexp: _logcumsumexp

class _matrix2_outputs(NamedTuple):
    pa: Array
    """pa: [B, T]"""
    pb: Array
    """pb: [B, T]"""
    pc: Array
    """pc: [B, T]"""
    pd: Array
    """pd: [B, T]"""

class _matrix2(Kernel):
    """Running products of 2×2 matrices by rows, P[t] = M[t] · … · M[0].

    fn matrix2(a: [B, T], b: [B, T], c: [B, T], d: [B, T]) -> (pa: [B, T], pb: [B, T], pc: [B, T], pd: [B, T])
    pa[t] = a[t]·pa[t−1] + b[t]·pc[t−1]
    pb[t] = a[t]·pb[t−1] + b[t]·pd[t−1]
    pc[t] = c[t]·pa[t−1] + d[t]·pc[t−1]
    pd[t] = c[t]·pb[t−1] + d[t]·pd[t−1]"""
    def __call__(self, a: Array, b: Array, c: Array, d: Array) -> _matrix2_outputs: ...

matrix2: _matrix2

class _max_plus_outputs(NamedTuple):
    h: Array
    """h: [B, T]"""

class _max_plus(Kernel):
    """Affine recurrence of the tropical semiring, h[t] = max(a[t] + h[t−1], b[t]) with h[−1] = −∞.

    fn max_plus(a: [B, T], b: [B, T]) -> (h: [B, T])
    h[t] = max(a[t] + h[t−1], b[t])"""
    def __call__(self, a: Array, b: Array) -> _max_plus_outputs: ...

max_plus: _max_plus

class _monoid_outputs(NamedTuple):
    s: Array
    """s: [B, H, T, K, V]"""
    s_last: Array
    """s_last: state[B, H, K, V]"""

class _monoid(Kernel):
    """Recurrence of a matrix-valued state with one decay per head, s[t] = exp(g[t])·s[t−1] + x[t]: every state of monoid
    attention.

    fn monoid(g: call | wide[B, H, T], x: [B, H, T, K, V], s0: state[B, H, K, V] = 0) -> (s: [B, H, T, K, V], s_last: state[B, H, K, V])
    s[t] = (if exp(g[t]) = 0 { 0 } else { exp(g[t])·s[t−1] }) + x[t]    (s[−1] = s0)
    s_last = s[n−1]"""
    def __call__(self, g: Array, x: Array, s0: Array | None = None) -> _monoid_outputs: ...

monoid: _monoid

class _segmented_affine_outputs(NamedTuple):
    h: Array
    """h: [B, T]"""

class _segmented_affine(Kernel):
    """First-order affine recurrence of packed sequences; each begins with h[−1] = 0.

    fn segmented_affine(a: [B, T], b: [B, T], cu_seqlens: i32 | i64[S]) -> (h: [B, T])
    h[t] = if t ∈ cu_seqlens { b[t] } else { a[t]·h[t−1] + b[t] }"""
    def __call__(self, a: Array, b: Array, cu_seqlens: Array) -> _segmented_affine_outputs: ...

segmented_affine: _segmented_affine

class _segmented_cumsum_outputs(NamedTuple):
    y: Array
    """y: [B, T]"""

class _segmented_cumsum(Kernel):
    """Cumulative sum of packed sequences: sequence s is x[cu_seqlens[s]] … x[cu_seqlens[s + 1] − 1] of every row.

    fn segmented_cumsum(x: [B, T], cu_seqlens: i32 | i64[S]) -> (y: [B, T])
    y[t] = if t ∈ cu_seqlens { x[t] } else { y[t−1] + x[t] }"""
    def __call__(self, x: Array, cu_seqlens: Array) -> _segmented_cumsum_outputs: ...

segmented_cumsum: _segmented_cumsum

class _softmax_merge_outputs(NamedTuple):
    mean: Array
    """mean: [B, V]"""
    lse: Array
    """lse: state[B]"""

class _softmax_merge(Kernel):
    """Merges softmax-weighted sums over parts P: of part p the maximum m, the denominator d and the numerator o, as from
    blocks of keys. Gives the weighted mean and the log-sum-exp of the scores; of nothing, where all d are 0, 0 and −∞.

    fn softmax_merge(m: state[B, P], d: state[B, P], o: [B, P, V]) -> (mean: [B, V], lse: state[B])
    (m₂, d₂, o₂) = Softmax_P(m, d, o)
    mean = if d₂ = 0 { 0 } else { o₂/(if d₂ = 0 { 1 } else { d₂ }) }
    lse = if d₂ = 0 { −∞ } else { m₂ + ln(if d₂ = 0 { 1 } else { d₂ }) }"""
    def __call__(self, m: Array, d: Array, o: Array) -> _softmax_merge_outputs: ...

softmax_merge: _softmax_merge
