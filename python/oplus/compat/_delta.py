"""Delta rules and their kin on tensors whose times come before heads: a state that is multiplied by a matrix at every step."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import _native, _text, models
from .._kernel import Kernel
from . import _delta_torch
from ._common import Options, check, grouped, wide
from ._linear import Result, attended


def delta_rule(
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor | None, g: Tensor | None, options: Options, normalized: bool
) -> Result:
    """s[t] = d[t] + beta[t]·k[t]⊗(v[t] - k[t]·d[t]) for the decayed state d[t] = exp(g[t])·s[t-1].

    `g` is left out, or of each head, [B, T, H], or of each channel of the keys, [B, T, H, K].
    """
    batch, length, heads, keys = q.shape
    check("k", k, "B T H K", batch, length, heads, keys)
    check("v", v, "B T Hv V", batch, length, None, None)
    groups = grouped("heads of values", v.shape[2], heads)
    if beta is not None:
        check("beta", beta, "B T Hv", *v.shape[:3])
    if g is not None:
        check("g", g, "B T Hv K" if g.dim() == 4 else "B T Hv", *v.shape[:3], *[keys] * (g.dim() - 3))
    beta = torch.ones_like(v[..., 0]) if beta is None else beta
    if normalized:
        q, k = (_normalized(x) for x in (q, k))
    q, k = (x if groups == 1 else x.repeat_interleave(groups, 2) for x in (q, k))

    def run(q: Tensor, k: Tensor, v: Tensor, s0: Tensor | None, beta: Tensor, g: Tensor | None) -> Any:
        if not has_kernels(q, v, g):
            o, s_last = _delta_torch.in_chunks(q, k, v, s0, beta, g)
            return SimpleNamespace(o=o, s_last=s_last)
        if g is None:
            return models.delta_rule(q, k, v, beta, s0)
        return (models.gated_delta_rule if g.dim() == 3 else models.kda)(q, k, v, g, beta, s0)

    def together(
        q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, s0: Tensor | None, beta: Tensor, g: Tensor | None
    ) -> Any:
        if g is None:
            return models.delta_rule_packed_states(q, k, v, beta, cu_seqlens, s0)
        return _packed("GatedDeltaRule" if g.dim() == 3 else "ChannelDeltaRule")(q, k, v, g, beta, cu_seqlens, s0)

    # On a GPU packed sequences with states of their own and decays of channels would go state by state; padded ones go in chunks.
    is_together = q.device.type == "cpu" or (has_kernels(q, v, g) and (g is None or g.dim() == 3))
    return attended(run, q, k, v, (beta, g), options, together if is_together else None)


def has_kernels(q: Tensor, v: Tensor, g: Tensor | None) -> bool:
    """Whether the kernels of oplus take a delta rule: on a GPU those that go in chunks, which are compiled when they are called."""
    if q.device.type == "cpu":
        return True
    is_in_chunks = q.dtype == torch.bfloat16 and max(q.shape[-1], v.shape[-1]) <= 128
    return _native.COMPILES and is_in_chunks


def diagonal_plus_pair(
    q: Tensor, k: Tensor, v: Tensor, a: Tensor, b: Tensor, gk: Tensor | None, options: Options
) -> Result:
    """s[t] = exp(gk[t])·s[t-1] + b[t]⊗(a[t]·s[t-1]) + k[t]⊗v[t], the recurrence of RWKV-7, without decays where `gk` is left out."""
    given = {"k": k, "a": a, "b": b} | ({} if gk is None else {"gk": gk})
    for name, x in given.items():
        check(name, x, "B T H K", *q.shape)
    gk = torch.zeros_like(k) if gk is None else gk
    a, b = a.to(q.dtype), b.to(q.dtype)

    def run(q: Tensor, k: Tensor, v: Tensor, s0: Tensor | None, w: Tensor, a: Tensor, b: Tensor) -> Any:
        return models.rwkv7(q, w, k, v, a, b, s0)

    def together(
        q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, s0: Tensor | None, w: Tensor, a: Tensor, b: Tensor
    ) -> Any:
        return _rwkv7_packed()(q, w, k, v, a, b, cu_seqlens, s0)

    return attended(run, q, k, v, (gk, a, b), options, together)


@cache
def _packed(operator: str) -> Kernel:
    """A gated delta rule of packed sequences, each with a state of its own."""
    gate = {"GatedDeltaRule": "[B, H, T]", "ChannelDeltaRule": "[B, H, T, K]"}[operator]
    return _text.scan(f"""
        fn delta_rule_packed(
            q: [B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], g: call | wide{gate}, beta: call | wide[B, H, T],
            cu_seqlens: i32 | i64[S + 1], s0: state[B, S, H, K, V] = 0,
        ) -> (o: [B, H, T, V], s_last: state[B, S, H, K, V]) {{
            let s = scan(T, segmented({operator})(g, beta, k, v), offsets = cu_seqlens, init = s0);
            o = sum(K, q * s);
            s_last = last(T, s, offsets = cu_seqlens);
        }}
    """).delta_rule_packed


@cache
def _rwkv7_packed() -> Kernel:
    return _text.scan("""
        fn rwkv7_packed(
            r: [B, H, T, K], w: call | wide[B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], a: [B, H, T, K], b: [B, H, T, K],
            cu_seqlens: i32 | i64[S + 1], s0: state[B, S, H, K, V] = 0,
        ) -> (o: [B, H, T, V], s_last: state[B, S, H, K, V]) {
            let s = scan(T, segmented(DiagonalPlusPair)(exp(w), a, b, k * v), offsets = cu_seqlens, init = s0);
            o = sum(K, r * s);
            s_last = last(T, s, offsets = cu_seqlens);
        }
    """).rwkv7_packed


def _normalized(x: Tensor) -> Tensor:
    """Vectors of length 1, but for shorter ones than 1e-3, in the type of x."""
    long = x.to(wide(x))
    return (long * torch.rsqrt(long.square().sum(-1, keepdim=True) + 1e-6)).to(x.dtype)


def check_chunk(kwargs: dict[str, Any], rule: str, *sizes: int) -> None:
    """Refuses a size of chunks that the original refuses; it changes nothing else here."""
    found = kwargs.get("chunk_size", 64)
    if found not in sizes:
        raise ValueError(f"`chunk_size` must be either {' or '.join(map(str, sizes))} for {rule}, it is {found}")


def gate(
    g: Tensor, a_log: Tensor | None, dt_bias: Tensor | None, lower_bound: float | None = None
) -> Tensor:
    """Decays from what a gate is given, in logarithms: -exp(a_log)·softplus(g + dt_bias), or above `lower_bound`
    lower_bound·sigmoid(exp(a_log)·(g + dt_bias)). `g` is [B, T, H] or [B, T, H, K]."""
    heads = (-1,) + (1,) * (g.dim() - 3)
    g = g.to(wide(g))
    if dt_bias is not None:
        g = g + dt_bias.to(g.dtype).reshape(g.shape[2:])
    rate = None if a_log is None else a_log.to(g.dtype).reshape(heads).exp()
    if lower_bound is not None:
        return lower_bound * torch.sigmoid(g if rate is None else rate * g)
    if rate is None:
        raise ValueError("`A_log` must be given with `use_gate_in_kernel`, or `lower_bound`")
    return -rate * F.softplus(g)


def betas(beta: Tensor | None, is_logit: bool, allow_neg_eigval: bool) -> Tensor | None:
    """How much is corrected, from 0 to 1, or to 2 with `allow_neg_eigval`."""
    if allow_neg_eigval and not is_logit:
        raise ValueError("`allow_neg_eigval` needs `use_beta_sigmoid_in_kernel`")
    if beta is None or not is_logit:
        return beta
    return beta.to(wide(beta)).sigmoid() * (2 if allow_neg_eigval else 1)
