"""Recurrences as equations: associative scans with derived gradients, on tensors of PyTorch, NumPy and JAX.

>>> import numpy as np, oplus
>>> rnn = oplus.scan('''
...     /// h[t] = a[t]·h[t-1] + x[t]
...     fn affine(a: [T], x: [T]) -> (h: [T]) { h = scan(T, Affine(a, x)).b; }
... ''')
>>> rnn.affine(np.full(3, 0.5), np.ones(3)).h
array([1.  , 1.5 , 1.75])
"""

from . import models
from ._kernel import Kernel
from ._native import Error, Explanation, __version__
from ._native import Ordered as _Ordered
from ._native import Recording as _Recording
from ._text import Kernels, ScanError, kernel, scan, scan_file

__all__ = [
    "Error",
    "Explanation",
    "Kernel",
    "Kernels",
    "ScanError",
    "__version__",
    "kernel",
    "models",
    "ordered",
    "record",
    "scan",
    "scan_file",
]


def ordered() -> _Ordered:
    """Inside `with oplus.ordered():` the calls of this thread combine in order.

    Every scan and every sum takes one element after the other, so that a sequence has the same outputs and states, to the bit,
    when it is read at once, in chunks of any lengths, or step by step. It costs speed.
    """
    return _Ordered()


def record() -> _Recording:
    """Inside `with oplus.record():` calls on a GPU save states for their gradients, which are then faster.

    The gradient of a recorded call must be taken before its inputs are overwritten.
    """
    return _Recording()
