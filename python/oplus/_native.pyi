"""The native half of the package."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

__version__: str

# Whether kernels for GPUs that are not committed are compiled when they are called.
COMPILES: bool

# The first wrong character and behind the last one (line and column, both from 1), the words, and the code.
Mistake: TypeAlias = tuple[tuple[int, int], tuple[int, int], str, str]

class Error(RuntimeError):
    """A call failed on the device, or no kernel for it is there."""

class TensorType:
    """A parameter or an output of a kernel: its name, axes in memory order and element type."""

    @property
    def name(self) -> str:
        """Its name."""
    @property
    def axes(self) -> list[str]:
        """The names of its axes, last fastest."""
    @property
    def elem(self) -> str:
        """What it stores: a type, or `call`, `wide` and `state`, which follow from the call's type."""
    @property
    def other(self) -> str | None:
        """What it may store instead."""
    @property
    def default(self) -> float | None:
        """The value that it has when it is left out."""

class Part:
    """One program of an explanation."""

    @property
    def equations(self) -> str:
        """The program as equations."""
    @property
    def cpu(self) -> str | None:
        """How the threads of the CPU share the work."""
    @property
    def gpu(self) -> str | None:
        """The GPU that the launches are planned for."""
    @property
    def launches(self) -> list[tuple[str, str, str, str, str, float]]:
        """The launches: name, task, division, grid, schedule, microseconds."""

class Explanation:
    """What a call does and why: prints as text."""

    @property
    def kernel(self) -> str:
        """The kernel's name."""
    @property
    def text(self) -> str:
        """The whole as text."""
    @property
    def forward(self) -> Part:
        """The program."""
    @property
    def gradient(self) -> Part | None:
        """The derived gradient; nothing where there is none."""
    def _repr_html_(self) -> str: ...

class Saved:
    """What a call has saved for its gradient, without the memory that holds it."""

class Torch:
    """What calls need of PyTorch: the types of plain tensors, what transforms or traces calls, and its element types."""

    def __init__(
        self,
        plain: tuple[type, type],
        hooks: tuple[Callable[[], object], Callable[[], object]],
        is_grad_enabled: Callable[[], bool],
        forward_ad: dict[str, Any],
        dtypes: dict[str, Any],
        empty: tuple[Callable[..., Any] | None, ...],
    ) -> None: ...

# Makes arrays, `allocate(elem, shape)`; of PyTorch beside the first tensor that is given.
Allocate: TypeAlias = Callable[[str, tuple[int, ...]], Any] | Torch

class Kernel:
    """A program that can be called, with its gradient."""

    @property
    def name(self) -> str: ...
    @property
    def docs(self) -> str: ...
    @property
    def sums(self) -> bool: ...
    @property
    def text(self) -> str: ...
    @staticmethod
    def of_text(text: str, docs: str) -> Kernel: ...
    @property
    def equations(self) -> str: ...
    @property
    def params(self) -> list[TensorType]: ...
    @property
    def outputs(self) -> list[TensorType]: ...
    def call(self, inputs: tuple[Any, ...], allocate: Allocate) -> tuple[Any, ...]: ...
    def call_eager(self, inputs: tuple[Any, ...], torch: Torch) -> Any: ...
    def call_saving(
        self, inputs: tuple[Any, ...], allocate: Allocate
    ) -> tuple[tuple[Any, ...], Any, Saved | None]: ...
    def backward(
        self,
        inputs: tuple[Any, ...],
        outputs: tuple[Any, ...],
        cotangents: tuple[Any, ...],
        wanted: Sequence[bool],
        allocate: Allocate,
        states: Any = None,
        saved: Saved | None = None,
    ) -> tuple[Any, ...]: ...
    def gradient(self, wanted: Sequence[bool] | None = None) -> Kernel: ...
    def tangent(self, whole: bool) -> Kernel: ...
    def batched(self, mapped: Sequence[bool]) -> tuple[Kernel, list[bool]]: ...
    def step(self) -> tuple[Kernel, str, list[tuple[str, str]]]: ...
    def explain(
        self,
        sizes: Sequence[tuple[str, int]],
        elem: str = "f32",
        device: str | None = None,
        without: Sequence[str] = (),
    ) -> Explanation: ...

class Ordered:
    """Calls inside the `with` block combine in order."""

    def __enter__(self) -> None: ...
    def __exit__(self, *exception: object) -> None: ...

def is_ordered() -> bool: ...
def compile(text: str, is_source: bool) -> tuple[list[Kernel], list[Mistake]]: ...
def standard(part: str) -> list[Kernel]: ...
def synchronize(ordinal: int) -> None: ...
def use_allocator(allocate: Callable[[int, int, int], int], free: Callable[[int], object]) -> None: ...
