"""Linear attention with decays on tensors whose times come before heads, packed or not: what the drop-ins for fla call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

from .. import _text, kernels, models
from .._kernel import Kernel
from ._common import Options, Whole, check, flipped, packed, wide

Result = tuple[Tensor, Any]


def simple_gla(q: Tensor, k: Tensor, v: Tensor, g: Tensor | None, g_gamma: Tensor | None, options: Options) -> Result:
    """Linear attention with a decay for each head and time, `g`, or for each head, `g_gamma`, or both."""
    batch, length, heads, _ = q.shape
    if g is not None:
        check("g", g, "B T H", batch, length, heads)
    if g_gamma is not None:
        check("g_gamma", g_gamma, "H", heads)
    gamma = None if g_gamma is None else g_gamma.to(wide(q))

    def run(q: Tensor, k: Tensor, v: Tensor, s0: Tensor | None, g: Tensor | None) -> Any:
        if g is None:
            return models.linear_attention(q, k, v, s0) if gamma is None else models.retention(q, k, v, gamma, s0)
        return models.monoid_attention(q, k, v, g if gamma is None else g.to(wide(q)) + gamma[:, None], s0=s0)

    def alone(q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor) -> Tensor:
        decay = torch.zeros_like(q[..., 0]) if g is None else g.transpose(1, 2)
        return models.monoid_attention_packed(q, k, v, decay, cu_seqlens).o

    def together(q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, s0: Tensor | None, g: Tensor | None) -> Any:
        decay = torch.zeros_like(q[..., 0]) if g is None else g
        return models.monoid_attention_packed_states(q, k, v, decay, cu_seqlens, s0)

    if options.cu_seqlens is not None and gamma is not None:
        # Behind the end of a sequence nothing decays, so that a decay of all times becomes one of each.
        g, gamma = (gamma.expand(batch, length, heads) if g is None else g.to(wide(q)) + gamma), None
    return attended(run, q, k, v, (g,), options, together, alone)


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


def lightning_decays(q: Tensor, layer_idx: int, num_layers: int) -> Tensor:
    """The logarithm of the decay of each head of lightning attention, which falls with the layer."""
    heads = q.shape[2]
    return -(8 / heads * (1 - layer_idx / num_layers)) * torch.arange(heads, dtype=wide(q), device=q.device)


def linear_attn(q: Tensor, k: Tensor, v: Tensor, normalize: bool, options: Options) -> Result:
    """Linear attention, with `normalize` divided by the sum of the queries' weights; then states are pairs (state, [N, 1, H, K])."""
    if not normalize:
        return simple_gla(q, k, v, None, None, options)
    # The denominator is one more value, a one at every time.
    v = torch.cat([v, torch.ones_like(v[..., :1])], -1)
    state, sums = options.initial_state if isinstance(options.initial_state, tuple) else (options.initial_state, None)
    if state is not None:
        keys = torch.zeros_like(state[..., 0]) if sums is None else sums.squeeze(1)
        state = torch.cat([state, keys.to(state.dtype).unsqueeze(-1)], -1)
    o, state = simple_gla(q, k, v, None, None, replace(options, initial_state=state, output_final_state=True))
    kept = state[..., :-1] if options.output_final_state else None
    return o[..., :-1] / (o[..., -1:] + 1e-10), (kept, state[..., -1].unsqueeze(1))


def gla(q: Tensor, k: Tensor, v: Tensor, gk: Tensor | None, gv: Tensor | None, options: Options) -> Result:
    """Gated linear attention: a decay for each channel of the keys, `gk`, of the values, `gv`, or of both."""

    def run(q: Tensor, k: Tensor, v: Tensor, s0: Tensor | None, gk: Tensor | None, gv: Tensor | None) -> Any:
        if gv is None:
            return models.linear_attention(q, k, v, s0) if gk is None else models.gated_linear_attention(q, k, v, gk, s0)
        return _gated_values()(q, k, v, gv, gk, s0)

    def together(
        q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, s0: Tensor | None, gk: Tensor | None, gv: Tensor | None
    ) -> Any:
        if gv is not None:
            return _gated_values_packed()(q, k, v, gv, cu_seqlens, gk, s0)
        if gk is None:
            return models.monoid_attention_packed_states(q, k, v, torch.zeros_like(q[..., 0]), cu_seqlens, s0)
        return models.gated_linear_attention_packed_states(q, k, v, gk, cu_seqlens, s0)

    for name, decay, like in (("gk", gk, k), ("gv", gv, v)):
        if decay is not None:
            check(name, decay, "B T H D", *like.shape)
    return attended(run, q, k, v, (gk, gv), options, together)


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


@cache
def _gated_values_packed() -> Kernel:
    return _text.scan("""
        fn gated_values_packed(
            q: [B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], gv: call | wide[B, H, T, V], cu_seqlens: i32 | i64[S + 1],
            gk: call | wide[B, H, T, K] = 0, s0: wide[B, S, H, K, V] = 0,
        ) -> (o: [B, H, T, V], s_last: wide[B, S, H, K, V]) {
            let s = scan(T, segmented(LogDecay)(gk + gv, k * v), offsets = cu_seqlens, init = s0).x;
            o = sum(K, q * s);
            s_last = last(T, s, offsets = cu_seqlens);
        }
    """).gated_values_packed


@cache
def _channels_packed() -> Kernel:
    return _text.scan("""
        fn channels_packed(
            g: call | wide[T, D], x: [T, D], cu_seqlens: i32 | i64[S + 1], s0: state[S, D] = 0,
        ) -> (s: [T, D], s_last: state[S, D]) {
            s = scan(T, segmented(LogDecay)(g, x), offsets = cu_seqlens, init = s0).x;
            s_last = last(T, s, offsets = cu_seqlens);
        }
    """).channels_packed


def hgrn(x: Tensor, g: Tensor, options: Options) -> Result:
    """A recurrence of every channel, h[t] = exp(g[t])·h[t-1] + x[t]."""
    check("g", g, "B T D", *x.shape)
    g = g if g.dtype in (x.dtype, wide(x)) else g.to(x.dtype)
    initial = None if options.initial_state is None else options.initial_state.to(wide(x))

    def run(s0: Tensor | None, x: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        out = kernels.log_decay_channels(g, x, s0)
        return out.s, out.s_last

    def together(s0: Tensor | None, cu_seqlens: Tensor, x: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        out = _channels_packed()(g[0], x[0], cu_seqlens, s0)
        return out.s.unsqueeze(0), out.s_last

    cu_seqlens = options.cu_seqlens
    if cu_seqlens is None:
        o, state = run(initial, x, g)
    else:
        # All states are the output.
        o, state = packed(cu_seqlens, initial, (x, g), run, Whole(together, 0))
    return o, state if options.output_final_state else None


def attended(
    run: Callable[..., Any],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    others: tuple[Tensor | None, ...],
    options: Options,
    together: Callable[..., Any] | None,
    alone: Callable[..., Tensor] | None = None,
) -> Result:
    """Brings times behind heads, and packed sequences and reversed times to what the models know.

    `run` takes queries, keys, values, the first state and what else varies with the time; `together`, where there is one, takes packed
    sequences, their borders before the first states; `alone` does packed sequences without states.
    """
    batch, length, heads, keys = q.shape
    check("k", k, "B T H K", batch, length, heads, keys)
    check("v", v, "B T H V", batch, length, heads, None)
    scale = keys**-0.5 if options.scale is None else options.scale
    dtype, initial, reverse = q.dtype, options.initial_state, options.reverse
    others = tuple(None if x is None else x if x.dtype in (dtype, wide(q)) else x.to(dtype) for x in others)
    q, k, v = q if scale == 1 else q * scale, k.to(dtype), v.to(dtype)
    initial = None if initial is None else initial.to(wide(q))
    if initial is not None and options.state_v_first:
        initial = initial.transpose(-1, -2)

    def part(s0: Tensor | None, *given: Tensor | None) -> tuple[Tensor, Tensor]:
        ordered = [flipped(x) if reverse else x for x in given]
        q, k, v, *others = [None if x is None else x.transpose(1, 2) for x in ordered]
        out = run(q, k, v, s0, *others)
        o = out.o.transpose(1, 2)
        return o.flip(1) if reverse else o, out.s_last

    def at_once(s0: Tensor | None, cu_seqlens: Tensor, *given: Tensor | None) -> tuple[Tensor, Tensor]:
        assert together is not None
        s0 = None if s0 is None else s0.unsqueeze(0)
        if reverse:
            # Sequences that are read from the end come in the other order.
            cu_seqlens, s0 = length - cu_seqlens.flip(0), flipped(s0)
        ordered = [flipped(x) if reverse else x for x in given]
        q, k, v, *others = [None if x is None else x.transpose(1, 2) for x in ordered]
        out = together(q, k, v, cu_seqlens, s0, *others)
        o, state = out.o.transpose(1, 2), out.s_last.squeeze(0)
        return (o.flip(1), state.flip(0)) if reverse else (o, state)

    tensors, cu_seqlens = (q, k, v, *others), options.cu_seqlens
    if cu_seqlens is None:
        o, state = part(initial, *tensors)
    elif batch == 1 and alone is not None and initial is None and not options.output_final_state and not reverse:
        return alone(*[x.transpose(1, 2) for x in (q, k, v)], cu_seqlens).transpose(1, 2), None
    else:
        whole = None if together is None else Whole(at_once, heads * keys * v.shape[3])
        o, state = packed(cu_seqlens, initial, tensors, part, whole)
    if not options.output_final_state:
        return o, None
    return o, state.transpose(-1, -2) if options.state_v_first else state
