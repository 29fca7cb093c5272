"""The time of a call from Python beside that of its kernel, layer by layer: `python benches/overhead.py [cuda|cpu]`.

Prints a table in Markdown. Tensors are small, so that the processor is what takes the time: on a GPU, where calls are queued, and on
the CPU, where a call also computes. On a GPU `in a graph` is a replay of the same calls in a CUDA graph, which has only the kernels'
time; a call that is queued one behind the other costs more than its kernel by at most what it costs the processor. `compiled` rows are
functions under `torch.compile(fullgraph=True)` with the default backend; `one graph` rows replay a graph of that one call. The least of
many rounds is taken, since other programs can only add to it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy
import torch

import oplus
from oplus import _torch, compat

COUNT, ROUNDS = 200, 60


def queued(call: Callable[[], object], wait: Callable[[], object]) -> float:
    """Microseconds of the processor for a call, the least of several rounds."""
    found = []
    for _ in range(ROUNDS):
        wait()
        start = time.perf_counter()
        for _ in range(COUNT):
            call()
        found.append((time.perf_counter() - start) / COUNT * 1e6)
    return min(found)


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


def whole(call: Callable[[], torch.Tensor], wanted: torch.Tensor, seed: torch.Tensor) -> Callable[[], object]:
    """A call and its gradient."""
    return lambda: torch.autograd.grad(call(), wanted, seed)


def compiled(device: str, x: torch.Tensor, wanted: torch.Tensor) -> dict[str, tuple[Callable[[], object], bool]]:
    """Calls in compiled programs. On the CPU their code is run as it was traced, for which no C++ compiler is needed."""
    backend = "inductor" if device == "cuda" else "aot_eager"
    kernel = oplus.kernels.cumsum
    theirs = torch.compile(lambda x: torch.cumsum(x, 1), fullgraph=True, backend=backend)
    ours = torch.compile(lambda x: kernel(x).y, fullgraph=True, backend=backend)
    return {
        "`torch.cumsum(x, 1)`, compiled": (lambda: theirs(x), False),
        "`oplus.kernels.cumsum(x)`, compiled": (lambda: ours(x), False),
        "`torch.cumsum(x, 1)`, compiled, with its gradient": (whole(lambda: theirs(wanted), wanted, x), True),
        "`oplus.kernels.cumsum(x)`, compiled, with its gradient": (whole(lambda: ours(wanted), wanted, x), True),
    }


def graphs(calls: dict[str, Callable[[], object]]) -> dict[str, tuple[Callable[[], object], bool]]:
    """Replays of a graph of one call."""
    found: dict[str, tuple[Callable[[], object], bool]] = {}
    for name, call in calls.items():
        graph = torch.cuda.CUDAGraph()
        call()
        with torch.cuda.graph(graph):
            call()
        found[f"{name}, one graph"] = (graph.replay, False)
    return found


def layers(device: str) -> dict[str, tuple[Callable[[], object], bool]]:
    """Calls, each with whether its gradient is recorded, from the least that one can cost to the whole."""
    x = torch.randn(8, 1024) if device == "cuda" else torch.randn(1, 4)
    x = x.to(device)
    wanted = x.clone().requires_grad_()
    kernel = oplus.kernels.cumsum
    native = kernel._native
    q = torch.randn(1, 256 if device == "cuda" else 2, 4, 64, device=device, dtype=torch.bfloat16)
    array = numpy.zeros((1, 4), numpy.float32)
    rows = {
        "`torch.empty_like(x)`": (lambda: torch.empty_like(x), False),
        "`torch.cumsum(x, 1)`": (lambda: torch.cumsum(x, 1), False),
        "native call of `cumsum`": (lambda: native.call((x,), _torch._library), False),
        "native call, checked for transforms and gradients": (lambda: native.call_eager((x,), _torch._library), False),
        "`oplus.kernels.cumsum(x)`": (lambda: kernel(x), False),
        "`torch.cumsum(x, 1)`, gradient recorded": (lambda: torch.cumsum(wanted, 1), True),
        "`oplus.kernels.cumsum(x)`, gradient recorded": (lambda: kernel(wanted), True),
        "`torch.cumsum(x, 1)`, with its gradient": (whole(lambda: torch.cumsum(wanted, 1), wanted, x), True),
        "`oplus.kernels.cumsum(x)`, with its gradient": (whole(lambda: kernel(wanted).y, wanted, x), True),
        "`flash_attn_func`, causal": (lambda: compat.flash_attn.flash_attn_func(q, q, q, causal=True), False),
        "`chunk_retention`": (lambda: compat.fla.chunk_retention(q, q, q), False),
    }
    if device == "cpu":
        rows["`numpy.cumsum(x, 1)`"] = (lambda: numpy.cumsum(array, 1), False)
        rows["`oplus.kernels.cumsum(x)`, NumPy"] = (lambda: kernel(array), False)
    return rows | compiled(device, x, wanted)


def main() -> None:
    device = sys.argv[1] if len(sys.argv) > 1 else "cuda" if torch.cuda.is_available() else "cpu"
    on_gpu = device == "cuda"
    torch.set_num_threads(1)
    where = torch.cuda.get_device_name() if on_gpu else "CPU"
    print(f"{where}, PyTorch {torch.__version__}\n\n| call | processor, µs |{' in a graph, µs |' * on_gpu}")
    print(f"|---|---|{'---|' * on_gpu}")
    rows = layers(device)
    if on_gpu:
        alone = ("`torch.cumsum(x, 1)`", "`oplus.kernels.cumsum(x)`")
        rows |= graphs({name: rows[name][0] for name in alone})
    for name, (call, records) in rows.items():
        with torch.set_grad_enabled(records):
            call()
            is_graph = name.endswith(", one graph")
            graph = f" {replayed(call):.1f} |" if on_gpu and not is_graph else " |" * on_gpu
            print(f"| {name} | {queued(call, torch.cuda.synchronize if on_gpu else int):.1f} |{graph}", flush=True)


if __name__ == "__main__":
    main()
