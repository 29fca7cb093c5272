"""Scans: PyTorch's cumsum, Triton's associative_scan, accelerated-scan, and fla's recurrence of channels. CUB's are in cub_scan.cu."""

import sys

import torch
import triton
import triton.language as tl

from timing import DEV, both, nbytes, report, wanted


def scan():
    for exponent in (20, 25, 28):
        case = f"cumsum-f32-2^{exponent}"
        if wanted(case, "PyTorch"):
            x = torch.randn(1 << exponent, device=DEV)
            y = torch.empty_like(x)
            report(case, "PyTorch", lambda: torch.cumsum(x, 0, out=y), 2 * nbytes(x))


@triton.jit
def first_order(al, bl, ar, br):
    return al * ar, ar * bl + br


@triton.jit
def affine_rows_kernel(A, B, H, L, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    h0 = 0.0
    for start in range(0, L, BLOCK):
        t = start + tl.arange(0, BLOCK)
        a = tl.load(A + row * L + t, t < L, 1.0).to(tl.float32)
        b = tl.load(B + row * L + t, t < L, 0.0).to(tl.float32)
        p, h = tl.associative_scan((a, b), 0, first_order)
        h = h + p * h0
        tl.store(H + row * L + t, h, t < L)
        h0 = tl.sum(tl.where(tl.arange(0, BLOCK) == BLOCK - 1, h, 0.0))


def rows():
    for width in (1, 32):
        case = f"cumsum-f32-1048576x{width}-dim0"
        if wanted(case, "PyTorch"):
            x = torch.randn(1 << 20, width, device=DEV)
            report(case, "PyTorch", lambda: torch.cumsum(x, 0), 2 * nbytes(x))
    for rows, length in ((8192, 4096), (64, 262144), (131072, 256)):
        case = f"cumsum-f32-{rows}x{length}"
        if wanted(case, "PyTorch"):
            x = torch.randn(rows, length, device=DEV)
            report(case, "PyTorch", lambda: torch.cumsum(x, -1), 2 * nbytes(x))
        for dtype, name in ((torch.float32, "f32"), (torch.bfloat16, "bf16")):
            affine(f"affine-{name}-{rows}x{length}", rows, length, dtype)


def affine(case, rows, length, dtype):
    if not (wanted(f"{case}-fwd") or wanted(f"{case}-bwd")):
        return
    a = torch.rand(rows, length, device=DEV).mul_(0.5).add_(0.5).to(dtype)
    b = torch.randn(rows, length, device=DEV, dtype=dtype)
    h = torch.empty_like(b)
    for block in (512, 1024, 2048, 4096):
        for warps in (4, 8):
            if block <= length * 2:
                call = lambda: affine_rows_kernel[(rows,)](a, b, h, length, BLOCK=block, num_warps=warps)
                report(f"{case}-fwd", "Triton", call, 3 * nbytes(b), f"blocks of {block}, {warps} warps")
    # accelerated-scan takes f32 and a grid of at most 65,535 rows.
    if dtype == torch.float32 and rows <= 65535:
        for module in ("scalar", "warp"):
            try:
                library = __import__(f"accelerated_scan.{module}", fromlist=["scan"])
            except Exception as e:
                print(f"accelerated_scan.{module}: {e}", file=sys.stderr)
                continue
            inputs = [x.view(1, rows, length) for x in (a, b)]
            both(case, "accelerated-scan", library.scan, inputs, 3 * nbytes(b), module, 5 * nbytes(b))


@triton.jit
def decay_forward(LD, V, O, T, D, BLOCK: tl.constexpr):
    bh = tl.program_id(0).to(tl.int64)
    d = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    state = tl.zeros([BLOCK], tl.float32)
    for t in range(T):
        state = state * tl.exp(tl.load(LD + bh * T + t)) + tl.load(V + (bh * T + t) * D + d, d < D, 0.0)
        tl.store(O + (bh * T + t) * D + d, state, d < D)


@triton.jit
def decay_backward(LD, O, DO, DV, DLD, T, D, BLOCK: tl.constexpr):
    bh = tl.program_id(0).to(tl.int64)
    d = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    carried = tl.zeros([BLOCK], tl.float32)
    for back in range(T):
        t = T - 1 - back
        at = (bh * T + t) * D + d
        cotangent = carried + tl.load(DO + at, d < D, 0.0)
        tl.store(DV + at, cotangent, d < D)
        a = tl.exp(tl.load(LD + bh * T + t))
        previous = tl.load(O + at - D, (d < D) & (t > 0), 0.0)
        tl.atomic_add(DLD + bh * T + t, a * tl.sum(cotangent * previous))
        carried = a * cotangent


def monoid():
    for batch, heads, steps, keys in ((2, 16, 2048, 64), (1, 8, 16384, 64), (4, 32, 512, 64)):
        every_state(f"monoid-f32-b{batch}h{heads}t{steps}k{keys}v{keys}", batch * heads, steps, keys * keys)
    for batch, steps, width in ((16, 16384, 128), (1, 131072, 256)):
        case = f"decay-f32-b{batch}t{steps}d{width}"
        if wanted(f"{case}-fwd", "fla") or wanted(f"{case}-bwd", "fla"):
            # The nearest library kernel: h[t] = exp(g[t]) h[t-1] + x[t] in every channel, channel last.
            from fla.ops.hgrn import chunk_hgrn

            x = torch.randn(batch, steps, width, device=DEV)
            g = -torch.rand(batch, steps, width, device=DEV)
            both(case, "fla", lambda x, g: chunk_hgrn(x, g)[0], [x, g], 3 * nbytes(x), "chunk_hgrn", 5 * nbytes(x))


def every_state(case, rows, steps, width):
    if not (wanted(f"{case}-fwd", "Triton") or wanted(f"{case}-bwd", "Triton")):
        return
    decay = -torch.rand(rows, steps, device=DEV)
    v, o, do, dv = (torch.randn(rows, steps, width, device=DEV) for _ in range(4))
    d_decay = torch.zeros_like(decay)
    for block in (128, 256, 512, 1024):
        grid = (rows, triton.cdiv(width, block))
        report(f"{case}-fwd", "Triton", lambda: decay_forward[grid](decay, v, o, steps, width, BLOCK=block), nbytes(decay, v, o), f"blocks of {block}")
    for block in (256, 512, 1024):
        grid = (rows, triton.cdiv(width, block))
        call = lambda: decay_backward[grid](decay, o, do, dv, d_decay, steps, width, BLOCK=block)
        report(f"{case}-bwd", "Triton", call, nbytes(decay, v, o, do, decay), f"blocks of {block}, atomics")
