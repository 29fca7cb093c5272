"""Calls with arrays of JAX: eager, differentiated, and in compiled programs."""

import numpy as np
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

import oplus  # noqa: E402


@pytest.fixture(autouse=True)
def wide():
    with jax.enable_x64(True):
        yield


def loop(a, x, h0):
    def step(h, element):
        h = element[0] * h + element[1]
        return h, h

    last, h = jax.lax.scan(step, h0, (a.T, x.T))
    return h.T, last


def inputs(rows=3, length=7):
    keys = jax.random.split(jax.random.key(length), 3)
    shapes = [(rows, length), (rows, length), (rows,)]
    return [jax.random.uniform(k, shape, dtype=jnp.float64) for k, shape in zip(keys, shapes)]


@pytest.mark.parametrize("length", [0, 1, 2, 31])
def test_a_call_is_the_loop(rnn, length):
    given = inputs(length=length)
    out = rnn.affine(*given)
    for found, expected in zip(out, loop(*given)):
        assert isinstance(found, jax.Array) and found.dtype == jnp.float64
        np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["eager", "compiled"])
def test_gradients_of_all_orders(rnn, wrap):
    given = inputs()

    def ours(*x):
        return rnn.affine(*x).h.sum() ** 2

    def theirs(*x):
        return loop(*x)[0].sum() ** 2

    for found, expected in zip(wrap(jax.grad(ours, (0, 1, 2)))(*given), jax.grad(theirs, (0, 1, 2))(*given)):
        np.testing.assert_allclose(found, expected, rtol=1e-12)

    def twice(f):
        return jax.grad(lambda *x: (jax.grad(f, 0)(*x) ** 2).sum(), (0, 1))

    for found, expected in zip(wrap(twice(ours))(*given), twice(theirs)(*given)):
        np.testing.assert_allclose(found, expected, rtol=1e-11)


def test_vmap(rnn):
    a, x = (jnp.stack([inputs(length=5)[at] + n for n in range(4)]) for at in (0, 1))
    found = jax.vmap(lambda a, x: rnn.affine(a, x).h)(a, x)
    for at in range(4):
        np.testing.assert_allclose(found[at], rnn.affine(a[at], x[at]).h, rtol=1e-13)


def test_half_precision_and_numbers(rnn):
    x = jnp.arange(6, dtype=jnp.bfloat16).reshape(2, 3)
    out = rnn.affine(jnp.full((2, 3), 0.5, jnp.bfloat16), x)
    assert out.h.dtype == jnp.bfloat16 and out.h_last.dtype == jnp.float32
    np.testing.assert_allclose(out.h_last, [2.5, 7.75])
    assert rnn.scaled(jnp.arange(3.0), 2).y.tolist() == [0, 2, 4]


def test_wrong_arrays_are_named(rnn):
    x = jnp.ones((2, 3))
    with pytest.raises(TypeError, match="`x` must be an array of JAX as the others are, but it is a ndarray"):
        rnn.affine(x, np.ones((2, 3)))
    with pytest.raises(ValueError, match="axis B has size 2 in `a` but 3 in `x`"):
        rnn.affine(x, jnp.ones((3, 3)))
    with pytest.raises(TypeError, match="`x` stores complex numbers"):
        rnn.total(x.astype(jnp.complex64))


def test_an_operator_without_gradient_says_so(rnn):
    assert rnn.any_true(jnp.array([False, True, False])).y.tolist() == [False, True, True]
