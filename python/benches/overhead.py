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


class Nothing(torch.autograd.Function):
    """A node of the graph that does nothing, written in Python: what PyTorch itself takes for one."""

    @staticmethod
    def forward(ctx: object, *tensors: torch.Tensor) -> torch.Tensor:
        return tensors[0].view_as(tensors[0])

    @staticmethod
    def backward(ctx: object, *cotangents: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return cotangents * len(ctx.needs_input_grad)  # type: ignore[attr-defined]


def selective_scan(device: str) -> dict[str, tuple[Callable[[], object], bool]]:
    """Calls of a model with seven tensors."""
    states, channels, times = (16, 16, 256) if device == "cuda" else (2, 1, 4)
    of = lambda *shape: torch.randn(*shape, device=device)  # noqa: E731
    rows, shared = (1, 1, channels, times), (1, 1, states, times)
    tensors = {
        "u": of(*rows), "delta": of(*rows).abs(), "a": -of(1, channels, states).abs(), "b": of(*shared), "c": of(*shared),
        "skip": of(1, channels), "delta_bias": of(1, channels),
    }  # fmt: skip
    leaves = {name: x.clone().requires_grad_() for name, x in tensors.items()}
    wanted, seed, kernel = list(leaves.values()), of(*rows), oplus.models.selective_scan
    return {
        "`oplus.models.selective_scan`": (lambda: kernel(**tensors), False),
        "`oplus.models.selective_scan`, gradient recorded": (lambda: kernel(**leaves), True),
        "`oplus.models.selective_scan`, with its gradient": (
            lambda: torch.autograd.grad(kernel(**leaves).y, wanted, seed), True,
        ),
        "a node of seven tensors that does nothing, with its gradient": (
            lambda: torch.autograd.grad(Nothing.apply(*[wanted[0]] * 7), wanted[0], seed), True,
        ),
    }  # fmt: skip


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
        "a node of Python that does nothing, recorded": (lambda: Nothing.apply(wanted), True),
        "a node of Python that does nothing, with its gradient": (whole(lambda: Nothing.apply(wanted), wanted, x), True),
        "`torch.cumsum(x, 1)`, with its gradient": (whole(lambda: torch.cumsum(wanted, 1), wanted, x), True),
        "`oplus.kernels.cumsum(x)`, with its gradient": (whole(lambda: kernel(wanted).y, wanted, x), True),
        "`flash_attn_func`, causal": (lambda: compat.flash_attn.flash_attn_func(q, q, q, causal=True), False),
        "`chunk_retention`": (lambda: compat.fla.chunk_retention(q, q, q), False),
    }
    if device == "cpu":
        rows["`numpy.cumsum(x, 1)`"] = (lambda: numpy.cumsum(array, 1), False)
        rows["`oplus.kernels.cumsum(x)`, NumPy"] = (lambda: kernel(array), False)
    return rows | selective_scan(device) | compiled(device, x, wanted)


def main() -> None:
    device = sys.argv[1] if len(sys.argv) > 1 else "cuda" if torch.cuda.is_available() else "cpu"
    on_gpu = device == "cuda"
    torch.set_num_threads(1)
    where = torch.cuda.get_device_name() if on_gpu else "CPU"
    print(f"{where}, PyTorch {torch.__version__}\n\n| call | processor, µs |{' in a graph, µs |' * on_gpu}")
    print(f"|---|---|{'---|' * on_gpu}")
    rows = layers(device)
    # A processor that has slept begins slowly.
    end = time.perf_counter() + 2
    while time.perf_counter() < end:
        torch.randn(1000).sum()
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
