# SPDX-License-Identifier: Apache-2.0
"""All tests, as `make test` runs them: ruff, then pytest in two parts, with mypy beside them.

Tests with bounds in real time (marked `graph` or `realtime`) mostly wait: they run first, a few files at a time, and no
test that computes runs beside them; mypy runs only where they leave a core idle. Then the tests that only compute take
all cores. A test can still miss a bound in real time because of another file: what failed is run once more at the end,
alone; what fails then has failed. Command-line arguments go to both runs of pytest. `--fast`, which `make check` gives,
leaves out tests that are marked `graph` or `slow`. Processes that tests leave running count as a failure.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import IO

import psutil
import pytest

FAST = "not graph and not slow and not docker"
IN_FRONT = ("graph", "realtime")
AT_ONCE = 3
"""This many files with bounds in real time run at the same time: each keeps about half a core busy."""
LONGEST = ("test_drill.py", "test_calibrate.py", "test_bench_run.py", "test_bag_play.py", "test_demo_graph.py")
"""They begin first, so that none of them is waited for alone."""
FEW = 40
"""If more tests fail, none of the failures is attributed to other files: half a minute in which the machine was slow
makes a dozen miss their bounds."""
TESTS = Path(__file__).resolve().parents[1] / "tests"
RUN = {"SPECNAV_TEST_RUN": f"{os.getpid()}-{time.time_ns()}"}
"""In the environment of all that these tests start."""
TO_END_S = 15.0
"""Processes may take this long to end after the last test."""


@dataclass
class TestJob:
    """A running program. output: where its output is kept until `wait` shows it; None: it is shown as it comes."""

    title: str
    process: subprocess.Popen[bytes]
    began: float
    output: IO[bytes] | None = None

    def wait(self) -> int:
        """Wait for its end, show its output and return its exit code."""
        code = self.process.wait()
        took = time.monotonic() - self.began
        if self.output is not None:
            print(f"\n== {self.title}", flush=True)
            self.output.seek(0)
            sys.stdout.buffer.write(self.output.read())
            self.output.close()
        print(f"== {self.title}: exit code {code} after {took:.0f} s", flush=True)
        return code


def yield_the_cores(pid: int, always: bool) -> None:
    """Let a session leader run only on idle cores (always), or give it normal priority again."""
    # Either call fails if the system does not support or allow it, or if the process has ended.
    with suppress(OSError):
        # Some kernels first share the cores among sessions.
        Path(f"/proc/{pid}/autogroup").write_text("19" if always else "0")
    with suppress(OSError, AttributeError):
        os.sched_setscheduler(pid, os.SCHED_IDLE if always else os.SCHED_OTHER, os.sched_param(0))


def start(title: str, words: Sequence[str], quiet: bool = False) -> TestJob:
    """Start `python -m words`. quiet: its output is kept until it has ended, and it has a session of its own."""
    # One thread a worker: the models of the tests are small, and more threads than cores make all of them slower.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **RUN}
    # Hundreds of processes start here: each would compile all it imports.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-m", *words]
    began = time.monotonic()
    if not quiet:
        print(f"\n== {title}", flush=True)
        return TestJob(title, subprocess.Popen(command, env=environment), began)
    output = tempfile.TemporaryFile()  # noqa: SIM115 - closed by Job.wait
    process = subprocess.Popen(
        command, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
    )
    atexit.register(process.kill)  # no interrupt of the terminal reaches it
    return TestJob(title, process, began, output)


def start_tests(which: str, workers: int, arguments: Sequence[str]) -> TestJob:
    """Start pytest with the tests of these marks."""
    words = ["pytest", "-m", which, "-n", str(workers), "--dist", "loadfile", *arguments]
    return start(f"pytest: {which}", words)


def ask_again_alone(which: str, cache: Path, arguments: Sequence[str]) -> int:
    """Run what has failed of these tests once more, by itself; returns the exit code."""
    file = cache / "v" / "cache" / "lastfailed"
    names = list(json.loads(file.read_text())) if file.is_file() else []
    if not 0 < len(names) <= FEW:
        return int(pytest.ExitCode.TESTS_FAILED)
    print(f"\n{len(names)} missed beside other work, asked once more alone:", *names, sep="\n  ", flush=True)
    return start_tests(which, 0, [*arguments, "--lf", "--lfnf=none"]).wait()


def files_in_front() -> dict[Path, bool]:
    """The files with tests that run in front, the longest first, and whether all of a file's tests do."""
    found = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        lines = [line for line in path.read_text().splitlines() if any(f"mark.{mark}" in line for mark in IN_FRONT)]
        if lines:
            found[path] = any(line.startswith("pytestmark") for line in lines)
    order = {name: place for place, name in enumerate(LONGEST)}
    return dict(sorted(found.items(), key=lambda item: order.get(item[0].name, len(order))))


def slow_first() -> list[Path]:
    """All files with tests; those with the mark `slow` begin first: one that begins last is waited for alone."""
    return sorted(sorted(TESTS.rglob("test_*.py")), key=lambda path: "mark.slow" not in path.read_text())


def left_behind() -> list[psutil.Process]:
    """End the processes that tests have started and not ended, and return them."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):  # it has ended, or is another user's
            if RUN.items() <= process.environ().items():
                found.append(process)
    left: list[psutil.Process] = psutil.wait_procs(found, TO_END_S)[1]
    for process in left:
        with suppress(psutil.Error):
            print(f"left behind by a test: {process.pid} {' '.join(process.cmdline())[:200]}", flush=True)
            process.kill()
    return left


def main(arguments: Sequence[str]) -> int:
    """Run everything, whatever fails on the way; returns 0 when nothing failed."""
    cores = os.cpu_count() or 1
    if find_spec("llama_cpp") is None:
        print("llama.cpp is not installed: tests that need it are skipped (make setup-gguf)", flush=True)
    rest = [argument for argument in arguments if argument != "--fast"]
    again: list[Callable[[], int]] = []
    failed = bool(start("ruff", ["ruff", "check", "."]).wait())
    if "--fast" in arguments:
        jobs = [start("mypy", ["mypy"], quiet=True), start_tests(FAST, cores, rest)]
        tested = [jobs[1].wait()]
    else:
        front = " or ".join(IN_FRONT)
        files = files_in_front()
        only = ["--no-loadscope-reorder", *map(str, files)]
        others = ["--no-loadscope-reorder", *(str(file) for file in slow_first() if not files.get(file))]
        if any(Path(argument.split("::")[0]).exists() for argument in rest):
            only, others = [], []  # what is named is what to read
        failures = tempfile.TemporaryDirectory()
        marks = (front, f"not ({front}) and not docker")
        caches = [Path(failures.name, name) for name in ("front", "computing")]
        parts = [[*rest, *part, "-o", f"cache_dir={cache}"] for part, cache in zip((only, others), caches, strict=True)]
        again = [partial(ask_again_alone, *part) for part in zip(marks, caches, parts, strict=True)]
        # Collecting leaves the tests on the disk as pytest rewrites them: else each process below rewrites them all.
        jobs = [start(*job, quiet=True) for job in (("mypy", ["mypy"]), ("", ["pytest", "--collect-only", *rest]))]
        for job in jobs:
            yield_the_cores(job.process.pid, True)
        tested = [start_tests(marks[0], AT_ONCE, parts[0]).wait()]
        for job in jobs:
            yield_the_cores(job.process.pid, False)
        tested.append(start_tests(marks[1], cores, parts[1]).wait())
    failed |= bool(jobs[0].wait())
    nothing = int(pytest.ExitCode.NO_TESTS_COLLECTED)
    for part, ask in enumerate(again):
        if tested[part] == pytest.ExitCode.TESTS_FAILED:
            tested[part] = ask()
    failed |= bool(left_behind())
    return int(failed or any(code not in (0, nothing) for code in tested) or set(tested) == {nothing})


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
