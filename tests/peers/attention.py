"""Softmax attention: cuDNN's and FlashAttention's kernels, through PyTorch."""

import torch
import torch.nn.functional as F

from timing import DEV, both, nbytes, report, wanted

DECODING = [
    (1, 8, 1, 65536, 128),
    (1, 8, 16, 65536, 128),
    (4, 8, 1, 8192, 128),
    (4, 8, 4, 8192, 128),
    (4, 8, 16, 8192, 128),
    (16, 32, 1, 2048, 128),
    (1, 16, 1, 32768, 64),
    (8, 16, 16, 8192, 64),
]


def backends():
    from torch.nn.attention import SDPBackend

    return {"FlashAttention-2": SDPBackend.FLASH_ATTENTION, "cuDNN": SDPBackend.CUDNN_ATTENTION}


def call_of(backend, causal):
    from torch.nn.attention import sdpa_kernel

    def call(q, k, v):
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    return call


def attention():
    shapes = [(16384 // s, 2048 // d, s, d) for d in (64, 128) for s in (512, 1024, 2048, 4096, 8192, 16384)]
    shapes += [(1, 16, 1920, 64), (3, 16, 1111, 64), (3, 16, 1111, 128)]
    for batch, heads, steps, size in shapes:
        for causal in (False, True):
            case = f"attn-bf16-b{batch}h{heads}s{steps}d{size}{'-causal' if causal else ''}"
            if not (wanted(f"{case}-fwd") or wanted(f"{case}-bwd")):
                continue
            q, k, v = (torch.randn(batch, heads, steps, size, device=DEV, dtype=torch.bfloat16) for _ in range(3))
            for peer, backend in backends().items():
                both(case, peer, call_of(backend, causal), [q, k, v], nbytes(q, k, v, q), backward=2 * nbytes(q, k, v, q))


def decode():
    for batch, heads, queries, keys, size in DECODING:
        case = f"decode-bf16-b{batch}h{heads}m{queries}n{keys}d{size}-fwd"
        if not (wanted(case) or wanted(f"{case}-clean")):
            continue
        q = torch.randn(batch, heads, queries, size, device=DEV, dtype=torch.bfloat16)
        k, v = (torch.randn(batch, heads, keys, size, device=DEV, dtype=torch.bfloat16) for _ in range(2))
        for peer, backend in backends().items():
            call = call_of(backend, False)
            for clean in (False, True):
                report(f"{case}-clean" if clean else case, peer, lambda: call(q, k, v), nbytes(q, k, v, q), clean=clean)
