"""Calls with arrays of NumPy against plain loops."""

import re

import numpy as np
import pytest

import oplus

SIZES = [0, 1, 2, 3, 7, 31, 257]


def peaks(x, d, h0=None):
    h = np.full(x.shape[0], -np.inf) if h0 is None else np.array(h0, dtype=np.float64)
    found = np.empty(x.shape)
    for t in range(x.shape[1]):
        h = np.maximum(h - d[:, t], x[:, t])
        found[:, t] = h
    return found, h


@pytest.mark.parametrize("length", SIZES)
@pytest.mark.parametrize("rows", [0, 1, 5])
def test_a_call_is_the_loop(rnn, rows, length):
    rng = np.random.default_rng(length)
    x, d, h0 = rng.normal(size=(rows, length)), rng.uniform(size=(rows, length)), rng.normal(size=rows)
    out = rnn.peaks(x, d, h0)
    expected, last = peaks(x, d, h0)
    np.testing.assert_allclose(out.h, expected, rtol=1e-14, atol=1e-14)
    np.testing.assert_allclose(out.h_last, last, rtol=1e-14, atol=1e-14)
    without = rnn.peaks(d=d, x=x)
    np.testing.assert_allclose(without.h, peaks(x, d)[0], rtol=1e-14, atol=1e-14)


def test_views_of_any_strides_are_read_where_they_are(rnn):
    rng = np.random.default_rng(0)
    x, d = rng.normal(size=(6, 40)), rng.uniform(size=(6, 40))
    cases = [
        (x[:, ::-1], d[::-1]),
        (x[::2, ::3], d[3:, :14]),
        (x.T[:6, :6].T, d[:, 1:7]),
        (np.asfortranarray(x), d),
        (np.broadcast_to(x[:1], (6, 40)), d),
        (x[-1::-2, -1::-1], d[:3]),
    ]
    for a, b in cases:
        np.testing.assert_allclose(rnn.peaks(a, b).h, peaks(a, b)[0], rtol=1e-13, atol=1e-13)


def test_read_only_arrays_are_read_and_inputs_are_not_written(rnn):
    x, d = np.ones((2, 3)), np.full((2, 3), 0.25)
    x.flags.writeable = False
    before = d.copy()
    out = rnn.peaks(x, d)
    assert out.h.flags.writeable and (d == before).all() and (out.h == 1).all()


@pytest.mark.parametrize("name", ["float16", "float32", "float64", "bfloat16"])
def test_what_comes_in_goes_out(rnn, name):
    dtype = np.dtype(pytest.importorskip("ml_dtypes").bfloat16) if name == "bfloat16" else np.dtype(name)
    x = np.arange(12).reshape(3, 4).astype(dtype)
    out = rnn.affine(np.full((3, 4), 0.5).astype(dtype), x)
    state = np.float64 if name == "float64" else np.float32
    assert out.h.dtype == dtype and out.h_last.dtype == state
    expected, h = np.empty((3, 4)), np.zeros(3)
    for t in range(4):
        h = 0.5 * h + x[:, t].astype(np.float64)
        expected[:, t] = h
    np.testing.assert_allclose(out.h.astype(np.float64), expected, rtol=1e-2)


def test_truth_values_and_whole_numbers(rnn):
    x = np.array([False, False, True, False])
    assert rnn.any_true(x).y.tolist() == [False, False, True, True]
    assert rnn.any_true(x[::-1]).y.tolist() == [False, True, True, True]
    integers = oplus.scan("fn counted(x: i64[T]) -> (y: i64[T]) { y = scan(T, Sum(x)); }")
    assert integers.counted(np.array([2**40, -1, 5])).y.tolist() == [2**40, 2**40 - 1, 2**40 + 4]


def test_numbers_of_python_are_scalars(rnn):
    x = np.arange(3, dtype=np.float32)
    assert rnn.scaled(x, 2).y.tolist() == [0, 2, 4] and rnn.scaled(x, by=0.5).y.dtype == np.float32


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda r, x: r.peaks(x, x[:, :2]), ValueError, "axis T has size 3 in `x` but 2 in `d`"),
        (lambda r, x: r.peaks(x, x.astype("f4")), TypeError, "`x` stores f64 but `d` stores f32"),
        (lambda r, x: r.peaks(x[0], x), ValueError, "`x` has 1 axes, it must have 2: [B, T]"),
        (lambda r, x: r.peaks(x + 1j, x), TypeError, "`x` stores complex numbers of 128 bits"),
        (lambda r, x: r.peaks(x.astype(">f8"), x), TypeError, "`x` of >f8 cannot be read through DLPack"),
        (lambda r, x: r.peaks(x.astype("i1"), x), TypeError, "`x` stores int8"),
        (lambda r, x: r.peaks(x, x, x[:, 0].astype("f4")), TypeError, "`h0` must store f64, it stores f32"),
        (lambda r, x: r.peaks(x), TypeError, "`d` is missing; it has no default"),
        (lambda r, x: r.peaks(), TypeError, "`x` is missing"),
        (lambda r, x: r.peaks([1.0], x), TypeError, "`x` must be an array of NumPy, PyTorch or JAX, but it is a list"),
        (lambda r, x: r.peaks(x, [1.0]), TypeError, "`d` must be an array that speaks DLPack"),
        (lambda r, x: r.peaks(x, x, h=x), TypeError, "`peaks` has no parameter `h`; its parameters are x, d, h0"),
        (lambda r, x: r.peaks(x, x, x=x), TypeError, "`peaks` got `x` twice"),
        (lambda r, x: r.peaks(x, x, None, None), TypeError, "`peaks` takes 3 tensors, 4 were given"),
    ],
)
def test_wrong_arguments_are_named(rnn, call, kind, words):
    with pytest.raises(kind) as caught:
        call(rnn, np.ones((2, 3)))
    assert words in str(caught.value)


def test_steps_are_the_whole(rnn):
    rng = np.random.default_rng(1)
    x, d = rng.normal(size=(3, 11)), rng.uniform(size=(3, 11))
    with oplus.ordered():
        whole = rnn.peaks(x, d)
        state = None
        for t in range(11):
            one = rnn.peaks.step(x[:, t], d[:, t], h0=state)
            state = one.h_last
            assert (one.h == whole.h[:, t]).all()
    assert (state == whole.h_last).all()


def test_steps_of_a_convolution_keep_what_its_shifts_read():
    text = """
        pub fn smooth(x: [B, T], h0: state[B] = 0) -> (h: [B, T], h_last: state[B]) {
            h = scan(T, Affine(0.5, x + shift(T, x, 2)), init = h0).b;
            h_last = last(T, h);
        }
    """
    smooth = oplus.scan(text).smooth
    x = np.random.default_rng(1).normal(size=(3, 11))
    with oplus.ordered():
        whole, state = smooth(x), {}
        for t in range(11):
            one = smooth.step(x[:, t], **state)
            assert (one.h == whole.h[:, t]).all()
            state = {"h0": one.h_last, "x_before_1": one.x_last_1, "x_before_2": one.x_last_2}


def test_the_gradient_is_a_kernel(rnn):
    a, x = np.full((1, 4), 0.5), np.ones((1, 4))
    h = rnn.affine(a, x).h
    given = {name.replace(".", "_"): value for name, value in {"a": a, "x": x, "h": h, "h.bar": np.ones((1, 4))}.items()}
    wanted = {param.name.replace(".", "_") for param in rnn.affine.gradient.params}
    found = rnn.affine.gradient(**{name: value for name, value in given.items() if name in wanted})
    assert found.x_bar.tolist() == [[1.875, 1.75, 1.5, 1.0]]


def test_explain_names_equations_and_launches(rnn):
    found = rnn.peaks.explain(B=64, T=4096)
    assert "h[t] = max(h[t−1] − d[t], x[t])" in found.forward.equations and found.gradient is not None
    assert found.forward.launches and str(found) == found.text
    html = found._repr_html_()
    assert html.startswith("<div") and "<h2>peaks, " in html and "<h2>Gradient of peaks, " in html
    # The picture of each launch, and the reasons for its schedule.
    assert html.count("<svg viewBox") == html.count("<article>") == html.count("<table") > 1
    assert html.count("<div") == html.count("</div>") and "<html" not in html
    with pytest.raises(ValueError, match="the size of axis T is unknown"):
        rnn.peaks.explain(B=2)
    with pytest.raises(ValueError, match="has no axis K"):
        rnn.peaks.explain(B=2, T=2, K=3)


def test_modes_end_with_their_block():
    from oplus import _modes, _native

    assert not _native.is_ordered() and _modes.is_recording()
    with oplus.ordered(), oplus.record(False):
        assert _native.is_ordered() and not _modes.is_recording()
        with pytest.raises(ZeroDivisionError), oplus.ordered(), oplus.record():
            assert _modes.is_recording()
            1 / 0
        assert _native.is_ordered() and not _modes.is_recording()
    assert not _native.is_ordered() and _modes.is_recording()


def test_a_type_that_follows_from_the_call_beside_one_that_does_not():
    import ml_dtypes

    x = np.ones((2, 3), ml_dtypes.bfloat16)
    out = oplus.kernels.log_decay(np.zeros((2, 3), np.float32), x)
    assert out.s.dtype == x.dtype and out.s.astype(float).tolist() == [[1, 2, 3]] * 2


def test_signatures_are_as_in_a_text_and_documentation_as_in_python():
    known = [oplus.Kernel(native) for part in ("kernels", "models") for native in oplus._native.standard(part)]
    for kernel in known:
        told = kernel.__doc__[: kernel.__doc__.index(kernel.equations.rstrip())]
        assert not re.search(r":  |\.ends|\]\(fn@|\\", told), told
    packed = oplus.models.delta_rule_packed_states
    assert "beta: call | wide[B, H, T], cu_seqlens: i32 | i64[S + 1], s0: state[B, S, H, K, V] = 0" in repr(packed)
    assert packed.__doc__.startswith("`delta_rule` of packed sequences: sequence s holds the times cu_seqlens[s] to cu_seqlens[s + 1]")
