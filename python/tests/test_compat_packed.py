"""Packed sequences with states: one call of all sequences beside a padded one, and one call each."""

import pytest

torch = pytest.importorskip("torch")

import oplus  # noqa: E402
from oplus import compat  # noqa: E402
from oplus.compat import _common, fla, mamba_ssm  # noqa: E402

H, K, V = 2, 3, 4
# Of one length; of some; with empty ones; so different that padding would be most of it.
ENDS = {"even": [0, 4, 8, 12], "some": [0, 3, 7, 12], "empty": [0, 0, 5, 5, 12, 12], "uneven": [0, 1, 2, 3, 12], "one": [0, 12]}


def rand(*shape):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def both_ways(monkeypatch, call, inputs):
    """What a call gives, with its gradients, by kernels of packed sequences and without them."""
    found = []
    for most in (1 << 26, -1):
        monkeypatch.setitem(_common.MOST_STATES, torch.get_default_device().type, most)
        outputs = [x for x in call() if x is not None]
        torch.manual_seed(3)
        loss = sum((x * torch.randn(x.shape, dtype=x.dtype)).sum() for x in outputs)
        found.append([*outputs, *torch.autograd.grad(loss, [x for x in inputs if x is not None], allow_unused=True)])
    for ours, padded in zip(*found, strict=True):
        assert (ours is None) == (padded is None)
        if ours is not None:
            torch.testing.assert_close(ours, padded, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ENDS)
@pytest.mark.parametrize("states", ["in and out", "out"])
@pytest.mark.parametrize("kind", ["simple", "gamma", "none", "keys", "values", "both", "simple reversed", "keys reversed"])
def test_linear_attention(monkeypatch, kind, states, name):
    torch.manual_seed(0)
    ends = torch.tensor(ENDS[name])
    q, k, v = rand(1, 12, H, K), rand(1, 12, H, K), rand(1, 12, H, V)
    s0 = rand(len(ends) - 1, H, K, V) if states == "in and out" else None
    options = {"initial_state": s0, "output_final_state": True, "cu_seqlens": ends}
    g = -torch.rand(1, 12, H, K, dtype=torch.float64)
    g.requires_grad_()
    gv = (-torch.rand(1, 12, H, V, dtype=torch.float64)).requires_grad_()
    calls = {
        "simple": lambda: fla.chunk_simple_gla(q, k, v, g[..., 0], **options),
        "gamma": lambda: fla.chunk_retention(q, k, v, **options),
        "none": lambda: fla.chunk_linear_attn(q, k, v, normalize=False, **options),
        "keys": lambda: fla.chunk_gla(q, k, v, g, **options),
        "values": lambda: fla.fused_recurrent_gla(q, k, v, None, gv, **options),
        "both": lambda: fla.fused_recurrent_gla(q, k, v, g, gv, **options),
        "simple reversed": lambda: fla.fused_recurrent_simple_gla(q, k, v, g[..., 0], reverse=True, **options),
        "keys reversed": lambda: fla.fused_recurrent_gla(q, k, v, g, reverse=True, **options),
    }
    both_ways(monkeypatch, calls[kind], [q, k, v, g, gv, s0])


@pytest.mark.parametrize("name", ENDS)
@pytest.mark.parametrize("is_given", [False, True])
def test_channels(monkeypatch, is_given, name):
    torch.manual_seed(0)
    ends = torch.tensor(ENDS[name])
    x, g = rand(1, 12, 5), (-torch.rand(1, 12, 5, dtype=torch.float64)).requires_grad_()
    s0 = rand(len(ends) - 1, 5) if is_given else None
    both_ways(
        monkeypatch,
        lambda: fla.fused_recurrent_hgrn(x, g, initial_state=s0, output_final_state=True, cu_seqlens=ends),
        [x, g, s0],
    )


@pytest.mark.parametrize("name", ENDS)
@pytest.mark.parametrize("softplus", [False, True])
@pytest.mark.parametrize("kind", ["plain", "all", "other resets", "no resets"])
def test_mamba_2(monkeypatch, kind, softplus, name):
    torch.manual_seed(0)
    ends = torch.tensor(ENDS[name])
    x, dt, A, B, C = rand(1, 12, 4, 3), rand(1, 12, 4), (-torch.rand(4, dtype=torch.float64)).requires_grad_(), rand(1, 12, 2, 5), rand(1, 12, 2, 5)
    resets = torch.tensor([[n for n, (a, b) in enumerate(zip(ENDS[name], ENDS[name][1:])) for _ in range(a, b)]])
    options = {"dt_softplus": softplus, "return_varlen_states": True, "return_final_states": True, "cu_seqlens": ends}
    given = []
    if kind == "all":
        given = [rand(4, 3), rand(1, 12, 4, 3), rand(4)]
        options |= dict(zip(("D", "z", "dt_bias"), given)) | {"dt_limit": (0.1, 0.9)}
    if kind == "other resets":
        resets = torch.tensor([[0] * 2 + [1] * 10])
    if kind != "no resets":
        options["seq_idx"] = resets
    both_ways(
        monkeypatch, lambda: mamba_ssm.mamba_chunk_scan_combined(x, dt, A, B, C, 64, **options), [x, dt, A, B, C, *given]
    )


def test_kernels_of_packed_sequences_are_called_where_they_fit(monkeypatch):
    call, calls = oplus.Kernel.__call__, []

    def noted(self, *args, **kwargs):
        calls.append(self)
        return call(self, *args, **kwargs)

    monkeypatch.setattr(oplus.Kernel, "__call__", noted)
    q = rand(1, 12, H, K)
    for name, most in (("some", 12 * H * K * K), ("some", 12 * H * K * K - 1), ("even", 1 << 26)):
        monkeypatch.setitem(_common.MOST_STATES, torch.get_default_device().type, most)
        fla.chunk_simple_gla(q, q, q, q[..., 0], output_final_state=True, cu_seqlens=torch.tensor(ENDS[name]))
    assert calls.count(oplus.models.monoid_attention_packed_states) == 1 and len(calls) == 3


def test_wrong_borders_are_named():
    q = rand(1, 12, H, K)
    for ends in ([0, 5], [1, 12], [0, 7, 5, 12], [0]):
        with pytest.raises(ValueError, match="`cu_seqlens` must go from 0 up to 12, it is"):
            compat.fla.chunk_gla(q, q, q, q, output_final_state=True, cu_seqlens=torch.tensor(ends))
    with pytest.raises(ValueError, match="there are 2 sequences, but 3 initial states"):
        fla.chunk_gla(q, q, q, q, initial_state=rand(3, H, K, K), cu_seqlens=torch.tensor([0, 5, 12]))
    x = rand(1, 12, 4, 3)
    with pytest.raises(ValueError, match="must go from 0 up to 12"):
        mamba_ssm.mamba_chunk_scan_combined(
            x, x[..., 0], x[0, 0, :, 0], x[:, :, :2], x[:, :, :2], 64, cu_seqlens=torch.tensor([0, 9]), return_varlen_states=True
        )
