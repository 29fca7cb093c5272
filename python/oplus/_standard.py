"""Parts of the standard library as modules, whose kernels are made when they are first asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import Any

from . import _native
from ._kernel import Kernel


def members(module: str, part: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of the module of a part of the library."""

    @cache
    def natives() -> dict[str, _native.Kernel]:
        return {native.name: native for native in _native.standard(part)}

    def attribute(name: str) -> Any:
        if name == "__all__":
            return sorted(natives())
        native = None if name.startswith("_") else natives().get(name)
        if native is None:
            raise AttributeError(f"module `{module}` has no kernel `{name}`; `dir({module})` lists them")
        kernel = Kernel(native)
        setattr(sys.modules[module], name, kernel)
        return kernel

    def names() -> list[str]:
        return sorted(natives())

    return attribute, names
