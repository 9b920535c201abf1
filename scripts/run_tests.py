"""All tests, as `make test` runs them: ruff, mypy and pytest, side by side so that no core waits.

Tests of whole processes (marked `graph`) mostly wait and have bounds in real time: they run two at a time, in front.
What only computes, mypy included, runs behind them at a lower priority and takes what they leave. Its output is shown
when it has ended. What is given on the command line goes to both runs of pytest. With `--fast`, as `make check` gives
it, tests are left out that are marked `graph` or `slow`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

import pytest

FAST = "not graph and not slow"
COMPUTING = "not graph"
WHOLE_PROCESSES = "graph"
NICENESS = 10
"""Of what runs behind: it gets a tenth of a core that both want, enough for its own bounds of seconds."""
AT_ONCE = 2
"""So many tests of whole processes run at the same time: each keeps about half a core busy."""


@dataclass
class Job:
    """A program on its way. output: what it says, until it is shown; None: shown as it comes."""

    words: Sequence[str]
    process: subprocess.Popen[bytes]
    began: float
    output: IO[bytes] | None = None

    def wait(self) -> int:
        """Wait for its end, show what it said, return its exit code."""
        code = self.process.wait()
        took = time.monotonic() - self.began
        if self.output is not None:
            print(f"\n== {' '.join(self.words)}", flush=True)
            self.output.seek(0)
            sys.stdout.buffer.write(self.output.read())
        print(f"== {' '.join(self.words)}: exit code {code} after {took:.0f} s", flush=True)
        return code


def start(words: Sequence[str], behind: bool) -> Job:
    """Start `python -m words`. behind: at a lower priority, its output kept until it has ended."""
    # One thread a worker: the models of the tests are small, and more threads than cores make all of them slower.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", *words]
    if not behind:
        print(f"\n== {' '.join(words)}", flush=True)
        return Job(words, subprocess.Popen(command, env=environment), time.monotonic())
    output = tempfile.TemporaryFile()
    command = ["nice", "-n", str(NICENESS), *command]
    process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
    return Job(words, process, time.monotonic(), output)


def start_tests(which: str, workers: int, arguments: Sequence[str], behind: bool = False) -> Job:
    """Start pytest with the tests of these marks."""
    words = ["pytest", "-m", which, "-n", str(workers), "--dist", "loadfile", *arguments]
    return start(words, behind)


def main(arguments: Sequence[str]) -> int:
    """Run everything, whatever fails on the way; returns 0 when nothing failed."""
    cores = os.cpu_count() or 1
    rest = [argument for argument in arguments if argument != "--fast"]
    failed = bool(start(["ruff", "check", "."], behind=False).wait())
    types = start(["mypy"], behind=True)
    if "--fast" in arguments:
        tests = [start_tests(FAST, cores, rest)]
    else:
        computing = start_tests(COMPUTING, cores, rest, behind=True)
        tests = [start_tests(WHOLE_PROCESSES, AT_ONCE, rest), computing]
    tested = [job.wait() for job in tests]
    nothing = int(pytest.ExitCode.NO_TESTS_COLLECTED)
    failed |= any(code not in (0, nothing) for code in tested) or set(tested) == {nothing}
    return int(failed | bool(types.wait()))


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
