"""The stubs say what the library has."""

import sys
from pathlib import Path

import pytest

import oplus

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.skipif(not (ROOT / "stubs.py").exists(), reason="the generator is not part of the package")


@pytest.mark.parametrize("part", ["kernels", "models"])
def test_stubs_are_those_of_the_library(part, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    import stubs

    written = Path(oplus.__file__).with_name(f"{part}.pyi").read_text(encoding="utf-8")
    assert written == stubs.stub(part), "run `python stubs.py` in the folder of the package"
    assert f"class _{getattr(oplus, part).__all__[0]}(Kernel):" in written
