"""Kernels of the standard library: cumulative sums, products, extrema and their places, affine recurrences, packed sequences.

The axis that is scanned is T, the last one where a name does not say otherwise.
"""

from ._standard import members

__getattr__, __dir__ = members(__name__, "kernels")
