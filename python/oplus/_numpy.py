"""Calls with arrays of NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy

if TYPE_CHECKING:
    from ._kernel import Kernel

_DTYPES: dict[str, Any] = {
    "f64": numpy.dtype("float64"),
    "f32": numpy.dtype("float32"),
    "f16": numpy.dtype("float16"),
    "i32": numpy.dtype("int32"),
    "i64": numpy.dtype("int64"),
    "u32": numpy.dtype("uint32"),
    "u64": numpy.dtype("uint64"),
    "bool": numpy.dtype("bool"),
}


def _bfloat16() -> Any:
    import ml_dtypes

    return numpy.dtype(ml_dtypes.bfloat16)


def allocate(elem: str, shape: tuple[int, ...]) -> numpy.ndarray:
    """An array for an output."""
    dtype = _DTYPES.get(elem)
    if dtype is None:
        dtype = _DTYPES[elem] = _bfloat16()
    return numpy.empty(shape, dtype)


def call(kernel: Kernel, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Runs a kernel on arrays of NumPy, which it neither copies nor keeps."""
    return kernel._native.call(args, allocate)


def scalar(value: float, elem: str, call: Any, like: Any) -> Any:
    """A number as an array without axes, beside another array."""
    dtype = _DTYPES.get(elem)
    if dtype is None:
        dtype = call.dtype if elem == "call" or call.dtype == numpy.float64 else numpy.float32
    return numpy.asarray(value, dtype)
