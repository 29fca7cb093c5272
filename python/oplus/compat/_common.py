"""What the drop-ins share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class Unsupported(NotImplementedError):
    """A drop-in does not do what an argument asks for."""


def wide(like: Tensor) -> torch.dtype:
    """The type of states and of what is learned beside tensors of a type."""
    return torch.float64 if like.dtype == torch.float64 else torch.float32


def refuse(name: str, **given: bool) -> None:
    """Refuses arguments that a drop-in does not do."""
    for argument, is_given in given.items():
        if is_given:
            raise Unsupported(f"`{name}` of oplus.compat does not do `{argument}`")


def check(name: str, tensor: Tensor, axes: str, *sizes: int | None) -> None:
    """Checks the shape of an argument; an axis of size `None` may have any."""
    names = axes.split()
    if tensor.dim() != len(names):
        raise ValueError(f"`{name}` has {tensor.dim()} axes, it must have {len(names)}: [{', '.join(names)}]")
    for axis, size, found in zip(names, sizes, tensor.shape):
        if size is not None and found != size:
            raise ValueError(f"axis {axis} has size {found} in `{name}`, it must have {size}")


def grouped(name: str, heads: int, groups: int) -> int:
    """How many heads a group has."""
    if groups == 0 or heads % groups:
        raise ValueError(f"{heads} {name} cannot be divided among {groups} groups")
    return heads // groups


def flipped(tensor: Tensor | None, axis: int = 1) -> Tensor | None:
    """A tensor with its times in the other order."""
    return None if tensor is None else tensor.flip(axis)


def packed(
    cu_seqlens: Tensor, initial: Tensor | None, call: Callable[[int, int, Tensor | None], tuple[Tensor, Any]]
) -> tuple[Tensor, list[Any]]:
    """Sequences one behind the other along axis 1: `call(from, to, initial state)` for each; the outputs, joined, and the states.

    One launch of a kernel packs sequences that begin at zero and whose last states nobody wants; this is for the others.
    """
    ends = cu_seqlens.tolist()
    if initial is not None and initial.shape[0] != len(ends) - 1:
        raise ValueError(f"there are {len(ends) - 1} sequences, but {initial.shape[0]} initial states")
    outputs, states = [], []
    for at, (start, end) in enumerate(zip(ends, ends[1:])):
        output, state = call(start, end, None if initial is None else initial[at : at + 1])
        outputs.append(output)
        states.append(state)
    return torch.cat(outputs, 1), states
