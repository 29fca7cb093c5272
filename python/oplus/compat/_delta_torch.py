"""Delta rules by PyTorch's own operations, for GPUs where oplus has no kernel that takes them in chunks.

Inside a chunk of times the corrections solve a triangular system, and the state goes from chunk to chunk. Gradients are PyTorch's.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

# How many times a chunk has: fewer where every channel decays by itself, for then all pairs of times have all channels.
CHUNK = {"head": 64, "channel": 16}

# How many products of channels are there at once, or as many as there are numbers in the keys if these are more.
MOST_PRODUCTS = 1 << 24


def in_chunks(
    q: Tensor, k: Tensor, v: Tensor, state: Tensor | None, beta: Tensor, g: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Outputs and the last state for tensors [B, H, T, …], with decays in logarithms: none, of heads, or of channels of keys."""
    dtype, wide = v.dtype, torch.float64 if v.dtype == torch.float64 else torch.float32
    g = torch.zeros_like(beta) if g is None else g
    q, k, v, beta, g = (x.to(wide) for x in (q, k, v, beta, g))
    length = q.shape[2]
    if state is None:
        state = q.new_zeros(*q.shape[:2], q.shape[3], v.shape[3])
    if length == 0:
        return v.to(dtype), state
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
    return torch.cat(outputs, 2)[:, :, :length].to(dtype), state


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
