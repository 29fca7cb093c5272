"""Drop-ins for flash-linear-attention (`fla.ops`), with its arguments, layouts and defaults.

Queries and keys are [B, T, H, K], values [B, T, H, V], decays [B, T, H] or [B, T, H, K] in logarithms, states [N, H, K, V], or
[N, H, V, K] with `state_v_first`. With `cu_seqlens` the batch is 1 and N the number of sequences, else N = B. Every function
gives (output, state at the end or None). What is chunked, fused, recurrent or parallel there is the same computation here: the
planner chooses how it is done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from . import _linear
from ._common import Unsupported, refuse
from ._linear import Result


def chunk_simple_gla(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None = None,
    g_gamma: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    **kwargs: Any,
) -> Result:
    """Linear attention with a decay for each head and time, `g`, for each head, `g_gamma`, or both."""
    return _linear.simple_gla(
        q, k, v, g, g_gamma, scale, initial_state, output_final_state, False, state_v_first, cu_seqlens, **kwargs
    )


def fused_chunk_simple_gla(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None = None,
    g_gamma: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
) -> Result:
    """`chunk_simple_gla` by another name."""
    return chunk_simple_gla(q, k, v, g, g_gamma, scale, initial_state, output_final_state, cu_seqlens=cu_seqlens)


def fused_recurrent_simple_gla(
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
    **kwargs: Any,
) -> Result:
    """`chunk_simple_gla`, also from the last time to the first."""
    return _linear.simple_gla(
        q, k, v, g, g_gamma, scale, initial_state, output_final_state, reverse, state_v_first, cu_seqlens, **kwargs
    )


def parallel_simple_gla(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None = None,
    scale: float | None = None,
    output_attentions: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    **kwargs: Any,
) -> Result:
    """`chunk_simple_gla` without states; gives (output, None or what each time takes from each other, [B, H, T, T])."""
    refuse("parallel_simple_gla with cu_seqlens", output_attentions=output_attentions and cu_seqlens is not None)
    o, _ = _linear.simple_gla(q, k, v, g, scale=scale, cu_seqlens=cu_seqlens, **kwargs)
    return o, _linear.weights(q, k, g, None, scale) if output_attentions else None


def chunk_retention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
    **kwargs: Any,
) -> Result:
    """Retention: the decay of head h is 1 - 2^(-5 - h) at all times."""
    return _linear.retention(q, k, v, scale, initial_state, output_final_state, cu_seqlens=cu_seqlens, **kwargs)


def fused_recurrent_retention(
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
    """`chunk_retention`, also from the last time to the first."""
    return _linear.retention(q, k, v, scale, initial_state, output_final_state, reverse, state_v_first, cu_seqlens, **kwargs)


def parallel_retention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None = None,
    output_attentions: bool = False,
    cu_seqlens: Tensor | None = None,
    **kwargs: Any,
) -> Result:
    """`chunk_retention` without states; gives (output, None or what each time takes from each other, [B, H, T, T])."""
    refuse("parallel_retention with cu_seqlens", output_attentions=output_attentions and cu_seqlens is not None)
    o, _ = _linear.retention(q, k, v, scale, cu_seqlens=cu_seqlens, **kwargs)
    return o, _linear.weights(q, k, None, _linear.retention_decays(q), scale) if output_attentions else None


def chunk_lightning_attn(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    layer_idx: int,
    num_layers: int,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
    **kwargs: Any,
) -> Result:
    """Lightning attention: a decay for each head that falls with the layer."""
    return _linear.lightning_attn(
        q, k, v, layer_idx, num_layers, scale, initial_state, output_final_state, cu_seqlens=cu_seqlens, **kwargs
    )


def fused_recurrent_lightning_attn(
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
) -> Result:
    """`chunk_lightning_attn`, also from the last time to the first."""
    return _linear.lightning_attn(q, k, v, layer_idx, num_layers, scale, initial_state, output_final_state, reverse, cu_seqlens)


def chunk_linear_attn(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None = None,
    initial_state: Any = None,
    output_final_state: bool = False,
    normalize: bool = True,
    cu_seqlens: Tensor | None = None,
) -> Result:
    """Linear attention, with `normalize` divided by the sum of the weights; then states are pairs with one of [N, 1, H, K]."""
    return _linear.linear_attn(q, k, v, scale, initial_state, output_final_state, False, normalize, cu_seqlens)


def fused_recurrent_linear_attn(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None = None,
    initial_state: Any = None,
    output_final_state: bool = False,
    reverse: bool = False,
    normalize: bool = False,
    cu_seqlens: Tensor | None = None,
) -> Result:
    """`chunk_linear_attn`, also from the last time to the first, and not normalised by default."""
    return _linear.linear_attn(q, k, v, scale, initial_state, output_final_state, reverse, normalize, cu_seqlens)


def chunk_gla(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    **kwargs: Any,
) -> Result:
    """Gated linear attention: a decay for each channel of the keys."""
    return _linear.gla(q, k, v, g, None, scale, initial_state, output_final_state, False, state_v_first, cu_seqlens, **kwargs)


def fused_recurrent_gla(
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
    """Gated linear attention with a decay for each channel of the keys, `gk`, of the values, `gv`, or of both."""
    return _linear.gla(q, k, v, gk, gv, scale, initial_state, output_final_state, reverse, state_v_first, cu_seqlens, **kwargs)


def chunk_hgrn(
    x: Tensor,
    g: Tensor,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
) -> Result:
    """A recurrence of every channel, h[t] = exp(g[t])·h[t-1] + x[t]: x and g are [B, T, D], states [B, D]."""
    return _linear.hgrn(x, g, initial_state, output_final_state)


def fused_recurrent_hgrn(
    x: Tensor,
    g: Tensor,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
) -> Result:
    """`chunk_hgrn`, also of packed sequences."""
    return _linear.hgrn(x, g, initial_state, output_final_state, cu_seqlens)


def _not_here(name: str) -> Callable[..., Any]:
    def function(*args: Any, **kwargs: Any) -> Any:
        raise Unsupported(
            f"`{name}`: the step of a delta rule multiplies the state by a matrix, I - beta·k⊗k, which is no operator of oplus yet"
        )

    function.__name__ = function.__qualname__ = name
    function.__doc__ = "Not supported: raises `oplus.compat.Unsupported`."
    return function


# These have the arguments of the chunked ones.
fused_chunk_gla = chunk_gla
fused_chunk_retention = chunk_retention
fused_chunk_linear_attn = chunk_linear_attn
chunk_delta_rule = _not_here("chunk_delta_rule")
fused_chunk_delta_rule = _not_here("fused_chunk_delta_rule")
fused_recurrent_delta_rule = _not_here("fused_recurrent_delta_rule")
chunk_gated_delta_rule = _not_here("chunk_gated_delta_rule")
fused_recurrent_gated_delta_rule = _not_here("fused_recurrent_gated_delta_rule")

__all__ = [name for name in dir() if name.startswith(("chunk_", "fused_", "parallel_"))]
