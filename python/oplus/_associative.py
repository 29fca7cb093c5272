"""`associative_scan`: a Python function on elements, as JAX and PyTorch take it, becomes a kernel."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from . import _native, _symbols
from ._kernel import Kernel
from ._symbols import Symbol, Trace
from ._text import ScanError, error_of

_KINDS = {"f64": "float", "f32": "float", "bf16": "float", "f16": "float", "bool": "bool"}
_ELEMS = {"float64": "f64", "float32": "f32", "bfloat16": "bf16", "float16": "f16"} | {
    name: name for name in ("bool", "i32", "i64", "u32", "u64")
}
_ELEMS |= {"int32": "i32", "int64": "i64", "uint32": "u32", "uint64": "u64"}


def associative_scan(
    fn: Callable[[Any, Any], Any], xs: Any, *, identity: Any = None, reverse: bool = False, axis: int = 0
) -> Any:
    """Scans arrays with an associative function, as `jax.lax.associative_scan` does: y[t] = fn(y[t-1], x[t]) and y[0] = x[0].

    `xs` is an array, or arrays of one shape in tuples, lists and dictionaries; `fn(l, r)` is given two elements of that
    structure and gives one. It is called once, with symbols in place of numbers: it computes with `+ - * / % **`, comparisons,
    `& | ~`, and `oplus.exp`, `log`, `log1p`, `sqrt`, `tanh`, `sigmoid`, `softplus`, `sin`, `cos`, `abs`, `sign`, `floor`,
    `minimum`, `maximum` and `where`, or what NumPy and PyTorch call so. That it is associative is checked.

    `identity`, a number for every array, is the element that changes nothing on either side. Where it is left out, a flag that
    says which elements are any is scanned with them, which costs time. With `reverse` the scan goes from the end to the start.
    """
    leaves, build = _flat(xs)
    if not leaves:
        raise ValueError("`xs` holds no arrays")
    shape = tuple(leaves[0].shape)
    for at, leaf in enumerate(leaves):
        if tuple(leaf.shape) != shape:
            raise ValueError(f"array 0 of `xs` has shape {shape}, but array {at} has {tuple(leaf.shape)}; all must be alike")
    if not -len(shape) <= axis < len(shape):
        raise ValueError(f"`axis` is {axis}, but the arrays of `xs` have {len(shape)} axes")
    elems = tuple(_elem(leaf) for leaf in leaves)
    text = _written(fn, elems, build, identity, reverse, len(shape), axis % len(shape))
    kernel = _compiled(text)
    if isinstance(kernel, ScanError):
        raise kernel.with_traceback(None)
    return build(list(kernel(*leaves)))


@lru_cache(maxsize=1024)
def _compiled(text: str) -> Kernel | ScanError:
    kernels, mistakes = _native.compile(text, False)
    return error_of(text, mistakes, "<oplus.associative_scan>") if mistakes else Kernel(kernels[0])


def _elem(array: Any) -> str:
    name = str(array.dtype).rpartition(".")[2]
    if name not in _ELEMS:
        raise TypeError(f"an array of `xs` stores {name}; {', '.join(list(_ELEMS)[:5])}, 32 and 64 bit integers are known")
    return _ELEMS[name]


def _written(
    fn: Callable[[Any, Any], Any], elems: tuple[str, ...], build: Any, identity: Any, reverse: bool, axes: int, axis: int
) -> str:
    """The text of a kernel that scans with a function."""
    trace, sides = Trace(), []
    for side in "lr":
        sides.append(build([Symbol(trace, f"{side}.f{at}", _KINDS.get(elem, "int")) for at, elem in enumerate(elems)]))
    found, _ = _flat(fn(*sides), leaf=(Symbol, bool, int, float))
    if len(found) != len(elems):
        raise TypeError(f"`fn` must give {len(elems)} values in the structure of `xs`, it gives {len(found)}")
    results = [_symbols.written(value) for value in found]
    count = range(len(elems))
    # Floats of one type take that of the call, so that f16 and bf16 are computed in f32 and rounded at the end.
    floats = {elem for elem in elems if _KINDS.get(elem) == "float"}
    typed = [elem if _KINDS.get(elem) != "float" or len(floats) > 1 else "" for elem in elems]
    field = [f"f{at}" if not elem or _KINDS.get(elem) == "float" else f"f{at}: {elem}" for at, elem in enumerate(typed)]
    elements, domain, zeros = [f"x{at}" for at in count], "", []
    if identity is None:
        zeros = ["false" if elem == "bool" else "0" for elem in elems]
        empty = [f"!f{at}" if elem == "bool" else f"f{at} == 0" for at, elem in enumerate(elems)]
        domain = f" where any || ({' && '.join(empty)})"
        results = [
            f"if !l.any {{ r.f{at} }} else {{ if !r.any {{ l.f{at} }} else {{ {results[at]} }} }}" for at in count
        ] + ["l.any || r.any"]
        field, elements, zeros = [*field, "any: bool"], [*elements, "true"], [*zeros, "false"]
    else:
        values, _ = _flat(identity, leaf=(bool, int, float))
        if len(values) != len(elems):
            raise ValueError(f"`identity` must have a number for each of the {len(elems)} arrays, it has {len(values)}")
        zeros = [_symbols.written(value).strip("()") for value in values]
    names = ", ".join("T" if at == axis else f"A{at}" for at in range(axes))
    params, outputs = (", ".join(f"{name}{at}: {typed[at]}[{names}]" for at in count) for name in "xy")
    given = "\n        ".join(trace.lines)
    states = ", ".join(f"h.f{at}" for at in count) if len(field) > 1 else "h"
    many = len(elems) > 1
    return f"""
op Traced({', '.join(field)}){domain} {{
    identity ({', '.join(zeros)});
    combine(l, r) {{
        {given}
        ({', '.join(results)})
    }}
}}
fn associative_scan({params}) -> ({outputs}) {{
    let h = scan(T, Traced({', '.join(elements)}){', reverse' if reverse else ''});
    {'(' * many}{', '.join(f'y{at}' for at in count)}{')' * many} = {'(' * many}{states}{')' * many};
}}
"""


def _flat(tree: Any, leaf: tuple[type, ...] | None = None) -> tuple[list[Any], Callable[[list[Any]], Any]]:
    """The leaves of a structure of tuples, lists and dictionaries, and what puts others in their places."""
    if isinstance(tree, dict):
        keys = list(tree)
        parts = [_flat(tree[key], leaf) for key in keys]
        return _joined(parts, lambda built: dict(zip(keys, built)))
    if isinstance(tree, (tuple, list)):
        kind = type(tree)
        parts = [_flat(part, leaf) for part in tree]
        make = (lambda built: kind(*built)) if hasattr(tree, "_fields") else kind
        return _joined(parts, make)
    if leaf is None and not hasattr(tree, "shape"):
        raise TypeError(f"`xs` must be arrays in tuples, lists and dictionaries; it holds a {type(tree).__qualname__}")
    if leaf is not None and not isinstance(tree, leaf):
        raise TypeError(f"a number or a field was expected, not a {type(tree).__qualname__}")
    return [tree], lambda built: built[0]


def _joined(parts: list[Any], make: Callable[[list[Any]], Any]) -> tuple[list[Any], Callable[[list[Any]], Any]]:
    leaves = [leaf for found, _ in parts for leaf in found]

    def build(values: list[Any]) -> Any:
        built, at = [], 0
        for found, inner in parts:
            built.append(inner(values[at : at + len(found)]))
            at += len(found)
        return make(built)

    return leaves, build
