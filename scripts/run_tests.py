# SPDX-License-Identifier: Apache-2.0
"""All tests, as `make test` runs them: ruff, then mypy and pytest in two parts.

Tests with bounds in real time (marked `graph` or `realtime`) mostly wait: they run first, a few files at a time. mypy
and the tests that only compute begin with them, but run only where the first part leaves a core idle, until it has
ended; then they take all cores. Where the system has no such priority, they begin afterwards. A test can still miss a
bound in real time because of another file: what failed is run once more at the end, alone; what fails then has
failed. What is given on the command line goes to both runs of pytest. With `--fast`, as `make check` gives it, tests
are left out that are marked `graph` or `slow`.
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
BETWEEN_LOOKS_S = 0.5
"""So often, processes are looked for that tests which only compute have started in sessions of their own."""
FEW = 10
"""Of more failures than that, none is put down to what ran beside it."""
TESTS = Path(__file__).resolve().parents[1] / "tests"


@dataclass
class TestJob:
    """A program on its way. output: where its output is kept until `wait` shows it; None: shown as it comes."""

    title: str
    process: subprocess.Popen[bytes]
    began: float
    output: IO[bytes] | None = None

    def wait(self) -> int:
        """Wait for its end, show its output, from now on as it comes, and return its exit code."""
        if self.output is not None:
            print(f"\n== {self.title}", flush=True)
            self._show(self.output)
            self.output.close()
        code = self.process.wait()
        took = time.monotonic() - self.began
        print(f"== {self.title}: exit code {code} after {took:.0f} s", flush=True)
        return code

    def _show(self, output: IO[bytes]) -> None:
        shown, ended = 0, False
        while not ended:
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(0.2)
                ended = True
            # The process writes at the file's position: this must not move it.
            while more := os.pread(output.fileno(), 1 << 16, shown):
                shown += len(more)
                sys.stdout.buffer.write(more)
            sys.stdout.buffer.flush()


def give_way(pid: int) -> None:
    """Let a process and all it has started run only where no other process wants the core."""
    set_priority(pid, os.SCHED_IDLE, 19)


def compete(pid: int) -> None:
    """Let a process and all it has started run as any other again."""
    set_priority(pid, os.SCHED_OTHER, 0)


def set_priority(pid: int, policy: int, nice: int) -> None:
    """Give a process, its descendants and their sessions a priority. What they start later inherits the policy."""
    with suppress(psutil.NoSuchProcess):
        leader = psutil.Process(pid)
        for process in (leader, *leader.children(recursive=True)):
            # Some have ended meanwhile; and a system may let only root take back what was given away.
            with suppress(psutil.Error, OSError):
                for thread in process.threads():
                    os.sched_setscheduler(thread.id, policy, os.sched_param(0))
            # Kernels that share the cores among sessions first let only root write this more than ten times a second.
            with suppress(OSError):
                group = Path(f"/proc/{process.pid}/autogroup")
                if not group.read_text().endswith(f" {nice}\n"):
                    group.write_text(str(nice))


def start(title: str, words: Sequence[str], quiet: bool = False) -> TestJob:
    """Start `python -m words`. quiet: its output is kept until it has ended, and it has a session of its own."""
    # One thread a worker: the models of the tests are small, and more threads than cores make all of them slower.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
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


def start_tests(which: str, workers: int, arguments: Sequence[str], quiet: bool = False) -> TestJob:
    """Start pytest with the tests of these marks. quiet: as in `start`."""
    words = ["pytest", "-m", which, "-n", str(workers), "--dist", "loadfile", *arguments]
    return start(f"pytest: {which}", words, quiet)


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
        in_front = partial(start_tests, marks[0], AT_ONCE, parts[0])
        computing = [
            partial(start, "mypy", ["mypy"], quiet=True),
            partial(start_tests, marks[1], cores, parts[1], quiet=True),
        ]
        if hasattr(os, "SCHED_IDLE"):
            jobs = [begin() for begin in computing]
            first = in_front()
            while first.process.poll() is None:
                for job in jobs:
                    give_way(job.process.pid)
                time.sleep(BETWEEN_LOOKS_S)
            tested = [first.wait()]
            for job in jobs:
                compete(job.process.pid)
        else:
            tested = [in_front().wait()]
            jobs = [begin() for begin in computing]
        tested.append(jobs[1].wait())
    failed |= bool(jobs[0].wait())
    nothing = int(pytest.ExitCode.NO_TESTS_COLLECTED)
    for part, ask in enumerate(again):
        if tested[part] == pytest.ExitCode.TESTS_FAILED:
            tested[part] = ask()
    return int(failed or any(code not in (0, nothing) for code in tested) or set(tested) == {nothing})


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
