"""Selective scans: mamba-ssm's CUDA kernels, built from its source distribution, which MAMBA_SDIST names."""

import os

import torch

from timing import DEV, nbytes, report, wanted


def load():
    from torch.utils.cpp_extension import load as build

    root = os.path.join(os.environ["MAMBA_SDIST"], "csrc", "selective_scan")
    types = ("fp32", "fp16", "bf16")
    names = ["selective_scan.cpp"] + [f"selective_scan_fwd_{t}.cu" for t in types]
    names += [f"selective_scan_bwd_{t}_{kind}.cu" for t in types for kind in ("real", "complex")]
    flags = [f"-U__CUDA_NO_{kind}__" for kind in ("HALF_OPERATORS", "HALF_CONVERSIONS", "BFLOAT16_OPERATORS", "BFLOAT16_CONVERSIONS", "BFLOAT162_OPERATORS", "BFLOAT162_CONVERSIONS")]
    flags += ["--expt-relaxed-constexpr", "--expt-extended-lambda", "--use_fast_math", "-gencode", "arch=compute_90,code=sm_90"]
    usual = ["-O3", "-std=c++17"]
    sources = [os.path.join(root, name) for name in names]
    return build("selective_scan_cuda", sources, extra_cflags=usual, extra_cuda_cflags=usual + flags, extra_include_paths=[root])


def s6():
    library = load()
    for batch, width, states, steps in ((8, 1024, 4, 2048), (8, 2048, 16, 2048), (1, 4096, 16, 65536)):
        for dtype, name in ((torch.float32, "f32"), (torch.bfloat16, "bf16")):
            one(library, f"s6-{name}-b{batch}d{width}n{states}l{steps}", (batch, width, states, steps), dtype)


def one(library, case, shape, dtype):
    if not any(wanted(f"{case}-{kind}", "mamba-ssm") for kind in ("fwd", "bwd", "z-softplus-fwd")):
        return
    batch, width, states, steps = shape
    u = torch.randn(batch, width, steps, device=DEV, dtype=dtype)
    delta = (torch.rand(batch, width, steps, device=DEV) * 0.1).to(dtype)
    A = -torch.rand(width, states, device=DEV) - 0.5
    B, C = (torch.randn(batch, 1, states, steps, device=DEV, dtype=dtype) for _ in range(2))
    D, bias = torch.randn(width, device=DEV), torch.rand(width, device=DEV)
    z = torch.randn_like(u)
    out, x = library.fwd(u, delta, A, B, C, D, None, None, False)
    do = torch.randn_like(out)
    inputs = nbytes(u, delta, A, B, C, D)
    report(f"{case}-fwd", "mamba-ssm", lambda: library.fwd(u, delta, A, B, C, D, None, None, False), inputs + nbytes(out))
    backward = lambda: library.bwd(u, delta, A, B, C, D, None, None, do, x, None, None, False, False)
    report(f"{case}-bwd", "mamba-ssm", backward, 2 * inputs + nbytes(do))
    gated = lambda: library.fwd(u, delta, A, B, C, D, z, bias, True)
    report(f"{case}-z-softplus-fwd", "mamba-ssm", gated, inputs + nbytes(z, out))
