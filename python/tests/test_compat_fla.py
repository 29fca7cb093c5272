"""The drop-ins for flash-linear-attention against loops in PyTorch."""

import inspect

import pytest

torch = pytest.importorskip("torch")

from oplus import compat  # noqa: E402
from oplus.compat import fla  # noqa: E402

B, T, H, K, V = 2, 9, 3, 4, 5


def rand(*shape):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def loop(q, k, v, gk=None, gv=None, scale=None, h0=None, reverse=False):
    """s[t] = exp(g[t])·s[t-1] + k[t]⊗v[t], read by q[t]; gk is [B, T, H, K], gv [B, T, H, V]."""
    s = torch.zeros(q.shape[0], q.shape[2], q.shape[3], v.shape[3], dtype=q.dtype) if h0 is None else h0
    found = [None] * q.shape[1]
    for t in range(q.shape[1] - 1, -1, -1) if reverse else range(q.shape[1]):
        if gk is not None:
            s = s * gk[:, t].exp()[..., None]
        if gv is not None:
            s = s * gv[:, t].exp()[..., None, :]
        s = s + k[:, t, :, :, None] * v[:, t, :, None, :]
        found[t] = (q[:, t, :, :, None] * s).sum(-2)
    return torch.stack(found, 1) * (q.shape[-1] ** -0.5 if scale is None else scale), s


def same(ours, theirs, inputs):
    for x, y in zip(ours, theirs):
        torch.testing.assert_close(x, y, rtol=1e-9, atol=1e-9)
    weights = [torch.randn_like(x) for x in ours]
    inputs = [x for x in inputs if x is not None]
    grads = [torch.autograd.grad(sum((x * w).sum() for x, w in zip(out, weights)), inputs) for out in (ours, theirs)]
    for x, y in zip(*grads):
        torch.testing.assert_close(x, y, rtol=1e-8, atol=1e-8)


@pytest.fixture
def qkv():
    torch.manual_seed(0)
    return rand(B, T, H, K), rand(B, T, H, K), rand(B, T, H, V)


def constant(gamma, *like):
    """A decay of each head at all times and channels of the keys."""
    return gamma[:, None].expand(*like)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kind", ["g", "g_gamma", "both", "none"])
def test_simple_gla(qkv, kind, reverse):
    g = -rand(B, T, H).abs().detach().requires_grad_() if kind in ("g", "both") else None
    gamma = -torch.rand(H, dtype=torch.float64).requires_grad_() if kind in ("g_gamma", "both") else None
    h0 = rand(B, H, K, V)
    options = {"initial_state": h0, "output_final_state": True, "scale": 0.3}
    function = fla.fused_recurrent_simple_gla if reverse else fla.chunk_simple_gla
    ours = function(*qkv, g, gamma, **options, **({"reverse": True} if reverse else {}))
    gk = torch.zeros(B, T, H, K, dtype=torch.float64)
    gk = gk if g is None else gk + g[..., None]
    gk = gk if gamma is None else gk + gamma[:, None]
    same(ours, loop(*qkv, gk, scale=0.3, h0=h0, reverse=reverse), [*qkv, h0])


def test_states_with_values_first(qkv):
    h0 = rand(B, H, V, K)
    ours = fla.chunk_simple_gla(*qkv, initial_state=h0, output_final_state=True, state_v_first=True)
    o, s = loop(*qkv, h0=h0.transpose(-1, -2))
    same(ours, (o, s.transpose(-1, -2)), [*qkv, h0])


def test_the_former_name_of_an_argument_is_known(qkv):
    with pytest.warns(DeprecationWarning, match="`transpose_state_layout` is called `state_v_first` now"):
        _, state = fla.fused_recurrent_gla(*qkv, output_final_state=True, transpose_state_layout=True)
    assert state.shape == (B, H, V, K)
    with pytest.raises(ValueError, match="give one of them"):
        fla.chunk_simple_gla(*qkv, state_v_first=True, transpose_state_layout=True)


@pytest.mark.parametrize("states", [False, True])
@pytest.mark.parametrize("kind", ["simple", "retention", "gla", "linear"])
def test_packed_sequences(kind, states):
    torch.manual_seed(1)
    ends = [0, 3, 4, 9]
    q, k, v = rand(1, T, H, K), rand(1, T, H, K), rand(1, T, H, V)
    h0 = rand(3, H, K, V) if states else None
    options = {"initial_state": h0, "output_final_state": states, "cu_seqlens": torch.tensor(ends)}
    gk = -torch.rand(1, T, H, K, dtype=torch.float64)
    if kind == "simple":
        ours, gk = fla.chunk_simple_gla(q, k, v, gk[..., 0], **options), gk[..., :1].expand_as(gk)
    elif kind == "retention":
        ours = fla.chunk_retention(q, k, v, **options)
        gk = torch.log(1 - 2.0 ** (-5.0 - torch.arange(H, dtype=torch.float64)))[:, None].expand_as(gk)
    elif kind == "gla":
        ours = fla.chunk_gla(q, k, v, gk, **options)
    else:
        ours, gk = fla.chunk_linear_attn(q, k, v, normalize=False, **options), None
    parts = [
        loop(*[None if x is None else x[:, a:b] for x in (q, k, v, gk)], h0=None if h0 is None else h0[i : i + 1])
        for i, (a, b) in enumerate(zip(ends, ends[1:]))
    ]
    expected = (torch.cat([o for o, _ in parts], 1), torch.cat([s for _, s in parts]))
    assert states or ours[1] is None
    same(ours if states else ours[:1], expected if states else expected[:1], [q, k, v, h0])


@pytest.mark.parametrize("kinds", ["k", "v", "kv", ""])
def test_gated_linear_attention(qkv, kinds):
    gk = (-torch.rand(B, T, H, K, dtype=torch.float64)).requires_grad_() if "k" in kinds else None
    gv = (-torch.rand(B, T, H, V, dtype=torch.float64)).requires_grad_() if "v" in kinds else None
    h0 = rand(B, H, K, V)
    ours = fla.fused_recurrent_gla(*qkv, gk, gv, initial_state=h0, output_final_state=True, reverse=True)
    same(ours, loop(*qkv, gk, gv, h0=h0, reverse=True), [*qkv, gk, gv, h0])


def test_retention_and_lightning_attention(qkv):
    gamma = torch.log(1 - 2.0 ** (-5.0 - torch.arange(H, dtype=torch.float64)))
    for ours in (fla.chunk_retention(*qkv, output_final_state=True), fla.fused_recurrent_retention(*qkv, None, None, True)):
        same(ours, loop(*qkv, constant(gamma, B, T, H, K)), qkv)
    torch.testing.assert_close(fla.parallel_retention(*qkv)[0], loop(*qkv, constant(gamma, B, T, H, K))[0])
    gamma = -(8 / H * (1 - 2 / 12)) * torch.arange(H, dtype=torch.float64)
    ours = fla.chunk_lightning_attn(*qkv, layer_idx=2, num_layers=12, output_final_state=True)
    same(ours, loop(*qkv, constant(gamma, B, T, H, K)), qkv)


@pytest.mark.parametrize("name", ["parallel_retention", "parallel_simple_gla"])
def test_attention_matrices_times_values_are_the_output(qkv, name):
    g = () if name == "parallel_retention" else (-torch.rand(B, T, H, dtype=torch.float64),)
    o, weights = getattr(fla, name)(*qkv, *g, scale=0.3, output_attentions=True)
    assert weights.shape == (B, H, T, T) and (weights.triu(1) == 0).all()
    torch.testing.assert_close(torch.einsum("bhts,bshv->bthv", weights, qkv[2]), o)


def test_normalised_linear_attention(qkv):
    q, k, v = (x.abs().detach().requires_grad_() for x in qkv)
    h0, z0 = rand(B, H, K, V), rand(B, 1, H, K).abs().detach().requires_grad_()
    o, (state, sums) = fla.chunk_linear_attn(q, k, v, initial_state=(h0, z0), output_final_state=True)
    top, last = loop(q, k, v, h0=h0)
    keys = z0 + k.cumsum(1)
    below = (q * keys).sum(-1, keepdim=True) * K**-0.5
    same((o, state, sums), (top / (below + 1e-10), last, keys[:, -1:]), [q, k, v, h0, z0])


@pytest.mark.parametrize("packed", [False, True])
def test_hgrn(packed):
    torch.manual_seed(4)
    ends = [0, 2, 9] if packed else [0, 9]
    x, g = rand(1, 9, 6), (-torch.rand(1, 9, 6, dtype=torch.float64)).requires_grad_()
    h0 = rand(len(ends) - 1, 6)
    options = {"cu_seqlens": torch.tensor(ends)} if packed else {}
    ours = (fla.fused_recurrent_hgrn if packed else fla.chunk_hgrn)(x, g, h0, True, **options)
    found, states = [], []
    for at, (a, b) in enumerate(zip(ends, ends[1:])):
        h = h0[at]
        for t in range(a, b):
            h = g[0, t].exp() * h + x[0, t]
            found.append(h)
        states.append(h)
    same(ours, (torch.stack(found)[None], torch.stack(states)), [x, g, h0])


def test_signatures_have_their_order():
    def names(function):
        return list(inspect.signature(function).parameters)

    assert names(fla.chunk_simple_gla)[3:9] == [
        "g", "g_gamma", "scale", "initial_state", "output_final_state", "state_v_first",
    ]  # fmt: skip
    assert names(fla.fused_recurrent_gla)[3:9] == ["gk", "gv", "scale", "initial_state", "output_final_state", "reverse"]
    assert names(fla.chunk_hgrn) == ["x", "g", "initial_state", "output_final_state"]


def test_what_is_not_done_says_so(qkv):
    with pytest.raises(compat.Unsupported, match="`chunk_gla` of oplus.compat does not do `sparse`"):
        fla.chunk_gla(*qkv, qkv[0], sparse=True)
    with pytest.raises(compat.Unsupported, match="`parallel_retention with cu_seqlens` of oplus.compat does not do `output_att"):
        fla.parallel_retention(*qkv, output_attentions=True, cu_seqlens=torch.tensor([0, 9]))
    with pytest.raises(ValueError, match="with `cu_seqlens` the batch must be 1, it is 2"):
        fla.chunk_retention(*qkv, cu_seqlens=torch.tensor([0, 9]))
    with pytest.raises(ValueError, match="axis T has size 8 in `k`, it must have 9"):
        fla.chunk_retention(qkv[0], qkv[1][:, 1:], qkv[2])
