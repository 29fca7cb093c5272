"""Context managers: how the calls of a thread are made inside a `with` block."""

from __future__ import annotations

import threading

from ._native import Ordered


class _Local(threading.local):
    recording = True


_local = _Local()


def ordered() -> Ordered:
    """Inside `with oplus.ordered():` the calls of this thread combine in order.

    Every scan and every sum takes one element after the other, so that a sequence has the same outputs and states, to the bit,
    when it is read at once, in chunks of any lengths, or step by step. It costs speed.
    """
    return Ordered()


class record:
    """Inside `with oplus.record(False):` the calls of this thread save no states for their gradients.

    Else a call on a GPU saves them if one of its tensors requires a gradient and its plan has some to save: a scan whose states
    are summed away, as Mamba's, saves every eighth. The gradient is then faster by a pass that would compute them again, and
    memory holds them until then. `with oplus.record():` inside such a block saves them again.
    """

    def __init__(self, enabled: bool = True) -> None:
        self._enabled = enabled
        self._before: list[bool] = []

    def __enter__(self) -> None:
        self._before.append(is_recording())
        _local.recording = self._enabled

    def __exit__(self, *exception: object) -> None:
        _local.recording = self._before.pop()


def is_recording() -> bool:
    """Whether calls of this thread save states for their gradients."""
    return _local.recording
