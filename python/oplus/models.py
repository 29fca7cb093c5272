"""Models of sequences from the standard library: ready to call, with gradients, and one step at a time.

The time T, which is scanned, comes last. Each model takes its state in (`h0`, zero when it is left out) and gives it out
(`h_last`), so that a long sequence can be cut into chunks, and decoding goes on from a prefill by the model's `step`.
"""

from ._standard import members

__getattr__, __dir__ = members(__name__, "models")
