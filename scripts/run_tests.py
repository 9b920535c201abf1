"""All tests, as `make test` runs them: ruff and mypy, then pytest in two phases.

What only computes runs side by side on all cores. Tests of whole processes (marked `graph`) have bounds in real time:
they come after that and one by one, so that nothing takes their cores (two at a time, 7 of 241 missed a bound once on
two cores). What is given on the command line goes to both phases of pytest. With `--fast`, as `make check` gives it,
tests are left out that are marked `graph` or `slow`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence

import pytest

FAST = ("-m", "not graph and not slow")
COMPUTING = ("-m", "not graph")
WHOLE_PROCESSES = ("-m", "graph")
LINTERS = (("ruff", "check", "."), ("mypy",))


def run(words: Sequence[str], environment: dict[str, str] | None = None) -> int:
    """Run one program, its output as it comes; returns its exit code."""
    print(f"\n== {' '.join(words)}", flush=True)
    began = time.monotonic()
    code = subprocess.run([sys.executable, "-m", *words], env=environment).returncode
    print(f"== exit code {code} after {time.monotonic() - began:.0f} s", flush=True)
    return code


def run_phase(which: Sequence[str], arguments: Sequence[str]) -> int:
    """Run the tests of one phase; returns pytest's exit code."""
    # One thread a worker: the models of the tests are small, and more threads than cores make all of them slower.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    workers = "0" if which == WHOLE_PROCESSES else str(os.cpu_count() or 1)
    return run(["pytest", *which, "-n", workers, "--dist", "loadfile", *arguments], environment)


def main(arguments: Sequence[str]) -> int:
    """Run everything, whatever fails on the way; returns 0 when nothing failed."""
    linted = [run(words) for words in LINTERS]
    phases = (FAST,) if "--fast" in arguments else (COMPUTING, WHOLE_PROCESSES)
    rest = [argument for argument in arguments if argument != "--fast"]
    tested = [run_phase(which, rest) for which in phases]
    nothing = int(pytest.ExitCode.NO_TESTS_COLLECTED)
    failed = any(linted) or any(code not in (0, nothing) for code in tested) or set(tested) == {nothing}
    return int(failed)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
