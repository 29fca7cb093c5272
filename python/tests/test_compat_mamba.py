"""The drop-ins for mamba-ssm against loops in PyTorch."""

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402

from oplus.compat import mamba_ssm  # noqa: E402

DTYPE = torch.float64


def rand(*shape, complex_=False):
    x = torch.randn(*shape, dtype=torch.complex128 if complex_ else DTYPE)
    return x.requires_grad_()


def selective_scan(u, delta, A, B, C, D=None, z=None, delta_bias=None, delta_softplus=False):
    """The equations of Mamba's selective scan, a step at a time."""
    batch, dim, length = u.shape
    if delta_bias is not None:
        delta = delta + delta_bias[:, None]
    if delta_softplus:
        delta = F.softplus(delta)

    def of_channels(x):
        if x.dim() == 2:
            return x[None, :, :, None].expand(batch, -1, -1, length)
        if A.is_complex():
            x = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
        x = x.unsqueeze(1) if x.dim() == 3 else x
        return x.repeat_interleave(dim // x.shape[1], 1)

    B, C = of_channels(B), of_channels(C)
    h, found = torch.zeros(batch, dim, A.shape[1], dtype=A.dtype), []
    for t in range(length):
        step = delta[:, :, t, None]
        h = torch.exp(step * A) * h + step * B[..., t] * u[:, :, t, None]
        y = (h * C[..., t]).sum(-1)
        found.append(2 * y.real if A.is_complex() else y)
    y = torch.stack(found, -1)
    y = y if D is None else y + u * D[:, None]
    return (y if z is None else y * F.silu(z)), h


def same(ours, theirs, inputs):
    """Outputs and gradients agree."""
    for x, y in zip(ours, theirs):
        torch.testing.assert_close(x, y, rtol=1e-9, atol=1e-9)
    weights = [torch.randn_like(x) for x in ours]
    inputs = [x for x in inputs if x is not None]
    grads = [
        torch.autograd.grad(sum((x * w).sum().real for x, w in zip(outputs, weights)), inputs) for outputs in (ours, theirs)
    ]
    for x, y in zip(*grads):
        torch.testing.assert_close(x, y, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("options", range(8))
@pytest.mark.parametrize("form", ["groups", "shared", "constant_b", "constant_c", "constant"])
def test_selective_scan(form, options):
    torch.manual_seed(options)
    batch, dim, length, states = 2, 4, 11, 3
    varying = (batch, 2, states, length) if form == "groups" else (batch, states, length)
    B = rand(*((dim, states) if form in ("constant_b", "constant") else varying))
    C = rand(*((dim, states) if form in ("constant_c", "constant") else varying))
    u, delta, A = rand(batch, dim, length), rand(batch, dim, length), rand(dim, states)
    D, z = (rand(dim), rand(batch, dim, length)) if options & 1 else (None, None)
    bias, softplus = (rand(dim) if options & 2 else None), bool(options & 4)
    given = (u, delta, A, B, C, D, z, bias, softplus)
    ours = mamba_ssm.selective_scan_fn(*given, return_last_state=True)
    same(ours, selective_scan(*given), given[:-1])
    assert torch.equal(mamba_ssm.selective_scan_fn(*given), ours[0])


@pytest.mark.parametrize("constant_b", [False, True])
@pytest.mark.parametrize("constant_c", [False, True])
def test_complex_states(constant_b, constant_c):
    torch.manual_seed(0)
    batch, dim, length, states = 2, 4, 7, 3
    A = (-torch.rand(dim, states, dtype=DTYPE) + 1j * torch.randn(dim, states, dtype=DTYPE)).requires_grad_()
    B = rand(dim, states, complex_=True) if constant_b else rand(batch, states, 2 * length)
    C = rand(dim, states, complex_=True) if constant_c else rand(batch, 2, states, 2 * length)
    given = (rand(batch, dim, length), rand(batch, dim, length), A, B, C, rand(dim), rand(batch, dim, length), rand(dim), True)
    same(mamba_ssm.selective_scan_fn(*given, return_last_state=True), selective_scan(*given), given[:-1])


def combined(x, dt, A, B, C, D=None, z=None, dt_bias=None, h0=None, seq_idx=None, softplus=False, limit=(0.0, float("inf"))):
    """The equations of Mamba-2's scan, a step at a time."""
    batch, length, heads, width = x.shape
    per = heads // B.shape[2]
    B, C = B.repeat_interleave(per, 2), C.repeat_interleave(per, 2)
    dt = dt if dt_bias is None else dt + dt_bias
    dt = (F.softplus(dt) if softplus else dt).clamp(*limit)
    h = torch.zeros(batch, heads, width, B.shape[-1], dtype=x.dtype) if h0 is None else h0
    found, states = [], []
    for t in range(length):
        if seq_idx is not None and t > 0:
            h = h * (seq_idx[:, t] == seq_idx[:, t - 1])[:, None, None, None]
        h = torch.exp(dt[:, t] * A)[..., None, None] * h + torch.einsum("bh,bhp,bhn->bhpn", dt[:, t], x[:, t], B[:, t])
        found.append(torch.einsum("bhpn,bhn->bhp", h, C[:, t]))
        states.append(h)
    y = torch.stack(found, 1)
    if D is not None:
        y = y + x * (D if D.dim() == 2 else D[:, None])
    return (y if z is None else y * F.silu(z)), states


@pytest.mark.parametrize("softplus", [False, True])
@pytest.mark.parametrize("gate", [False, True])
@pytest.mark.parametrize("extra", ["none", "wide D", "limit", "resets"])
def test_mamba_2(softplus, gate, extra):
    torch.manual_seed(1)
    batch, length, heads, groups, width, states = 2, 9, 4, 2, 3, 5
    x, dt, A = rand(batch, length, heads, width), rand(batch, length, heads), rand(heads)
    B, C = rand(batch, length, groups, states), rand(batch, length, groups, states)
    D = rand(heads, width) if extra == "wide D" else rand(heads)
    z, bias, h0 = rand(batch, length, heads, width) if gate else None, rand(heads), rand(batch, heads, width, states)
    limit = (0.2, 0.9) if extra == "limit" else (0.0, float("inf"))
    seq_idx = torch.tensor([[0] * 4 + [1] * 5, [0] + [2] * 7 + [5]]) if extra == "resets" else None
    ours = mamba_ssm.mamba_chunk_scan_combined(
        x, dt, A, B, C, 64, D, z, bias, h0, seq_idx, dt_softplus=softplus, dt_limit=limit, return_final_states=True
    )
    y, at = combined(x, dt, A, B, C, D, z, bias, h0, seq_idx, softplus, limit)
    same(ours, (y, at[-1]), [x, dt, A, B, C, D, z, bias, h0])


def test_states_of_packed_sequences():
    torch.manual_seed(2)
    x, dt, A, B, C = rand(1, 8, 2, 3), rand(1, 8, 2), rand(2), rand(1, 8, 1, 4), rand(1, 8, 1, 4)
    seq_idx, ends = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 2]]), torch.tensor([0, 3, 7, 8])
    y, varlen = mamba_ssm.mamba_chunk_scan_combined(
        x, dt, A, B, C, 16, seq_idx=seq_idx, cu_seqlens=ends, dt_softplus=True, return_varlen_states=True
    )
    expected, at = combined(x, dt, A, B, C, seq_idx=seq_idx, softplus=True)
    same((y, varlen), (expected, torch.cat([at[2], at[6], at[7]])), [x, dt, A, B, C])


def test_half_precision_beside_learned_floats():
    torch.manual_seed(3)
    u = torch.randn(2, 4, 9, dtype=torch.bfloat16, requires_grad=True)
    B, A = torch.randn(2, 3, 9, dtype=torch.bfloat16), -torch.rand(4, 3)
    delta = torch.rand(2, 4, 9, dtype=torch.bfloat16)
    y, last = mamba_ssm.selective_scan_fn(u, delta, A, B, B, torch.ones(4), return_last_state=True)
    assert y.dtype == torch.bfloat16 and last.dtype == torch.float32
    wide = [x.detach().double() for x in (u, delta, A, B, B, torch.ones(4))]
    torch.testing.assert_close(y.double(), selective_scan(*wide)[0], rtol=2e-2, atol=2e-2)


def test_wrong_shapes_are_named():
    u = torch.ones(2, 4, 9)
    with pytest.raises(ValueError, match="axis L has size 8 in `delta`, it must have 9"):
        mamba_ssm.selective_scan_fn(u, u[..., 1:], torch.ones(4, 3), torch.ones(2, 3, 9), torch.ones(2, 3, 9))
    with pytest.raises(ValueError, match="4 channels cannot be divided among 3 groups"):
        mamba_ssm.selective_scan_fn(u, u, torch.ones(4, 3), torch.ones(2, 3, 3, 9), torch.ones(2, 3, 3, 9))
