"""Delta rules: a state that is corrected by what it gets wrong, s[t] = d[t]·s[t-1] + beta[t]·k[t]⊗(v[t] - k[t]·d[t]·s[t-1]).

Their step multiplies the state by a matrix, d·(1 - beta·k⊗k), which is no operator of oplus yet. They are computed in chunks by
PyTorch's own operations: inside a chunk the corrections solve a triangular system, and the state goes from chunk to chunk.
Gradients are PyTorch's.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ._common import Options, check, grouped, packed, wide

# How many times a chunk has: fewer where every channel decays by itself, for then all pairs of times have all channels.
CHUNK = {"head": 64, "channel": 16}

# How many products of channels are there at once, or as many as there are numbers in the keys if these are more.
MOST_PRODUCTS = 1 << 24


def delta_rule(
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor | None, g: Tensor | None, options: Options, normalized: bool
) -> tuple[Tensor, Any]:
    """A delta rule with decays in logarithms, `g`: none, of each head, [B, T, H], or of each channel of the keys, [B, T, H, K]."""
    batch, length, heads, keys = q.shape
    check("k", k, "B T H K", batch, length, heads, keys)
    check("v", v, "B T Hv V", batch, length, None, None)
    groups, learned = grouped("heads of values", v.shape[2], heads), wide(q)
    if beta is not None:
        check("beta", beta, "B T Hv", *v.shape[:3])
    if g is not None:
        check("g", g, "B T Hv K" if g.dim() == 4 else "B T Hv", *v.shape[:3], *[keys] * (g.dim() - 3))
    beta = torch.ones_like(v[..., 0]) if beta is None else beta
    g = torch.zeros_like(v[..., 0]) if g is None else g
    dtype = v.dtype
    q, k, v, beta, g = (x.to(learned) for x in (q, k, v, beta, g))
    if normalized:
        q, k = (x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6) for x in (q, k))
    q = q * (keys**-0.5 if options.scale is None else options.scale)
    q, k = (x.repeat_interleave(groups, 2) for x in (q, k))
    initial = None if options.initial_state is None else options.initial_state.to(learned)
    if initial is not None and options.state_v_first:
        initial = initial.transpose(-1, -2)

    def run(s0: Tensor | None, *tensors: Tensor | None) -> tuple[Tensor, Tensor]:
        o, state = _in_chunks(s0, *[x.transpose(1, 2) for x in tensors if x is not None])
        return o.transpose(1, 2), state

    tensors = (q, k, v, beta, g)
    if options.cu_seqlens is None:
        o, state = run(initial, *tensors)
    else:
        o, state = packed(options.cu_seqlens, initial, tensors, run)
    if not options.output_final_state:
        return o.to(dtype), None
    return o.to(dtype), state.transpose(-1, -2) if options.state_v_first else state


def _in_chunks(
    state: Tensor | None, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, g: Tensor
) -> tuple[Tensor, Tensor]:
    """Outputs and the last state for tensors [B, H, T, …]."""
    length = q.shape[2]
    if state is None:
        state = q.new_zeros(*q.shape[:2], q.shape[3], v.shape[3])
    if length == 0:
        return torch.zeros_like(v), state
    chunk = min(CHUNK["head" if g.dim() == 3 else "channel"], length)
    g = g.unsqueeze(-1) if g.dim() == 3 else g
    # Times of zeros behind the end leave the state as it is.
    q, k, v, beta, g = (
        F.pad(x, (0, 0, 0, -length % chunk)).unflatten(2, (-1, chunk)) for x in (q, k, v, beta.unsqueeze(-1), g)
    )
    total = g.cumsum(-2)
    of_keys, inside = _products((k, q), k, total)
    # The corrections u solve u[t] + beta[t]·Σ_{s<t} k[t]·decay·k[s] u[s] = beta[t]·(v[t] - k[t]·decay·state).
    system = torch.eye(chunk, dtype=q.dtype, device=q.device) + (of_keys * beta).tril(-1)
    rights = torch.cat([v * beta, k * total.exp() * beta], -1)
    solved = torch.linalg.solve_triangular(system, rights, upper=False, unitriangular=True)
    own, of_state = solved.split([v.shape[-1], k.shape[-1]], -1)
    reads = q * total.exp()
    writes = (k * (total[..., -1:, :] - total).exp()).transpose(-1, -2)
    kept = total[..., -1, :].exp().unsqueeze(-1)
    outputs = []
    for at in range(q.shape[2]):
        u = own[:, :, at] - of_state[:, :, at] @ state
        outputs.append(reads[:, :, at] @ state + inside[:, :, at] @ u)
        state = kept[:, :, at] * state + writes[:, :, at] @ u
    return torch.cat(outputs, 2)[:, :, :length], state


def _products(xs: tuple[Tensor, ...], k: Tensor, total: Tensor) -> list[Tensor]:
    """For each x [B, H, N, C, K] what times t of a chunk take from the keys of times s <= t, [B, H, N, C, C]:
    Σ x[t]·k[s]·exp(total[t] - total[s]) over channels, else zeros.

    Where every channel decays by itself these are C products for each number of the keys. Large ones are made for some chunks after
    the others, and once more in the gradient, so that they take no memory in between.
    """
    if total.shape[-1] == 1:
        decays = _decays(total).squeeze(-1)
        return [(x @ k.transpose(-1, -2)) * decays for x in xs]
    most = max(MOST_PRODUCTS, total.numel())
    parts = min(-(-total.numel() * total.shape[-2] // most), total.shape[2])
    if parts == 1 or torch._C._are_functorch_transforms_active():
        return _of_channels(k, total, *xs)
    pieces = zip(*[x.tensor_split(parts, 2) for x in (k, total, *xs)])
    found = [checkpoint(_of_channels, *piece, use_reentrant=False, preserve_rng_state=False) for piece in pieces]
    return [torch.cat(part, 2) for part in zip(*found)]


def _of_channels(k: Tensor, total: Tensor, *xs: Tensor) -> list[Tensor]:
    """The products of channels of some chunks."""
    decayed = _decays(total) * k.unsqueeze(-3)
    return [torch.einsum("...tk,...tsk->...ts", x, decayed) for x in xs]


def _decays(total: Tensor) -> Tensor:
    """What is left at t of what was there at s <= t, [..., C, C, K], else zeros."""
    later = torch.ones(total.shape[-2], total.shape[-2], dtype=torch.bool, device=total.device).triu(1)
    between = total.unsqueeze(-2) - total.unsqueeze(-3)
    return between.masked_fill(later.unsqueeze(-1), -torch.inf).exp()


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
