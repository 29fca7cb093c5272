"""A plugin of pytest that runs the test suites of mamba-ssm, flash-linear-attention and flash-attn on the drop-ins of oplus.

The suites are theirs and stay as they are: their tolerances, sizes and references. What is replaced are the functions under test, and the
compiled extensions that their packages import. Where there is no GPU, tensors for `cuda` are made on the CPU. `--peer` names the package,
`--source` its folder. `--few` keeps some values of every parameter, before cases are made (flash-attn has hundreds of thousands), `--keep`
some of a thousand cases, both chosen by a fixed hash; `--largest` leaves large ones to a GPU.
"""

from __future__ import annotations

import importlib
import sys
import types
import zlib
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

from oplus import compat

# What the drop-ins do not do, by a part of a test's name, and why.
LEFT_OUT = {
    "mamba_ssm": {"mamba_inner": "the whole Mamba block, with convolution and projections: no drop-in"},
    "fla": {
        "test_gate": "a kernel of its own: no drop-in",
        "wy_repr": "a kernel of its own: no drop-in",
        "fwd_h_": "a kernel of its own: no drop-in",
        "flash_qla": "another package's kernels",
        "flash_kda": "another package's kernels",
        "triton_ascend": "another package's kernels",
        "vllm_decode": "states in a cache, which is written in place",
        "intermediate_states": "states of every chunk as outputs",
        "bwd_full_value_reduction": "a kernel of its own: no drop-in",
        "safe_gate_multihead_gradients": "kernels inside of fla: no drop-in",
        "channel_mixing": "a kernel of its own: no drop-in",
        "addcmul": "a kernel of its own: no drop-in",
        "fused_k_update": "a kernel of its own: no drop-in",
        "gate_output_correction": "a kernel of its own: no drop-in",
    },
    "flash_attn": {
        "kvcache": "keys in a cache, which is written in place",
        "splitkv": "keys in a cache, which is written in place",
        "paged_kv_num_splits": "a function inside of flash-attn: no drop-in",
        "race_condition": "dropout",
        "rotary": "rotary embedding: no drop-in",
    },
}

# The modules whose functions are replaced must be there before the tests import from them.
MODULES = {
    "mamba_ssm": ["ops.selective_scan_interface"],
    "fla": [
        f"ops.{name}"
        for name in (
            "simple_gla", "retention", "gla", "hgrn", "linear_attn", "lightning_attn", "delta_rule", "gated_delta_rule", "kda",
            "rwkv7", "generalized_delta_rule", "attn.parallel",
        )
    ],
    "flash_attn": ["bert_padding"],
}


# Suites' `conftest.py` import their packages before this plugin is configured. Packages may define kernels of Triton that do not suit
# its release: without a GPU none of them runs.
if not torch.cuda.is_available() and find_spec("triton"):
    importlib.import_module("triton").autotune = lambda *args, **kwargs: lambda function: function


class Anything(types.ModuleType):
    """A module of compiled functions, none of which a test on the drop-ins calls."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: pytest.fail(f"{self.__name__}.{name} is not replaced")


class OnCpu(TorchFunctionMode):
    """Makes tensors that are asked for on a GPU on the CPU."""

    def __torch_function__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if "device" in kwargs and str(kwargs["device"]).startswith("cuda"):
            kwargs["device"] = "cpu"
        args = tuple("cpu" if isinstance(x, (str, torch.device)) and str(x).startswith("cuda") else x for x in args)
        return args[0] if function is torch.Tensor.cuda else function(*args, **kwargs)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--peer", choices=sorted(MODULES))
    parser.addoption("--source", type=Path, help="the folder in which the package lies")
    parser.addoption("--few", type=int, help="how many values of each parameter are taken")
    parser.addoption("--largest", type=int, help="cases with a larger whole number among their parameters do not run")
    parser.addoption("--keep", type=int, default=1000, help="how many of a thousand cases run")


def pytest_configure(config: pytest.Config) -> None:
    peer, source = config.getoption("--peer"), config.getoption("--source")
    if not torch.cuda.is_available():
        torch.cuda.get_device_capability = lambda *_: (9, 0)
        torch.cuda.get_device_properties = lambda *_: types.SimpleNamespace(total_memory=1 << 40, multi_processor_count=1)
        torch.cuda.get_device_name = lambda *_: "the CPU"
        torch.cuda.synchronize = lambda *_: None
    sys.path.insert(0, str(source))
    if peer != "fla":
        _bare(peer, source)
    for name in MODULES[peer]:
        importlib.import_module(f"{peer}.{name}")
    if peer == "flash_attn":
        package = sys.modules[peer]
        for name in compat.flash_attn.__all__:
            setattr(package, name, getattr(compat.flash_attn, name))
        package.flash_attn_with_kvcache = Anything(peer).flash_attn_with_kvcache
    else:
        compat.patch(peer)


def _bare(peer: str, source: Path) -> None:
    """A package whose `__init__` does not run, since it loads compiled extensions."""
    package = types.ModuleType(peer)
    package.__path__ = [str(source / peer)]
    sys.modules[peer] = package
    stubs = {
        "mamba_ssm": ["selective_scan_cuda", "causal_conv1d_cuda", "mamba_ssm.ops.triton.layer_norm"],
        "flash_attn": ["flash_attn_2_cuda", "flash_attn.flash_attn_interface", "flash_attn.layers.rotary"],
    }
    for name in stubs[peer]:
        sys.modules[name] = Anything(name)


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    few = metafunc.config.getoption("--few")
    if few is None:
        return
    make = metafunc.parametrize

    def parametrize(names: Any, values: Any, *args: Any, **kwargs: Any) -> None:
        chosen = list(values)
        if len(chosen) > few and "ids" not in kwargs:
            chosen = sorted(chosen, key=lambda value: zlib.crc32(f"{metafunc.function.__name__} {names} {value}".encode()))[:few]
        make(names, chosen, *args, **kwargs)

    metafunc.parametrize = parametrize  # type: ignore[method-assign]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    reasons: Counter[str] = config.stash.setdefault(REASONS, Counter())
    kept, dropped = [], []
    for item in items:
        reason = _reason(config, item)
        (kept if reason is None else dropped).append(item)
        if reason is not None:
            reasons[reason] += 1
            item.user_properties.append(("left out", reason))
    items[:] = kept
    config.hook.pytest_deselected(items=dropped)


REASONS = pytest.StashKey[Counter]()


def _reason(config: pytest.Config, item: pytest.Item) -> str | None:
    """Why a case does not run."""
    for part, reason in LEFT_OUT[config.getoption("--peer")].items():
        if part in item.name:
            return reason
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    if parameters.get("dropout_p", 0.0) != 0.0:
        return "dropout"
    largest = config.getoption("--largest")
    if largest is not None and any(number > largest for value in parameters.values() for number in _numbers(value)):
        return f"a size above {largest}"
    # `hash` of Python differs from run to run.
    return None if zlib.crc32(item.name.encode()) % 1000 < config.getoption("--keep") else "not in the sample"


def _numbers(value: Any) -> list[int]:
    """The whole numbers of a parameter."""
    if isinstance(value, (list, tuple)):
        return [number for part in value for number in _numbers(part)]
    return [value] if isinstance(value, int) else []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Any:
    if torch.cuda.is_available():
        return (yield)
    with OnCpu():
        return (yield)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    for reason, count in sorted(config.stash.get(REASONS, Counter()).items()):
        terminalreporter.write_line(f"deselected {count}: {reason}")
