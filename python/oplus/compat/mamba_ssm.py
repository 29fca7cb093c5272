"""Drop-ins for mamba-ssm: `selective_scan_fn` and `mamba_chunk_scan_combined`, with their arguments, layouts and defaults."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from .. import _text, models
from .._kernel import Kernel
from ._common import check, grouped, wide

__all__ = ["mamba_chunk_scan_combined", "selective_scan_fn"]


def selective_scan_fn(
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    z: Tensor | None = None,
    delta_bias: Tensor | None = None,
    delta_softplus: bool = False,
    return_last_state: bool = False,
) -> Any:
    """Mamba's selective scan, `mamba_ssm.ops.selective_scan_interface.selective_scan_fn`.

    u, delta and z are [B, D, L]; A is [D, N], real or complex; B and C are [D, N], [B, N, L] or [B, G, N, L], where complex ones
    that vary have real and imaginary parts as neighbours along 2·L. Gives [B, D, L] in the type of u, and with
    `return_last_state` also the state [B, D, N] at the end, through which gradients flow here.
    """
    batch, dim, length = u.shape
    check("delta", delta, "B D L", batch, dim, length)
    check("A", A, "D N", dim, None)
    groups = next((x.shape[1] for x in (B, C) if x.dim() == 4), 1)
    per = grouped("channels", dim, groups)
    dtype, learned = u.dtype, wide(u)

    def rows(x: Tensor | None) -> Tensor | None:
        return None if x is None else x.to(dtype).unflatten(1, (groups, per))

    def channels(x: Tensor | None) -> Tensor | None:
        return None if x is None else x.to(learned).unflatten(0, (groups, per))

    def varying(x: Tensor) -> Tensor:
        return x.to(dtype) if x.dim() == 4 else x.to(dtype).unsqueeze(1).expand(-1, groups, -1, -1)

    given = {"u": rows(u), "delta": rows(delta), "skip": channels(D), "delta_bias": channels(delta_bias)}
    if z is not None:
        check("z", z, "B D L", batch, dim, length)
        given["z"] = rows(z)
    for name, x in (("b", B), ("c", C)):
        if x.dim() == 2:
            check(name.upper(), x, "D N", dim, A.shape[1])
            given |= _parts(name, channels_of(x, groups, per, learned), A.is_complex())
        elif A.is_complex():
            given |= _parts(name, torch.view_as_complex(varying(x).unflatten(-1, (-1, 2)).to(learned)), True, dtype)
        else:
            given[name] = varying(x)
    given |= _parts("a", channels_of(A, groups, per, learned), A.is_complex())
    out = _selected(A.is_complex(), B.dim() == 2, C.dim() == 2, z is not None, delta_softplus)(**given)
    y = out.y.flatten(1, 2)
    if not return_last_state:
        return y
    state = torch.complex(out.h_last_re, out.h_last_im) if A.is_complex() else out.h_last
    return y, state.flatten(1, 2)


def channels_of(x: Tensor, groups: int, per: int, learned: torch.dtype) -> Tensor:
    """What every channel has learned, [D, N], as [G, D/G, N]."""
    return (x if x.is_complex() else x.to(learned)).unflatten(0, (groups, per))


def _parts(name: str, x: Tensor, is_complex: bool, dtype: torch.dtype | None = None) -> dict[str, Tensor]:
    """A tensor, or its real and imaginary parts, by the names of parameters."""
    if not is_complex:
        return {name: x}
    re, im = (x.real, x.imag) if x.is_complex() else (x, torch.zeros_like(x))
    return {f"{name}_re": re if dtype is None else re.to(dtype), f"{name}_im": im if dtype is None else im.to(dtype)}


def _selected(is_complex: bool, constant_b: bool, constant_c: bool, gate: bool, softplus: bool) -> Any:
    """The model for what is constant in time and which options there are."""
    constant = {(False, False): "", (True, False): "_constant_b", (False, True): "_constant_c", (True, True): "_constant"}
    suffix = constant[constant_b, constant_c]
    if is_complex or suffix:
        model = getattr(models, f"selective_scan{'_complex' if is_complex else ''}{suffix}")
        return lambda **given: model(**given, delta_softplus=softplus)
    name = {(False, False): "selective_scan", (True, False): "selective_scan_gated", (False, True): "selective_scan_softplus"}
    return getattr(models, name.get((gate, softplus), "mamba"))


# Mamba-2 of which a state is forgotten where another sequence begins.
_WITH_RESETS = """
    fn gated(y, z) -> gated {
        let none = z == inf;
        y * (if none { 1 } else { silu(if none { 0 } else { z }) })
    }
    fn ssd_with_resets(
        x: [B, T, G, H, P], dt: call | wide[B, T, G, H], a: wide[G, H], b: [B, T, G, N], c: [B, T, G, N], reset: bool[B, T],
        z: [B, T, G, H, P] = inf, skip: wide[G, H] = 0, skip_channels: wide[G, H, P] = 0, dt_bias: wide[G, H] = 0,
        dt_softplus: bool = false, dt_min: wide = -inf, dt_max: wide = inf, h0: wide[B, G, H, P, N] = 0,
    ) -> (y: [B, T, G, H, P], h_last: wide[B, G, H, P, N]) {
        let raw = dt + dt_bias;
        let step = min(max(if dt_softplus { softplus(raw) } else { raw }, dt_min), dt_max);
        let h = scan(T, segmented(LogDecay)(step * a, step * x * b), reset = reset, init = (x: h0)).x;
        y = gated(sum(N, c * h) + (skip + skip_channels) * x, z);
        h_last = last(T, h);
    }
"""


@cache
def _with_resets() -> Kernel:
    return _text.scan(_WITH_RESETS).ssd_with_resets


def mamba_chunk_scan_combined(
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    chunk_size: int,
    D: Tensor | None = None,
    z: Tensor | None = None,
    dt_bias: Tensor | None = None,
    initial_states: Tensor | None = None,
    seq_idx: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = (0.0, float("inf")),
    return_final_states: bool = False,
    return_varlen_states: bool = False,
    state_dtype: torch.dtype | None = None,
) -> Any:
    """Mamba-2's scan, `mamba_ssm.ops.triton.ssd_combined.mamba_chunk_scan_combined`.

    x and z are [B, S, H, P], dt [B, S, H], A and dt_bias [H], B and C [B, S, G, N], D [H] or [H, P], states [B, H, P, N]. Gives
    [B, S, H, P], then with `return_final_states` the state at the end, then with `return_varlen_states` the states at the ends of
    the sequences of `cu_seqlens` (of a batch of one). A state is forgotten where `seq_idx` changes. `chunk_size` changes
    nothing: the planner chooses its own.
    """
    batch, length, heads, _ = x.shape
    check("dt", dt, "B S H", batch, length, heads)
    check("B", B, "B S G N", batch, length, None, None)
    groups = B.shape[2]
    per = grouped("heads", heads, groups)
    learned = wide(x)

    def heads_of(t: Tensor | None, axis: int) -> Tensor | None:
        return None if t is None else t.unflatten(axis, (groups, per))

    def learnt(t: Tensor | None) -> Tensor | None:
        return heads_of(None if t is None else t.to(learned), 0)

    given: dict[str, Any] = {
        "x": heads_of(x, 2),
        "dt": heads_of(dt if dt.dtype in (x.dtype, learned) else dt.to(learned), 2),
        "a": learnt(A),
        "b": B.to(x.dtype),
        "c": C.to(x.dtype),
        "dt_bias": learnt(dt_bias),
        "h0": heads_of(None if initial_states is None else initial_states.to(learned), 1),
    }
    if D is not None:
        given["skip" if D.dim() == 1 else "skip_channels"] = learnt(D)
    if z is not None:
        given["z"] = heads_of(z.to(x.dtype), 2)
    varlen = _varlen_states(given, cu_seqlens, dt_softplus, dt_limit) if return_varlen_states else None
    if seq_idx is not None:
        given["reset"] = torch.cat([torch.zeros_like(seq_idx[:, :1], dtype=torch.bool), seq_idx.diff(dim=1) != 0], 1)
    out = _dual(given, dt_softplus, dt_limit)
    found = [out.y.flatten(2, 3)]
    if return_final_states:
        found.append(out.h_last.flatten(1, 2).to(state_dtype or learned))
    if varlen is not None:
        found.append(varlen.to(state_dtype or learned))
    return found[0] if len(found) == 1 else tuple(found)


def _dual(given: dict[str, Any], softplus: bool, limit: tuple[float, float]) -> Any:
    """Runs the model that has the options: those without the rare ones have kernels that need not be compiled."""
    rare = limit != (0.0, float("inf")) or "skip_channels" in given or "reset" in given or not softplus
    if not rare:
        return (models.mamba2 if "z" in given else models.ssd_softplus)(**given)
    kernel = _with_resets() if "reset" in given else models.ssd_combined
    return kernel(**given, dt_softplus=softplus, dt_min=float(limit[0]), dt_max=float(limit[1]))


def _varlen_states(
    given: dict[str, Any], cu_seqlens: Tensor | None, softplus: bool, limit: tuple[float, float]
) -> Tensor:
    """The state at the end of each packed sequence, which begins at zero."""
    if cu_seqlens is None or given["x"].shape[0] != 1:
        raise ValueError("`return_varlen_states` needs `cu_seqlens`, and a batch of one")

    # Behind the end of a sequence its state would go on to change, so that every one has a call.
    states, ends = [], cu_seqlens.tolist()
    for start, end in zip(ends, ends[1:]):
        times = {name: t[:, start:end] for name, t in given.items() if name in ("x", "dt", "b", "c", "z")}
        states.append(_dual({**given, **times, "h0": None}, softplus, limit).h_last)
    return torch.cat(states).flatten(1, 2)
