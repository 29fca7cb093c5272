"""Calls with tensors of PyTorch: on its current stream, in its memory, differentiable.

Eager calls go through `torch.autograd.Function`, whose backward is the derived gradient and, where that is to be differentiated
in turn, a call of the gradient as a kernel of its own. Under `torch.compile`, and with tensors that have no memory, calls are
operators of a `torch.library.Library`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import forward_ad
from torch.nn import Parameter

from . import _native
from ._derived import Derived, is_float
from ._modes import is_recording

if TYPE_CHECKING:
    from ._kernel import Kernel

Tensors = tuple[Any, ...]

_DTYPES = {
    "f64": torch.float64,
    "f32": torch.float32,
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "i32": torch.int32,
    "i64": torch.int64,
    "u32": torch.uint32,
    "u64": torch.uint64,
    "bool": torch.bool,
}
_ELEMS = {dtype: elem for elem, dtype in _DTYPES.items()}
_PLAIN = (torch.Tensor, Parameter)
# What native calls ask PyTorch: they make tensors beside the first that is given.
_library = _native.Torch(
    _PLAIN,
    (torch._C._are_functorch_transforms_active, torch._C._len_torch_dispatch_stack),
    torch.is_grad_enabled,
    vars(forward_ad),
    _DTYPES,
)


def _memory(size: int, ordinal: int, stream: int) -> int:
    """Memory of a GPU for what a call needs beside its tensors, in the order of a stream."""
    if torch.cuda.current_device() == ordinal:
        return torch._C._cuda_cudaCachingAllocator_raw_alloc(size, stream)
    return torch.cuda.caching_allocator_alloc(size, ordinal, stream)


_native.use_allocator(_memory, torch.cuda.caching_allocator_delete)


def scalar(value: float, elem: str, call: Any, like: torch.Tensor) -> torch.Tensor:
    """A number as a tensor without axes, where another tensor is."""
    dtype = _DTYPES.get(elem)
    if dtype is None:
        dtype = call.dtype if elem == "call" or call.dtype == torch.float64 else torch.float32
    return torch.tensor(value, dtype=dtype, device=like.device)


def _run(kernel: _native.Kernel, args: Tensors) -> Tensors:
    """Runs a kernel on tensors that have memory."""
    return kernel.call(args, _library)


def _is_eager(args: Tensors) -> bool:
    """Whether all tensors are plain ones and nothing transforms or traces the call."""
    if torch._C._are_functorch_transforms_active() or torch._C._len_torch_dispatch_stack():
        return False
    for x in args:
        if x is not None and type(x) not in _PLAIN:
            return False
    return True


def _is_batched(args: Tensors) -> bool:
    """Whether there are tensors among these that `is_grads_batched` and its like make, which PyTorch calls operators on one by one."""
    is_batched = torch._C._functorch.is_legacy_batchedtensor
    return any(x is not None and is_batched(x) for x in args)


def call(kernel: Kernel, args: Tensors) -> Tensors:
    """Runs a kernel on tensors of PyTorch."""
    if torch.compiler.is_dynamo_compiling():
        return _torch_library.call(kernel._key, args)
    found = kernel._native.call_eager(args, _library)
    if found is None:
        return _recorded(kernel._derived, args)
    if found is not NotImplemented:
        return found
    for x, param in zip(args, kernel._params):
        if x is not None:
            _check(param.name, x)
    if torch._C._are_functorch_transforms_active():
        return _Transformed.apply(kernel._derived, *args)
    return _torch_library.call(kernel._key, args)


def _check(name: str, x: Any) -> None:
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"`{name}` must be a tensor of PyTorch as the others are, but it is a {type(x).__qualname__}")


def _backward(ctx: Any, *cotangents: Any) -> Tensors:
    derived, is_ordered, is_whole, _ = ctx.call
    nothing = (None,) * (len(derived.params) + 1)
    if not derived.is_differentiable or all(x is None for x in cotangents):
        return nothing
    needed = ctx.needs_input_grad[1:]
    wanted = tuple(needs for param, needs in zip(derived.params, needed) if is_float(param.elem))
    if not any(wanted):
        return nothing
    saved = ctx.saved_tensors
    kept = [saved[at] for at in derived.saved] if is_whole else saved
    args = tuple(cotangents[at] if is_bar else kept[at] for is_bar, at in derived.sources)
    with _Order(is_ordered):
        if _is_batched(cotangents):
            found = iter(_torch_library.by_operator(derived.part(wanted), args))
        elif torch.is_grad_enabled() or not _is_eager(args):
            every = iter(_derivative(derived.gradient, args))
            found = iter([x for x, needs in zip(every, wanted) if needs])
        elif is_whole:
            found = iter(_gradient(ctx, saved, cotangents, wanted))
        else:
            found = iter(_run(derived.part(wanted), args))
    return (None, *[next(found) if needs and is_float(p.elem) else None for p, needs in zip(derived.params, needed)])


def _jvp(ctx: Any, _: None, *tangents: Any) -> Tensors:
    """The derivatives of the outputs along those of the inputs."""
    derived = ctx.call[0]
    if not derived.is_differentiable:
        return (None,) * len(derived.outputs)
    # A tensor of zeros that PyTorch makes for itself may have no memory.
    given = tuple(None if x is None or x._is_zerotensor() else x for x, p in zip(tangents, derived.params) if is_float(p.elem))
    args = (*ctx.saved_tensors, *given)
    with _Order(ctx.call[1]):
        if _is_batched(given):
            found = iter(_torch_library.by_operator(derived.tangent.native, args))
        else:
            found = iter(_derivative(derived.tangent, args))
    return tuple(next(found) if is_float(output.elem) else None for output in derived.outputs)


def _gradient(ctx: Any, saved: Tensors, cotangents: Tensors, wanted: tuple[bool, ...]) -> Tensors:
    """The gradient of a call of which all inputs are kept, with the states that it has saved."""
    derived, _, _, form = ctx.call
    count = len(derived.params)
    inputs, outputs = saved[:count], saved[count : count + len(derived.outputs)]
    given = tuple(x for x, output in zip(cotangents, derived.outputs) if is_float(output.elem))
    return derived.native.backward(inputs, outputs, given, wanted, _library, saved[-1], form)


class _Order:
    """Calls of this thread are ordered if the forward call was: PyTorch takes gradients on threads of its own."""

    def __init__(self, ordered: bool) -> None:
        self._mode = _native.Ordered() if ordered else None

    def __enter__(self) -> None:
        if self._mode is not None:
            self._mode.__enter__()

    def __exit__(self, *exception: object) -> None:
        if self._mode is not None:
            self._mode.__exit__(*exception)


def _remember(ctx: Any, derived: Derived, inputs: Tensors, outputs: Tensors, states: Any = None, form: Any = None) -> None:
    # Saved states belong to a call with all its inputs, and so do types that are chosen tensor by tensor.
    is_whole = form is not None or derived.has_choice
    ctx.call = derived, _native.is_ordered(), is_whole, form
    ctx.set_materialize_grads(False)
    if is_whole:
        read = set(derived.saved)
        kept = [x if at in read or at < len(inputs) else None for at, x in enumerate(inputs + outputs)]
        ctx.save_for_backward(*kept, states)
    elif derived.is_differentiable and derived.saved:
        both = inputs + outputs
        ctx.save_for_backward(*[both[at] for at in derived.saved])
    if forward_ad._current_level >= 0:
        ctx.save_for_forward(*inputs)
    if derived.integers:
        ctx.mark_non_differentiable(*[outputs[at] for at in derived.integers])


class _Eager(torch.autograd.Function):
    """A call whose gradient is recorded."""

    @staticmethod
    def forward(ctx: Any, derived: Derived, *args: Any) -> Tensors:
        if derived.may_save and is_recording():
            outputs, states, form = derived.native.call_saving(args, _library)
            _remember(ctx, derived, args, outputs, states, form)
        else:
            outputs = derived.native.call(args, _library)
            _remember(ctx, derived, args, outputs)
        return outputs

    backward = staticmethod(_backward)
    jvp = staticmethod(_jvp)


# Makes a node of the graph. `apply` of Python does the same after a look at transforms, of which there are none here, and at tensors
# whose transform has ended.
_node = super(torch.autograd.Function, _Eager).apply


def _recorded(derived: Derived, args: Tensors) -> Tensors:
    """Makes a call whose gradient is recorded."""
    try:
        return _node(derived, *args)
    except RuntimeError:
        alive = tuple(None if x is None else torch._C._functorch.unwrap_if_dead(x) for x in args)
        if all(x is y for x, y in zip(args, alive)):
            raise
        return _node(derived, *alive)


def _derivative(derived: Derived, args: Tensors) -> Tensors:
    """A gradient or tangents, which have derivatives in turn."""
    if torch._C._are_functorch_transforms_active():
        return _Transformed.apply(derived, *args)
    return _recorded(derived, args)


class _Transformed(torch.autograd.Function):
    """A call inside `torch.func` transforms."""

    @staticmethod
    def forward(derived: Derived, *args: Any) -> Tensors:
        return _run(derived.native, args)

    @staticmethod
    def setup_context(ctx: Any, inputs: Tensors, output: Tensors) -> None:
        _remember(ctx, inputs[0], inputs[1:], output)

    backward = staticmethod(_backward)
    jvp = staticmethod(_jvp)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], derived: Derived, *args: Any) -> tuple[Tensors, tuple[Any, ...]]:
        mapped = tuple(x is not None and at is not None for x, at in zip(args, in_dims[1:]))
        wider, outputs = derived.batched(mapped)
        moved = [x.movedim(at, 0) if has else x for x, at, has in zip(args, in_dims[1:], mapped)]
        found = _Transformed.apply(wider, *moved)
        return found, tuple(0 if has else None for has in outputs)


from . import _torch_library  # noqa: E402  (it needs what is above)
