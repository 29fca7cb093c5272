"""Texts, their mistakes, and where these are shown."""

import copy
import inspect
import pickle

import numpy as np
import pytest

import oplus


def test_all_mistakes_are_told_at_the_lines_of_this_file():
    line = inspect.currentframe().f_lineno
    with pytest.raises(oplus.ScanError) as caught:
        oplus.scan("""
            fn f(x: [T]) -> (y: [T]) { y = x + z; }
            fn g(x: [T]) -> (y: [T]) { y = w; }
        """)
    error = caught.value
    assert isinstance(error, SyntaxError) and error.filename == __file__
    assert error.lineno == line + 3 and error.msg == "there is no value `z` here"
    assert error.text[error.offset - 1 : error.end_offset - 1] == "z"
    (note,) = error.__notes__
    assert f'File "{__file__}", line {line + 4}' in note and "there is no value `w` here" in note


def test_an_operator_that_is_not_associative_is_refused():
    with pytest.raises(oplus.ScanError, match="`Discounted` is not associative in field `x`"):
        oplus.scan("op Discounted(x) { identity (0); combine(l, r) (l.x * 0.5 + r.x); }")


@pytest.mark.parametrize("text", ["fn f(", "fn f(x: [T]) -> (y: [T]) { y = 'x; }", "§", '"', "}"])
def test_what_is_no_text_is_a_syntax_error(text):
    with pytest.raises(SyntaxError):
        oplus.scan(text)


def test_a_text_may_come_from_anywhere(tmp_path):
    body = "fn f(x: [T]) -> (y: [T]) { y = scan(T, Sum(x)); }"
    path = tmp_path / "my.scan"
    path.write_text(body)
    assert [k.__name__ for k in oplus.scan_file(path)] == ["f"]
    (tmp_path / "my.rs").write_text(f"use oplus::scan; scan! {{ pub {body} }} fn main() {{}}")
    assert oplus.scan_file(tmp_path / "my.rs").f.params[0].axes == ["T"]
    path.write_text("\n" + body.replace("Sum", "Sam"))
    with pytest.raises(oplus.ScanError) as caught:
        oplus.scan_file(path)
    assert caught.value.filename == str(path) and caught.value.lineno == 2
    assert len(oplus.scan("")) == 0
    with pytest.raises(TypeError):
        oplus.scan(3)


def test_a_docstring_is_a_text():
    @oplus.kernel
    def cumsum(x):
        """fn cumsum(x: [T]) -> (y: [T]) { y = scan(T, Sum(x)); }"""

    assert cumsum.__name__ == "cumsum"
    with pytest.raises(oplus.ScanError) as caught:

        @oplus.kernel
        def wrong(x):
            """
            fn wrong(x: [T]) -> (y: [T]) { y = z; }
            """

    assert caught.value.filename == __file__


def test_kernels_say_what_they_are(rnn):
    assert "h[t] = max(h[t−1] − d[t], x[t])" in repr(rnn.peaks)
    assert rnn.peaks.__doc__.startswith("h[t] = max(h[t-1] - d[t], x[t]).")
    assert repr(rnn.peaks.params[2]) == "h0: state[B] = -inf" and rnn.peaks.params[2].default == float("-inf")
    with pytest.raises(AttributeError, match="has no kernel `peeks`; its kernels are peaks"):
        rnn.peeks


def test_copies_of_a_model_share_its_kernels(rnn):
    model = {"kernel": rnn.peaks}
    assert copy.deepcopy(model)["kernel"] is copy.copy(rnn.peaks) is rnn.peaks


def test_pickled_kernels_are_their_programs(rnn):
    x = np.array([[0.0, 3.0, 1.0]])
    for kernel in (rnn.peaks, rnn.peaks.step, rnn.affine.gradient, oplus.models.mamba):
        text = pickle.dumps(kernel)
        again = pickle.loads(text)
        assert again.text == kernel.text and again.__doc__ == kernel.__doc__
        assert pickle.loads(text) is again
    again = pickle.loads(pickle.dumps(rnn)).peaks
    assert again(x, x).h.tolist() == rnn.peaks(x, x).h.tolist()
    assert copy.deepcopy(rnn).peaks is rnn.peaks


def test_the_standard_models_are_there():
    assert "mamba" in dir(oplus.models) and "selective_scan" in oplus.models.__all__
    assert oplus.models.mamba.__doc__.startswith("The inside of a Mamba block")
    with pytest.raises(AttributeError):
        oplus.models.mumba
