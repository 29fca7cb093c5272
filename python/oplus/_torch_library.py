"""Kernels as operators of PyTorch, for `torch.compile`: with shapes for tensors that have no memory, and gradients."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch._library.autograd import Info, make_autograd_impl
from torch.autograd import forward_ad

from . import _native
from ._derived import Derived, derived_of, is_float
from ._kernel import kernels
from ._torch import _DTYPES, _ELEMS, _is_on_gpu, _run

_library = torch.library.Library("oplus", "FRAGMENT")
_names: dict[str, str] = {}


@torch._dynamo.assume_constant_result
def operator(key: str) -> str:
    """The name of a kernel's operator, registered when it is first asked for: a constant of what is traced."""
    found = _names.get(key)
    if found is None:
        found = _names[key] = register(kernels[key])
    return found


def call(key: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Runs the operator of a kernel."""
    found = getattr(torch.ops.oplus, operator(key)).default(*args)
    return found if isinstance(found, tuple) else (found,)


def by_operator(native: _native.Kernel, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Runs the operator of a kernel that has no key."""
    found = getattr(torch.ops.oplus, register(native)).default(*args)
    return found if isinstance(found, tuple) else (found,)


def register(native: _native.Kernel) -> str:
    """Registers a kernel as `oplus::<name>_<key>` and its gradient as `…_bar`; gives the name of the first."""
    key = hashlib.blake2b(native.text.encode(), digest_size=8).hexdigest()
    name = f"{native.name.replace('.', '_')}_{key}"
    if hasattr(torch.ops.oplus, name):
        return name
    derived = derived_of(native)
    tensors = ", ".join(f"Tensor{'?' if p.default is not None else ''} {_safe(p.name)}" for p in derived.params)
    outputs = ", ".join(["Tensor"] * len(derived.outputs))
    _library.define(f"{name}({tensors}) -> ({outputs})")

    def single(found: tuple[Any, ...]) -> Any:
        return found if len(found) != 1 else found[0]

    def forward(*args: Any) -> Any:
        return single(_run(native, args))

    def fake(*args: Any) -> Any:
        return single(tuple(_shapes(derived, args)))

    _library.impl(name, forward, "CompositeExplicitAutograd")
    torch.library.register_fake(f"oplus::{name}", fake, lib=_library)
    if derived.is_differentiable:
        _register_gradient(name, derived)
    return name


def _safe(name: str) -> str:
    """A name that the schemas of PyTorch take."""
    return f"in_{name.replace('.', '_')}"


def _shapes(derived: Derived, args: tuple[Any, ...]) -> list[torch.Tensor]:
    """Outputs without memory, whose sizes are those of the inputs' axes."""
    given = [None if x is None else (x.shape, _ELEMS[x.dtype]) for x in args]
    like = next(x for x in args if x is not None)
    return [like.new_empty(shape, dtype=_DTYPES[elem]) for elem, shape in derived.shapes(given)]


def _register_gradient(name: str, derived: Derived) -> None:
    """The gradient as an operator, and as what PyTorch does for the gradient of the kernel's."""
    gradient = derived.gradient
    tensors = ", ".join(f"Tensor? {_safe(p.name)}" for p in gradient.params)
    _library.define(f"{name}_bar({tensors}, *, bool[] wanted) -> Tensor[]")
    floats = [at for at, param in enumerate(derived.params) if is_float(param.elem)]

    def run(*args: Any, wanted: list[bool]) -> list[torch.Tensor]:
        if _native.COMPILES or not _is_on_gpu(args):
            return list(_run(derived.part(tuple(wanted)), args))
        return [x for x, needed in zip(_run(gradient.native, args), wanted) if needed]

    def fake(*args: Any, wanted: list[bool]) -> list[torch.Tensor]:
        return [x for x, needed in zip(_shapes(gradient, args), wanted) if needed]

    _library.impl(f"{name}_bar", run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"oplus::{name}_bar", fake, lib=_library)
    operator = getattr(torch.ops.oplus, f"{name}_bar").default

    def remember(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        both = (*inputs, *(output if isinstance(output, tuple) else (output,)))
        ctx.save_for_backward(*[both[at] for at in derived.saved])

    def backward(ctx: Any, *cotangents: Any) -> Any:
        saved = ctx.saved_tensors
        args = [cotangents[at] if is_bar else saved[at] for is_bar, at in derived.sources]
        wanted = [bool(ctx.needs_input_grad[at]) for at in floats]
        found: list[Any] = [None] * len(derived.params)
        if any(wanted):
            given = iter(operator(*args, wanted=wanted))
            for at, needed in zip(floats, wanted):
                found[at] = next(given) if needed else None
        return found[0] if len(found) == 1 else tuple(found)

    overload = getattr(torch.ops.oplus, name).default
    in_reverse = make_autograd_impl(overload, Info(backward, remember))

    def differentiated(keyset: Any, *args: Any) -> Any:
        # Programs that are traced enter forward mode without its names in Python knowing it, so that the tensors tell.
        for x in args:
            if x is not None and torch._VF._unpack_dual(x, level=0)[1] is not None:
                duals = [None if x is None else forward_ad.unpack_dual(x, level=0) for x in args]
                return _in_forward_mode(derived, duals)
        return in_reverse(keyset, *args)

    # As `torch.library.register_autograd` does, which has no forward mode.
    _library.impl(name, differentiated, "Autograd", with_keyset=True)


def _in_forward_mode(derived: Derived, duals: list[Any]) -> Any:
    """Outputs with their derivatives along the tangents of the inputs, by the kernel that computes both."""
    primals = [None if dual is None else dual.primal for dual in duals]
    given = [None if dual is None else dual.tangent for dual, p in zip(duals, derived.params) if is_float(p.elem)]
    # A tensor of zeros that PyTorch makes for itself may have no memory.
    tangents = [None if x is None or x._is_zerotensor() else x for x in given]
    found = by_operator(derived.native.tangent(True), (*primals, *tangents))
    outputs, derivatives = found[: len(derived.outputs)], iter(found[len(derived.outputs) :])
    duals = [
        forward_ad.make_dual(x, next(derivatives), level=0) if is_float(output.elem) else x
        for x, output in zip(outputs, derived.outputs)
    ]
    return duals[0] if len(duals) == 1 else tuple(duals)
