# SPDX-License-Identifier: Apache-2.0
"""Starts, watches and stops the child processes of a run; each child writes to one log file.

A *child* leads a process group of its own, so that stopping it also stops whatever it started. If this process dies
abruptly, the kernel ends the child. Nothing here knows what a child does.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import IO, Protocol

from specnav.errors import ChildFailed

PR_SET_PDEATHSIG = 1
POLL_S = 0.05
_libc = ctypes.CDLL(None, use_errno=True) if os.name == "posix" else None


@dataclass(frozen=True)
class ChildSpec:
    """A process to start.

    Attributes:
        name: Names the process and its log.
        argv: The command line.
        environment: Variables to add to this process's own.
        ready: The child is ready once its log matches this; None: as soon as it runs.
        cwd: Working directory; None: this process's own.
    """

    name: str
    argv: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    ready: re.Pattern[str] | None = None
    cwd: Path | None = None


class Running(Protocol):
    """The part of subprocess.Popen that is needed here."""

    pid: int
    returncode: int | None

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def send_signal(self, number: int, /) -> None: ...


@dataclass(frozen=True)
class Child:
    """A started process and its log."""

    spec: ChildSpec
    process: Running
    log: Path

    @property
    def name(self) -> str:
        """The child's name, from its specification."""
        return self.spec.name


def last_words(log: Path) -> str:
    """Return the last non-empty line of a log, shortened; "" if there is none."""
    try:
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        return ""
    return lines[-1][:300] if lines else ""


def die_with_parent(parent: int) -> None:
    """For `preexec_fn`: make the kernel end the child when the thread that started it dies.

    Args:
        parent: Process ID of the process that starts the child.
    """
    # Runs in the child between fork and exec: only async-signal-safe calls are allowed, so the library is
    # loaded before.
    if _libc is not None and hasattr(_libc, "prctl"):
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:  # it died before
            os._exit(1)


class Supervisor:
    """Owns the children of one run. Use it as a context manager, so that no child outlives the run."""

    def __init__(self, log_folder: Path) -> None:
        self._logs = log_folder
        self._children: dict[str, Child] = {}
        log_folder.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Supervisor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop_all()

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the children still running."""
        return tuple(c.process.pid for c in self._children.values() if c.process.poll() is None)

    def start(self, spec: ChildSpec) -> Child:
        """Start a child; its stdout and stderr go to `<log folder>/<name>.log`.

        Raises:
            ChildFailed: A child of that name is running, or the command cannot be started.
        """
        if spec.name in self._children:
            raise ChildFailed(f"process {spec.name} is already running; stop it first")
        log = self._logs / f"{spec.name}.log"
        with log.open("ab") as stream:
            try:
                process = self.launch(spec, stream)
            except OSError as error:
                raise ChildFailed(
                    f"cannot start {spec.name} ({spec.argv[0]}): {error.strerror or error}"
                ) from error
        child = Child(spec, process, log)
        self._children[spec.name] = child
        return child

    @staticmethod
    def launch(spec: ChildSpec, log: IO[bytes], errors: IO[bytes] | None = None) -> Running:
        """Start a child that leads a session of its own, with its output in a log.

        Tests that start hundreds of children replace this with something faster.

        Args:
            spec: What to start.
            log: Where its output goes.
            errors: Where stderr goes; None: into the log.

        Returns:
            The process.

        Raises:
            OSError: It cannot be started.
        """
        return subprocess.Popen(
            list(spec.argv),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT if errors is None else errors,
            env={**os.environ, **spec.environment},
            cwd=spec.cwd,
            start_new_session=True,
            preexec_fn=partial(die_with_parent, os.getpid()),
        )

    def wait_ready(self, child: Child, timeout_s: float) -> str:
        """Wait until the child is ready.

        Args:
            child: The child.
            timeout_s: How long to wait.

        Returns:
            Its ready line; "" without a pattern.

        Raises:
            ChildFailed: The child ended, or was not ready in time.
        """
        pattern = child.spec.ready
        deadline = time.monotonic() + timeout_s
        while pattern is not None:
            # Poll before reading: a child that prints its ready line and ends at once was still ready.
            ended = child.process.poll() is not None
            for line in child.log.read_text(errors="replace").splitlines():
                if pattern.search(line):
                    return line
            if ended:
                break
            if time.monotonic() > deadline:
                raise ChildFailed(
                    f"{child.name} was not ready after {timeout_s:.0f} s; its log is {child.log}"
                )
            time.sleep(POLL_S)
        self.check()
        return ""

    def check(self) -> None:
        """Raise ChildFailed if a child has ended on its own."""
        for child in self._children.values():
            code = child.process.poll()
            if code is not None:
                how = f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
                said = last_words(child.log)
                raise ChildFailed(
                    f"{child.name} ended ({how}){f', last line: {said!r}' if said else ''}; its log is {child.log}"
                )

    def stop(self, name: str, grace_s: float = 8.0) -> int | None:
        """Stop one child: send SIGINT, then SIGTERM, then SIGKILL to its group.

        Args:
            name: Name of the child.
            grace_s: How long it may take to react to SIGINT.

        Returns:
            Its exit code; None if there is no such child.
        """
        child = self._children.pop(name, None)
        if child is None:
            return None
        self._end([child], grace_s)
        return child.process.returncode

    def stop_all(self, grace_s: float = 8.0) -> None:
        """Stop all children at once. Safe to call twice."""
        children = list(self._children.values())
        self._children.clear()
        self._end(children, grace_s)

    def _end(self, children: Sequence[Child], grace_s: float) -> None:
        for number, patience_s in ((signal.SIGINT, grace_s), (signal.SIGTERM, 2.0), (signal.SIGKILL, 2.0)):
            alive = [child for child in children if child.process.poll() is None]
            for child in alive:
                _signal_group(child.process.pid, number)
            deadline = time.monotonic() + patience_s
            while any(child.process.poll() is None for child in alive) and time.monotonic() < deadline:
                time.sleep(POLL_S)
        for child in children:
            # A leader that ended cleanly may have left processes behind in its group.
            _signal_group(child.process.pid, signal.SIGKILL)


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
