"""Calls with tensors of PyTorch: on its current stream, in its memory, differentiable.

Eager calls go through `torch.autograd.Function`, whose backward is the derived gradient and, where that is to be differentiated
in turn, a call of the gradient as a kernel of its own. Under `torch.compile`, and with tensors that have no memory, calls are
operators of a `torch.library.Library`.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import forward_ad
from torch.nn import Parameter

from . import _native
from ._derived import Derived, Share, is_float
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
    # The functions that compiled programs call.
    tuple(getattr(torch._C._dynamo.guards, f"_empty_strided_{device}", None) for device in ("cpu", "cuda")),
)


def _memory(size: int, ordinal: int, stream: int) -> int:
    """Memory of a GPU for what a call needs beside its tensors, in the order of a stream."""
    # There are tensors on a GPU, so that PyTorch knows of CUDA.
    if torch._C._cuda_getDevice() == ordinal:
        return torch._C._cuda_cudaCachingAllocator_raw_alloc(size, stream)
    return torch.cuda.caching_allocator_alloc(size, ordinal, stream)


def _free(address: int) -> None:
    """Gives the memory back."""
    torch._C._cuda_cudaCachingAllocator_raw_delete(address)


_native.use_allocator(_memory, _free)


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
    for x in args:
        if x is not None and torch._C._functorch.is_legacy_batchedtensor(x):
            return True
    return False


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
    derived = ctx.call[0]
    share = derived.share(ctx.needs_input_grad)
    if share.is_empty:
        return derived.nothing
    for x in cotangents:
        if x is not None:
            break
    else:
        return derived.nothing
    if ctx.call[1]:
        # PyTorch takes gradients on threads of its own.
        with _native.Ordered():
            return share.placed(_gradients(ctx, share, cotangents))
    return share.placed(_gradients(ctx, share, cotangents))


def _gradients(ctx: Any, share: Share, cotangents: Tensors) -> Tensors:
    """The gradients of a share of the inputs."""
    derived, _, is_whole, form = ctx.call
    saved = ctx.saved_tensors
    if is_whole and not torch.is_grad_enabled() and _is_eager(cotangents) and not _is_batched(cotangents):
        count = len(derived.params)
        given = tuple([cotangents[at] for at in derived.float_outputs])
        return derived.native.backward(saved[:count], saved[count:-1], given, share.wanted, _library, saved[-1], form)
    kept = [saved[at] for at in derived.saved] if is_whole else saved
    args = tuple([cotangents[at] if is_bar else kept[at] for is_bar, at in derived.sources])
    if _is_batched(cotangents):
        return _torch_library.by_operator(share.part, args)
    is_part = _native.COMPILES or not _is_on_gpu(args)
    kernel = share.part if is_part else derived.gradient.native
    found = kernel.call_eager(args, _library)
    if found is None or found is NotImplemented:
        found, is_part = _derivative(derived.gradient, args), False
    return found if is_part else tuple([x for x, wanted in zip(found, share.wanted) if wanted])


def _is_on_gpu(tensors: Tensors) -> bool:
    """Whether tensors are on a GPU, for which whole gradients have committed kernels, parts of them have not."""
    for x in tensors:
        if x is not None:
            return x.is_cuda
    return False


def _jvp(ctx: Any, _: None, *tangents: Any) -> Tensors:
    """The derivatives of the outputs along those of the inputs."""
    derived = ctx.call[0]
    if not derived.is_differentiable:
        return (None,) * len(derived.outputs)
    # A tensor of zeros that PyTorch makes for itself may have no memory.
    given = tuple(None if x is None or x._is_zerotensor() else x for x, p in zip(tangents, derived.params) if is_float(p.elem))
    args = (*ctx.saved_tensors, *given)
    with _native.Ordered() if ctx.call[1] else nullcontext():
        if _is_batched(given):
            found = iter(_torch_library.by_operator(derived.tangent.native, args))
        else:
            found = iter(_derivative(derived.tangent, args))
    return tuple(next(found) if is_float(output.elem) else None for output in derived.outputs)


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
