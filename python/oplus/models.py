"""Models of sequences from the standard library: ready to call, with gradients, and one step at a time.

The time T, which is scanned, comes last. Each model takes its state in (`h0`, zero when it is left out) and gives it out
(`h_last`), so that a long sequence can be cut into chunks, and decoding goes on from a prefill by the model's `step`.
"""

from __future__ import annotations

from functools import cache

from . import _native
from ._kernel import Kernel


@cache
def _natives() -> dict[str, _native.Kernel]:
    return {native.name: native for native in _native.models()}


def __getattr__(name: str) -> Kernel:
    if name == "__all__":
        return sorted(_natives())  # type: ignore[return-value]
    native = None if name.startswith("_") else _natives().get(name)
    if native is None:
        raise AttributeError(f"module `oplus.models` has no model `{name}`")
    kernel = globals()[name] = Kernel(native)
    return kernel


def __dir__() -> list[str]:
    return sorted(_natives())
