"""Puts drop-ins in the place of the originals."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

from . import fla, flash_attn, mamba_ssm

_PACKAGES: dict[str, ModuleType] = {"mamba_ssm": mamba_ssm, "fla": fla, "flash_attn": flash_attn}


class Patch:
    """What was replaced. Used in a `with` statement, or by `undo()`, the originals come back."""

    def __init__(self) -> None:
        self._undo: list[tuple[ModuleType, str, Any]] = []

    @property
    def names(self) -> list[str]:
        """The attributes that were replaced, by module."""
        return [f"{module.__name__}.{name}" for module, name, _ in self._undo]

    def replace(self, module: ModuleType, name: str, value: Any) -> None:
        """Replaces an attribute of a module."""
        self._undo.append((module, name, getattr(module, name)))
        setattr(module, name, value)

    def undo(self) -> None:
        """Puts the originals back."""
        while self._undo:
            setattr(*self._undo.pop())

    def __enter__(self) -> Patch:
        return self

    def __exit__(self, *exception: object) -> None:
        self.undo()


def patch(package: str) -> Patch:
    """Replaces what `oplus.compat` has of a package, `mamba_ssm`, `fla` or `flash_attn`, in all of its modules that are loaded.

    Modules that have imported a function by name are found by the function itself, also those of other packages. The package is
    imported if it is not loaded yet.
    """
    drop_ins = _PACKAGES.get(package)
    if drop_ins is None:
        raise ValueError(f"there are drop-ins for {', '.join(_PACKAGES)}, not for `{package}`")
    import_module(package)
    ours = {name: getattr(drop_ins, name) for name in drop_ins.__all__}
    originals = {
        id(found): name
        for module in _modules(lambda of: of.partition(".")[0] == package)
        for name, found in vars(module).items()
        if name in ours and callable(found) and found is not ours[name]
    }
    made = Patch()
    for module in _modules(lambda of: not of.startswith("oplus.")):
        for name, found in list(vars(module).items()):
            known = originals.get(id(found))
            if known is not None:
                made.replace(module, name, ours[known])
    return made


def _modules(is_wanted: Callable[[str], bool]) -> list[ModuleType]:
    return [module for name, module in list(sys.modules.items()) if isinstance(module, ModuleType) and is_wanted(name)]
