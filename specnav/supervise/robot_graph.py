# SPDX-License-Identifier: Apache-2.0
"""Real processes in a ROS domain of their own, with a probe; leaves nothing behind.

All communication stays on 127.0.0.1.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

from specnav.errors import HarnessError
from specnav.paths import ROOT
from specnav.supervise.probe import Probe
from specnav.supervise.processes import Child, ChildSpec, Supervisor
from specnav.supervise.surroundings import (
    Domain,
    ports_in_use,
    read_udp_tables,
    remove_segments,
    ros_environment,
    segments_of,
)
from specnav.supervise.waiting import TAIL_CHARS, wait_until

OPEN: list[Graph] = []
"""Graphs in use in this process, for code that reports failures."""
_LEFT: list[Domain] = []
"""The domain of this process's last graph, held until another replaces it."""


class Process:
    """A started process and its log."""

    def __init__(self, name: str, child: Child) -> None:
        self.name, self.log, self.popen = name, child.log, child.process
        self.left: set[Path] = set()
        """Shared memory that it was using when it was killed, and could not remove."""

    @property
    def text(self) -> str:
        """Its log so far."""
        return self.log.read_text(errors="replace")

    @property
    def is_up(self) -> bool:
        """Whether it is still running."""
        return self.popen.poll() is None

    def wait_for(self, text: str, timeout_s: float = 30.0, count: int = 1) -> None:
        """Wait until its log contains a text `count` times. Raises HarnessError."""
        wait_until(
            lambda: self.text.count(text) >= count or not self.is_up,
            timeout_s,
            f"{text!r} from {self.name}",
            lambda: self.text,
        )
        if self.text.count(text) < count:
            raise HarnessError(f"{self.name} ended without {text!r}:\n{self.text[-TAIL_CHARS:]}")

    def kill(self, number: int = signal.SIGKILL) -> float:
        """Send it a signal; returns the time."""
        if number == signal.SIGKILL:
            self.left |= segments_of([self.popen.pid])
        at = time.monotonic()
        self.popen.send_signal(number)
        return at

    def end(self, number: int = signal.SIGINT, timeout_s: float = 10.0) -> int:
        """Send it a signal and wait for its end; returns the exit code."""
        self.kill(number)
        return self.popen.wait(timeout_s)


class Graph:
    """Processes in one domain. Use it as a context manager."""

    def __init__(self, folder: Path) -> None:
        """Create the graph; `folder` receives the logs."""
        self.folder = folder
        self._domain = Domain(ports_in_use(read_udp_tables()), first=os.getpid() + len(str(folder)))
        self.domain = self._domain.number
        self.processes: list[Process] = []
        self._supervisor = Supervisor(folder)
        self._segments: set[Path] = set()
        self.environment = ros_environment(self.domain, folder, 1)

    def __enter__(self) -> Graph:
        # Fast DDS reads these variables when the probe's context is created; the children get the same ones.
        os.environ.update(self.environment)
        self.probe = Probe(self.domain)
        OPEN.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        OPEN.remove(self)
        self.note_segments()
        for process in self.processes:
            if process.is_up:
                # Kill at once: a process may be frozen by SIGSTOP, and its output at the end is of no interest.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.popen.pid, signal.SIGKILL)
        self._supervisor.stop_all()
        self.probe.close()
        remove_segments(self._segments.union(*(process.left for process in self.processes)))
        # Nodes that this process creates later still use the domain named in its environment.
        for one in _LEFT:
            one.release()
        _LEFT[:] = [self._domain]

    def start_child(self, spec: ChildSpec) -> Process:
        """Start a process; its log is `<folder>/<name>-<number>.log`. A name may be used again."""
        name = f"{spec.name}-{len(self.processes)}"
        process = Process(
            spec.name,
            self._supervisor.start(ChildSpec(name, spec.argv, spec.environment, spec.ready, spec.cwd)),
        )
        self.processes.append(process)
        return process

    def start(self, name: str, module: str, *arguments: str, **environment: str) -> Process:
        """Start `python -m module` with arguments."""
        argv = [sys.executable, "-m", module, *arguments]
        return self.start_child(ChildSpec(name, argv, {**self.environment, **environment}, cwd=ROOT))

    def told(self) -> str:
        """Return the end of every process's log, and the exit codes of processes that have ended."""
        parts = []
        for process in self.processes:
            state = "up" if process.is_up else f"ended: {process.popen.returncode}"
            parts.append(f"-- {process.log.stem} ({state})\n{process.text[-TAIL_CHARS:].strip()}")
        return "\n".join(parts)

    def note_segments(self) -> None:
        """Record the shared memory in use, to tell leftovers from other programs' files."""
        self._segments |= segments_of([p.popen.pid for p in self.processes if p.is_up])
