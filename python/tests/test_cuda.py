"""What is so on a GPU alone: streams, graphs, memory, and states that calls save for their gradients."""

import gc

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("there is no GPU", allow_module_level=True)

import oplus  # noqa: E402
from oplus import models  # noqa: E402


def mamba_inputs(batch=2, dim=64, length=512, states=16, dtype=torch.float32, gradient=True):
    torch.manual_seed(0)
    shapes = {"u": (batch, 1, dim, length), "delta": (batch, 1, dim, length), "a": (1, dim, states)}
    shapes |= {"b": (batch, 1, states, length), "c": (batch, 1, states, length), "z": (batch, 1, dim, length)}
    given = {name: torch.randn(*shape, device="cuda") for name, shape in shapes.items()}
    given["a"] = -given["a"].exp()
    given = {name: x if name == "a" else x.to(dtype) for name, x in given.items()}
    return {name: x.requires_grad_(gradient) for name, x in given.items()}


def gradients(given):
    out = models.mamba(**given)
    return torch.autograd.grad(out.y.square().sum() + out.h_last.sum(), list(given.values()))


def on_cpu(given):
    return {name: x.detach().cpu().double().requires_grad_() for name, x in given.items()}


def test_saved_states_change_no_gradient():
    given = mamba_inputs()
    saving = gradients(given)
    with oplus.record(False):
        without = gradients(given)
    expected = gradients(on_cpu(given))
    for x, y, z in zip(saving, without, expected):
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-4 * y.abs().max().item())
        torch.testing.assert_close(x.double().cpu(), z, rtol=1e-3, atol=1e-4 * z.abs().max().item())


@pytest.mark.parametrize("wanted", ["a", "b", "ab"])
def test_gradients_of_some_inputs_need_committed_kernels_alone(wanted):
    torch.manual_seed(1)
    draw = lambda name: torch.rand(3, 500, device="cuda").requires_grad_(name in wanted)  # noqa: E731
    given = [draw("a"), draw("b")]
    leaves = [x for x in given if x.requires_grad]
    found = torch.autograd.grad(oplus.kernels.affine(*given).h.square().sum(), leaves)
    others = [x.detach().cpu().double().requires_grad_(x.requires_grad) for x in given]
    expected = torch.autograd.grad(oplus.kernels.affine(*others).h.square().sum(), [x for x in others if x.requires_grad])
    for x, y in zip(found, expected):
        torch.testing.assert_close(x.double().cpu(), y, rtol=1e-4, atol=1e-4 * y.abs().max().item())


def test_saved_states_are_freed_with_the_graph():
    given = mamba_inputs(length=4096)
    gradients(given)
    # What tests before this one have left in cycles of references.
    gc.collect()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    out = models.mamba(**given)
    during = torch.cuda.memory_allocated()
    out.y.sum().backward()
    del out
    for x in given.values():
        x.grad = None
    gc.collect()
    torch.cuda.synchronize()
    assert during - before >= 4096 // 8 * 64 * 16 * 4 and torch.cuda.memory_allocated() == before


def test_the_same_bits_every_time():
    given = mamba_inputs(dtype=torch.bfloat16)
    first = gradients(given)
    for _ in range(20):
        assert all(torch.equal(x, y) for x, y in zip(first, gradients(given)))


def test_work_is_queued_on_the_current_stream():
    x = torch.randn(64, 1 << 16, device="cuda")
    expected = x.double().cumsum(1)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        late = x * 1
        found = oplus.kernels.cumsum(late).y
        after = found * 2
    stream.synchronize()
    torch.testing.assert_close(after.double(), expected * 2, rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("name", ["cumsum", "mamba"])
def test_forward_and_backward_are_captured_in_a_graph(name):
    if name == "mamba":
        given = mamba_inputs()
        run = lambda: gradients(given)  # noqa: E731
    else:
        given = {"x": torch.randn(8, 1 << 15, device="cuda", requires_grad=True)}
        run = lambda: torch.autograd.grad(oplus.kernels.cumsum(**given).y.square().sum(), list(given.values()))  # noqa: E731
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = run()
    for seed in range(3):
        torch.manual_seed(seed)
        with torch.no_grad():
            for at, x in given.items():
                if at != "a":
                    x.copy_(torch.randn_like(x))
        graph.replay()
        torch.cuda.synchronize()
        for x, y in zip(found, run()):
            assert torch.equal(x, y)


def test_compiled_programs():
    def loss(x):
        return oplus.kernels.cumsum(x).y.square().mean()

    x = torch.randn(16, 1000, device="cuda", requires_grad=True)
    compiled = torch.compile(loss, fullgraph=True)
    torch.testing.assert_close(compiled(x), loss(x))
    torch.testing.assert_close(torch.autograd.grad(compiled(x), x), torch.autograd.grad(loss(x), x))


def test_tensors_on_two_devices_are_named():
    with pytest.raises(ValueError, match="`a` is on .* but `b` is on cpu|`b` is on cpu"):
        oplus.kernels.affine(torch.ones(2, 3, device="cuda"), torch.ones(2, 3, device="cpu"))
