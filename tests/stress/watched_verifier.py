"""A real verifier process that a script starts, watches, kills, drains and starts again on the same port.

What one start leads to is a *life*: its samples (memory, descriptors, threads), how it ended, and what its log said.
"""

from __future__ import annotations

import json
import random
import re
import signal
import socket
import time
import urllib.request
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil

from cloud_verifier.config import ServerConfig
from specnav.drill.results import Sample
from specnav.errors import ChildFailed
from specnav.supervise.children import LOOPBACK, verifier_spec
from specnav.supervise.processes import Child, Supervisor

START_S = 300.0
PORTS = range(20_000, 30_000)
"""Below those that systems give to outgoing connections: while the verifier is away, no edge that tries to reach it
may be given its port."""
MB = 1e6


@dataclass
class Life:
    """From one start of the verifier to its end."""

    began_s: float
    samples: list[Sample] = field(default_factory=list)
    ended: str = ""
    errors: list[str] = field(default_factory=list)
    warnings: Counter[str] = field(default_factory=Counter)


class WatchedVerifier:
    """One verifier at a time, always at the same address. Use it as a context manager."""

    def __init__(self, config: ServerConfig, logs: Path, chance: random.Random | None = None) -> None:
        """config: bind and metrics are chosen here."""
        self.address = f"{LOOPBACK}:{free_port(chance or random.Random())}"
        self._config = replace(config, bind=self.address, metrics="127.0.0.1:0")
        self._supervisor = Supervisor(logs)
        self._began = time.monotonic()
        self._child: Child | None = None
        self._process: psutil.Process | None = None
        self._metrics = ""
        self.lives: list[Life] = []

    def __enter__(self) -> WatchedVerifier:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._supervisor.stop_all()

    @property
    def pid(self) -> int:
        """Of the process that serves now."""
        assert self._process is not None
        return self._process.pid

    @property
    def life(self) -> Life:
        """The one that lasts, or the last."""
        return self.lives[-1]

    @property
    def log(self) -> Path:
        """Of this life."""
        assert self._child is not None
        return self._child.log

    def start(self) -> None:
        """Begin a life; returns when it serves. Raises ChildFailed."""
        name = f"verifier-{len(self.lives) + 1}"
        self._child = self._supervisor.start(replace(verifier_spec(self._config, {}), name=name))
        self._supervisor.wait_ready(self._child, START_S)
        found = re.search(r'"event": "metrics", "bind": "([^"]+)"', self._child.log.read_text())
        assert found, "the metrics were asked for"
        self._metrics = f"http://{found[1]}/metrics"
        self._process = psutil.Process(self._child.process.pid)
        self.lives.append(Life(time.monotonic() - self._began))
        self.look()

    def look(self) -> Sample:
        """Take a sample. Raises ChildFailed where the verifier has ended by itself."""
        self._supervisor.check()
        assert self._process is not None
        try:
            with self._process.oneshot():
                rss = self._process.memory_info().rss / MB
                sample = Sample(
                    time.monotonic() - self._began, rss, self._process.num_fds(), self._process.num_threads()
                )
        except psutil.Error as error:
            raise ChildFailed(f"the verifier ended by itself; its log is {self.log}") from error
        self.life.samples.append(sample)
        return sample

    def kill(self) -> None:
        """End it by SIGKILL."""
        assert self._child is not None
        self._child.process.send_signal(signal.SIGKILL)
        self._end("killed")

    def drain(self) -> None:
        """End it by SIGTERM, and wait. Raises ChildFailed where it does not end well by itself."""
        assert self._child is not None
        self._child.process.send_signal(signal.SIGTERM)
        code = self._child.process.wait(self._config.drain_s + 20.0)
        self._end("drained")
        if code != 0:
            raise ChildFailed(f"the verifier ended with exit code {code} after SIGTERM; its log is {self.log}")

    def gauges(self) -> dict[str, float]:
        """What the verifier says of itself now: the numbers of its metrics that have no labels."""
        with urllib.request.urlopen(self._metrics, timeout=30) as page:
            text = page.read().decode()
        return {name: float(value) for name, value in re.findall(r"^specdec_(\w+) (\S+)$", text, re.MULTILINE)}

    def read_log(self) -> None:
        """Count what the log of this life has said."""
        self.life.errors, self.life.warnings = read_log(self.log)

    def _end(self, how: str) -> None:
        assert self._child is not None
        self._child.process.wait(20.0)
        self._supervisor.stop(self._child.name)
        self.life.ended = how
        self.read_log()


def read_log(path: Path) -> tuple[list[str], Counter[str]]:
    """Lines of what went wrong inside, and how often which warning was written."""
    errors, warnings = [], Counter[str]()
    for line in path.read_text(errors="replace").splitlines():
        try:
            record = json.loads(line)
        except ValueError:  # not of the log: a library's, or the last words of one that was killed
            errors += [line] if "Error" in line or "Traceback" in line else []
            continue
        if record["level"] == "error":
            errors.append(line)
        elif record["level"] == "warning":
            warnings[record["event"]] += 1 + record.get("suppressed_before", 0)
    return errors, warnings


def free_port(chance: random.Random) -> int:
    """A port that no subscriber listens on."""
    while True:
        port = chance.choice(PORTS)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port
