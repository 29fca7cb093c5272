"""Calls with arrays of JAX: eager ones read its arrays where they lie, traced ones are callbacks; both have the derived gradient.

A program under `jax.jit` hands a callback its arrays in the memory of the CPU. On a GPU call kernels outside of `jax.jit`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy

from . import _native, _numpy
from ._derived import Derived, derived_of, is_float

if TYPE_CHECKING:
    from ._kernel import Kernel

Arrays = tuple[Any, ...]

_DTYPES: dict[str, Any] = {
    "f64": jnp.float64,
    "f32": jnp.float32,
    "bf16": jnp.bfloat16,
    "f16": jnp.float16,
    "i32": jnp.int32,
    "i64": jnp.int64,
    "u32": jnp.uint32,
    "u64": jnp.uint64,
    "bool": jnp.bool_,
}
_ELEMS = {numpy.dtype(dtype): elem for elem, dtype in _DTYPES.items()}

_functions: dict[int, Any] = {}


def call(kernel: Kernel, args: Arrays) -> Arrays:
    """Runs a kernel on arrays of JAX."""
    for x, param in zip(args, kernel._params):
        if x is not None and not isinstance(x, jax.Array):
            raise TypeError(f"`{param.name}` must be an array of JAX as the others are, but it is a {type(x).__qualname__}")
    return _function(derived_of(kernel._native))(*args)


def _function(derived: Derived) -> Any:
    """A kernel as a function of JAX, whose gradient is the derived one."""
    found = _functions.get(id(derived))
    if found is not None:
        return found

    @jax.custom_vjp
    def function(*args: Any) -> Arrays:
        return _run(derived, args)

    def forward(*args: Any) -> tuple[Arrays, Any]:
        # Not `_run`: what is differentiated may be differentiated in turn.
        outputs = function(*args)
        if not derived.is_differentiable:
            raise TypeError(f"`{derived.native.name}` has no gradient: none of its parameters and outputs are floats")
        both = (*args, *outputs)
        # What was left out must be known when the gradient is traced: it is part of the structure.
        given = tuple(None if x is None else jnp.zeros(0, x.dtype) for x in args)
        return outputs, (given, [both[at] for at in derived.saved])

    def backward(kept: Any, cotangents: Arrays) -> Arrays:
        given, saved = kept
        wanted = [at for at, param in enumerate(derived.params) if given[at] is not None and is_float(param.elem)]
        if not wanted:
            return (None,) * len(derived.params)
        chosen = tuple(at in wanted for at, param in enumerate(derived.params) if is_float(param.elem))
        part = derived_of(derived.part(chosen))
        found = iter(_function(part)(*[cotangents[at] if is_bar else saved[at] for is_bar, at in derived.sources]))
        return tuple(next(found).astype(given[at].dtype) if at in wanted else None for at in range(len(derived.params)))

    function.defvjp(forward, backward)
    _functions[id(derived)] = function
    return function


def _run(derived: Derived, args: Arrays) -> Arrays:
    if any(isinstance(x, jax.core.Tracer) for x in args):
        return _traced(derived, args)
    device = next(iter(next(x for x in args if x is not None).devices()))
    if device.platform == "cpu":
        found = derived.native.call(tuple(jax.block_until_ready(args)), _numpy.allocate)
        return tuple(jnp.asarray(x) for x in found)

    def allocate(elem: str, shape: tuple[int, ...]) -> Any:
        return jax.block_until_ready(jnp.zeros(shape, _DTYPES[elem], device=device))

    outputs = derived.native.call(args, allocate)
    _native.synchronize(device.local_hardware_id)
    return outputs


def _traced(derived: Derived, args: Arrays) -> Arrays:
    """The call as a callback of the program that is traced."""
    given = [at for at, x in enumerate(args) if x is not None]

    def back(*arrays: Any) -> Arrays:
        every: list[Any] = [None] * len(args)
        for at, array in zip(given, arrays):
            every[at] = numpy.asarray(array)
        return derived.native.call(tuple(every), _numpy.allocate)

    shapes = derived.shapes([None if x is None else (x.shape, _ELEMS[x.dtype]) for x in args])
    results = tuple(jax.ShapeDtypeStruct(shape, _DTYPES[elem]) for elem, shape in shapes)
    return jax.pure_callback(back, results, *[args[at] for at in given], vmap_method="sequential")


def scalar(value: float, elem: str, call: Any, like: Any) -> Any:
    """A number as an array without axes, beside another array."""
    dtype = _DTYPES.get(elem)
    if dtype is None:
        dtype = call.dtype if elem == "call" or call.dtype == jnp.float64 else jnp.float32
    return jnp.asarray(value, dtype)
