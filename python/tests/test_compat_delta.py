"""The delta rules of flash-linear-attention, and its attention, against loops in PyTorch."""

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from test_compat_fla import rand, same  # noqa: E402

from oplus import compat  # noqa: E402
from oplus.compat import _common, _delta, _delta_torch, fla  # noqa: E402

B, H, K, V = 2, 2, 3, 4


def loop(q, k, v, beta, g=None, scale=None, h0=None):
    """s = exp(g[t])·s; s += beta[t]·k[t]⊗(v[t] - k[t]·s); o[t] = q[t]·s; heads of keys are shared by groups of values."""
    per = v.shape[2] // q.shape[2]
    q, k = q.repeat_interleave(per, 2), k.repeat_interleave(per, 2)
    s = torch.zeros(q.shape[0], q.shape[2], q.shape[3], v.shape[3], dtype=q.dtype) if h0 is None else h0
    found = []
    for t in range(q.shape[1]):
        if g is not None:
            s = s * (g[:, t, :, None, None] if g.dim() == 3 else g[:, t, :, :, None]).exp()
        wrong = v[:, t] - torch.einsum("bhk,bhkv->bhv", k[:, t], s)
        s = s + torch.einsum("bh,bhk,bhv->bhkv", beta[:, t], k[:, t], wrong)
        found.append(torch.einsum("bhk,bhkv->bhv", q[:, t], s))
    if not found:
        return v, s
    return torch.stack(found, 1) * (q.shape[-1] ** -0.5 if scale is None else scale), s


def given(length, values=H, batch=B):
    torch.manual_seed(length)
    q, k = rand(batch, length, H, K), rand(batch, length, H, K)
    k = F.normalize(k.detach(), dim=-1).requires_grad_()
    v = rand(batch, length, values, V)
    beta = torch.rand(batch, length, values, dtype=torch.float64).requires_grad_()
    return q, k, v, beta


def decay(*shape):
    return (-torch.rand(*shape, dtype=torch.float64)).requires_grad_()


@pytest.mark.parametrize("by", ["kernels", "torch"])
@pytest.mark.parametrize("length", [1, 2, 15, 17, 63, 65, 131])
@pytest.mark.parametrize("kind", ["none", "head", "channel"])
def test_every_delta_rule_is_its_loop(kind, length, by, monkeypatch):
    monkeypatch.setattr(_delta, "has_kernels", lambda *_: by == "kernels")
    q, k, v, beta = given(length, values=2 * H)
    h0 = rand(B, 2 * H, K, V)
    options = {"scale": 0.3, "initial_state": h0, "output_final_state": True}
    if kind == "none":
        g, ours = None, fla.chunk_delta_rule(q, k, v, beta, **options)
    elif kind == "head":
        g = decay(B, length, 2 * H)
        ours = fla.chunk_gated_delta_rule(q, k, v, g, beta, **options)
    else:
        g = decay(B, length, 2 * H, K)
        ours = fla.chunk_kda(q, k, v, g, beta, **options)
    same(ours, loop(q, k, v, beta, g, 0.3, h0), [q, k, v, beta, g, h0])


@pytest.mark.parametrize("by", ["kernels", "torch"])
def test_no_times_leave_the_state(by, monkeypatch):
    monkeypatch.setattr(_delta, "has_kernels", lambda *_: by == "kernels")
    q, k, v, beta = given(0)
    h0 = rand(B, H, K, V)
    for ours in (fla.chunk_delta_rule(q, k, v, beta, initial_state=h0, output_final_state=True),
                 fla.chunk_kda(q, k, v, k, beta, initial_state=h0, output_final_state=True),
                 fla.chunk_rwkv7(q, k, k, v, k, k, initial_state=h0, output_final_state=True)):  # fmt: skip
        assert ours[0].shape == v.shape and torch.equal(ours[1], h0)


@pytest.mark.parametrize("length", [17, 131, 500])
def test_products_of_channels_are_made_for_some_chunks_after_the_others(length, monkeypatch):
    monkeypatch.setattr(_delta, "has_kernels", lambda *_: False)
    q, k, v, beta = given(length)
    g, sizes = decay(B, length, H, K), []

    def watched(k, total, *xs, made=_delta_torch._of_channels):
        sizes.append(total.numel() * total.shape[-2])
        return made(k, total, *xs)

    monkeypatch.setattr(_delta_torch, "_of_channels", watched)
    monkeypatch.setattr(_delta_torch, "MOST_PRODUCTS", 1)
    chunks = -(-length // _delta_torch.CHUNK["channel"])
    keys = B * H * chunks * _delta_torch.CHUNK["channel"] * K
    ours = fla.chunk_kda(q, k, v, g, beta, scale=0.3, output_final_state=True)
    parts = min(chunks, _delta_torch.CHUNK["channel"])
    # As many at once as there are numbers in the keys, but for whole chunks.
    assert len(sizes) == parts and max(sizes) <= keys + keys * _delta_torch.CHUNK["channel"] // chunks
    same(ours, loop(q, k, v, beta, g, 0.3), [q, k, v, beta, g])
    assert len(sizes) > parts, "the gradient makes them once more"


ENDS = [[0, 3, 4, 9], [0, 4, 9], [0, 0, 9], [0, 1, 2, 3, 4, 5, 20]]


@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("kind", ["none", "head", "channel"])
@pytest.mark.parametrize("together", [True, False])
def test_packed_sequences_with_states_at_both_ends(ends, kind, together, monkeypatch):
    monkeypatch.setattr(_common, "MOST_STATES", {"cpu": 1 << 21 if together else 0})
    q, k, v, beta = given(ends[-1], batch=1)
    h0 = rand(len(ends) - 1, H, K, V)
    g = {"none": None, "head": decay(1, ends[-1], H), "channel": decay(1, ends[-1], H, K)}[kind]
    options = {"initial_state": h0, "output_final_state": True, "cu_seqlens": torch.tensor(ends)}
    parts = [
        loop(*[None if x is None else x[:, a:b] for x in (q, k, v, beta, g)], h0=h0[i : i + 1])
        for i, (a, b) in enumerate(zip(ends, ends[1:]))
    ]
    expected = torch.cat([o for o, _ in parts], 1), torch.cat([s for _, s in parts])
    if kind == "none":
        ours = fla.chunk_delta_rule(q, k, v, beta, **options)
    else:
        ours = (fla.chunk_gated_delta_rule if kind == "head" else fla.chunk_kda)(q, k, v, g, beta, **options)
    same(ours, expected, [q, k, v, beta, g, h0])


@pytest.mark.parametrize("ends", [[0, 4, 9], [0, 1, 9, 10, 30]])
def test_packed_sequences_are_one_call_where_few_times_are_padding(ends):
    calls = []

    def call(states, x):
        calls.append(tuple(x.shape))
        return x.cumsum(1) + states[:, None], x.sum(1) + states

    x, states = torch.rand(1, ends[-1], 3), torch.rand(len(ends) - 1, 3)
    o, last = _common.packed(torch.tensor(ends), states, (x,), call)
    parts = [x[0, a:b].cumsum(0) + states[at] for at, (a, b) in enumerate(zip(ends, ends[1:]))]
    torch.testing.assert_close(o[0], torch.cat(parts))
    torch.testing.assert_close(last, torch.stack([part[-1] for part in parts]))
    assert len(calls) == (1 if len(ends) == 3 else 4)


def test_gates_and_norms_in_the_kernel():
    q, k, v, beta = given(20)
    g, a_log, bias = rand(B, 20, H), rand(H), rand(H)
    logits = rand(B, 20, H)
    normal = [x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6) for x in (q, k)]
    ours = fla.chunk_gated_delta_rule(
        q, k, v, g, logits, output_final_state=True, use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True, A_log=a_log,
        dt_bias=bias, use_beta_sigmoid_in_kernel=True, allow_neg_eigval=True,
    )  # fmt: skip
    decays = -a_log.exp() * F.softplus(g + bias)
    same(ours, loop(*normal, v, 2 * logits.sigmoid(), decays), [q, k, v, g, a_log, bias, logits])
    g, bias = rand(B, 20, H, K), rand(H * K)
    options = {"output_final_state": True, "use_gate_in_kernel": True, "A_log": a_log, "dt_bias": bias}
    ours = fla.fused_recurrent_kda(q, k, v, g, beta, lower_bound=-5.0, **options)
    decays = -5 * torch.sigmoid(a_log.exp()[:, None] * (g + bias.view(H, K)))
    same(ours, loop(q, k, v, beta, decays), [q, k, v, g, a_log, bias, beta])
    decays = -a_log.exp()[:, None] * F.softplus(g + bias.view(H, K))
    same(fla.chunk_kda(q, k, v, g, beta, **options), loop(q, k, v, beta, decays), [q, k, v, g, a_log, bias, beta])


def test_the_recurrent_forms():
    q, k, v, beta = given(9)
    g, gk, h0 = decay(B, 9, H), decay(B, 9, H, K), rand(B, H, V, K)
    ones = torch.ones_like(beta)
    same(fla.fused_recurrent_delta_rule(q, k, v, output_final_state=True), loop(q, k, v, ones), [q, k, v])
    ours = fla.fused_recurrent_gated_delta_rule(
        q, k, v, g, gk, beta=beta, initial_state=h0, output_final_state=True, state_v_first=True
    )
    o, s = loop(q, k, v, beta, g[..., None] + gk, h0=h0.mT)
    same(ours, (o, s.mT), [q, k, v, beta, g, gk, h0])
    assert fla.fused_recurrent_gdn is fla.fused_recurrent_gated_delta_rule


def pairs(q, k, v, a, b, w, scale, h0):
    """s = exp(w[t])·s + b[t]⊗(a[t]·s) + k[t]⊗v[t]; o[t] = q[t]·s."""
    s, found = h0, [v[:, :0]]
    for t in range(q.shape[1]):
        read = torch.einsum("bhk,bhkv->bhv", a[:, t], s)
        s = s * w[:, t, :, :, None].exp() + torch.einsum("bhk,bhv->bhkv", b[:, t], read)
        s = s + torch.einsum("bhk,bhv->bhkv", k[:, t], v[:, t])
        found.append(torch.einsum("bhk,bhkv->bhv", q[:, t], s)[:, None])
    return torch.cat(found, 1) * scale, s


def given_pair(length, batch=B):
    q, k, v, _ = given(length, batch=batch)
    a, b = rand(batch, length, H, K), rand(batch, length, H, K)
    return q, k, v, a, b, decay(batch, length, H, K)


@pytest.mark.parametrize("length", [1, 2, 17, 65])
def test_diagonals_and_pairs_of_vectors(length):
    q, k, v, a, b, w = given_pair(length)
    h0, none = rand(B, H, K, V), torch.zeros(B, length, H, K, dtype=torch.float64)
    options = {"scale": 0.3, "initial_state": h0, "output_final_state": True}
    given = q, k, v, a, b, w
    for ours in (fla.chunk_dplr_delta_rule, fla.fused_recurrent_dplr_delta_rule):
        same(ours(*given, **options), pairs(*given, 0.3, h0), [*given, h0])
    for ours in (fla.chunk_iplr_delta_rule, fla.fused_recurrent_iplr_delta_rule):
        same(ours(q, k, v, a, b, **options), pairs(q, k, v, a, b, none, 0.3, h0), [q, k, v, a, b, h0])
    for ours in (fla.chunk_rwkv7, fla.fused_recurrent_rwkv7):
        same(ours(q, w, k, v, a, b, **options), pairs(*given, 0.3, h0), [*given, h0])
    ours = fla.fused_mul_recurrent_rwkv7(q, w, k, v, a, b, **options)
    same(ours, pairs(q, k, v, -a, a * b, w, 0.3, h0), [q, k, v, a, b, w, h0])
    flipped = pairs(*[x.flip(1) for x in given], 0.3, h0)
    ours = fla.fused_recurrent_dplr_delta_rule(q, k, v, a, b, w, reverse=True, **options)
    same(ours, (flipped[0].flip(1), flipped[1]), [q, k, v, a, b, w, h0])


@pytest.mark.parametrize("ends", ENDS)
def test_packed_diagonals_and_pairs(ends):
    q, k, v, a, b, w = given_pair(ends[-1], batch=1)
    h0 = rand(len(ends) - 1, H, K, V)
    parts = [
        pairs(*[x[:, i:j] for x in (q, k, v, a, b, w)], 1, h0[n : n + 1]) for n, (i, j) in enumerate(zip(ends, ends[1:]))
    ]
    expected = torch.cat([o for o, _ in parts], 1), torch.cat([s for _, s in parts])
    options = {"initial_state": h0, "output_final_state": True, "cu_seqlens": torch.tensor(ends)}
    same(fla.chunk_rwkv7(q, w, k, v, a, b, **options), expected, [q, k, v, a, b, w, h0])


def test_half_precision_is_computed_wide():
    q, k, v, beta = (x.detach() for x in given(100))
    half = [x.bfloat16() for x in (q, k, v, beta)]
    o, s = fla.chunk_delta_rule(*half, output_final_state=True)
    assert o.dtype == torch.bfloat16 and s.dtype == torch.float32
    expected, state = loop(*[x.double() for x in half])
    torch.testing.assert_close(o.double(), expected, rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(s.double(), state, rtol=1e-4, atol=1e-4)


def attention(q, k, v, g=None, scale=None, window=None, sink=None):
    per = q.shape[2] // k.shape[2]
    k, v = k.repeat_interleave(per, 2), v.repeat_interleave(per, 2)
    score = torch.einsum("bmhd,bnhd->bhmn", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if g is not None:
        total = g.cumsum(1).transpose(1, 2)
        score = score + total[..., :, None] - total[..., None, :]
    at = torch.arange(q.shape[1])
    seen = at[:, None] >= at
    seen = seen if window is None else seen & (at[:, None] - at < window)
    score = score.masked_fill(~seen, -torch.inf)
    if sink is not None:
        score = torch.cat([score, sink[None, :, None, None].expand(*score.shape[:3], 1)], -1)
        v = F.pad(v, (0, 0, 0, 0, 0, 1))
    return torch.einsum("bhmn,bnhd->bmhd", score.softmax(-1), v)


@pytest.mark.parametrize("sinks", [False, True])
@pytest.mark.parametrize("decays", [False, True])
@pytest.mark.parametrize("window", [None, 1, 3])
@pytest.mark.parametrize("ends", [None, [0, 3, 4, 9]])
def test_parallel_attention(ends, window, decays, sinks):
    torch.manual_seed(3)
    batch = 2 if ends is None else 1
    q, k, v = rand(batch, 9, 4, K), rand(batch, 9, 2, K), rand(batch, 9, 2, V)
    g, sink = decay(batch, 9, 4) if decays else None, rand(4) if sinks else None
    cu = None if ends is None else torch.tensor(ends)
    ours = fla.parallel_attn(q, k, v, g, 0.7, window, cu, sink_bias=sink)
    parts = [
        attention(*[None if x is None else x[:, a:b] for x in (q, k, v, g)], 0.7, window, sink)
        for a, b in ([(0, 9)] if ends is None else zip(ends, ends[1:]))
    ]
    same((ours,), (torch.cat(parts, 1),), [q, k, v, g, sink])


def test_what_is_not_done_says_so():
    q, k, v, beta = given(3)
    with pytest.raises(compat.Unsupported, match="`fused_recurrent_gated_delta_rule` of oplus.compat does not do `gv`"):
        fla.fused_recurrent_gated_delta_rule(q, k, v, gv=v, beta=beta)
    with pytest.raises(compat.Unsupported, match="`chunk_kda` of oplus.compat does not do `return_intermediate_states`"):
        fla.chunk_kda(q, k, v, k, beta, return_intermediate_states=True)
    with pytest.raises(ValueError, match="`chunk_size` must be either 32 or 64 for KDA, it is 100"):
        fla.chunk_kda(q, k, v, k, beta, chunk_size=100)
    with pytest.raises(compat.Unsupported, match="`chunk_rwkv7` of oplus.compat does not do `cp_context`"):
        fla.chunk_rwkv7(q, k, k, v, k, k, cp_context=object())
    with pytest.raises(ValueError, match="axis T has size 2 in `a`, it must have 3"):
        fla.chunk_dplr_delta_rule(q, k, v, k[:, :2], k, k)
    with pytest.raises(ValueError, match="3 heads of values cannot be divided among 2 groups"):
        fla.chunk_delta_rule(q, k, torch.cat([v, v[:, :, :1]], 2), torch.cat([beta, beta[..., :1]], -1))
    with pytest.raises(ValueError, match="axis T has size 3 in `g`, it must have 2" ):
        fla.chunk_gated_delta_rule(q[:, :2], k[:, :2], v[:, :2], beta, beta[:, :2])
    with pytest.raises(ValueError, match="`cu_seqlens` must go from 0 up to 3, it is"):
        fla.chunk_delta_rule(q[:1], k[:1], v[:1], beta[:1], cu_seqlens=torch.tensor([0, 2]))
