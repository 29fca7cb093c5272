"""Forward mode: against differences, against reverse mode, and in PyTorch's transforms."""

import pickle

import numpy as np
import pytest

import oplus

MIXED = """
    fn decayed(g: call | wide[B, T], x: [B, T], s0: wide[B] = 0) -> (s: [B, T], s_last: wide[B]) {
        s = scan(T, LogDecay(g, x), init = (x: s0)).x;
        s_last = last(T, s);
    }
    fn ranked(x: [B, T]) -> (y: [B, T], count: i64[B]) {
        y = scan(T, Sum(x * x));
        count = sum(T, (if x > 0 { 1 } else { 0 }) as i64);
    }
"""


@pytest.fixture(scope="module")
def mixed():
    return oplus.scan(MIXED)


def test_the_tangent_is_a_kernel(rnn):
    rng = np.random.default_rng(0)
    a, x, da, dx = (rng.random((3, 7)) for _ in range(4))
    h0, dh0 = rng.random(3), rng.random(3)
    out = rnn.affine.tangent(a, x, h0, a_dot=da, x_dot=dx, h0_dot=dh0)
    assert out._fields == ("h", "h_last", "h_dot", "h_last_dot")
    step = 1e-6
    up, down = (rnn.affine(a + s * da, x + s * dx, h0 + s * dh0) for s in (step, -step))
    np.testing.assert_array_equal(out.h, rnn.affine(a, x, h0).h)
    np.testing.assert_allclose(out.h_dot, (up.h - down.h) / (2 * step), rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(out.h_last_dot, (up.h_last - down.h_last) / (2 * step), rtol=1e-7, atol=1e-7)
    assert not rnn.affine.tangent(a, x, h0).h_dot.any()
    again = pickle.loads(pickle.dumps(rnn.peaks.tangent))
    np.testing.assert_array_equal(again(x, a, x_dot=dx).h_dot, rnn.peaks.tangent(x, a, x_dot=dx).h_dot)


@pytest.mark.parametrize("name", ["mamba", "monoid_attention", "attention_causal", "lru"])
def test_models_are_dual_in_both_modes(name):
    kernel = getattr(oplus.models, name)
    rng = np.random.default_rng(1)
    sizes = {"B": 2, "G": 1, "D": 3, "N": 4, "T": 5, "H": 2, "K": 3, "V": 4, "P": 2, "R": 2, "M": 3, "E": 4, "F": 2}
    draw = lambda tensor: rng.standard_normal([sizes[axis] for axis in tensor.axes]) / 4  # noqa: E731
    given = {p.name: draw(p) for p in kernel.params if p.default is None}
    dots = {name: rng.standard_normal(x.shape) for name, x in given.items()}
    out = kernel.tangent(**given, **{f"{name}_dot": x for name, x in dots.items()})._asdict()
    bars = {o.name: rng.standard_normal(out[o.name].shape) for o in kernel.outputs}
    wanted = {p.name for p in kernel.gradient.params}
    saved = {name: x for name, x in {**given, **{o.name: out[o.name] for o in kernel.outputs}}.items() if name in wanted}
    grads = kernel.gradient(**saved, **{f"{name}_bar": x for name, x in bars.items()})._asdict()
    forward = sum((out[f"{name}_dot"] * bar).sum() for name, bar in bars.items())
    reverse = sum((grads[f"{name}_bar"] * dot).sum() for name, dot in dots.items())
    assert abs(forward) > 1e-3
    np.testing.assert_allclose(forward, reverse, rtol=1e-10)


def test_an_operator_with_too_many_fields_is_named():
    fields = [f"a{n}" for n in range(20)]
    text = f"op Wide({', '.join(fields)}) {{ identity ({', '.join('0' for _ in fields)}); combine(l, r) ("
    text += ", ".join(f"l.{name} + r.{name}" for name in fields)
    text += f"); }} fn many(x: [T]) -> (y: [T]) {{ let s = scan(T, Wide({', '.join('x' for _ in fields)})); "
    text += f"y = {' + '.join(f's.{name}' for name in fields)}; }}"
    kernel = oplus.scan(text).many
    assert kernel(np.ones(3)).y.tolist() == [20, 40, 60]
    with pytest.raises(NotImplementedError, match="`many` has no forward mode: .*40 fields, more than the 32"):
        kernel.tangent  # noqa: B018


torch = pytest.importorskip("torch")


def inputs(rows=3, length=7):
    torch.manual_seed(0)
    return [torch.rand(s, dtype=torch.float64, requires_grad=True) for s in ((rows, length), (rows, length), (rows,))]


@pytest.mark.parametrize("name", ["affine", "peaks"])
def test_gradcheck_of_forward_mode(rnn, name):
    kernel = getattr(rnn, name)
    assert torch.autograd.gradcheck(
        lambda *t: tuple(kernel(*t)), inputs(), check_forward_ad=True, check_batched_forward_grad=True, check_batched_grad=True
    )


def test_batched_cotangents(rnn):
    given = inputs()
    out = rnn.affine(*given)
    bars = torch.randn(4, *out.h.shape, dtype=torch.float64)
    together = torch.autograd.grad(out.h, given, bars, is_grads_batched=True, retain_graph=True)
    for at, bar in enumerate(bars):
        for found, expected in zip(together, torch.autograd.grad(out.h, given, bar, retain_graph=True)):
            torch.testing.assert_close(found[at], expected)


def test_gradgradcheck_of_forward_over_reverse(rnn):
    assert torch.autograd.gradgradcheck(lambda *t: tuple(rnn.affine(*t)), inputs(), check_fwd_over_rev=True)


@pytest.mark.parametrize("length", [0, 1, 2, 31])
def test_jvp_and_vjp_are_dual(rnn, length):
    given = [x.detach() for x in inputs(length=length)]
    dots = tuple(torch.randn_like(x) for x in given)
    out, found = torch.func.jvp(lambda *x: tuple(rnn.affine(*x)), tuple(given), dots)
    plain, back = torch.func.vjp(lambda *x: tuple(rnn.affine(*x)), *given)
    bars = tuple(torch.randn_like(x) for x in plain)
    for x, y in zip(out, plain):
        torch.testing.assert_close(x, y)
    forward = sum((x * bar).sum() for x, bar in zip(found, bars))
    torch.testing.assert_close(forward, sum((x * dot).sum() for x, dot in zip(back(bars), dots)))


def test_jacobians_and_hessians_of_forward_mode(rnn):
    a, x, h0 = (x.detach() for x in inputs(2, 4))
    both = [mode(lambda a: rnn.affine(a, x, h0).h)(a) for mode in (torch.func.jacfwd, torch.func.jacrev)]
    torch.testing.assert_close(*both)
    loss = lambda a: rnn.affine(a, x, h0).h.square().sum()  # noqa: E731
    fwd, rev = torch.func.jacfwd, torch.func.jacrev
    hessians = [outer(inner(loss))(a) for outer, inner in ((fwd, rev), (rev, rev), (rev, fwd), (fwd, fwd))]
    for found in hessians[1:]:
        torch.testing.assert_close(found, hessians[0])


def test_dual_tensors(rnn):
    from torch.autograd import forward_ad

    a, x, h0 = (x.detach() for x in inputs())
    dot = torch.randn_like(a)
    expected = torch.func.jvp(lambda a: rnn.affine(a, x, h0).h, (a,), (dot,))[1]
    with forward_ad.dual_level():
        out = rnn.affine(forward_ad.make_dual(a, dot), x, h0)
        torch.testing.assert_close(forward_ad.unpack_dual(out.h).tangent, expected)
        assert forward_ad.unpack_dual(rnn.affine(a, x, h0).h).tangent is None
        # Tangents have gradients in turn.
        leaf = x.clone().requires_grad_()
        tangent = forward_ad.unpack_dual(rnn.affine(forward_ad.make_dual(a, dot), leaf, h0).h).tangent
        found = torch.autograd.grad(tangent.sum(), leaf)[0]
    by_rule = torch.func.grad(lambda x: torch.func.jvp(lambda a: rnn.affine(a, x, h0).h, (a,), (dot,))[1].sum())(x)
    torch.testing.assert_close(found, by_rule)


@pytest.mark.parametrize("wide", [False, True])
def test_tensors_that_may_be_wider(mixed, wide):
    torch.manual_seed(1)
    g, x = -torch.rand(2, 6), torch.randn(2, 6)
    dots = torch.randn(2, 6), torch.randn(2, 6)
    stored = torch.float32 if wide else torch.bfloat16
    half = lambda g, x: (g.to(stored), x.to(torch.bfloat16))  # noqa: E731
    out, found = torch.func.jvp(lambda *given: tuple(mixed.decayed(*given)), half(g, x), half(*dots))
    assert [t.dtype for t in found] == [t.dtype for t in out] == [torch.bfloat16, torch.float32]
    exact = torch.func.jvp(
        lambda *given: tuple(mixed.decayed(*given)), tuple(t.double() for t in half(g, x)), tuple(t.double() for t in half(*dots))
    )[1]
    for one, other in zip(found, exact):
        torch.testing.assert_close(one.double(), other, rtol=2e-2, atol=2e-2)


def test_outputs_of_whole_numbers_have_no_tangent(mixed):
    x, dot = torch.randn(2, 5, dtype=torch.float64), torch.randn(2, 5, dtype=torch.float64)
    y, found = torch.func.jvp(lambda x: mixed.ranked(x).y, (x,), (dot,))
    torch.testing.assert_close(found, (2 * x * dot).cumsum(1))
    with torch.autograd.forward_ad.dual_level():
        out = mixed.ranked(torch.autograd.forward_ad.make_dual(x, dot))
        assert torch.autograd.forward_ad.unpack_dual(out.count).tangent is None
        assert out.count.tolist() == (x > 0).sum(1).tolist()


def test_ordered_tangents_are_those_of_steps(rnn):
    a, x, h0 = (x.detach() for x in inputs(length=9))
    dot = torch.randn_like(h0)
    with oplus.ordered():
        whole = torch.func.jvp(lambda h0: rnn.affine(a, x, h0).h_last, (h0,), (dot,))[1]

        def steps(state):
            for t in range(9):
                state = rnn.affine.step(a[:, t], x[:, t], h0=state).h_last
            return state

        assert torch.equal(whole, torch.func.jvp(steps, (h0,), (dot,))[1])


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_kernels_that_follow_from_others_are_made_in_compiled_programs(backend):
    """Nothing outside of the compiled program has asked for them before."""
    new = oplus.scan("""
        fn affine(a: [B, T], x: [B, T], h0: state[B] = 0) -> (h: [B, T], h_last: state[B]) {
            h = scan(T, Affine(a, x), init = h0).b;
            h_last = last(T, h);
        }
        fn total(x: [B, T]) -> (y: [B, T]) { y = scan(T, Sum(x)); }
    """)
    a, x, h0 = (x.detach() for x in inputs(length=5))

    def program(a, x, h0):
        dots = new.affine.tangent(a, x, a_dot=x, x_dot=a).h_dot + new.total.tangent(x, x_dot=a).y_dot
        return dots, new.total.gradient(a, x)[0], new.affine.step(a[:, 0], x[:, 0], h0=h0).h_last

    torch._dynamo.reset()
    found = torch.compile(program, fullgraph=True, backend=backend)(a, x, h0)
    torch.testing.assert_close(found, program(a, x, h0))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("length", [1, 5])
def test_compiled_programs_have_forward_mode(rnn, mixed, backend, length):
    a, x, h0 = (x.detach() for x in inputs(length=length))
    dots = torch.randn_like(a), torch.randn_like(x)

    def jvp(f, given, along):
        return torch.func.jvp(f, given, along)

    programs = {
        "kernel": (lambda a, x, *d: rnn.affine.tangent(a, x, h0, a_dot=d[0], x_dot=d[1]).h_dot, (a, x, *dots)),
        "jvp": (lambda a, x, *d: jvp(lambda a, x: tuple(rnn.affine(a, x, h0)), (a, x), d), (a, x, *dots)),
        "one of two": (lambda a, x, d: jvp(lambda a: rnn.affine(a, x).h.square(), (a,), (d,)), (a, x, dots[0])),
        "counts": (lambda x, d: jvp(lambda x: mixed.ranked(x).y, (x,), (d,)), (x, dots[1])),
        "twice": (lambda a, d: jvp(lambda a: jvp(lambda a: rnn.affine(a, x).h, (a,), (d,))[1], (a,), (d,)), (a, dots[0])),
        "many": (
            lambda a, d: torch.vmap(lambda d: jvp(lambda a: rnn.affine(a, x, h0).h, (a,), (d,))[1])(d),
            (a, torch.randn(4, *a.shape, dtype=a.dtype)),
        ),
    }
    for name, (program, given) in programs.items():
        torch._dynamo.reset()
        found = torch.compile(program, fullgraph=True, backend=backend)(*given)
        torch.testing.assert_close(found, program(*given), msg=lambda words: f"{name}: {words}")
