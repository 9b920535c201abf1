# SPDX-License-Identifier: Apache-2.0
"""Keeps a verifier process alive: restarts it when it dies, until it is drained."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from cloud_verifier.config import ServerConfig
from cloud_verifier.observing.metrics import PREFIX
from specnav.errors import UsageError
from specnav.paths import ROOT
from specnav.supervise.children import verifier_spec
from specnav.supervise.processes import ChildSpec, Running, Supervisor
from specnav.supervise.vllm import has_own_environment, vllm_environment, vllm_python
from specnav.top.scrape import Address, ScrapeFailed, fetch

FIRST_PAUSE_S, MOST_PAUSE_S = 0.2, 30.0
LASTING_S = 3.0
"""A verifier that died after serving this long is restarted at once, and so is one that was killed from outside while
it served. Only after failed starts or early exits does the pause before a restart grow.
"""
LOOK_S = 1.0
_WORKING = re.compile(rf"^{PREFIX}working ([0-9.e+]+)$", re.MULTILINE)


class VerifierChild:
    """Owns one verifier process at a time. `changed` is called, in another thread, when any attribute below changes.

    address, metrics: where it serves, "" while it does not. trouble: why it last ended, "" once it serves again.
    """

    def __init__(self, config: ServerConfig, changed: Callable[[], None]) -> None:
        self.address = self.metrics = self.trouble = ""
        self.pid = 0
        self.starts = 0
        self.draining = False
        self.ended = threading.Event()
        self._config = config
        self._changed = changed
        self._wake = threading.Event()
        self._process: Running | None = None
        self._ready_since: float | None = None
        # The kernel ends the process together with the thread that started it, so this thread lasts as long as
        # the replica.
        self._thread = threading.Thread(target=self._keep_alive, name="verifier", daemon=True)
        self._thread.start()

    def working(self) -> int:
        """Sessions that its engine works on; 0 if it does not report them. Waits for LOOK_S at most."""
        if not self.metrics:
            return 0
        try:
            found = _WORKING.search(fetch(Address.parse(self.metrics), LOOK_S))
        except (ScrapeFailed, UsageError):
            return 0
        return int(float(found[1])) if found else 0

    def drain(self) -> None:
        """Accept no new sessions, and end after the last one or the verifier's drain_s; called again: end now."""
        self.draining = True
        self._wake.set()
        process = self._process
        if process is None or process.poll() is not None:
            self.ended.set()
        else:
            process.send_signal(signal.SIGTERM)
        self._changed()

    def _keep_alive(self) -> None:
        pause_s = FIRST_PAUSE_S
        while not self.draining:
            self._ready_since = None
            code = self._run_once()
            since = self._ready_since
            self._changed()
            if self.draining:
                break
            served_s = 0.0 if since is None else time.monotonic() - since
            pause_s = next_pause(pause_s, served_s, code)
            self._wake.wait(pause_s)
        self.ended.set()
        self._changed()

    def _run_once(self) -> int:
        """Run the verifier from start to end; returns its exit code, 1 if it did not start."""
        self.starts += 1
        last: deque[str] = deque(maxlen=5)
        try:
            argv, environment = command_of(self._config)
            reads, writes = os.pipe()
            with open(writes, "wb") as log:
                output = open(reads, encoding="utf-8", errors="replace")  # noqa: SIM115 - closed below
                process = Supervisor.launch(ChildSpec("verifier", argv, environment, cwd=ROOT), log)
        except (OSError, UsageError) as error:
            self.trouble = str(error)
            return 1
        self._process, self.pid = process, process.pid
        if self.draining:
            process.send_signal(signal.SIGTERM)
        with output:
            for line in output:
                with suppress(OSError):  # Ray stores a worker's stderr; its disk may be full
                    sys.stderr.write(line)
                last.append(line.strip())
                self._read(line)
        code = process.wait()
        self.address = self.metrics = ""
        self.pid = 0
        if not self.draining:
            self.trouble = why_ended(code, last)
        return code

    def _read(self, line: str) -> None:
        try:
            record = json.loads(line)
            event = record.get("event")
        except (ValueError, AttributeError):
            return
        if event == "metrics":
            self.metrics = str(record["bind"])
        elif event == "ready":
            self.address, self.trouble = str(record["bind"]), ""
            self._ready_since = time.monotonic()
            self._changed()


def command_of(config: ServerConfig) -> tuple[list[str], dict[str, str]]:
    """The arguments and environment that start a verifier with these settings. Raises UsageError."""
    argv = list(verifier_spec(config, {}).argv)
    if config.engine == "vllm" and has_own_environment():
        return [str(vllm_python()), *argv[1:]], vllm_environment(os.environ)
    return argv, dict(os.environ)


def next_pause(last_s: float, served_s: float, code: int) -> float:
    """Seconds to wait before a verifier is restarted. last_s: the previous wait. served_s: how long it served, 0.0 if
    it never did. code: its exit code, negative for a signal.
    """
    killed = served_s > 0 and code in (-signal.SIGKILL, -signal.SIGTERM)
    return FIRST_PAUSE_S if killed or served_s > LASTING_S else min(2 * last_s, MOST_PAUSE_S)


def why_ended(code: int, lines: deque[str]) -> str:
    """One line on why a process ended, with the last line of its output that is not JSON."""
    said = next((line for line in reversed(lines) if line and not line.startswith("{")), "")
    how = f"exit code {code}" if code >= 0 else f"signal {-code}"
    return f"its verifier ended ({how}){': ' + said[:300] if said else ''}"
