"""Recurrences whose states are matrices: mamba-ssm's and fla's Triton kernels."""

import torch
import torch.nn.functional as F

from timing import DEV, both, nbytes, wanted

TYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}


def any_wanted(case):
    return wanted(f"{case}-fwd") or wanted(f"{case}-bwd")


def ssd():
    shapes = [(8, 2048, 80, 64, 1, 128), (2, 8192, 80, 64, 1, 128), (1, 65536, 24, 64, 1, 128), (8, 2048, 24, 64, 1, 64)]
    for name in TYPES:
        for shape in shapes if name == "bf16" else shapes[:1]:
            dual(name, *shape)


def dual(name, batch, steps, heads, size, groups, states):
    case = f"ssd-{name}-b{batch}s{steps}h{heads}p{size}g{groups}n{states}"
    if not any_wanted(case):
        return
    from mamba_ssm.ops.triton.ssd_combined import mamba_chunk_scan_combined

    dtype = TYPES[name]
    x = torch.randn(batch, steps, heads, size, device=DEV, dtype=dtype)
    dt = torch.rand(batch, steps, heads, device=DEV) * 0.1
    A = -torch.rand(heads, device=DEV) - 0.5
    B, C = (torch.randn(batch, steps, groups, states, device=DEV, dtype=dtype) for _ in range(2))
    least = nbytes(x, dt, B, C, x)
    for chunk in (128, 256):
        combined = lambda x, dt, A, B, C: mamba_chunk_scan_combined(x, dt, A, B, C, chunk)
        both(case, "mamba-ssm", combined, [x, dt, A, B, C], least, f"chunks of {chunk}")
    if wanted(f"{case}-fwd", "fla") or wanted(f"{case}-bwd", "fla"):
        from fla.ops.simple_gla import chunk_simple_gla

        q, k = (z.expand(batch, steps, heads, states).contiguous() for z in (C, B))
        gains = (dt * A).contiguous()
        both(case, "fla", lambda q, k, v, g: chunk_simple_gla(q, k, v, g=g)[0], [q, k, x, gains], least, "chunk_simple_gla, q and k for each head")


def qkv(batch, steps, heads, keys, values, dtype):
    """Queries and keys of unit length, and values."""
    unit = lambda: F.normalize(torch.randn(batch, steps, heads, keys, device=DEV), dim=-1).to(dtype)
    return unit(), unit(), torch.randn(batch, steps, heads, values, device=DEV).to(dtype)


def linear():
    for name, dtype in TYPES.items():
        case = f"retention-{name}-b8h32t2048k64v64"
        if any_wanted(case):
            from fla.ops.retention import chunk_retention

            q, k, v = qkv(8, 2048, 32, 64, 64, dtype)
            both(case, "fla", lambda q, k, v: chunk_retention(q, k, v)[0], [q, k, v], nbytes(q, k, v, v))
        for width in (64, 128):
            case = f"gla-{name}-b8h16t2048k64v{width}"
            if any_wanted(case):
                from fla.ops.gla import chunk_gla

                q, k, v = qkv(8, 2048, 16, 64, width, dtype)
                g = F.logsigmoid(torch.randn(8, 2048, 16, 64, device=DEV)).to(dtype)
                both(case, "fla", lambda q, k, v, g: chunk_gla(q, k, v, g)[0], [q, k, v, g], nbytes(q, k, v, g, v))
        case = f"linear-attention-{name}-b8h16t4096k128v64"
        if any_wanted(case):
            from fla.ops.linear_attn import chunk_linear_attn

            q, k, v = qkv(8, 4096, 16, 128, 64, dtype)
            both(case, "fla", lambda q, k, v: chunk_linear_attn(q, k, v, normalize=False)[0], [q, k, v], nbytes(q, k, v, v))


def delta():
    shapes = [(8, 4096, 16, 64), (8, 4096, 16, 128), (1, 65536, 16, 128)]
    for name in TYPES:
        for shape in shapes if name == "bf16" else shapes[:2]:
            delta_rules(name, *shape)
        for shape in [(8, 4096, 16, 64), (1, 65536, 16, 64)] if name == "bf16" else shapes[:1]:
            rwkv7(name, *shape)


def delta_rules(name, batch, steps, heads, size):
    shape = f"{name}-b{batch}h{heads}t{steps}k{size}v{size}"
    if not any(any_wanted(f"{rule}-{shape}") for rule in ("delta", "gated-delta", "kda")):
        return
    from fla.ops.delta_rule import chunk_delta_rule
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule
    from fla.ops.kda import chunk_kda

    q, k, v = qkv(batch, steps, heads, size, size, TYPES[name])
    beta = torch.rand(batch, steps, heads, device=DEV).to(TYPES[name])
    g = F.logsigmoid(torch.randn(batch, steps, heads, device=DEV))
    channels = F.logsigmoid(torch.randn(batch, steps, heads, size, device=DEV))
    least = nbytes(q, k, v, v, beta)
    both(f"delta-{shape}", "fla", lambda q, k, v, b: chunk_delta_rule(q, k, v, b)[0], [q, k, v, beta], least)
    gated = lambda q, k, v, g, b: chunk_gated_delta_rule(q, k, v, g, b)[0]
    both(f"gated-delta-{shape}", "fla", gated, [q, k, v, g, beta], least + nbytes(g))
    kda = lambda q, k, v, g, b: chunk_kda(q, k, v, g, b)[0]
    both(f"kda-{shape}", "fla", kda, [q, k, v, channels, beta], least + nbytes(channels))


def rwkv7(name, batch, steps, heads, size):
    case = f"rwkv7-{name}-b{batch}h{heads}t{steps}k{size}v{size}"
    if not any_wanted(case):
        return
    from fla.ops.rwkv7 import chunk_rwkv7

    r, k, v = qkv(batch, steps, heads, size, size, TYPES[name])
    w = -torch.rand(batch, steps, heads, size, device=DEV).to(TYPES[name])
    a = F.normalize(torch.randn(batch, steps, heads, size, device=DEV), dim=-1)
    b = (-a * torch.rand_like(a)).to(TYPES[name])
    inputs = [r, w, k, v, a.to(TYPES[name]), b]
    both(case, "fla", lambda r, w, k, v, a, b: chunk_rwkv7(r, w, k, v, a, b)[0], inputs, nbytes(*inputs, v))
