"""What is derived from a kernel, and how the parameters of its gradient correspond to its own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from . import _native


class Derived:
    """What is derived from a kernel, made when it is first needed."""

    def __init__(self, native: _native.Kernel) -> None:
        self.native = native
        self.params = native.params
        self.outputs = native.outputs
        floats = [output for output in self.outputs if is_float(output.elem)]
        self.integers = [at for at, output in enumerate(self.outputs) if not is_float(output.elem)]
        self.names = [param.name for param in self.params] + [output.name for output in self.outputs]
        self.cotangents = {f"{output.name}.bar": at for at, output in enumerate(self.outputs)}
        self.is_differentiable = bool(floats) and any(is_float(param.elem) for param in self.params)
        # Parameters that may store one of two types of floats, which their gradients then store.
        self.has_choice = self.is_differentiable and any(p.other and is_float(p.elem) for p in self.params)
        # Whether a call may save states for its gradient.
        self.may_save = self.is_differentiable and native.sums
        # Gradients of no input, behind that of this object.
        self.nothing = (None,) * (len(self.params) + 1)
        self.float_outputs = [at for at, output in enumerate(self.outputs) if is_float(output.elem)]
        self._parts: dict[tuple[bool, ...], _native.Kernel] = {}
        self._shares: dict[tuple[bool, ...], Share] = {}
        self._batched: dict[tuple[bool, ...], tuple[Derived, list[bool]]] = {}

    @cached_property
    def gradient(self) -> Derived:
        """The gradient, a kernel of its own."""
        return derived_of(self.native.gradient())

    @cached_property
    def saved(self) -> list[int]:
        """Which inputs and outputs, counted one after the other, the gradient reads."""
        wanted = {param.name for param in self.gradient.params}
        return [at for at, name in enumerate(self.names) if name in wanted]

    @cached_property
    def sources(self) -> list[tuple[bool, int]]:
        """Where each parameter of the gradient comes from: a cotangent, or a saved tensor, and which."""
        places = {self.names[at]: place for place, at in enumerate(self.saved)}
        return [
            (True, self.cotangents[param.name]) if param.name not in places else (False, places[param.name])
            for param in self.gradient.params
        ]

    @cached_property
    def tangent(self) -> Derived:
        """The tangents of the outputs that store floats: a kernel of the parameters and of the tangents of those that store floats."""
        return derived_of(self.native.tangent(False))

    def part(self, wanted: tuple[bool, ...]) -> _native.Kernel:
        """The gradient with those outputs only that are wanted."""
        found = self._parts.get(wanted)
        if found is None:
            found = self.native.gradient() if all(wanted) else self.native.gradient(list(wanted))
            self._parts[wanted] = found
        return found

    def share(self, needed: tuple[bool, ...]) -> Share:
        """The gradients of some of the inputs, behind that of this object."""
        found = self._shares.get(needed)
        if found is None:
            found = self._shares[needed] = Share(self, needed)
        return found

    def batched(self, mapped: tuple[bool, ...]) -> tuple[Derived, list[bool]]:
        """The kernel with one more axis before those of some parameters."""
        found = self._batched.get(mapped)
        if found is None:
            native, outputs = self.native.batched(list(mapped))
            found = self._batched[mapped] = (Derived(native), outputs)
        return found

    def shapes(self, given: Sequence[tuple[Sequence[Any], str] | None]) -> list[tuple[str, list[Any]]]:
        """The element types and shapes of the outputs for those of the inputs, whose sizes may be symbols of a tracer."""
        sizes: dict[str, Any] = {}
        call: str | None = None
        other: str | None = None
        for param, known in zip(self.params, given):
            if known is None:
                continue
            for axis, size in zip(param.axes, known[0]):
                sizes.setdefault(axis, size)
            if param.elem == "call":
                call, other = (call or known[1], other) if param.other is None else (call, other or known[1])
        call = call or other or "f32"
        wide = "f64" if call == "f64" else "f32"
        stored = {"call": call, "wide": wide, "state": wide}
        return [(stored.get(o.elem, o.elem), [sizes[axis] for axis in o.axes]) for o in self.outputs]


class Share:
    """The gradients of some of a call's inputs, and where they stand among those of all."""

    def __init__(self, derived: Derived, needed: tuple[bool, ...]) -> None:
        self._derived = derived
        floats = [at for at, param in enumerate(derived.params) if is_float(param.elem)]
        # For each input that stores floats, whether its gradient is needed.
        self.wanted = tuple(bool(needed[at + 1]) for at in floats)
        self.is_empty = not derived.is_differentiable or not any(self.wanted)
        self._places = [at + 1 for at, wanted in zip(floats, self.wanted) if wanted]
        self._is_whole = len(self._places) == len(derived.params)

    @cached_property
    def part(self) -> _native.Kernel:
        """The kernel of these gradients."""
        return self._derived.part(self.wanted)

    def placed(self, found: tuple[Any, ...]) -> tuple[Any, ...]:
        """These gradients among those of all."""
        if self._is_whole:
            return None, *found
        every: list[Any] = list(self._derived.nothing)
        for at, gradient in zip(self._places, found):
            every[at] = gradient
        return tuple(every)


_derived: dict[int, Derived] = {}


def derived_of(native: _native.Kernel) -> Derived:
    """What is derived from a kernel, which lives as long as the process."""
    found = _derived.get(id(native))
    if found is None:
        found = _derived[id(native)] = Derived(native)
    return found


def is_float(elem: str) -> bool:
    """Whether tensors of an element type have gradients."""
    return elem in ("call", "wide", "state", "f64", "f32", "bf16", "f16")
