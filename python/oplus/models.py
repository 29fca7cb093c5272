"""Models of sequences from the standard library: ready to call, with gradients, and one step at a time.

The time T, which is scanned, comes last. Each model takes its state in (`h0`, zero when it is left out) and gives it out
(`h_last`), so that a long sequence can be cut into chunks, and decoding goes on from a prefill by the model's `step`.
"""

from __future__ import annotations

from . import _native
from ._kernel import Kernel

_natives = {native.name: native for native in _native.models()}
__all__ = sorted(_natives)


def __getattr__(name: str) -> Kernel:
    native = _natives.get(name)
    if native is None:
        raise AttributeError(f"module `oplus.models` has no model `{name}`")
    kernel = globals()[name] = Kernel(native)
    return kernel


def __dir__() -> list[str]:
    return __all__
