"""Kernels: what a text's `fn` becomes in Python."""

from __future__ import annotations

import re
from collections import namedtuple
from functools import cache, cached_property
from types import ModuleType
from typing import Any

from . import _native
from ._derived import Derived, derived_of

Array = Any

# The modules that make calls with arrays of a type, found once for each type.
_libraries: dict[type, ModuleType] = {}

# The native kernels by a name of their own, under which tracers find them again.
kernels: dict[str, _native.Kernel] = {}


def _plain(docs: str) -> str:
    """Documentation of Rust without its links and escapes."""
    return re.sub(r"\\([^\w\s])", r"\1", re.sub(r"\[(`[^`\]]*`)\]\([^)]*\)", r"\1", docs))


def _made(kernel: Kernel, name: str) -> str:
    """The attribute that has a kernel that follows from another one, which is made when it is first asked for."""
    attribute = f"_{name}"
    if getattr(kernel, attribute) is None:
        setattr(kernel, attribute, getattr(kernel, f"_make_{name}")())
    return attribute


# `torch.compile` calls the function while it traces a program, and does not trace it. It can do so with functions that give texts, and
# reads attributes when it comes to them.
_made._dynamo_marked_constant = True  # type: ignore[attr-defined]


class Kernel:
    """A kernel: called with arrays of NumPy, PyTorch or JAX, it gives a named tuple of arrays of the same library.

    Parameters go by position or by name; those with a default may be left out. On PyTorch and JAX calls are differentiable.
    """

    def __init__(self, native: _native.Kernel, docs: str | None = None) -> None:
        self._native = native
        # The kernel whose forward mode this is.
        self._origin: Kernel | None = None
        self._docs = _plain(native.docs) if docs is None else docs
        self._gradient: Kernel | None = None
        self._tangent: Kernel | None = None
        self._step: Kernel | None = None
        self._key = f"{native.name}#{len(kernels)}"
        kernels[self._key] = native
        self._params = native.params
        self._count = len(self._params)
        self._places = {param.name: at for at, param in enumerate(self._params)}
        # For names of arguments that have been seen, where each parameter stands among the arguments; behind them stands None.
        self._orders: dict[tuple[int, tuple[str, ...]], tuple[int, ...]] = {}
        self._scalars = [at for at, param in enumerate(self._params) if not param.axes]
        self.__name__ = self.__qualname__ = native.name.replace(".", "_")
        names = [output.name.replace(".", "_") for output in native.outputs]
        self._output = namedtuple(self.__name__, names, module="oplus")  # type: ignore[misc]
        self.__doc__ = "\n\n".join(filter(None, [self._docs, repr(self)]))

    def __call__(self, *args: Array, **kwargs: Array) -> Any:
        if kwargs or len(args) != self._count:
            args = self._bound(args, kwargs)
        library = _libraries.get(type(args[0])) or self._library(args)
        if self._scalars:
            args = self._with_scalars(library, args)
        return tuple.__new__(self._output, library.call(self, args))

    @cached_property
    def _derived(self) -> Derived:
        return derived_of(self._native)

    @property
    def params(self) -> list[_native.TensorType]:
        """The parameters: their names, axes, element types and defaults."""
        return list(self._params)

    @property
    def outputs(self) -> list[_native.TensorType]:
        """The outputs: their names, axes and element types."""
        return self._native.outputs

    @property
    def equations(self) -> str:
        """The kernel as equations."""
        return self._native.equations

    @property
    def text(self) -> str:
        """The program in its text form."""
        return self._native.text

    @property
    def gradient(self) -> Kernel:
        """The kernel of the derived gradient.

        Its parameters are named as those parameters and outputs of this kernel that it needs, and `y_bar` for the cotangent of
        the output y (zero when it is left out); its outputs are `p_bar` for the parameter p.
        """
        return getattr(self, _made(self, "gradient"))

    def _make_gradient(self) -> Kernel:
        return Kernel(self._native.gradient())

    @property
    def tangent(self) -> Kernel:
        """The kernel of forward mode: outputs, and their derivatives along a direction.

        Its parameters are those of this kernel and then `p_dot`, the direction of each parameter p that stores floats (zero when
        it is left out); its outputs are those of this kernel and then `y_dot`, the derivative of each output y that stores floats.
        """
        return getattr(self, _made(self, "tangent"))

    def _make_tangent(self) -> Kernel:
        found = Kernel(self._native.tangent(True))
        found._origin = self
        return found

    @property
    def step(self) -> Kernel:
        """The kernel of one step, without the axis that is scanned, for decoding. The state comes in and goes out."""
        return getattr(self, _made(self, "step"))

    def _make_step(self) -> Kernel:
        native, axis, states = self._native.step()
        hands = ", ".join(f"`{output}` goes on to `{param}`" for param, output in states)
        return Kernel(native, f"One step of `{self.__name__}` along {axis}: {hands}.")

    def explain(
        self, *, elem: str = "f32", device: str | None = None, without: tuple[str, ...] | list[str] = (), **sizes: int
    ) -> _native.Explanation:
        """What a call of these sizes does and why: equations, the adjoint, and the plan.

        `elem` is the element type of the call, `device` is "cpu", "cuda" or "h200" (which need not be there), `without` names
        parameters that are left to their default.
        """
        return self._native.explain(list(sizes.items()), elem, device, list(without))

    def __copy__(self) -> Kernel:
        return self

    def __deepcopy__(self, memo: object) -> Kernel:
        """A kernel has no state: copies of a model share it."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickled kernel is its program as text, or the forward mode of such a one."""
        if self._origin is not None:
            return getattr, (self._origin, "tangent")
        return _of_text, (self._native.text, self._docs)

    def __repr__(self) -> str:
        params, outputs = (", ".join(map(repr, tensors)) for tensors in (self._params, self.outputs))
        return f"fn {self.__name__}({params}) -> ({outputs})\n{self.equations.rstrip()}"

    def _bound(self, args: tuple[Array, ...], kwargs: dict[str, Array]) -> tuple[Array, ...]:
        """The arguments in the order of the parameters, None for those that are left out."""
        form = (len(args), tuple(kwargs))
        order = self._orders.get(form)
        if order is None:
            order = self._orders[form] = self._order(*form)
        given = (*args, *kwargs.values(), None)
        return tuple([given[at] for at in order])

    def _order(self, count: int, names: tuple[str, ...]) -> tuple[int, ...]:
        """Where each parameter stands among `count` arguments and those of these names."""
        if count > self._count:
            raise TypeError(f"`{self.__name__}` takes {self._count} tensors, {count} were given")
        left_out = count + len(names)
        order = [*range(count), *[left_out] * (self._count - count)]
        for place, name in enumerate(names, count):
            at = self._places.get(name)
            if at is None:
                at = self._places.get(name.replace("_bar", ".bar").replace("_dot", ".dot"))
            if at is None:
                known = ", ".join(self._places)
                raise TypeError(f"`{self.__name__}` has no parameter `{name}`; its parameters are {known}")
            if at < count:
                raise TypeError(f"`{self.__name__}` got `{name}` twice")
            order[at] = place
        if not order:
            raise TypeError(f"`{self.__name__}` has no parameters, so that nothing tells where it runs")
        return tuple(order)

    def _library(self, args: tuple[Array, ...]) -> ModuleType:
        """How a call is made: as the first array that is given asks for."""
        for param, value in zip(self._params, args):
            if value is None or isinstance(value, (bool, int, float)):
                continue
            found = _library_of(type(value))
            if found is None:
                raise TypeError(
                    f"`{param.name}` must be an array of NumPy, PyTorch or JAX, but it is a {type(value).__qualname__}"
                )
            return found
        missing = next((param.name for param in self._params if param.default is None), self._params[0].name)
        raise TypeError(f"`{missing}` is missing; at least one array must be given")

    def _with_scalars(self, library: ModuleType, args: tuple[Array, ...]) -> tuple[Array, ...]:
        """Python's numbers among the arguments as arrays without axes."""
        if not any(isinstance(args[at], (bool, int, float)) for at in self._scalars):
            return args
        like = next(x for x in args if x is not None and not isinstance(x, (bool, int, float)))
        call = next((x for x, p in zip(args, self._params) if p.elem == "call" and hasattr(x, "dtype")), like)
        full = list(args)
        for at in self._scalars:
            if isinstance(full[at], (bool, int, float)):
                full[at] = library.scalar(full[at], self._params[at].elem, call, like)
        return tuple(full)


@cache
def _of_text(text: str, docs: str) -> Kernel:
    """The kernel of a program in its text form, one for every text that is unpickled."""
    return Kernel(_native.Kernel.of_text(text, docs))


def _library_of(kind: type) -> ModuleType | None:
    """The module that makes calls with arrays of a type; their library is there, for whoever has such an array has imported it."""
    found: ModuleType | None = None
    for base in kind.__mro__:
        library = base.__module__.partition(".")[0]
        if library == "numpy" and base.__name__ in ("ndarray", "generic"):
            from . import _numpy as found
        elif library == "torch" and base.__name__ == "Tensor":
            from . import _torch as found
        elif library in ("jax", "jaxlib") and base.__name__ in ("Array", "ArrayImpl", "Tracer"):
            from . import _jax as found
        if found is not None:
            _libraries[kind] = found
            return found
    return None
