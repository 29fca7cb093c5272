"""Kernels that several tests call. With `OPLUS_TEST_DEVICE=cuda` the tests of PyTorch run on a GPU."""

import os
import sys

import pytest

import oplus

TEXT = """
    /// Peaks that sink: first by d, then overtaken by h.
    op LeakyMax(d, h) {
        identity (0, -inf);
        combine(l, r) (l.d + r.d, max(l.h - r.d, r.h));
    }

    /// h[t] = max(h[t-1] - d[t], x[t]).
    fn peaks(x: [B, T], d: [B, T], h0: state[B] = -inf) -> (h: [B, T], h_last: state[B]) {
        h = scan(T, LeakyMax(d, x), init = (h: h0)).h;
        h_last = last(T, h);
    }

    fn affine(a: [B, T], x: [B, T], h0: state[B] = 0) -> (h: [B, T], h_last: state[B]) {
        h = scan(T, Affine(a, x), init = h0).b;
        h_last = last(T, h);
    }

    fn total(x: [B, T]) -> (y: [B]) { y = sum(T, x); }

    fn scaled(x: [T], by: []) -> (y: [T]) { y = by * x; }

    op Any(x: bool) { identity (false); combine(l, r) (l.x || r.x); }
    fn any_true(x: bool[T]) -> (y: bool[T]) { y = scan(T, Any(x)); }
"""


@pytest.fixture(scope="session")
def rnn():
    return oplus.scan(TEXT)


@pytest.fixture(autouse=True)
def device():
    """The device on which PyTorch makes tensors."""
    where = os.environ.get("OPLUS_TEST_DEVICE")
    torch = sys.modules.get("torch")
    if where is None or torch is None:
        yield
        return
    before = torch.get_default_device()
    torch.set_default_device(where)
    yield
    torch.set_default_device(before)
