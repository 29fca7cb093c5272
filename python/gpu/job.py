"""Runs the tests of the package, those of the peers' suites on the drop-ins, and the benchmark of calls, on a machine with a GPU.

    python3 job.py FOLDER OUT [--seconds 510] [--processes 14] [--few 3] [--only RUN…]

`FOLDER` is what `python/gpu/pack` made: wheels of oplus and of what its tests need, and the sources of the tests. The Python that runs this
has PyTorch, NumPy, and JAX if its tests are to run. Nothing is fetched, nothing is installed outside of a temporary folder. The wheel in
`FOLDER/plain` has the committed kernels alone, the one in `FOLDER/jit` compiles others when they are called; one of them may be absent.

`OUT/summary.md` has what came of each suite, its failures, and the benchmark; `OUT/cases.jsonl.gz` every case; `OUT/logs.txt.gz` what the
runs printed.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

FLA = ("simple_gla", "retention", "gla", "hgrn", "linear_attn", "lightning_attn", "delta", "gdn", "kda", "rwkv7", "dplr_delta", "iplr_delta", "attn")
FLASH_PARTS = 6
# Seconds that a run has to end by itself after the last case that it may begin.
GRACE = 25


@dataclass
class Run:
    """One process of pytest."""

    suite: str
    wheel: str
    arguments: list[str]
    name: str = ""
    # Cases take as long as there is time.
    is_open: bool = False
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    seconds: float = 0.0
    ending: str = "did not begin"


@dataclass
class Sum:
    """What came of a suite."""

    collected: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[str, str]] = field(default_factory=list)


class Job:
    """All runs, and where their files lie."""

    def __init__(self, options: argparse.Namespace, work: Path) -> None:
        self.options, self.work = options, work
        self.sources = work / "sources"
        self.end = time.time() + options.seconds
        self.until = self.end - GRACE
        with tarfile.open(options.folder / "sources.tar.xz") as packed:
            packed.extractall(self.sources, filter="data")
        self.wheels = {kind: self.install(kind) for kind in ("plain", "jit") if list((options.folder / kind).glob("*.whl"))}

    def install(self, kind: str) -> Path:
        """A folder with oplus and what the tests need and this Python has not."""
        target = self.work / kind
        wheels = [*(self.options.folder / kind).glob("*.whl"), *(self.options.folder / "needs").glob("*.whl")]
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", str(target), *map(str, wheels)]
        if subprocess.run(command, check=False, capture_output=True).returncode != 0:
            # A Python without pip: the wheels have no scripts that anything here needs.
            for wheel in wheels:
                zipfile.ZipFile(wheel).extractall(target)
        return target

    def environment(self, wheel: str, *more: str) -> dict[str, str]:
        """Variables of a run: the wheel and what is beside it, more folders, and a cache of kernels that all runs share."""
        folders = [self.wheels[wheel], self.sources / "python/peers", self.sources / "python/gpu", *more]
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, folders)),
            "OPLUS_CACHE": str(self.work / "kernels"),
            "OPLUS_TEST_DEVICE": self.options.device,
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def runs(self) -> list[Run]:
        """All runs, those first that take longest."""
        found: list[Run] = []
        best = "jit" if "jit" in self.wheels else "plain"
        tests = self.sources / "python/tests"
        for file in sorted(tests.glob("test_*.py")):
            found.append(Run("python/tests", best, [str(file)], file.stem))
        if len(self.wheels) == 2:
            kept = [str(tests / name) for name in ("test_cuda.py", "test_readme.py", "test_numpy.py")]
            found.append(Run("python/tests, committed kernels alone", "plain", kept, "plain"))
        return found + self.peers(best)

    def peers(self, wheel: str) -> list[Run]:
        """The runs of the peers' suites."""
        of = self.sources / "peers"
        plugin = ["-p", "oplus_peers"]
        mamba = [*plugin, "--peer", "mamba_ssm", "--source", str(of / "mamba"), str(of / "mamba/tests/ops/test_selective_scan.py")]
        found = [Run("mamba-ssm", wheel, mamba, "mamba")]
        for name in FLA:
            file = str(of / f"fla/tests/ops/test_{name}.py")
            suite = "flash-linear-attention, " + ("delta rules, attn" if name in FLA[6:] else "decays")
            found.append(Run(suite, wheel, [*plugin, "--peer", "fla", "--source", str(of / "fla"), file], f"fla_{name}"))
        flash = [*plugin, "--peer", "flash_attn", "--source", str(of / "flash_attn"), "--few", str(self.options.few)]
        for part in range(FLASH_PARTS):
            arguments = [*flash, "--part", f"{part}/{FLASH_PARTS}", str(of / "flash_attn/tests/test_flash_attn.py")]
            found.append(Run("flash-attn", wheel, arguments, f"flash_{part}", is_open=True))
        return found

    def begin(self, run: Run) -> None:
        """Starts a run."""
        results = ["--results", str(self.work / f"{run.name}.jsonl"), "--until", str(self.until)]
        command = [sys.executable, "-m", "pytest", "-q", "-rf", "--tb=short", "-p", "no:cacheprovider", "-p", "oplus_results"]
        # A suite's `conftest.py` may import its package before the plugin is asked for it.
        peer = [source for flag, source in zip(run.arguments, run.arguments[1:]) if flag == "--source"]
        with (self.work / f"{run.name}.log").open("wb") as log:
            run.process = subprocess.Popen(
                [*command, *results, *run.arguments],
                env=self.environment(run.wheel, *peer), cwd=self.sources / "python", stdout=log, stderr=subprocess.STDOUT,
            )
        run.started = time.time()

    def finish(self, runs: list[Run]) -> None:
        """Runs all, some at once, until they have ended or the time is over."""
        waiting, active = list(runs), []
        while waiting or active:
            if time.time() > self.until:
                waiting.clear()
            while waiting and len(active) < self.options.processes:
                active.append(waiting.pop(0))
                self.begin(active[-1])
            time.sleep(0.2)
            for run in list(active):
                assert run.process is not None
                code = run.process.poll()
                is_late = code is None and time.time() > self.end
                if is_late:
                    run.process.kill()
                    code = run.process.wait()
                if code is not None:
                    run.seconds, run.ending = time.time() - run.started, "cut off" if is_late else f"exit {code}"
                    active.remove(run)

    def benchmark(self) -> str:
        """The table of `benches/overhead.py`, alone on the machine."""
        command = [sys.executable, str(self.sources / "python/benches/overhead.py"), self.options.device]
        try:
            done = subprocess.run(
                command, env=self.environment("jit" if "jit" in self.wheels else "plain"), cwd=self.sources / "python",
                capture_output=True, text=True, timeout=min(150, max(self.until - time.time(), 1)), check=False,
            )
        except subprocess.TimeoutExpired as late:
            return f"{(late.stdout or b'').decode()}\n\nIt took longer than {late.timeout:.0f} s.\n"
        return done.stdout if done.returncode == 0 else f"{done.stdout}\n\n```\n{done.stderr[-3000:]}\n```\n"

    def sums(self, runs: list[Run]) -> dict[str, Sum]:
        """What came of each suite."""
        found: dict[str, Sum] = {}
        for run in runs:
            suite = found.setdefault(run.suite, Sum())
            path = self.work / f"{run.name}.jsonl"
            for line in map(json.loads, path.read_text().splitlines() if path.exists() else []):
                if "collected" in line:
                    suite.collected += line["collected"]
                    suite.left_out.update(line["left_out"])
                    continue
                suite.outcomes[line["outcome"]] += 1
                if line["outcome"] == "failed":
                    suite.failures.append((line["case"], line["words"]))
                elif line["outcome"] == "skipped":
                    suite.skipped[line["words"]] += 1
        return found

    def write(self, runs: list[Run], overhead: str) -> bool:
        """Writes the summary and its sources; gives whether nothing failed."""
        out, sums = self.options.out, self.sums(runs)
        out.mkdir(parents=True, exist_ok=True)
        with gzip.open(out / "cases.jsonl.gz", "wt") as cases, gzip.open(out / "logs.txt.gz", "wt") as logs:
            for run in runs:
                for suffix, into in (("jsonl", cases), ("log", logs)):
                    path = self.work / f"{run.name}.{suffix}"
                    if suffix == "log":
                        into.write(f"\n===== {run.suite}, {run.name}: {run.ending}, {run.seconds:.0f} s\n")
                    into.write(path.read_text(errors="replace") if path.exists() else "")
        (out / "overhead.md").write_text(overhead)
        text = "\n".join([*header(), *table(sums), *ends(runs), *failures(sums), "## Calls", "", overhead])
        (out / "summary.md").write_text(text)
        print(text)
        # 0: all passed; 1: cases failed, which are counted; 2: the time was over before all had been run; 5: there were none.
        ended = ("exit 0", "exit 1", "exit 2", "exit 5", "cut off", "did not begin")
        broken = [run for run in runs if run.ending not in ended]
        return not broken and not any(suite.failures for suite in sums.values())


def header() -> list[str]:
    """The machine."""
    import torch

    found = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    versions = f"Python {platform.python_version()}, PyTorch {torch.__version__}, glibc {platform.libc_ver()[1]}"
    return ["# Python on a GPU", "", f"{found}; {versions}; {time.strftime('%Y-%m-%d')}", ""]


def table(sums: dict[str, Sum]) -> list[str]:
    """A row for each suite."""
    rows = ["| suite | cases | pass | fail | skipped by it | left out | not reached |", "|---|---|---|---|---|---|---|"]
    for name, suite in sums.items():
        skipped = "; ".join(f"{n}: {reason}" for reason, n in suite.skipped.most_common(4)) or "0"
        left_out = "; ".join(f"{n}: {reason}" for reason, n in suite.left_out.most_common()) or "0"
        done = suite.outcomes
        late = suite.collected - done.total()
        cases = suite.collected + suite.left_out.total()
        rows.append(f"| {name} | {cases} | {done['passed']} | {done['failed']} | {skipped} | {left_out} | {max(late, 0)} |")
    return [*rows, ""]


def ends(runs: list[Run]) -> list[str]:
    """How the runs ended."""
    return ["Runs: " + ", ".join(f"{run.name} {run.ending} {run.seconds:.0f} s" for run in runs), ""]


def failures(sums: dict[str, Sum]) -> list[str]:
    """The failures, the first 40 of each suite with their words."""
    lines = []
    for name, suite in sums.items():
        if suite.failures:
            lines += [f"## Failures of {name}", ""]
            for case, words in suite.failures[:40]:
                lines += [f"* `{case}`", "", "  ```", *[f"  {line}" for line in words.splitlines()[:8]], "  ```", ""]
    return lines


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=510)
    parser.add_argument("--processes", type=int, default=14)
    parser.add_argument("--few", type=int, default=3)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="`cpu` tries the job itself")
    parser.add_argument("--only", nargs="+", help="names of runs, as the summary has them, and `calls` for the benchmark")
    options = parser.parse_args()
    options.folder, options.out = options.folder.resolve(), options.out.resolve()
    with tempfile.TemporaryDirectory() as work:
        job = Job(options, Path(work))
        overhead = job.benchmark() if "calls" in (options.only or ["calls"]) else ""
        runs = [run for run in job.runs() if run.name in (options.only or [run.name])]
        job.finish(runs)
        return 0 if job.write(runs, overhead) else 1


if __name__ == "__main__":
    sys.exit(main())
