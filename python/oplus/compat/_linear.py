"""Linear attention with decays on tensors whose times come before heads, packed or not: what the drop-ins for fla call."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from .. import _text, kernels, models
from .._kernel import Kernel
from ._common import Unsupported, check, flipped, packed, refuse, wide

Result = tuple[Tensor, Any]


def simple_gla(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None = None,
    g_gamma: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    reverse: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    **kwargs: Any,
) -> Result:
    """Linear attention with a decay for each head and time, `g`, or for each head, `g_gamma`, or both."""
    state_v_first = _renamed(state_v_first, kwargs)
    _only(kwargs)
    batch, length, heads, _ = q.shape
    if g is not None:
        check("g", g, "B T H", batch, length, heads)
    if g_gamma is not None:
        check("g_gamma", g_gamma, "H", heads)

    def run(q: Tensor, k: Tensor, v: Tensor, s0: Tensor | None, g: Tensor | None) -> Any:
        if g is None and g_gamma is None:
            return models.linear_attention(q, k, v, s0)
        gamma = None if g_gamma is None else g_gamma.to(wide(q))
        if g is None:
            return models.retention(q, k, v, gamma, s0)
        decay = g if gamma is None else g.to(wide(q)) + gamma[:, None]
        return models.monoid_attention(q, k, v, decay, s0=s0)

    def alone(q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor) -> Tensor:
        decay = torch.zeros_like(q[..., 0]) if g is None else g.transpose(1, 2)
        if g_gamma is not None:
            decay = decay.to(wide(q)) + g_gamma.to(wide(q))[:, None]
        return models.monoid_attention_packed(q, k, v, decay, cu_seqlens).o

    options = _Options(scale, initial_state, output_final_state, reverse, state_v_first, cu_seqlens)
    return _attended(run, q, k, v, (g,), options, alone)


def weights(q: Tensor, k: Tensor, g: Tensor | None, g_gamma: Tensor | None, scale: float | None) -> Tensor:
    """What each time takes from each earlier one, [B, H, T, T]: the product of query and key times the decays in between."""
    learned = wide(q)
    found = torch.einsum("bthk,bshk->bhts", q.to(learned), k.to(learned))
    found = found * (q.shape[-1] ** -0.5 if scale is None else scale)
    steps = torch.zeros(1, q.shape[1], q.shape[2], dtype=learned, device=q.device)
    steps = steps if g is None else steps + g.to(learned)
    steps = steps if g_gamma is None else steps + g_gamma.to(learned)
    total = steps.cumsum(1).transpose(1, 2)
    # Above the diagonal a difference may be large; it is cut off before and behind the exponential.
    return found * (total.unsqueeze(-1) - total.unsqueeze(-2)).tril().exp().tril()


def retention_decays(q: Tensor) -> Tensor:
    """The logarithm of the decay of each head of retention, 1 - 2^(-5 - h)."""
    heads = torch.arange(q.shape[2], dtype=wide(q), device=q.device)
    return torch.log1p(-torch.exp2(-5.0 - heads))


def retention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    reverse: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    **kwargs: Any,
) -> Result:
    """Retention: the decay of head h is 1 - 2^(-5 - h) at all times."""
    gamma = retention_decays(q)
    return simple_gla(
        q, k, v, None, gamma, scale, initial_state, output_final_state, reverse, state_v_first, cu_seqlens, **kwargs
    )


def lightning_attn(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    layer_idx: int,
    num_layers: int,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    reverse: bool = False,
    cu_seqlens: Tensor | None = None,
    **kwargs: Any,
) -> Result:
    """Lightning attention: a decay for each head that falls with the layer."""
    heads = q.shape[2]
    slope = -(8 / heads * (1 - layer_idx / num_layers))
    gamma = slope * torch.arange(heads, dtype=wide(q), device=q.device)
    return simple_gla(
        q, k, v, None, gamma, scale, initial_state, output_final_state, reverse, False, cu_seqlens, **kwargs
    )


def linear_attn(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None = None,
    initial_state: Any = None,
    output_final_state: bool = False,
    reverse: bool = False,
    normalize: bool = True,
    cu_seqlens: Tensor | None = None,
) -> Result:
    """Linear attention, with `normalize` divided by the sum of the queries' weights; then states are pairs (state, [N, 1, H, K])."""
    sums = None
    if normalize:
        # The denominator is one more value, a one at every time.
        v = torch.cat([v, torch.ones_like(v[..., :1])], -1)
        if isinstance(initial_state, tuple):
            initial_state, sums = initial_state
        if initial_state is not None:
            keys = torch.zeros_like(initial_state[..., 0]) if sums is None else sums.squeeze(1)
            initial_state = torch.cat([initial_state, keys.to(initial_state.dtype).unsqueeze(-1)], -1)
    o, state = simple_gla(
        q, k, v, None, None, scale, initial_state, output_final_state or normalize, reverse, False, cu_seqlens
    )
    if not normalize:
        return o, state
    o = o[..., :-1] / (o[..., -1:] + 1e-10)
    kept = state[..., :-1] if output_final_state else None
    return o, (kept, state[..., -1].unsqueeze(1))


def gla(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    gk: Tensor | None = None,
    gv: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    reverse: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    **kwargs: Any,
) -> Result:
    """Gated linear attention: a decay for each channel of the keys, `gk`, of the values, `gv`, or of both."""
    state_v_first = _renamed(state_v_first, kwargs)
    _only(kwargs)

    def run(q: Tensor, k: Tensor, v: Tensor, s0: Tensor | None, gk: Tensor | None, gv: Tensor | None) -> Any:
        if gv is None:
            return models.linear_attention(q, k, v, s0) if gk is None else models.gated_linear_attention(q, k, v, gk, s0)
        return _gated_values()(q, k, v, gv, gk, s0)

    for name, decay, like in (("gk", gk, k), ("gv", gv, v)):
        if decay is not None:
            check(name, decay, "B T H D", *like.shape)
    options = _Options(scale, initial_state, output_final_state, reverse, state_v_first, cu_seqlens)
    return _attended(run, q, k, v, (gk, gv), options, None)


@cache
def _gated_values() -> Kernel:
    return _text.scan("""
        fn gated_values(
            q: [B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], gv: call | wide[B, H, T, V],
            gk: call | wide[B, H, T, K] = 0, s0: wide[B, H, K, V] = 0,
        ) -> (o: [B, H, T, V], s_last: wide[B, H, K, V]) {
            let s = scan(T, LogDecay(gk + gv, k * v), init = (x: s0)).x;
            o = sum(K, q * s);
            s_last = last(T, s);
        }
    """).gated_values


def hgrn(
    x: Tensor,
    g: Tensor,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
) -> Result:
    """A recurrence of every channel, h[t] = exp(g[t])·h[t-1] + x[t]."""
    check("g", g, "B T D", *x.shape)
    g = g if g.dtype in (x.dtype, wide(x)) else g.to(x.dtype)
    initial = None if initial_state is None else initial_state.to(wide(x))

    def run(start: int, end: int, s0: Tensor | None) -> tuple[Tensor, Tensor]:
        out = kernels.log_decay_channels(g[:, start:end], x[:, start:end], s0)
        return out.s, out.s_last

    if cu_seqlens is None:
        o, state = run(0, x.shape[1], initial)
    else:
        _one(x)
        o, states = packed(cu_seqlens, initial, run)
        state = torch.cat(states)
    return o, state if output_final_state else None


class _Options:
    """What all kinds of linear attention may be asked for."""

    def __init__(
        self,
        scale: float | None,
        initial: Tensor | None,
        wants_state: bool,
        reverse: bool,
        v_first: bool,
        cu_seqlens: Tensor | None,
    ) -> None:
        self.scale, self.initial, self.wants_state = scale, initial, wants_state
        self.reverse, self.v_first, self.cu_seqlens = reverse, v_first, cu_seqlens


def _attended(
    run: Callable[..., Any],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    decays: tuple[Tensor | None, ...],
    options: _Options,
    alone: Callable[..., Tensor] | None,
) -> Result:
    """Brings times behind heads, and packed sequences and reversed times to what the models know.

    `run` takes queries, keys, values, the first state and decays; `alone` does packed sequences without states at once.
    """
    batch, length, heads, keys = q.shape
    check("k", k, "B T H K", batch, length, heads, keys)
    check("v", v, "B T H V", batch, length, heads, None)
    scale = keys**-0.5 if options.scale is None else options.scale
    dtype = q.dtype
    decays = tuple(None if d is None else d if d.dtype in (dtype, wide(q)) else d.to(dtype) for d in decays)
    q, k, v = q if scale == 1 else q * scale, k.to(dtype), v.to(dtype)
    initial = None if options.initial is None else options.initial.to(wide(q))
    if initial is not None and options.v_first:
        initial = initial.transpose(-1, -2)
    tensors = (q, k, v, *decays)

    def part(start: int, end: int, s0: Tensor | None) -> tuple[Tensor, Tensor]:
        given = [None if x is None else x[:, start:end] for x in tensors]
        if options.reverse:
            given = [flipped(x) for x in given]
        given = [None if x is None else x.transpose(1, 2) for x in given]
        out = run(*given[:3], s0, *given[3:])
        o = out.o.transpose(1, 2)
        return o.flip(1) if options.reverse else o, out.s_last

    if options.cu_seqlens is None:
        o, state = part(0, length, initial)
    else:
        _one(q)
        if alone is not None and initial is None and not options.wants_state and not options.reverse:
            whole = alone(*[x.transpose(1, 2) for x in (q, k, v)], options.cu_seqlens)
            return whole.transpose(1, 2), None
        o, states = packed(options.cu_seqlens, initial, part)
        state = torch.cat(states)
    if not options.wants_state:
        return o, None
    return o, state.transpose(-1, -2) if options.v_first else state


def _one(q: Tensor) -> None:
    if q.shape[0] != 1:
        raise ValueError(f"with `cu_seqlens` the batch must be 1, it is {q.shape[0]}")


def _renamed(state_v_first: bool, kwargs: dict[str, Any]) -> bool:
    """`state_v_first` by its own or its former name."""
    former = kwargs.pop("transpose_state_layout", None)
    if former is None:
        return state_v_first
    if state_v_first:
        raise ValueError("`transpose_state_layout` is the former name of `state_v_first`; give one of them")
    warnings.warn("`transpose_state_layout` is called `state_v_first` now", DeprecationWarning, stacklevel=4)
    return bool(former)


def _only(kwargs: dict[str, Any]) -> None:
    """Refuses what no function knows; hints that only choose a schedule are taken and change nothing."""
    for name in ("chunk_size", "chunk_indices", "head_first"):
        if not kwargs.pop(name, None):
            continue
        if name == "head_first":
            raise Unsupported("tensors must be [B, T, H, …]; `head_first` is gone from fla as well")
    refuse("this function", **{name: value is not None for name, value in kwargs.items()})
