"""Calls with tensors of PyTorch: gradients of all orders, transforms, and compiled programs."""

import pytest

torch = pytest.importorskip("torch")

import oplus  # noqa: E402


def inputs(rows=3, length=7, seed=0, gradient=True):
    generator = torch.Generator(torch.get_default_device()).manual_seed(seed)
    shapes = [(rows, length), (rows, length), (rows,)]
    return [torch.rand(s, dtype=torch.float64, generator=generator).requires_grad_(gradient) for s in shapes]


def loop(a, x, h0):
    h, found = h0, []
    for t in range(x.shape[1]):
        h = a[:, t] * h + x[:, t]
        found.append(h)
    return torch.stack(found, 1), h


@pytest.mark.parametrize("length", [1, 2, 7, 31])
def test_the_gradient_is_that_of_the_loop(rnn, length):
    given = inputs(length=length)
    ours, theirs = rnn.affine(*given), loop(*given)
    for out, expected in zip(ours, theirs):
        torch.testing.assert_close(out, expected)
    weights = torch.rand_like(ours.h)
    grads = [torch.autograd.grad((y * weights).sum() + last.sum(), given) for y, last in (ours, theirs)]
    for found, expected in zip(*grads):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", ["affine", "peaks"])
def test_gradcheck(rnn, name):
    assert torch.autograd.gradcheck(lambda *t: tuple(getattr(rnn, name)(*t)), inputs())


def test_gradgradcheck(rnn):
    assert torch.autograd.gradgradcheck(lambda *t: tuple(rnn.affine(*t)), inputs())
    assert torch.autograd.gradgradcheck(lambda x: rnn.total(x).y.sin(), inputs()[:1])


def test_a_gradient_whose_axes_no_cotangent_has(rnn):
    x = inputs()[0]
    (found,) = torch.autograd.grad(rnn.total(x).y.sum(), x, create_graph=True)
    torch.testing.assert_close(found, torch.ones_like(x))


def test_only_what_is_asked_for_is_computed(rnn):
    a, x, h0 = inputs()
    (found,) = torch.autograd.grad(rnn.affine(a.detach(), x, None).h_last.sum(), x)
    expected = torch.flip(torch.cumprod(torch.flip(torch.cat([a[:, 1:], torch.ones(3, 1)], 1), [1]), 1), [1])
    torch.testing.assert_close(found, expected.detach())


def test_calls_without_gradients_record_nothing(rnn):
    a, x, h0 = inputs()
    with torch.no_grad():
        assert rnn.affine(a, x, h0).h.grad_fn is None
    assert rnn.affine(a.detach(), x.detach()).h.grad_fn is None


def test_vmap_of_gradients(rnn):
    def loss(a, x):
        return rnn.affine(a, x).h.pow(2).sum()

    a, x = torch.rand(4, 3, 7, dtype=torch.float64), torch.rand(3, 4, 7, dtype=torch.float64)
    both = torch.vmap(torch.func.grad(loss, (0, 1)), in_dims=(0, 1))(a, x)
    shared = torch.vmap(torch.func.grad(loss, (0, 1)), in_dims=(None, 1))(a[0], x)
    for i in range(4):
        for found, expected in zip(both, torch.func.grad(loss, (0, 1))(a[i], x[:, i])):
            torch.testing.assert_close(found[i], expected)
        for found, expected in zip(shared, torch.func.grad(loss, (0, 1))(a[0], x[:, i])):
            torch.testing.assert_close(found[i], expected)


def test_vmap_leaves_outputs_alone_that_do_not_depend_on_what_is_mapped():
    both = oplus.scan("fn f(x: [T], w: [T]) -> (y: [T], z: [T]) { y = scan(T, Sum(x)); z = scan(T, Sum(w)); }").f
    x, w = torch.rand(5, 4), torch.rand(4)
    y, z = torch.vmap(lambda x: tuple(both(x, w)), out_dims=(0, None))(x)
    torch.testing.assert_close(y, x.cumsum(1))
    torch.testing.assert_close(z, w.cumsum(0))


def test_the_jacobian_and_the_hessian(rnn):
    a, x = (t[:1] for t in inputs(length=4, gradient=False)[:2])
    jacobian = torch.func.jacrev(lambda a: rnn.affine(a, x).h)(a)
    expected = torch.func.jacrev(lambda a: loop(a, x, torch.zeros(1, dtype=torch.float64))[0])(a)
    torch.testing.assert_close(jacobian, expected)
    hessian = torch.autograd.functional.hessian(lambda a: rnn.affine(a, x).h.sum(), a)
    expected = torch.autograd.functional.hessian(lambda a: loop(a, x, torch.zeros(1, dtype=torch.float64))[0].sum(), a)
    torch.testing.assert_close(hessian, expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_half_precision(rnn, dtype):
    a, x = torch.full((2, 5), 0.5, dtype=dtype), torch.ones(2, 5, dtype=dtype, requires_grad=True)
    out = rnn.affine(a, x)
    assert out.h.dtype == dtype and out.h_last.dtype == torch.float32
    out.h.sum().backward()
    torch.testing.assert_close(x.grad[0].float(), torch.tensor([1.9375, 1.875, 1.75, 1.5, 1.0]), rtol=1e-2, atol=1e-2)


def test_views_and_empty_tensors(rnn):
    a, x, _ = inputs(5, 6, gradient=False)
    torch.testing.assert_close(rnn.affine(a.T, x.T).h, loop(a.T, x.T, torch.zeros(6, dtype=torch.float64))[0])
    torch.testing.assert_close(rnn.total(x[:, 1::2].expand(5, 3)).y, x[:, 1::2].sum(1))
    empty = torch.zeros(2, 0, dtype=torch.float64, requires_grad=True)
    out = rnn.affine(empty, empty)
    assert out.h.shape == (2, 0) and out.h_last.tolist() == [0, 0]


@pytest.mark.parametrize("mixed", [False, True])
def test_decays_may_be_wider_than_what_they_decay(mixed):
    x = torch.ones(2, 5, dtype=torch.bfloat16, requires_grad=True)
    g = torch.full((2, 5), -0.1, dtype=torch.float32 if mixed else torch.bfloat16, requires_grad=True)
    out = oplus.kernels.log_decay(g, x)
    assert out.s.dtype == torch.bfloat16
    found = torch.autograd.grad(out.s_last.sum(), (g, x))
    assert [t.dtype for t in found] == [g.dtype, x.dtype]
    wide = [t.detach().double().requires_grad_() for t in (g, x)]
    s = torch.zeros(2, dtype=torch.float64)
    for t in range(5):
        s = wide[0][:, t].exp() * s + wide[1][:, t]
    expected = torch.autograd.grad(s.sum(), wide)
    # The gradient reads the states that the call gave, which are rounded.
    torch.testing.assert_close(found[0].double(), expected[0], rtol=5e-3, atol=5e-3)
    torch.testing.assert_close(found[1].double(), expected[1], rtol=1e-2, atol=1e-2)
    if mixed:
        twice = torch.autograd.grad(oplus.kernels.log_decay(g, x).s_last.sum(), g, create_graph=True)[0]
        assert torch.autograd.grad(twice.sum(), x)[0].dtype == x.dtype


def test_wrong_tensors_are_named(rnn):
    x = torch.ones(2, 3)
    with pytest.raises(TypeError, match="`x` stores complex numbers"):
        rnn.total(x.to(torch.complex64))
    with pytest.raises(TypeError, match="`x` must be a tensor of PyTorch as the others are, but it is a ndarray"):
        rnn.affine(x, x.cpu().numpy())
    with pytest.raises(ValueError, match="axis B has size 2 in `a` but 3 in `x`"):
        rnn.affine(x, torch.ones(3, 3))


def test_a_layer_learns(rnn):
    torch.manual_seed(0)
    x = torch.randn(4, 50)
    target = rnn.affine(torch.full_like(x, 0.8), x).h
    logit = torch.zeros((), requires_grad=True)
    optimizer = torch.optim.Adam([logit], 0.1)
    for _ in range(100):
        optimizer.zero_grad()
        loss = (rnn.affine(torch.sigmoid(logit).expand(4, 50), x).h - target).pow(2).mean()
        loss.backward()
        optimizer.step()
    assert abs(torch.sigmoid(logit).item() - 0.8) < 1e-2


def test_the_operator_is_what_pytorch_expects(rnn):
    from oplus._torch_library import operator

    a, x, h0 = inputs()
    found = getattr(torch.ops.oplus, operator(rnn.affine._key)).default
    for args in ((a, x, None), (a, x, h0), (a.detach(), x.detach(), None)):
        assert set(torch.library.opcheck(found, args).values()) == {"SUCCESS"}


def test_compiled_programs_with_any_lengths(rnn):
    def loss(a, x, h0):
        out = rnn.affine(a * 2, x, h0=h0)
        return (out.h**2).sum() + out.h_last.sum() + rnn.total(x).y.sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager", dynamic=True)
    for length in (7, 9, 11):
        given = inputs(length=length)
        torch.testing.assert_close(compiled(*given), loss(*given))
        for found, expected in zip(torch.autograd.grad(compiled(*given), given), torch.autograd.grad(loss(*given), given)):
            torch.testing.assert_close(found, expected)


def test_ordered_gradients_are_those_of_steps(rnn):
    a, x, h0 = inputs(length=9)
    with oplus.ordered():
        whole = torch.autograd.grad(rnn.affine(a, x, h0).h_last.sum(), (x, h0))
        state, parts = h0, []
        for t in range(9):
            state = rnn.affine.step(a[:, t], x[:, t], h0=state).h_last
    assert (torch.autograd.grad(state.sum(), h0)[0] == whole[1]).all()
