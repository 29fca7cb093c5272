"""The blocks of Python in the README and in the book's chapter run, one after the other."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("path", ["python/README.md", "docs/book/src/python.md"])
def test_blocks_of_code_run(path, tmp_path, monkeypatch):
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / path).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert blocks
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for block in blocks:
        if any(re.search(rf"^import {name}\b", block, re.MULTILINE) and not find_spec(name) for name in ("torch", "jax")):
            continue
        exec(compile(block, path, "exec"), names)
