"""Drop-ins for mamba-ssm: `selective_scan_fn` and `mamba_chunk_scan_combined`, with their arguments, layouts and defaults."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from .. import _text, models
from .._kernel import Kernel
from ._common import Whole, borders, check, grouped, packed, wide

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


# Mamba-2 of packed sequences, and the state at the end of each.
_PACKED = """
    fn gated(y, z) -> gated {
        let none = z == inf;
        y * (if none { 1 } else { silu(if none { 0 } else { z }) })
    }
    fn ssd_packed(
        x: [T, G, H, P], dt: call | wide[T, G, H], a: wide[G, H], b: [T, G, N], c: [T, G, N], cu_seqlens: i32 | i64[S + 1],
        z: [T, G, H, P] = inf, skip: wide[G, H] = 0, skip_channels: wide[G, H, P] = 0, dt_bias: wide[G, H] = 0,
        dt_softplus: bool = false, dt_min: wide = -inf, dt_max: wide = inf,
    ) -> (y: [T, G, H, P], h_last: wide[S, G, H, P, N]) {
        let raw = dt + dt_bias;
        let step = min(max(if dt_softplus { softplus(raw) } else { raw }, dt_min), dt_max);
        let h = scan(T, segmented(LogDecay)(step * a, step * x * b), offsets = cu_seqlens).x;
        y = gated(sum(N, c * h) + (skip + skip_channels) * x, z);
        h_last = last(T, h, offsets = cu_seqlens);
    }
    fn states_packed(
        x: [T, G, H, P], step: call | wide[T, G, H], a: wide[G, H], b: [T, G, N], cu_seqlens: i32 | i64[S + 1],
    ) -> (h_last: wide[S, G, H, P, N]) {
        let h = scan(T, segmented(LogDecay)(step * a, step * x * b), offsets = cu_seqlens).x;
        h_last = last(T, h, offsets = cu_seqlens);
    }
"""


@cache
def _packed_kernels() -> Any:
    return _text.scan(_PACKED)


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
    if seq_idx is not None:
        given["reset"] = torch.cat([torch.zeros_like(seq_idx[:, :1], dtype=torch.bool), seq_idx.diff(dim=1) != 0], 1)
    y, last, varlen = _with_states(given, cu_seqlens if return_varlen_states else None, dt_softplus, dt_limit, return_varlen_states)
    found = [y.flatten(2, 3)]
    if return_final_states:
        found.append(last.flatten(1, 2).to(state_dtype or learned))
    if varlen is not None:
        found.append(varlen.flatten(1, 2).to(state_dtype or learned))
    return found[0] if len(found) == 1 else tuple(found)


def _with_states(
    given: dict[str, Any], cu_seqlens: Tensor | None, softplus: bool, limit: tuple[float, float], is_varlen: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The outputs, the state at the end, and if asked for the states at the ends of packed sequences, which begin at zero.

    One call computes all where states are forgotten at the same times as sequences begin; else the states are a call of their own.
    """
    if not is_varlen:
        out = _dual(given, softplus, limit)
        return out.y, out.h_last, None
    if cu_seqlens is None or given["x"].shape[0] != 1:
        raise ValueError("`return_varlen_states` needs `cu_seqlens`, and a batch of one")
    ends, x = borders(cu_seqlens, None, (given["x"],))
    whole = Whole(_states_at_once(given), given["x"][0, 0].numel() * given["b"].shape[-1])
    if whole.fits(x, ends[-1]) and given["h0"] is None and ends[-2] < ends[-1] and _begin_at(given.get("reset"), ends):
        once = {name: t[0] if name in ("x", "dt", "b", "c", "z") else t for name, t in given.items() if name not in ("reset", "h0")}
        out = _packed_kernels().ssd_packed(
            **once, cu_seqlens=cu_seqlens, dt_softplus=softplus, dt_min=float(limit[0]), dt_max=float(limit[1])
        )
        return out.y.unsqueeze(0), out.h_last[-1:], out.h_last
    out = _dual(given, softplus, limit)
    raw = given["dt"].to(given["a"].dtype)
    raw = raw if given["dt_bias"] is None else raw + given["dt_bias"]
    # A step of zero, behind the end of a sequence, leaves its state as it is.
    step = (torch.nn.functional.softplus(raw) if softplus else raw).clamp(*limit)

    def states(_: None, x: Tensor, step: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        out = models.ssd(x, step, given["a"], b, b)
        return out.y, out.h_last

    _, varlen = packed(cu_seqlens, None, (given["x"], step, given["b"]), states, whole)
    return out.y, out.h_last, varlen


def _states_at_once(given: dict[str, Any]) -> Any:
    """The states at the ends of packed sequences by one call."""

    def call(_: None, cu_seqlens: Tensor, x: Tensor, step: Tensor, b: Tensor) -> tuple[None, Tensor]:
        return None, _packed_kernels().states_packed(x[0], step[0], given["a"], b[0], cu_seqlens).h_last

    return call


def _begin_at(reset: Tensor | None, ends: list[int]) -> bool:
    """Whether the times at which a state is forgotten are those at which packed sequences begin."""
    expected = sorted(set(ends[1:-1]) - {0, ends[-1]})
    return not expected if reset is None else bool(reset[0].nonzero().flatten().tolist() == expected)


def _dual(given: dict[str, Any], softplus: bool, limit: tuple[float, float]) -> Any:
    """Runs the model that has the options: those without the rare ones have kernels that need not be compiled."""
    rare = limit != (0.0, float("inf")) or "skip_channels" in given or "reset" in given or not softplus
    if not rare:
        return (models.mamba2 if "z" in given else models.ssd_softplus)(**given)
    kernel = _with_resets() if "reset" in given else models.ssd_combined
    return kernel(**given, dt_softplus=softplus, dt_min=float(limit[0]), dt_max=float(limit[1]))
