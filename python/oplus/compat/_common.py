"""What the drop-ins share."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from .. import _native


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


# A kernel that takes packed sequences at once stores the states of all times: how many numbers these may be. On a CPU more of them take
# longer than padding does, and so it is on a GPU, where they also take memory.
MOST_STATES = {"cpu": 1 << 21, "cuda": 1 << 26}


@dataclass
class Whole:
    """How packed sequences with a state each are computed in one call, without any padding."""

    # Takes the first states, the borders, and the tensors; gives outputs and last states as `packed` does.
    call: Callable[..., tuple[Any, Tensor]]
    # How many numbers the state of one time has, if the call stores the states of all times; else 0.
    numbers: int

    def fits(self, like: Tensor, times: int) -> bool:
        """Whether there are kernels for it, and memory for the states."""
        device = like.device.type
        return (device == "cpu" or _native.COMPILES) and times * self.numbers <= MOST_STATES.get(device, 0)


def packed(
    cu_seqlens: Tensor,
    initial: Tensor | None,
    tensors: Sequence[Tensor | None],
    call: Callable[..., tuple[Tensor, Tensor]],
    whole: Whole | None = None,
) -> tuple[Any, Tensor]:
    """Sequences one behind the other along axis 1, each with a first and a last state: the outputs so, and the states, stacked.

    `call(initial states, *tensors)` is given batches of sequences. Zeros behind the end of a shorter one must leave its state as
    it is. Sequences of one length are such a batch; others are one call of `whole` where it fits; else one call has all sequences where
    no more than half of its times are zeros; else every sequence has its own.
    """
    ends, like = borders(cu_seqlens, initial, tensors)
    lengths = [end - start for start, end in zip(ends, ends[1:])]
    longest = max(lengths)
    is_even = len(lengths) * longest == ends[-1]
    if whole is not None and not is_even and whole.fits(like, ends[-1]):
        return whole.call(initial, cu_seqlens, *tensors)
    if longest == 0 or len(lengths) * longest > 2 * ends[-1]:
        parts = []
        for at, (start, end) in enumerate(zip(ends, ends[1:])):
            first = None if initial is None else initial[at : at + 1]
            parts.append(call(first, *[None if x is None else x[:, start:end] for x in tensors]))
        return torch.cat([output for output, _ in parts], 1), torch.cat([state for _, state in parts])
    if is_even:
        output, state = call(initial, *[None if x is None else x[0].unflatten(0, (-1, longest)) for x in tensors])
        return output.flatten(0, 1).unsqueeze(0), state
    times = torch.arange(longest, device=like.device)
    starts, counts = (torch.tensor(x, device=like.device)[:, None] for x in (ends[:-1], lengths))
    place, is_real = (starts + times).clamp(max=ends[-1] - 1), times < counts

    def padded(x: Tensor) -> Tensor:
        return x[0][place].masked_fill(~is_real.reshape(*is_real.shape, *[1] * (x.dim() - 2)), 0)

    output, state = call(initial, *[None if x is None else padded(x) for x in tensors])
    return output[is_real].unsqueeze(0), state


def borders(cu_seqlens: Tensor, initial: Tensor | None, tensors: Sequence[Tensor | None]) -> tuple[list[int], Tensor]:
    """The borders of packed sequences, checked against the tensors, and the first of these."""
    ends: list[int] = cu_seqlens.tolist()
    given = next(x for x in tensors if x is not None)
    if given.shape[0] != 1:
        raise ValueError(f"with `cu_seqlens` the batch must be 1, it is {given.shape[0]}")
    lengths = [end - start for start, end in zip(ends, ends[1:])]
    if not lengths or ends[0] != 0 or ends[-1] != given.shape[1] or min(lengths) < 0:
        raise ValueError(f"`cu_seqlens` must go from 0 up to {given.shape[1]}, it is {ends}")
    if initial is not None and initial.shape[0] != len(lengths):
        raise ValueError(f"there are {len(lengths)} sequences, but {initial.shape[0]} initial states")
    return ends, given


@dataclass
class Options:
    """What the functions of flash-linear-attention may be asked for."""

    scale: float | None = None
    initial_state: Tensor | None = None
    output_final_state: bool = False
    reverse: bool = False
    state_v_first: bool = False
    cu_seqlens: Tensor | None = None

    @classmethod
    def of(cls, name: str, given: dict[str, Any]) -> Options:
        """Those among the arguments of a function, `locals()`. Of its `kwargs` hints that only choose a schedule are taken and
        change nothing; what nobody knows is refused."""
        found = cls(**{field.name: given[field.name] for field in fields(cls) if field.name in given})
        kwargs = dict(given.get("kwargs") or {})
        former = kwargs.pop("transpose_state_layout", None)
        if former is not None:
            if found.state_v_first:
                raise ValueError("`transpose_state_layout` is the former name of `state_v_first`; give one of them")
            warnings.warn("`transpose_state_layout` is called `state_v_first` now", DeprecationWarning, stacklevel=3)
            found.state_v_first = bool(former)
        if kwargs.pop("head_first", None):
            raise Unsupported("tensors must be [B, T, H, …]; `head_first` is gone from fla as well")
        hints = ("chunk_size", "chunk_indices")
        refuse(name, **{key: value is not None for key, value in kwargs.items() if key not in hints})
        return found
