"""The time of a call from Python beside that of its kernel: microseconds of the processor for calls that are queued, on a GPU.

Prints a table in Markdown. The kernels are short, so that the processor is what takes the time; `graph` is a replay of the same
calls in a CUDA graph, which has only the kernels' time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import torch

import oplus
from oplus import _native, _torch, compat

COUNT = 500


def queued(call: Callable[[], object]) -> float:
    """Microseconds of the processor for a call, the median of several rounds."""
    found = []
    for _ in range(15):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(COUNT):
            call()
        found.append((time.perf_counter() - start) / COUNT * 1e6)
        torch.cuda.synchronize()
    return median(found)


def replayed(call: Callable[[], object]) -> float:
    """Microseconds of a call on the GPU, captured in a graph of many."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(50):
            call()
    graph.replay()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(10):
        graph.replay()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) * 1000 / 500


def main() -> None:
    x = torch.randn(8, 1024, device="cuda")
    wanted = x.clone().requires_grad_()
    kernel = oplus.kernels.cumsum
    native: _native.Kernel = kernel._native
    allocate = _torch._allocator((x,))
    q = torch.randn(1, 256, 4, 64, device="cuda", dtype=torch.bfloat16)
    rows: dict[str, Callable[[], object]] = {
        "`torch.empty_like(x)`": lambda: torch.empty_like(x),
        "`torch.cumsum(x, 1)`": lambda: torch.cumsum(x, 1),
        "native call of `cumsum`": lambda: native.call((x,), allocate),
        "`oplus.kernels.cumsum(x)`": lambda: kernel(x),
        "the same, gradient wanted": lambda: kernel(wanted),
        "`flash_attn_func`, causal": lambda: compat.flash_attn.flash_attn_func(q, q, q, causal=True),
        "`chunk_retention`": lambda: compat.fla.chunk_retention(q, q, q),
    }
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}\n")
    print("| call | processor, µs | in a graph, µs |\n|---|---|---|")
    for name, call in rows.items():
        call()
        with torch.no_grad() if "gradient" not in name else torch.enable_grad():
            print(f"| {name} | {queued(call):.1f} | {replayed(call):.1f} |", flush=True)


if __name__ == "__main__":
    main()
