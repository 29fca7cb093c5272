"""From a text to kernels, and from its mistakes to a `SyntaxError` at the caller's line."""

from __future__ import annotations

import ast
import inspect
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from types import FrameType

from . import _native
from ._kernel import Kernel


# The kernels of texts that have been compiled: a text that is compiled once more is what it was.
_known: dict[str, Kernels] = {}


class ScanError(SyntaxError):
    """A text is not a program. All its mistakes are told: the first as the message, each other one as a note."""


class Kernels:
    """The kernels of a text, as attributes: `oplus.scan(text).peaks`."""

    def __init__(self, kernels: list[Kernel]) -> None:
        self._kernels = {kernel.__name__: kernel for kernel in kernels}

    def __getattr__(self, name: str) -> Kernel:
        try:
            return self.__dict__["_kernels"][name]
        except KeyError:
            known = ", ".join(self.__dict__.get("_kernels", ())) or "none"
            raise AttributeError(f"the text has no kernel `{name}`; its kernels are {known}") from None

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._kernels]

    def __iter__(self) -> Iterator[Kernel]:
        return iter(self._kernels.values())

    def __len__(self) -> int:
        return len(self._kernels)

    def __repr__(self) -> str:
        return "\n\n".join(map(repr, self))


def scan(text: str) -> Kernels:
    """Compiles a text of operators and kernels, the body of a `scan!` block.

    Operators are checked: their identity is one, and they are associative. What is wrong is a `ScanError`, a `SyntaxError`
    whose carets are under the words that are wrong, at the line of the file in which the text stands.
    """
    return _compiled(text, sys._getframe(1))


def scan_file(path: str | os.PathLike[str]) -> Kernels:
    """The kernels of all `scan! { … }` blocks of a Rust source file, or of a file that is itself such a text."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    kernels, mistakes = _native.compile(text, re.search(r"\bscan!\s*[({\[]", text) is not None)
    if mistakes:
        raise error_of(text, mistakes, os.fspath(path))
    return Kernels([Kernel(native) for native in kernels])


def kernel(function: Callable[..., object]) -> Kernel:
    """A decorator: the docstring of a function is the text, whose one kernel takes the function's place."""
    text = inspect.getdoc(function)
    if not text:
        raise TypeError(f"`{function.__qualname__}` has no docstring; write the text of the kernel there")
    kernels = list(_compiled(text, None, function))
    if len(kernels) != 1:
        raise TypeError(f"the docstring of `{function.__qualname__}` has {len(kernels)} kernels; write one")
    return kernels[0]


def _compiled(text: str, frame: FrameType | None, function: Callable[..., object] | None = None) -> Kernels:
    if not isinstance(text, str):
        raise TypeError(f"a text is needed, this is a {type(text).__name__}")
    found = _known.get(text)
    if found is None:
        kernels, mistakes = _native.compile(text, False)
        if mistakes:
            raise error_of(text, mistakes, *_place(text, frame, function))
        found = _known[text] = Kernels([Kernel(native) for native in kernels])
    return found


def _place(text: str, frame: FrameType | None, function: Callable[..., object] | None) -> tuple[str, int]:
    """The file in which a text stands, and how many of its lines are before it."""
    try:
        if function is not None:
            lines, first = inspect.getsourcelines(function)
            tree = ast.parse(textwrap.dedent("".join(lines)))
            found, written = next(one for one in _strings(tree) if inspect.cleandoc(one[1]) == text)
            skipped = len(written) - len(written.lstrip("\n"))
            return inspect.getsourcefile(function) or "<text>", first + found.lineno - 2 + skipped
        if frame is not None:
            filename = frame.f_code.co_filename
            lines, _ = inspect.findsource(frame)
            last = frame.f_lineno + text.count("\n") + 1
            for node, written in _strings(ast.parse("".join(lines))):
                if written == text and node.lineno <= last and (node.end_lineno or 0) >= frame.f_lineno:
                    return filename, node.lineno - 1
    except (OSError, SyntaxError, StopIteration, TypeError):
        pass
    return "<oplus.scan>", 0


def _strings(tree: ast.AST) -> Iterator[tuple[ast.Constant, str]]:
    """The literals of strings in a source."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node, node.value


def error_of(text: str, mistakes: list[_native.Mistake], filename: str, before: int = 0) -> ScanError:
    """The mistakes of a text as one exception; `before` is how many lines of the file are before the text."""
    lines = text.split("\n")

    def details(mistake: _native.Mistake) -> tuple[str, int, int, str, int, int]:
        (line, start), (end_line, end), _, _ = mistake
        shown = lines[line - 1] if 0 < line <= len(lines) else ""
        return filename, before + line, start, shown, before + end_line, end

    (_, _, words, _), *others = mistakes
    error = ScanError(words, details(mistakes[0]))
    for mistake in others:
        _, line, start, shown, end_line, end = details(mistake)
        width = end - start if end_line == line else len(shown) - start + 1
        error.__notes__ = [
            *getattr(error, "__notes__", []),
            f'  File "{filename}", line {line}\n    {shown.strip()}\n'
            f"    {' ' * (start - 1 - len(shown) + len(shown.lstrip()))}{'^' * max(width, 1)}\n{mistake[2]}",
        ]
    return error
