"""Recurrences as equations: associative scans with derived gradients, on tensors of PyTorch, NumPy and JAX.

>>> import numpy as np, oplus
>>> rnn = oplus.scan('''
...     /// h[t] = a[t]·h[t-1] + x[t]
...     fn affine(a: [T], x: [T]) -> (h: [T]) { h = scan(T, Affine(a, x)).b; }
... ''')
>>> rnn.affine(np.full(3, 0.5), np.ones(3)).h
array([1.  , 1.5 , 1.75])
"""

from . import _symbols, kernels, models
from ._associative import associative_scan
from ._kernel import Kernel
from ._modes import ordered, record
from ._native import Error, Explanation, __version__
from ._symbols import where
from ._text import Kernels, ScanError, kernel, scan, scan_file

__all__ = [
    "Error",
    "Explanation",
    "Kernel",
    "Kernels",
    "ScanError",
    "__version__",
    "associative_scan",
    "cos",
    "exp",
    "exp2",
    "floor",
    "kernel",
    "kernels",
    "log",
    "log1p",
    "maximum",
    "minimum",
    "models",
    "ordered",
    "record",
    "rsqrt",
    "scan",
    "scan_file",
    "sigmoid",
    "sign",
    "silu",
    "sin",
    "softplus",
    "sqrt",
    "tanh",
    "where",
]


# For functions that `associative_scan` traces.
cos = _symbols.function("cos", "The cosine.")
exp = _symbols.function("exp", "The exponential.")
exp2 = _symbols.function("exp2", "2 to a power.")
floor = _symbols.function("floor", "The largest whole number that is not larger.")
log = _symbols.function("ln", "The natural logarithm.")
log1p = _symbols.function("log1p", "The logarithm of 1 + x, exact near 0.")
maximum = _symbols.function("max", "The larger of two.")
minimum = _symbols.function("min", "The smaller of two.")
rsqrt = _symbols.function("rsqrt", "1 / the square root.")
sigmoid = _symbols.function("sigmoid", "1 / (1 + exp(-x)).")
sign = _symbols.function("sign", "-1, 0 or 1.")
silu = _symbols.function("silu", "x / (1 + exp(-x)).")
sin = _symbols.function("sin", "The sine.")
softplus = _symbols.function("softplus", "ln(1 + exp(x)).")
sqrt = _symbols.function("sqrt", "The square root.")
tanh = _symbols.function("tanh", "The hyperbolic tangent.")
