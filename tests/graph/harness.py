"""Real processes on a ROS domain of their own, and a probe that hears and speaks: what the whole-graph tests share.

`Graph` starts and signals processes and leaves nothing behind; `Probe` keeps every message with its receive time on
the steady clock, so that tests can assert bounds. Nothing here talks to anything but 127.0.0.1.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rclpy
from rclpy.context import Context
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.qos import QoSProfile, ReliabilityPolicy

from specnav.demo.surroundings import (
    free_domain,
    ports_in_use,
    read_udp_tables,
    remove_segments,
    ros_environment,
    segments_of,
)

ROOT = Path(__file__).resolve().parents[2]
POLL_S = 0.01


@dataclass(frozen=True)
class Heard:
    """A message and when it was received (time.monotonic)."""

    at: float
    message: Any


class Probe:
    """A node in the test's own process, spinning in a thread."""

    def __init__(self, domain: int) -> None:
        self._context = Context()
        rclpy.init(context=self._context, domain_id=domain)
        self.node = rclpy.create_node("probe", context=self._context)
        self._heard: dict[str, list[Heard]] = {}
        self._publishers: dict[str, Any] = {}
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self.node)
        self._thread = threading.Thread(target=self._spin, daemon=True)
        self._thread.start()

    def _spin(self) -> None:
        with contextlib.suppress(ExternalShutdownException):
            self._executor.spin()

    def close(self) -> None:
        """End the thread before the context."""
        self._executor.shutdown()
        self._thread.join(5)
        self.node.destroy_node()
        rclpy.try_shutdown(context=self._context)

    def listen(self, kind: type, topic: str, reliable: bool = True) -> None:
        """Keep every message of a topic from now on."""
        kept = self._heard.setdefault(topic, [])
        reliability = ReliabilityPolicy.RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT
        qos = QoSProfile(depth=200, reliability=reliability)
        self.node.create_subscription(kind, topic, lambda m: kept.append(Heard(time.monotonic(), m)), qos)

    def heard(self, topic: str, since: float = 0.0) -> list[Heard]:
        """Messages of a topic received at or after a time."""
        return [h for h in list(self._heard[topic]) if h.at >= since]

    def say(self, topic: str, message: Any, reliable: bool = True) -> float:
        """Publish; returns the time it was published."""
        if topic not in self._publishers:
            reliability = ReliabilityPolicy.RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT
            qos = QoSProfile(depth=20, reliability=reliability)
            self._publishers[topic] = self.node.create_publisher(type(message), topic, qos)
            wait_until(lambda: self.node.count_subscribers(topic) > 0, 10, f"a subscriber of {topic}")
            # Discovery is not symmetric: the other side may need a moment to match us.
            time.sleep(0.2)
        self._publishers[topic].publish(message)
        return time.monotonic()


class Process:
    """A started process and its log."""

    def __init__(self, name: str, argv: list[str], environment: dict[str, str], log: Path, cwd: Path) -> None:
        self.name, self.log = name, log
        with log.open("wb") as out:
            self.popen = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=environment,
                cwd=cwd, start_new_session=True,
            )  # fmt: skip

    @property
    def text(self) -> str:
        """What it has logged so far."""
        return self.log.read_text(errors="replace")

    def wait_for(self, text: str, timeout_s: float = 30.0, count: int = 1) -> None:
        """Wait until its log holds a text (so often)."""
        wait_until(
            lambda: self.text.count(text) >= count or self.popen.poll() is not None,
            timeout_s,
            f"{text!r} of {self.name}",
            lambda: self.text,
        )
        assert self.text.count(text) >= count, f"{self.name} ended without {text!r}:\n{self.text[-3000:]}"

    def kill(self, number: int = signal.SIGKILL) -> float:
        """Signal the process; returns when."""
        self.popen.send_signal(number)
        return time.monotonic()

    def end(self, number: int = signal.SIGINT, timeout_s: float = 10.0) -> int:
        """Signal the process and wait; returns its exit code."""
        self.popen.send_signal(number)
        return self.popen.wait(timeout_s)


class Graph:
    """Processes on one domain; use it as a context manager."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.domain = free_domain(ports_in_use(read_udp_tables()), first=os.getpid() + len(str(folder)))
        self.processes: list[Process] = []
        self._segments: set[Path] = set()
        self._environment = ros_environment(self.domain, folder, 1)

    def __enter__(self) -> Graph:
        os.environ.update(self._environment)
        self.probe = Probe(self.domain)
        return self

    def __exit__(self, *_: object) -> None:
        self.note_segments()
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.popen.pid, signal.SIGKILL)
            process.popen.wait(10)
        self.probe.close()
        remove_segments(self._segments)

    def start(self, name: str, module: str, *arguments: str, **environment: str) -> Process:
        """Start `python -m module` with arguments; its output goes to `<folder>/<name>.log`."""
        argv = [sys.executable, "-m", module, *arguments]
        everything = {**os.environ, **self._environment, **environment}
        process = Process(name, argv, everything, self.folder / f"{name}-{len(self.processes)}.log", ROOT)
        self.processes.append(process)
        return process

    def note_segments(self) -> None:
        """Remember the shared memory in use, so that leftovers can be told from other programs' files."""
        self._segments |= segments_of([p.popen.pid for p in self.processes if p.popen.poll() is None])

    def segments_of(self, process: Process) -> set[Path]:
        """Shared memory a running process has mapped."""
        return segments_of([process.popen.pid])


def ros_args(remaps: dict[str, str] | None = None, **parameters: object) -> list[str]:
    """`--ros-args` for a node."""
    argv = ["--ros-args"]
    for name, value in parameters.items():
        argv += ["-p", f"{name}:={str(value).lower() if isinstance(value, bool) else value}"]
    for name, other in (remaps or {}).items():
        argv += ["-r", f"{name}:={other}"]
    return argv


def wait_until(
    done: Callable[[], bool], timeout_s: float, what: str, explain: Callable[[], str] = lambda: ""
) -> float:
    """Wait for a condition; returns when it held. Fails the test after the time-out."""
    deadline = time.monotonic() + timeout_s
    while not done():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {timeout_s:g} s\n{explain()[-3000:]}")
        time.sleep(POLL_S)
    return time.monotonic()


def children_of(pid: int) -> Iterator[int]:
    """Process ids in the group that a process leads, itself left out."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != pid:
            with contextlib.suppress(OSError):
                if os.getpgid(int(entry.name)) == pid:
                    yield int(entry.name)
