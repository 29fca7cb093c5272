"""Drop-ins for flash-linear-attention (`fla.ops`), with its arguments, layouts and defaults.

Queries and keys are [B, T, H, K], values [B, T, H, V], decays [B, T, H] or [B, T, H, K] in logarithms, states [N, H, K, V], or
[N, H, V, K] with `state_v_first`. With `cu_seqlens` the batch is 1 and N the number of sequences, else N = B. Every function
gives (output, state at the end or None). What is chunked, fused, recurrent or parallel there is the same computation here: the
planner chooses how it is done. `Options.of(locals())` reads the arguments that many functions have.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import _delta, _linear, flash_attn
from ._common import Options, check, refuse, wide
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
    return _linear.simple_gla(q, k, v, g, g_gamma, Options.of("chunk_simple_gla", locals()))


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
    return _linear.simple_gla(q, k, v, g, g_gamma, Options.of("fused_chunk_simple_gla", locals()))


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
    return _linear.simple_gla(q, k, v, g, g_gamma, Options.of("fused_recurrent_simple_gla", locals()))


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
    o, _ = _linear.simple_gla(q, k, v, g, None, Options.of("parallel_simple_gla", locals()))
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
    return _linear.simple_gla(q, k, v, None, _linear.retention_decays(q), Options.of("chunk_retention", locals()))


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
    return _linear.simple_gla(q, k, v, None, _linear.retention_decays(q), Options.of("fused_recurrent_retention", locals()))


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
    o, _ = _linear.simple_gla(q, k, v, None, _linear.retention_decays(q), Options.of("parallel_retention", locals()))
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
    decays = _linear.lightning_decays(q, layer_idx, num_layers)
    return _linear.simple_gla(q, k, v, None, decays, Options.of("chunk_lightning_attn", locals()))


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
    decays = _linear.lightning_decays(q, layer_idx, num_layers)
    return _linear.simple_gla(q, k, v, None, decays, Options.of("fused_recurrent_lightning_attn", locals()))


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
    return _linear.linear_attn(q, k, v, normalize, Options.of("chunk_linear_attn", locals()))


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
    return _linear.linear_attn(q, k, v, normalize, Options.of("fused_recurrent_linear_attn", locals()))


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
    return _linear.gla(q, k, v, g, None, Options.of("chunk_gla", locals()))


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
    return _linear.gla(q, k, v, gk, gv, Options.of("fused_recurrent_gla", locals()))


def chunk_hgrn(
    x: Tensor,
    g: Tensor,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
) -> Result:
    """A recurrence of every channel, h[t] = exp(g[t])·h[t-1] + x[t]: x and g are [B, T, D], states [B, D]."""
    return _linear.hgrn(x, g, Options.of("chunk_hgrn", locals()))


def fused_recurrent_hgrn(
    x: Tensor,
    g: Tensor,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
) -> Result:
    """`chunk_hgrn`, also of packed sequences."""
    return _linear.hgrn(x, g, Options.of("fused_recurrent_hgrn", locals()))


def chunk_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    **kwargs: Any,
) -> Result:
    """The delta rule, s[t] = s[t-1] + beta[t]·k[t]⊗(v[t] - k[t]·s[t-1])."""
    return _delta.delta_rule(q, k, v, beta, None, Options.of("chunk_delta_rule", locals()), use_qk_l2norm_in_kernel)


def fused_recurrent_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Tensor | None = None,
) -> Result:
    """`chunk_delta_rule`, where `beta` is 1 by default; one for each channel of the values is refused."""
    return _delta.delta_rule(q, k, v, beta, None, Options.of("fused_recurrent_delta_rule", locals()), use_qk_l2norm_in_kernel)


def chunk_gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    chunk_indices: Tensor | None = None,
    cp_context: Any = None,
    **kwargs: Any,
) -> Result:
    """The delta rule whose state decays by exp(g[t]) for each head before it is corrected.

    With `use_gate_in_kernel` g is what a gate is given: it decays by exp(-exp(A_log)·softplus(g + dt_bias)).
    """
    _delta.check_chunk(kwargs, "the gated delta rule", 16, 32, 64)
    a_log, dt_bias = kwargs.pop("A_log", None), kwargs.pop("dt_bias", None)
    if kwargs.pop("use_gate_in_kernel", False):
        g = _delta.gate(g, a_log, dt_bias)
    refuse("chunk_gated_delta_rule", cp_context=cp_context is not None)
    rates = _delta.betas(beta, use_beta_sigmoid_in_kernel, allow_neg_eigval)
    return _delta.delta_rule(q, k, v, rates, g, Options.of("chunk_gated_delta_rule", locals()), use_qk_l2norm_in_kernel)


def fused_recurrent_gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None = None,
    gk: Tensor | None = None,
    gv: Tensor | None = None,
    beta: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    A_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    **kwargs: Any,
) -> Result:
    """`chunk_gated_delta_rule`, also with a decay of each channel of the keys, `gk`; not with `gv`."""
    refuse("fused_recurrent_gated_delta_rule", gv=gv is not None)
    if use_gate_in_kernel:
        if g is None:
            raise ValueError("`g` must be given with `use_gate_in_kernel`")
        g = _delta.gate(g, A_log, dt_bias)
    if gk is not None:
        g = gk if g is None else gk + g.unsqueeze(-1)
    beta = _delta.betas(beta, use_beta_sigmoid_in_kernel, allow_neg_eigval)
    return _delta.delta_rule(q, k, v, beta, g, Options.of("fused_recurrent_gated_delta_rule", locals()), use_qk_l2norm_in_kernel)


def chunk_kda(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    safe_gate: bool = False,
    lower_bound: float | None = None,
    disable_recompute: bool = False,
    return_intermediate_states: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    cp_context: Any = None,
    **kwargs: Any,
) -> Result:
    """The delta rule whose state decays by exp(g[t]) for each channel of the keys before it is corrected.

    With `use_gate_in_kernel` g is what a gate is given, see `chunk_gated_delta_rule`, or with `lower_bound` the decay is
    exp(lower_bound·sigmoid(exp(A_log)·(g + dt_bias))).
    """
    _delta.check_chunk(kwargs, "KDA", 32, 64)
    if safe_gate and use_gate_in_kernel and lower_bound is None:
        raise ValueError("`lower_bound` must be given with `safe_gate` and `use_gate_in_kernel`")
    refuse("chunk_kda", return_intermediate_states=return_intermediate_states, cp_context=cp_context is not None)
    a_log, dt_bias = kwargs.pop("A_log", None), kwargs.pop("dt_bias", None)
    if use_gate_in_kernel:
        g = _delta.gate(g, a_log, dt_bias, lower_bound)
    rates = _delta.betas(beta, use_beta_sigmoid_in_kernel, allow_neg_eigval)
    return _delta.delta_rule(q, k, v, rates, g, Options.of("chunk_kda", locals()), use_qk_l2norm_in_kernel)


def fused_recurrent_kda(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    A_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    lower_bound: float | None = None,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    **kwargs: Any,
) -> Result:
    """`chunk_kda` with its arguments in another order."""
    if use_gate_in_kernel:
        g = _delta.gate(g, A_log, dt_bias, lower_bound)
    rates = _delta.betas(beta, use_beta_sigmoid_in_kernel, allow_neg_eigval)
    return _delta.delta_rule(q, k, v, rates, g, Options.of("fused_recurrent_kda", locals()), use_qk_l2norm_in_kernel)


def chunk_dplr_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    a: Tensor,
    b: Tensor,
    gk: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    safe_gate: bool = False,
    chunk_size: int | None = None,
    disable_recompute: bool = False,
    cp_context: Any = None,
    lower_bound: float | None = None,
    **kwargs: Any,
) -> Result:
    """A recurrence with a diagonal and a pair of vectors, s[t] = exp(gk[t])·s[t-1] + b[t]⊗(a[t]·s[t-1]) + k[t]⊗v[t].

    `safe_gate`, `chunk_size`, `disable_recompute` and `lower_bound` choose among kernels of the original and change nothing here.
    """
    refuse("chunk_dplr_delta_rule", cp_context=cp_context is not None)
    return _delta.diagonal_plus_pair(q, k, v, a, b, gk, Options.of("chunk_dplr_delta_rule", locals()))


def fused_recurrent_dplr_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    a: Tensor,
    b: Tensor,
    gk: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    reverse: bool = False,
    cu_seqlens: Tensor | None = None,
) -> Result:
    """`chunk_dplr_delta_rule`, also from the last time to the first."""
    return _delta.diagonal_plus_pair(q, k, v, a, b, gk, Options.of("fused_recurrent_dplr_delta_rule", locals()))


def chunk_iplr_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    a: Tensor,
    b: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    **kwargs: Any,
) -> Result:
    """`chunk_dplr_delta_rule` without decays."""
    return _delta.diagonal_plus_pair(q, k, v, a, b, None, Options.of("chunk_iplr_delta_rule", locals()))


def fused_recurrent_iplr_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    a: Tensor,
    b: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
) -> Result:
    """`chunk_iplr_delta_rule`."""
    return _delta.diagonal_plus_pair(q, k, v, a, b, None, Options.of("fused_recurrent_iplr_delta_rule", locals()))


def chunk_rwkv7(
    r: Tensor,
    w: Tensor,
    k: Tensor,
    v: Tensor,
    a: Tensor,
    b: Tensor,
    scale: float = 1.0,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    safe_gate: bool = False,
    chunk_size: int | None = None,
    disable_recompute: bool = False,
    cp_context: Any = None,
    lower_bound: float | None = None,
    **kwargs: Any,
) -> Result:
    """RWKV-7: `chunk_dplr_delta_rule` with the queries `r` and the logarithms of decays `w`."""
    refuse("chunk_rwkv7", cp_context=cp_context is not None)
    return _delta.diagonal_plus_pair(r, k, v, a, b, w, Options.of("chunk_rwkv7", locals()))


def fused_recurrent_rwkv7(
    r: Tensor,
    w: Tensor,
    k: Tensor,
    v: Tensor,
    a: Tensor,
    b: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = True,
    cu_seqlens: Tensor | None = None,
    **kwargs: Any,
) -> Result:
    """`chunk_rwkv7`, whose scale is K^(-1/2) where it is left out, with the last state."""
    return _delta.diagonal_plus_pair(r, k, v, a, b, w, Options.of("fused_recurrent_rwkv7", locals()))


def fused_mul_recurrent_rwkv7(
    r: Tensor,
    w: Tensor,
    k: Tensor,
    v: Tensor,
    kk: Tensor,
    a: Tensor,
    scale: float | None = 1.0,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    reverse: bool = False,
    cu_seqlens: Tensor | None = None,
    **kwargs: Any,
) -> Result:
    """`chunk_rwkv7` that takes the pair of vectors as a normalised key `kk` and the rate `a` at which it learns: -kk and kk·a."""
    return _delta.diagonal_plus_pair(r, k, v, -kk, kk * a, w, Options.of("fused_mul_recurrent_rwkv7", locals()))


def parallel_attn(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None = None,
    scale: float | None = None,
    window_size: int | None = None,
    cu_seqlens: Tensor | None = None,
    chunk_indices: Tensor | None = None,
    *,
    sink_bias: Tensor | None = None,
    **kwargs: Any,
) -> Tensor:
    """Causal softmax attention of q [B, T, HQ, K] to k [B, T, H, K] and v [B, T, H, V].

    Scores decay by the sum of `g`, [B, T, HQ], in between; a query sees `window_size` keys up to its own; `sink_bias`, [HQ], is
    the score of a key more, whose value is 0.
    """
    refuse("parallel_attn", **{name: value is not None for name, value in kwargs.items()})
    heads = q.shape[2]
    if g is not None:
        check("g", g, "B T HQ", *q.shape[:3])
    if sink_bias is not None:
        check("sink_bias", sink_bias, "HQ", heads)
    decays = None if g is None else g.to(wide(q)).cumsum(1)
    o, lse = flash_attn.attended(q, k, v, scale, window_size, cu_seqlens, decays)
    if sink_bias is None:
        return o
    share = torch.sigmoid(lse - sink_bias.to(lse.dtype)[:, None]).transpose(1, 2)
    return (o * share.unsqueeze(-1)).to(o.dtype)


# These have the arguments of the chunked ones.
fused_chunk_gla = chunk_gla
fused_chunk_retention = chunk_retention
fused_chunk_linear_attn = chunk_linear_attn
fused_chunk_delta_rule = chunk_delta_rule
chunk_gdn = chunk_gated_delta_rule
fused_recurrent_gdn = fused_recurrent_gated_delta_rule

__all__ = [name for name in dir() if name.startswith(("chunk_", "fused_", "parallel_"))]
