"""Drop-ins for flash-attn: `flash_attn_func`, `flash_attn_varlen_func` and their packed forms, with their arguments and defaults.

Queries are [B, S, H, D], keys and values [B, S, Hk, D] where Hk divides H; of packed sequences [total, H, D] with lists of where
sequences begin. The last query is at the last key. Gives the output, or with `return_attn_probs` (output, log-sum-exp, None).
Gradients always have the same bits, so `deterministic` changes nothing. Dropout is refused.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from .. import _text, models
from .._kernel import Kernel
from ._common import check, grouped, refuse, wide

__all__ = [
    "flash_attn_func",
    "flash_attn_kvpacked_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func",
    "flash_attn_varlen_qkvpacked_func",
]

Window = tuple[int, int]


def flash_attn_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:
    """Softmax attention; `alibi_slopes` are [H] or [B, H] and add -slope·distance to the scores."""
    refuse("flash_attn_func", dropout_p=dropout_p != 0)
    batch, _, heads, depth = q.shape
    check("k", k, "B S Hk D", batch, None, None, depth)
    groups = k.shape[2]
    check("v", v, "B S Hk D", batch, k.shape[1], groups, None)
    form = _Form(causal, window_size, softcap, alibi_slopes is not None, False)
    slopes = _slopes(alibi_slopes, batch, heads, groups, q)
    tensors = _views(q, k, v, groups, softmax_scale)
    out = form.kernel()(*tensors, **form.options(q, slopes))
    o = out.o.permute(0, 3, 1, 2, 4).flatten(2, 3)
    return (o, out.lse.flatten(1, 2), None) if return_attn_probs else o


def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: Tensor | None = None,
) -> Any:
    """Softmax attention of packed sequences: sequence s has the queries cu_seqlens_q[s] to cu_seqlens_q[s + 1] - 1, and so on.

    With `block_table` [sequences, pages] keys and values are pages [page, S, Hk, D], and sequence s has the pages that its row names,
    in this order. They are copied together first.
    """
    refuse("flash_attn_varlen_func", dropout_p=dropout_p != 0)
    if block_table is not None:
        k, v = _in_order(block_table, cu_seqlens_k, k, v)
    heads, depth = q.shape[1:]
    check("k", k, "S Hk D", None, None, depth)
    groups = k.shape[1]
    check("v", v, "S Hk D", k.shape[0], groups, None)
    check("cu_seqlens_k", cu_seqlens_k, "S", cu_seqlens_q.shape[0])
    form = _Form(causal, window_size, softcap, alibi_slopes is not None, True)
    sequences = cu_seqlens_q.shape[0] - 1
    slopes = _slopes(alibi_slopes, sequences, heads, groups, q)
    if slopes is not None:
        # Of a list [B, G, R] a query takes the row of its sequence.
        at = torch.searchsorted(cu_seqlens_q[1:], torch.arange(q.shape[0], device=q.device), right=True)
        slopes = slopes[at.clamp(max=sequences - 1)].permute(1, 2, 0).unsqueeze(0)
    tensors = _views(q[None], k[None], v[None], groups, softmax_scale)
    out = form.kernel()(*tensors, cu_q=cu_seqlens_q, cu_k=cu_seqlens_k, **form.options(q, slopes))
    o = out.o[0].permute(2, 0, 1, 3).flatten(1, 2)
    return (o, out.lse[0].flatten(0, 1), None) if return_attn_probs else o


def _in_order(table: Tensor, offsets: Tensor, *pages: Tensor) -> tuple[Tensor, ...]:
    """Packed keys and values [total, Hk, D] of pages [page, S, Hk, D]."""
    check("block_table", table, "S pages", offsets.shape[0] - 1, None)
    size = pages[0].shape[1]
    at = torch.arange(int(offsets[-1]), device=table.device)
    sequence = torch.searchsorted(offsets[1:].contiguous(), at, right=True)
    within = at - offsets[sequence]
    place = table[sequence, within // size].long() * size + within % size
    return tuple(tensor.flatten(0, 1)[place] for tensor in pages)


def _rest_of(function: Callable[..., Any], count: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: `*options` and `**named` of a function are the parameters of another behind its first `count`."""

    def decorate(packed: Callable[..., Any]) -> Callable[..., Any]:
        own = [p for p in inspect.signature(packed).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
        rest = list(inspect.signature(function).parameters.values())[count:]
        packed.__signature__ = inspect.Signature([*own, *[p for p in rest if p.name != "block_table"]])  # type: ignore[attr-defined]
        return packed

    return decorate


@_rest_of(flash_attn_func, 3)
def flash_attn_qkvpacked_func(qkv: Tensor, *options: Any, **named: Any) -> Any:
    """`flash_attn_func` of queries, keys and values in one tensor [B, S, 3, H, D]."""
    check("qkv", qkv, "B S 3 H D", None, None, 3, None, None)
    q, k, v = qkv.unbind(2)
    return flash_attn_func(q, k, v, *options, **named)


@_rest_of(flash_attn_func, 3)
def flash_attn_kvpacked_func(q: Tensor, kv: Tensor, *options: Any, **named: Any) -> Any:
    """`flash_attn_func` of keys and values in one tensor [B, S, 2, Hk, D]."""
    check("kv", kv, "B S 2 Hk D", None, None, 2, None, None)
    k, v = kv.unbind(2)
    return flash_attn_func(q, k, v, *options, **named)


@_rest_of(flash_attn_varlen_func, 7)
def flash_attn_varlen_qkvpacked_func(
    qkv: Tensor, cu_seqlens: Tensor, max_seqlen: int, *options: Any, **named: Any
) -> Any:
    """`flash_attn_varlen_func` of queries, keys and values in one tensor [total, 3, H, D]."""
    check("qkv", qkv, "S 3 H D", None, 3, None, None)
    q, k, v = qkv.unbind(1)
    return flash_attn_varlen_func(q, k, v, cu_seqlens, cu_seqlens, max_seqlen, max_seqlen, *options, **named)


@_rest_of(flash_attn_varlen_func, 3)
def flash_attn_varlen_kvpacked_func(q: Tensor, kv: Tensor, *options: Any, **named: Any) -> Any:
    """`flash_attn_varlen_func` of keys and values in one tensor [total, 2, Hk, D]."""
    check("kv", kv, "S 2 Hk D", None, 2, None, None)
    k, v = kv.unbind(1)
    return flash_attn_varlen_func(q, k, v, *options, **named)


def attended(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None,
    window: int | None,
    cu_seqlens: Tensor | None,
    decays: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Causal attention of queries [B, S, H, D] to the last `window` keys, whose scores fall by what `decays`, [B, S, H], have
    become since; the output and the log-sum-exp [B, H, S]. With `cu_seqlens` the batch is 1."""
    batch, length, heads, depth = q.shape
    check("k", k, "B S Hk D", batch, length, None, depth)
    groups = k.shape[2]
    check("v", v, "B S Hk D", batch, length, groups, None)
    if cu_seqlens is not None and batch != 1:
        raise ValueError(f"with `cu_seqlens` the batch must be 1, it is {batch}")
    sides: Window = (-1 if window is None else window - 1, 0)
    form = _Form(True, sides, 0.0, False, cu_seqlens is not None, decays is not None)
    given = form.options(q, None)
    if cu_seqlens is not None:
        given |= {"cu_q": cu_seqlens, "cu_k": cu_seqlens}
    if decays is not None:
        per = decays.transpose(1, 2).unflatten(1, (groups, grouped("heads", heads, groups)))
        given |= {"row_decay": per, "column_decay": per}
    out = form.kernel()(*_views(q, k, v, groups, scale), **given)
    return out.o.permute(0, 3, 1, 2, 4).flatten(2, 3), out.lse.flatten(1, 2)


def _views(
    q: Tensor, k: Tensor, v: Tensor, groups: int, scale: float | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries as [B, G, R, M, E], keys and values as [B, G, N, E], without copies."""
    depth = q.shape[-1]
    if scale is not None and scale != depth**-0.5:
        q = q * (scale * depth**0.5)
    q = q.unflatten(2, (groups, grouped("heads", q.shape[2], groups))).permute(0, 2, 3, 1, 4)
    return q, k.transpose(1, 2), v.transpose(1, 2)


def _slopes(slopes: Tensor | None, batch: int, heads: int, groups: int, q: Tensor) -> Tensor | None:
    """Slopes as [B, G, R]."""
    if slopes is None:
        return None
    if slopes.dim() == 1:
        slopes = slopes.expand(batch, -1)
    check("alibi_slopes", slopes, "B H", batch, heads)
    return slopes.to(wide(q)).unflatten(1, (groups, heads // groups))


class _Form:
    """Which attention a call asks for."""

    def __init__(self, causal: bool, window: Window, softcap: float, alibi: bool, packed: bool, decay: bool = False) -> None:
        # Tests of flash-attn give tensors here.
        left, right = int(window[0]), 0 if causal else int(window[1])
        self.packed, self.alibi, self.decay, self.left, self.right = packed, alibi, decay, left, right
        self.softcap = softcap if softcap > 0 else 0.0
        self.causal = left < 0 and right == 0
        self.window = not self.causal and (left >= 0 or right >= 0)

    def kernel(self) -> Kernel:
        """A model that has kernels already, or else a text of its own."""
        if not self.alibi and not self.decay and not (self.packed and (self.window or self.softcap)):
            plain = "attention_packed" if self.packed else "attention"
            if not self.softcap:
                return getattr(models, f"{plain}{'_causal' if self.causal else '_window' if self.window else ''}")
            if self.causal:
                return models.attention_softcap
        return _written(self.causal, self.window, self.softcap > 0, self.alibi, self.packed, self.decay)

    def options(self, q: Tensor, slopes: Tensor | None) -> dict[str, Any]:
        """The parameters behind queries, keys and values."""
        found: dict[str, Any] = {}
        if self.window:
            found |= {"left": self.left, "right": self.right}
        if self.softcap:
            found["cap"] = self.softcap
        if self.alibi:
            found["slope"] = slopes
        return found


@cache
def _written(causal: bool, window: bool, softcap: bool, alibi: bool, packed: bool, decay: bool) -> Kernel:
    """The kernel of a combination of options."""
    params = ["q: [B, G, R, M, E], k: [B, G, N, E], v: [B, G, N, F]"]
    params += ["cu_q: i64 | i32[S], cu_k: i64 | i32[S]"] * packed + ["left: i64, right: i64"] * window
    params += ["cap: wide"] * softcap + [f"slope: wide[B, G, R{', M' if packed else ''}]"] * alibi
    params += ["row_decay: wide[B, G, R, M], column_decay: wide[B, G, R, N]"] * decay
    score = "sum(E, q * k) * rsqrt(size(E) as call)"
    if softcap:
        score = f"cap * tanh({score} / cap)"
    if alibi:
        score = f"{score} - slope * (abs(index(N) - at) as wide)"
    if decay:
        score = f"{score} + (row_decay - column_decay)"
    seen = ["index(N) >= from && index(N) < to"] * packed + ["index(N) <= at"] * causal
    seen += ["(left < 0 || index(N) >= at - left) && (right < 0 || index(N) <= at + right)"] * window
    place = "index(M) + (to - end)" if packed else "index(M) + (size(N) - size(M))"
    lines = ["let (from, to, end) = sequence(cu_q, cu_k);"] * packed
    lines += [f"let at = {place};"] * (causal or window or alibi)
    lines += [f"let score = {score};", f"let seen = {' && '.join(seen) or 'true'};"]
    return _text.scan(
        _HELPERS
        + f"fn attention({', '.join(params)}) -> (o: [B, G, R, M, F], lse: state[B, G, R, M]) {{\n    "
        + "\n    ".join(lines)
        + """
    let (shown, one, value) = weighted(seen, score, v);
    let all = reduce(N, Softmax(shown, one, value));
    let d = if all.d == 0 { 1 } else { all.d };
    o = all.o / d;
    lse = all.m + ln(d);
}
"""
    ).attention


_HELPERS = """
fn weighted(seen, score, v) -> (m, d, o) {
    if seen { (score, 1, v) } else { (-inf, 0, 0) }
}
fn sequence(cu_rows, cu_columns) -> (from, to, end) {
    let row = index(M);
    let ended = if cu_rows > row { cu_columns } else { size(N) };
    let from = reduce(S, Max(if cu_rows <= row { cu_columns } else { 0 }));
    (from, reduce(S, Min(ended)), reduce(S, Min(if cu_rows > row { cu_rows } else { size(M) })))
}
"""
