"""Writes the stubs of the modules whose kernels are made when they are first asked for: `python stubs.py`, from this folder.

Editors read them for parameters, outputs and documentation. A test compares.
"""

from pathlib import Path

from oplus import Kernel, _native

FOLDER = Path(__file__).parent / "oplus"
HEAD = '''"""{doc}"""

from typing import NamedTuple

from ._kernel import Array, Kernel
'''


def stub(part: str) -> str:
    """The stub of a part of the standard library."""
    kernels = [Kernel(native) for native in _native.standard(part)]
    doc = {"kernels": "Kernels of the standard library.", "models": "Models of sequences from the standard library."}[part]
    return HEAD.format(doc=doc) + "".join(map(one, sorted(kernels, key=lambda kernel: kernel.__name__)))


def one(kernel: Kernel) -> str:
    """A kernel, as a class whose call has its parameters, and the kernel itself."""
    name = kernel.__name__
    outputs = "".join(f"    {output.name}: Array\n    {quoted(repr(output))}\n" for output in kernel.outputs)
    params = ", ".join(f"{p.name}: Array{' | None = None' if p.default is not None else ''}" for p in kernel.params)
    docs = (kernel.__doc__ or "").replace("\\", "\\\\").replace("\n", "\n    ").replace("\n    \n", "\n\n")
    return f"""
class _{name}_outputs(NamedTuple):
{outputs}
class _{name}(Kernel):
    {quoted(docs)}
    def __call__(self, {params}) -> _{name}_outputs: ...

{name}: _{name}
"""


def quoted(text: str) -> str:
    """A text as a docstring."""
    return f'"""{text}"""'


if __name__ == "__main__":
    for part in ("kernels", "models"):
        (FOLDER / f"{part}.pyi").write_text(stub(part), encoding="utf-8")
