"""How peers are timed: as oplus-bench times our kernels, with device events, the L2 cache flushed before each run, and the median.

Every case prints a line of JSON with its name, the peer, milliseconds, and the least bytes that it has to move. A peer that fails prints a line
with "error" instead.
"""

import json
import re

import torch
import triton

DEV = "cuda"
WARM_UP, RUNS = 10, 50
# Of work that takes long.
LEAST_RUNS, MOST_MS = 3, 2000.0
# Several times the L2 cache.
FLUSH_BYTES = 256 << 20


class Options:
    """What the command line asks for."""

    case = re.compile("")
    peer = re.compile("")
    # Calls each case once, so that its kernels are compiled, and times nothing.
    compile_only = False


_flush = None


def flush(clean):
    """Overwrites the cache. With `clean`, other memory is then read, so that the cache has nothing left that must be written to memory."""
    global _flush
    if _flush is None:
        _flush = [torch.zeros(FLUSH_BYTES // 4, dtype=torch.int32, device=DEV) for _ in range(2)]
    _flush[0].zero_()
    if clean:
        _flush[1].max()


def times(fn, clean, runs):
    """Milliseconds of runs that are all queued before the first is waited for, so that the host's work for a call is hidden by the device's."""
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(runs)]
    for start, end in events:
        flush(clean)
        start.record()
        fn()
        end.record()
    torch.cuda.synchronize()
    return [start.elapsed_time(end) for start, end in events]


def median(fn, clean):
    fn()
    torch.cuda.synchronize()
    runs = max(LEAST_RUNS, min(RUNS, int(MOST_MS / min(times(fn, clean, 2)))))
    times(fn, clean, min(WARM_UP, runs))
    return sorted(times(fn, clean, runs))[runs // 2]


def wanted(case, peer=""):
    """Whether the command line asks for this case: tensors of others are not made."""
    return bool(Options.case.search(case)) and (not peer or bool(Options.peer.search(peer)))


def report(case, peer, fn, bytes, how=None, clean=False):
    """Times a call and prints the line; `how` says which variant of the peer it was."""
    if not wanted(case, peer):
        return
    line = {"case": case, "peer": peer, "bytes": bytes}
    if how:
        line["how"] = how
    try:
        if Options.compile_only:
            fn()
            torch.cuda.synchronize()
        else:
            line["ms"] = round(median(fn, clean), 5)
    except Exception as e:  # A peer that fails is a finding, not a crash.
        line["error"] = f"{type(e).__name__}: {str(e)[:300]}"
    print(json.dumps(line), flush=True)


def both(case, peer, fn, inputs, least, how=None, backward=None):
    """Times a function and its gradient, which moves `backward` bytes at the least, or three times as many as the function."""
    report(f"{case}-fwd", peer, lambda: fn(*inputs), least, how)
    if wanted(f"{case}-bwd", peer):
        try:
            gradient = gradient_of(fn, inputs)
        except Exception as e:
            print(json.dumps({"case": f"{case}-bwd", "peer": peer, "error": f"{type(e).__name__}: {str(e)[:300]}"}), flush=True)
            return
        report(f"{case}-bwd", peer, gradient, backward or 3 * least, how)


def gradient_of(fn, inputs):
    """A call of the backward pass of fn(*inputs) alone, with a fixed random cotangent."""
    inputs = [x.detach().requires_grad_() if x.is_floating_point() else x for x in inputs]
    y = fn(*inputs)
    cotangent = torch.randn_like(y)
    return lambda: torch.autograd.grad(y, inputs, cotangent, retain_graph=True)


def nbytes(*tensors):
    return sum(t.numel() * t.element_size() for t in tensors)


def choose_sooner():
    """Makes Triton's autotuner time each form of a kernel for 20 ms instead of 100: hundreds of forms take minutes otherwise."""

    def shortly(self, call, quantiles=None):
        return triton.testing.do_bench(call, warmup=5, rep=20, quantiles=quantiles)

    triton.runtime.autotuner.Autotuner.do_bench = shortly


def compile_without_choosing():
    """Makes Triton's autotuner run each form once and take the first: kernels are compiled to the cache, and nothing is timed."""

    def once(self, call, quantiles=None):
        call()
        return [1.0, 1.0, 1.0]

    triton.runtime.autotuner.Autotuner.do_bench = once
