"""Symbols: what a traced Python function computes with, and what it has done with them as lines of a text."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any


class Trace:
    """The lines of a text that a function has written so far."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._known: dict[str, Symbol] = {}

    def value(self, expression: str, kind: str) -> Symbol:
        """The value of an expression, which is written once."""
        found = self._known.get(expression)
        if found is None:
            found = self._known[expression] = Symbol(self, f"v{len(self.lines)}", kind)
            self.lines.append(f"let {found.name} = {expression};")
        return found


class Symbol:
    """A number of a field, which has no value while a function is traced. Its kind is `float`, `int` or `bool`."""

    __slots__ = ("trace", "name", "kind")
    __hash__ = object.__hash__

    def __init__(self, trace: Trace, name: str, kind: str) -> None:
        self.trace, self.name, self.kind = trace, name, kind

    def __bool__(self) -> bool:
        raise TypeError("a traced function cannot branch on a field; write `oplus.where(condition, a, b)`")

    def __float__(self) -> float:
        raise TypeError("a field has no value while the function is traced; use the functions of `oplus` on it")

    __int__ = __index__ = __float__  # type: ignore[assignment]

    def _binary(self, operator: str, other: Any, kind: str | None = None, swapped: bool = False) -> Any:
        if not _is_operand(other):
            return NotImplemented
        left, right = (other, self) if swapped else (self, other)
        return self.trace.value(f"{written(left)} {operator} {written(right)}", kind or joined(self, other))

    def _bits(self, on_bools: str, on_integers: str, other: Any) -> Any:
        return self._binary(on_bools if self.kind == "bool" else on_integers, other)

    def __add__(self, other: Any) -> Any:
        return self._binary("+", other)

    def __sub__(self, other: Any) -> Any:
        return self._binary("-", other)

    def __mul__(self, other: Any) -> Any:
        return self._binary("*", other)

    def __truediv__(self, other: Any) -> Any:
        return self._binary("/", other)

    def __mod__(self, other: Any) -> Any:
        return self._binary("%", other)

    def __radd__(self, other: Any) -> Any:
        return self._binary("+", other, swapped=True)

    def __rsub__(self, other: Any) -> Any:
        return self._binary("-", other, swapped=True)

    def __rmul__(self, other: Any) -> Any:
        return self._binary("*", other, swapped=True)

    def __rtruediv__(self, other: Any) -> Any:
        return self._binary("/", other, swapped=True)

    def __lt__(self, other: Any) -> Any:
        return self._binary("<", other, "bool")

    def __le__(self, other: Any) -> Any:
        return self._binary("<=", other, "bool")

    def __gt__(self, other: Any) -> Any:
        return self._binary(">", other, "bool")

    def __ge__(self, other: Any) -> Any:
        return self._binary(">=", other, "bool")

    def __eq__(self, other: Any) -> Any:
        return self._binary("==", other, "bool")

    def __ne__(self, other: Any) -> Any:
        return self._binary("!=", other, "bool")

    def __and__(self, other: Any) -> Any:
        return self._bits("&&", "&", other)

    def __or__(self, other: Any) -> Any:
        return self._bits("||", "|", other)

    def __xor__(self, other: Any) -> Any:
        return self._bits("!=", "^", other)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __neg__(self) -> Symbol:
        return self.trace.value(f"-{self.name}", self.kind)

    def __invert__(self) -> Symbol:
        return self.trace.value(f"!{self.name}", self.kind)

    def __abs__(self) -> Symbol:
        return self.trace.value(f"abs({self.name})", self.kind)

    def __pow__(self, power: Any) -> Any:
        if power == 0.5:
            return self.trace.value(f"sqrt({self.name})", self.kind)
        if isinstance(power, int) and not isinstance(power, bool):
            return self.trace.value(f"powi({self.name}, {power})", self.kind)
        raise TypeError(f"a field may be taken to a whole power or to 0.5, not to {power!r}")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return _applied(ufunc.__name__, inputs, options or method != "__call__")

    @classmethod
    def __torch_function__(cls, function: Any, kinds: Any, args: tuple[Any, ...] = (), options: Any = None) -> Any:
        return _applied(function.__name__, args, options)


# How NumPy and PyTorch call what the language calls otherwise.
_ALIASES = {
    "log": "ln",
    "absolute": "abs",
    "fmax": "max",
    "maximum": "max",
    "fmin": "min",
    "minimum": "min",
    "true_divide": "divide",
    "reciprocal": "recip",
}
_UNARY = {"exp", "exp2", "ln", "log1p", "sqrt", "rsqrt", "recip", "tanh", "sigmoid", "softplus", "silu", "relu", "sin", "cos", "abs", "sign", "floor"}
_OPERATORS = {"add": "+", "subtract": "-", "sub": "-", "multiply": "*", "mul": "*", "divide": "/", "div": "/", "remainder": "%"}
_COMPARISONS = {"less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">=", "equal": "==", "not_equal": "!="}
_SHORT = {"lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "eq": "equal", "ne": "not_equal"}


def _applied(name: str, args: tuple[Any, ...], options: Any) -> Any:
    """What a function of another library does to fields."""
    known = _ALIASES.get(_SHORT.get(name, name), _SHORT.get(name, name))
    if not options:
        if known in _UNARY and len(args) == 1:
            return apply(known, *args)
        if known in ("max", "min") and len(args) == 2:
            return apply(known, *args)
        if known == "where" and len(args) == 3:
            return where(*args)
        if known in ("neg", "negative") and len(args) == 1:
            return -args[0]
        table = _OPERATORS if known in _OPERATORS else _COMPARISONS
        if known in table and len(args) == 2:
            symbol = next(x for x in args if isinstance(x, Symbol))
            kind = "bool" if table is _COMPARISONS else joined(*args)
            return symbol.trace.value(f"{written(args[0])} {table[known]} {written(args[1])}", kind)
    raise TypeError(f"`{name}` is not known of fields; see `oplus.associative_scan` for what is")


def apply(name: str, *args: Any) -> Any:
    """A function of the language, of fields and numbers."""
    symbol = next((x for x in args if isinstance(x, Symbol)), None)
    if symbol is None:
        raise TypeError(f"`oplus.{name}` is for functions that `oplus.associative_scan` traces; one argument must be a field. Of numbers use `math`")
    return symbol.trace.value(f"{name}({', '.join(map(written, args))})", joined(*args))


def where(condition: Any, a: Any, b: Any) -> Any:
    """a where the condition holds, else b."""
    if not isinstance(condition, Symbol):
        return a if condition else b
    return condition.trace.value(f"if {condition.name} {{ {written(a)} }} else {{ {written(b)} }}", joined(a, b))


def written(value: Any) -> str:
    """A field or a number as the text has it."""
    if isinstance(value, Symbol):
        return value.name
    if isinstance(value, bool):
        return "true" if value else "false"
    if not _is_operand(value):
        raise TypeError(f"a traced function computes with its arguments and with numbers, not with a {type(value).__qualname__}")
    number = value if isinstance(value, int) else float(value)
    if math.isnan(number):
        raise TypeError("a traced function has no constant that is not a number")
    text = ("inf" if number > 0 else "-inf") if math.isinf(number) else repr(number)
    return f"({text})" if text.startswith("-") else text


def joined(*values: Any) -> str:
    """The kind of what is computed from values."""
    kinds = [value.kind for value in values if isinstance(value, Symbol)]
    return "float" if "float" in kinds else kinds[0] if kinds else "float"


def _is_operand(value: Any) -> bool:
    return isinstance(value, (Symbol, bool, int, float))


def function(name: str, words: str) -> Callable[..., Any]:
    """A function of the language for those that are traced."""

    def traced(*args: Any) -> Any:
        return apply(name, *args)

    traced.__name__ = traced.__qualname__ = name
    traced.__doc__ = words
    return traced
