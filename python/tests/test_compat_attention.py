"""The drop-ins for flash-attn against attention with whole matrices in PyTorch, and how drop-ins are put in place."""

import sys
import types

import pytest

torch = pytest.importorskip("torch")

from oplus import compat  # noqa: E402
from oplus.compat import flash_attn as ours  # noqa: E402


def reference(q, k, v, scale=None, causal=False, window=(-1, -1), softcap=0.0, slopes=None):
    """Attention of one batch [B, S, H, D] with all scores at once."""
    per = q.shape[2] // k.shape[2]
    k, v = k.repeat_interleave(per, 2), v.repeat_interleave(per, 2)
    score = torch.einsum("bmhd,bnhd->bhmn", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale)
    score = score if not softcap else softcap * torch.tanh(score / softcap)
    at = torch.arange(q.shape[1])[:, None] + k.shape[1] - q.shape[1]
    n = torch.arange(k.shape[1])
    if slopes is not None:
        score = score - slopes.expand(q.shape[0], -1)[..., None, None] * (at - n).abs()
    left, right = window[0], 0 if causal else window[1]
    seen = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool)
    seen = seen & (n >= at - left) if left >= 0 else seen
    seen = seen & (n <= at + right) if right >= 0 else seen
    score = score.masked_fill(~seen, -torch.inf)
    lse = score.logsumexp(-1)
    weights = torch.exp(score - torch.where(lse.isinf(), 0.0, lse)[..., None])
    return torch.einsum("bhmn,bnhd->bmhd", weights, v), lse


def rand(*shape):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def same(x, y, inputs):
    torch.testing.assert_close(x, y, rtol=1e-9, atol=1e-9)
    w = torch.randn_like(x)
    for a, b in zip(torch.autograd.grad((x * w).sum(), inputs), torch.autograd.grad((y * w).sum(), inputs)):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-8)


OPTIONS = [
    (causal, window, softcap, alibi)
    for causal in (False, True)
    for window in ((-1, -1), (2, 1), (3, -1))
    for softcap in (0.0, 1.5)
    for alibi in (False, True)
]


@pytest.mark.parametrize(("causal", "window", "softcap", "alibi"), OPTIONS)
@pytest.mark.parametrize("sizes", [(5, 5), (3, 7), (7, 4)])
def test_every_combination_of_options(sizes, causal, window, softcap, alibi):
    torch.manual_seed(0)
    q, k, v = rand(2, sizes[0], 4, 6), rand(2, sizes[1], 2, 6), rand(2, sizes[1], 2, 6)
    slopes = torch.rand(2, 4, dtype=torch.float64) if alibi else None
    o, lse, nothing = ours.flash_attn_func(
        q, k, v, 0.0, None, causal, window, softcap, slopes, return_attn_probs=True
    )
    expected, sums = reference(q, k, v, None, causal, window, softcap, slopes)
    assert nothing is None
    torch.testing.assert_close(lse, sums)
    same(o, expected, (q, k, v))


@pytest.mark.parametrize(("causal", "window", "softcap", "alibi"), OPTIONS)
def test_packed_sequences(causal, window, softcap, alibi):
    torch.manual_seed(1)
    cu_q, cu_k = [0, 3, 4, 9], [0, 5, 6, 10]
    q, k, v = rand(9, 4, 6), rand(10, 2, 6), rand(10, 2, 6)
    slopes = torch.rand(3, 4, dtype=torch.float64) if alibi else None
    given = (torch.tensor(cu_q, dtype=torch.int32), torch.tensor(cu_k, dtype=torch.int32), 5, 5)
    o = ours.flash_attn_varlen_func(
        q, k, v, *given, softmax_scale=0.7, causal=causal, window_size=window, softcap=softcap, alibi_slopes=slopes
    )
    parts = []
    for s in range(3):
        a, b, c, d = cu_q[s], cu_q[s + 1], cu_k[s], cu_k[s + 1]
        slope = None if slopes is None else slopes[s : s + 1]
        parts.append(reference(q[None, a:b], k[None, c:d], v[None, c:d], 0.7, causal, window, softcap, slope)[0][0])
    same(o, torch.cat(parts), (q, k, v))


def test_keys_in_pages():
    """Sequences whose pages lie anywhere, the last one of each partly filled, one sequence without keys."""
    torch.manual_seed(3)
    ends = torch.tensor([0, 5, 5, 11], dtype=torch.int32)
    table = torch.tensor([[4, 1, 0], [0, 0, 0], [2, 6, 3]], dtype=torch.int32)
    q, k, v = rand(11, 4, 6), rand(7, 3, 2, 6), rand(7, 3, 2, 6)
    options = {"causal": True, "softmax_scale": 0.7}
    found = ours.flash_attn_varlen_func(q, k, v, ends, ends, 6, 6, **options, block_table=table)
    keys, values = (torch.cat([x[4], x[1, :2], x[2], x[6]]) for x in (k, v))
    same(found, ours.flash_attn_varlen_func(q, keys, values, ends, ends, 6, 6, **options), (q, k, v))
    with pytest.raises(ValueError, match="block_table"):
        ours.flash_attn_varlen_func(q, k, v, ends, ends, 6, 6, block_table=table[:2])


def test_packed_tensors():
    torch.manual_seed(2)
    qkv = rand(2, 5, 3, 4, 6)
    expected = reference(*qkv.unbind(2), causal=True)[0]
    same(ours.flash_attn_qkvpacked_func(qkv, causal=True), expected, (qkv,))
    torch.testing.assert_close(ours.flash_attn_kvpacked_func(qkv[:, :, 0], qkv[:, :, 1:], causal=True), expected)
    ends = torch.tensor([0, 5], dtype=torch.int32)
    torch.testing.assert_close(ours.flash_attn_varlen_qkvpacked_func(qkv[0], ends, 5, causal=True), expected[0])
    found = ours.flash_attn_varlen_kvpacked_func(qkv[0, :, 0], qkv[0, :, 1:], ends, ends, 5, 5, causal=True)
    torch.testing.assert_close(found, expected[0])


def test_what_is_not_done_says_so():
    x = torch.ones(1, 3, 2, 4)
    with pytest.raises(compat.Unsupported, match="`flash_attn_func` of oplus.compat does not do `dropout_p`"):
        ours.flash_attn_func(x, x, x, dropout_p=0.1)
    with pytest.raises(ValueError, match="3 heads cannot be divided among 2 groups"):
        ours.flash_attn_func(torch.ones(1, 3, 3, 4), x, x)


def test_patch_replaces_and_gives_back(monkeypatch):
    package, inner, user = (types.ModuleType(name) for name in ("flash_attn", "flash_attn.inner", "a_model"))

    def flash_attn_func():
        return "theirs"

    package.flash_attn_func = inner.flash_attn_func = user.attention = flash_attn_func
    for module in (package, inner, user):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    with compat.patch("flash_attn") as patched:
        assert package.flash_attn_func is inner.flash_attn_func is user.attention is ours.flash_attn_func
        assert sorted(patched.names) == ["a_model.attention", "flash_attn.flash_attn_func", "flash_attn.inner.flash_attn_func"]
    assert package.flash_attn_func is user.attention is flash_attn_func
    with pytest.raises(ValueError, match="there are drop-ins for mamba_ssm, fla, flash_attn, not for `xformers`"):
        compat.patch("xformers")
