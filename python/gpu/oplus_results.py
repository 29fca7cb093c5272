"""A plugin of pytest that writes what comes of each case to a file, and ends a run in time.

Every line of the file that `--results` names is a JSON object: of a case its name, what came of it, its seconds and, if it failed, the
words of the failure; of a finished run how many cases there were, and how many were left out by which reason. With `--part 2/5` a run has
the cases whose hash has the remainder 2, and with `--until`, seconds since 1970, it begins no case after that time; cases then come in the
order of their hashes, so that those that run are a sample of all.
"""

from __future__ import annotations

import json
import time
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--results", type=Path, help="the file to which results are added, line by line")
    parser.addoption("--part", default="0/1", help="which part of the cases of how many runs, such as 2/5")
    parser.addoption("--until", type=float, help="the time after which no case begins")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--results") is not None:
        config.pluginmanager.register(Results(config))


class Results:
    """What has come of the cases so far."""

    def __init__(self, config: pytest.Config) -> None:
        self.path: Path = config.getoption("--results")
        self.until: float | None = config.getoption("--until")
        part, of = config.getoption("--part").split("/")
        self.part, self.of = int(part), int(of)
        self.left_out: Counter[str] = Counter()

    def write(self, **line: Any) -> None:
        """Adds a line, which is on the disk at once: a run may be ended at any time."""
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self.of > 1:
            # `hash` of Python differs from run to run.
            items[:] = [item for item in items if zlib.crc32(item.nodeid.encode()) % self.of == self.part]
        if self.until is not None:
            # Reversed, so that the order has nothing to do with the part.
            items.sort(key=lambda item: zlib.crc32(item.nodeid[::-1].encode()))

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        for item in items:
            self.left_out[dict(item.user_properties).get("left out", "not chosen")] += 1

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.write(collected=len(session.items), left_out=dict(self.left_out))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.write(case=report.nodeid, outcome="failed", seconds=0.0, words=_words(report))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            words = _words(report) if report.outcome != "passed" else ""
            self.write(case=report.nodeid, outcome=report.outcome, seconds=round(report.duration, 3), words=words)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        if self.until is None or time.time() < self.until:
            return None
        item.session.shouldstop = "its time is over"
        return True


def _words(report: Any) -> str:
    """The last words of a failure, or why a case was skipped."""
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2])
    crash = getattr(report.longrepr, "reprcrash", None)
    return crash.message[:2000] if crash is not None else str(report.longrepr)[-2000:]
