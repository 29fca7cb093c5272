"""`associative_scan` against loops, and against JAX where it is there."""

import math
from collections import namedtuple

import numpy as np
import pytest

import oplus

Pair = namedtuple("Pair", "a b")


def affine(l, r):
    return l[0] * r[0], r[0] * l[1] + r[1]


def loop(fn, xs, reverse=False):
    """The scan of lists of elements along their first axis."""
    order = range(len(xs[0]) - 1, -1, -1) if reverse else range(len(xs[0]))
    found, state = [None] * len(xs[0]), None
    for t in order:
        element = tuple(x[t] for x in xs)
        state = element if state is None else fn(state, element)
        found[t] = state
    return [np.array([one[at] for one in found]) for at in range(len(xs))]


@pytest.mark.parametrize("identity", [None, (1, 0)])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [1, 2, 3, 31, 257])
def test_an_affine_recurrence_along_any_axis(identity, reverse, length):
    rng = np.random.default_rng(length)
    a, b = rng.uniform(0.5, 1.1, size=(length, 3)), rng.normal(size=(length, 3))
    expected = loop(affine, (a, b), reverse)
    found = oplus.associative_scan(affine, (a, b), identity=identity, reverse=reverse)
    for x, y in zip(found, expected):
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)
    moved = oplus.associative_scan(affine, [a.T, b.T], identity=identity, reverse=reverse, axis=-1)
    assert isinstance(moved, list)
    for x, y in zip(moved, expected):
        np.testing.assert_allclose(x.T, y, rtol=1e-12, atol=1e-12)


def test_structures_stay_as_they_are():
    x = np.arange(1.0, 6.0)
    found = oplus.associative_scan(
        lambda l, r: {"sum": l["sum"] + r["sum"], "rest": Pair(np.maximum(l["rest"].a, r["rest"].a), l["rest"].b & r["rest"].b)},
        {"sum": x, "rest": Pair(-x, x < 3)},
        identity={"sum": 0, "rest": Pair(-np.inf, True)},
    )
    assert found["sum"].tolist() == [1, 3, 6, 10, 15]
    assert isinstance(found["rest"], Pair) and found["rest"].a.tolist() == [-1] * 5
    assert found["rest"].b.tolist() == [True, True, False, False, False]


def test_functions_of_the_language():
    x = np.random.default_rng(0).normal(size=17)

    def log_sum_exp(l, r):
        m = oplus.maximum(l, r)
        return oplus.where(l == r, l + math.log(2), m + oplus.log1p(oplus.exp(oplus.minimum(l, r) - m)))

    found = oplus.associative_scan(log_sum_exp, x, identity=-np.inf)
    np.testing.assert_allclose(found, np.logaddexp.accumulate(x), rtol=1e-12)


def test_whole_numbers():
    x = np.array([3, 1, 2**40, 5])
    assert oplus.associative_scan(lambda l, r: l + r, x, identity=0).tolist() == np.cumsum(x).tolist()
    assert oplus.associative_scan(lambda l, r: l | r, x, identity=0).tolist() == np.bitwise_or.accumulate(x).tolist()


def test_what_is_not_associative_is_refused():
    with pytest.raises(oplus.ScanError, match="not associative in field `f0`"):
        oplus.associative_scan(lambda l, r: l * 0.5 + r, np.ones(3), identity=0)


def test_branches_are_refused_in_words():
    with pytest.raises(TypeError, match=r"write `oplus.where\(condition, a, b\)`"):
        oplus.associative_scan(lambda l, r: l if l > r else r, np.ones(3), identity=0)


@pytest.mark.parametrize(
    ("xs", "options", "kind", "words"),
    [
        ((np.ones(3), np.ones(4)), {}, ValueError, r"array 0 of `xs` has shape \(3,\), but array 1 has \(4,\)"),
        (np.ones(3), {"axis": 1}, ValueError, "`axis` is 1, but the arrays of `xs` have 1 axes"),
        (np.ones(3, complex), {}, TypeError, "stores complex128"),
        ([], {}, ValueError, "`xs` holds no arrays"),
        ([1.0], {}, TypeError, "it holds a float"),
    ],
)
def test_wrong_arguments_are_named(xs, options, kind, words):
    with pytest.raises(kind, match=words):
        oplus.associative_scan(lambda l, r: l, xs, **options)


def test_torch_and_its_gradient():
    torch = pytest.importorskip("torch")
    a = torch.rand(9, dtype=torch.float64, requires_grad=True)
    b = torch.rand(9, dtype=torch.float64, requires_grad=True)
    _, h = oplus.associative_scan(affine, (a, b), identity=(1, 0))
    assert torch.autograd.gradcheck(lambda a, b: oplus.associative_scan(affine, (a, b), identity=(1, 0)), (a, b))
    state, states = torch.zeros((), dtype=torch.float64), []
    for t in range(9):
        state = a[t] * state + b[t]
        states.append(state)
    torch.testing.assert_close(h, torch.stack(states))
    m = oplus.associative_scan(torch.maximum, a.detach(), identity=-float("inf"))
    torch.testing.assert_close(m, a.detach().cummax(0).values)


@pytest.mark.parametrize("reverse", [False, True])
def test_it_is_that_of_jax(reverse):
    jax = pytest.importorskip("jax")
    a, b = (jax.random.uniform(jax.random.key(at), (5, 12)) for at in range(2))
    ours = oplus.associative_scan(affine, (a, b), identity=(1, 0), reverse=reverse, axis=1)
    theirs = jax.lax.associative_scan(affine, (a, b), reverse=reverse, axis=1)
    for x, y in zip(ours, theirs):
        assert isinstance(x, jax.Array)
        np.testing.assert_allclose(x, y, rtol=2e-6)
