"""A verifier as a process of its own."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from specnav.supervise.processes import ChildSpec, Running, Supervisor
from tests.graph.forking import ForkedProcess, forking_parent

COMMAND = [sys.executable, "-m", "cloud_verifier"]


@contextmanager
def started(
    arguments: Sequence[str], afresh: bool = False, descriptors: int = 0
) -> Iterator[tuple[ForkedProcess | Running, IO[str], IO[str]]]:
    """A verifier, its stdout and its stderr. afresh: it comes up as a user's does, and is not forked. descriptors: it
    may have no more, afresh.
    """
    argv = [*COMMAND, *arguments]
    if descriptors:
        argv, afresh = ["bash", "-c", f'ulimit -n {descriptors} && exec "$@"', "-", *argv], True
    (out_reads, out_writes), (err_reads, err_writes) = os.pipe(), os.pipe()
    with open(out_reads, encoding="utf-8") as out, open(err_reads, encoding="utf-8") as err:
        with open(out_writes, "wb") as to_out, open(err_writes, "wb") as to_err:
            spec = ChildSpec("", argv)
            forked = None if afresh else forking_parent().start(spec, to_out, to_err)
            process = forked or Supervisor.launch(spec, to_out, to_err)
        try:
            yield process, out, err
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.wait(10)


@contextmanager
def verifier(
    model: Path | str,
    bind: str = "tcp://127.0.0.1:0",
    arguments: Sequence[str] = (),
    afresh: bool = False,
    descriptors: int = 0,
) -> Iterator[tuple[ForkedProcess | Running, str, IO[str], IO[str]]]:
    """One that is ready: the process, its address, and its stdout and what comes of its stderr."""
    with started(["--bind", bind, "--model", str(model), *arguments], afresh, descriptors) as (process, out, err):
        for line in err:
            record = json.loads(line)
            if record["event"] == "ready":
                break
        else:
            raise AssertionError("the verifier ended before it was ready")
        yield process, record["bind"], out, err
