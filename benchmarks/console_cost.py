# SPDX-License-Identifier: Apache-2.0
"""What the console costs the robot: decision times and the gate's period with and without it; its CPU and memory.

    python -m benchmarks.console_cost --rounds 4 --seconds 60

The real graph (verifier, simulator, robot nodes) runs on this machine, alternately without a console and with one that
has a page open. The page is a stand-in in a process of its own, without a browser, since a real browser would run on
another machine; it acknowledges pictures and reads nothing else. Its CPU use is printed next to the console's. With
--chromium, a real browser runs here, and its drawing counts too. Each round without the console is compared with the
neighbouring round with it: the spread of these differences shows how reliable the difference of the medians is. At the
end, a mission of six steps is run, started over the page's socket. Run this on a quiet machine; figures:
docs/notebook/measurements.md.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from specnav.results.demo import percentile
from specnav.supervise.children import console_spec, mission_spec
from specnav.supervise.robot_graph import Process
from specnav.supervise.robot_stack import CMD_VEL, Stack, speed

BEAT_S, GAP_S = 0.1, 0.5
ASKED = 0.03
MISSION = """
name: six steps
max_s: 300
defaults: {on_failure: next}
steps:
  - turn_deg: 45
  - wait_s: 1
  - instruction: INSTRUCTION
    max_s: 60
  - turn_deg: -45
  - wait_s: 1
  - return: start
"""


@dataclass
class ConsoleFigures:
    """The measurements under one condition.

    gaps: times between velocity messages while the robot moved, ms; medians: the median decision time of each round,
    ms; cpu, page_cpu, decider_cpu: CPU use in each round, % of a core.
    """

    decisions: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    medians: list[float] = field(default_factory=list)
    page_cpu: list[float] = field(default_factory=list)
    decider_cpu: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    memory_mb: list[float] = field(default_factory=list)
    load: list[float] = field(default_factory=list)

    def jitter(self) -> list[float]:
        """The distance of each gap from the median gap, ms, sorted."""
        middle = statistics.median(self.gaps)
        return sorted(abs(gap - middle) for gap in self.gaps)


@contextlib.contextmanager
def cpu_of(process: int | None, found: list[float]) -> Iterator[None]:
    """Record the CPU use of a process in the meantime, % of a core."""
    if process is None:
        yield
        return
    seen = psutil.Process(process)
    before, began = seen.cpu_times(), time.monotonic()
    yield
    after = seen.cpu_times()
    used = after.user + after.system - before.user - before.system
    found.append(100 * used / (time.monotonic() - began))


def drive(stack: Stack, seconds: float, found: ConsoleFigures) -> None:
    """One round: let the robot work for this long, and record its figures."""
    before = len(found.decisions)
    with cpu_of(stack.decider.popen.pid, found.decider_cpu):
        wander(stack, seconds, found)
    if len(found.decisions) > before:
        found.medians.append(statistics.median(found.decisions[before:]))
    found.load.append(os.getloadavg()[0])


def wander(stack: Stack, seconds: float, found: ConsoleFigures) -> None:
    """Let the robot work for this long, from room to room."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        stack.reset()
        since = stack.instruct(stack.instruction)
        idle_since = time.monotonic()
        while time.monotonic() < min(end, since + 30):
            time.sleep(0.2)
            if any(speed(h) > 0 for h in stack.probe.heard(CMD_VEL, time.monotonic() - 1.0)):
                idle_since = time.monotonic()
            elif time.monotonic() - idle_since > 4.0:
                break  # arrived, or gave up
        stack.cancel()
        found.decisions += [m.decision_ms for m in stack.decisions(since) if m.decision_ms > 0]
        # Only gaps within one motion: between motions come a stop and then silence.
        pairs = itertools.pairwise(stack.probe.heard(CMD_VEL, since))
        found.gaps += [1e3 * (b.at - a.at) for a, b in pairs if speed(a) > 0 and speed(b) > 0 and b.at - a.at < GAP_S]


class Socket:
    """A page without a browser: it acknowledges every picture at once, and sends heartbeats.

    reads: whether it reads the other messages. One that only watches does not, since a browser would read them on
    another machine.
    """

    def __init__(self, url: str, reads: bool = True) -> None:
        self._reads = reads
        self._socket = connect(
            url.replace("http", "ws") + "socket", origin=url.rstrip("/"), max_queue=None  # type: ignore[arg-type]
        )
        self._socket.send(json.dumps({"name": "stand-in"}))
        self.state: dict[str, Any] = {}
        self.refused: list[str] = []
        threading.Thread(target=self._listen, daemon=True).start()
        threading.Thread(target=self._beat, daemon=True).start()

    def send(self, **message: Any) -> None:
        """Send a message."""
        self._socket.send(json.dumps(message))

    def _listen(self) -> None:
        with contextlib.suppress(ConnectionClosed):
            for message in self._socket:
                if isinstance(message, bytes):
                    self._socket.send('{"t": "drawn"}')
                elif not self._reads:
                    continue
                elif (said := json.loads(message))["t"] == "state":
                    self.state = said
                elif said["t"] == "no":
                    self.refused.append(said["why"])

    def _beat(self) -> None:
        with contextlib.suppress(ConnectionClosed):
            while True:
                time.sleep(BEAT_S)
                self._socket.send('{"t": "beat"}')


@contextlib.contextmanager
def page_on(url: str, chromium: bool) -> Iterator[int | None]:
    """A page in a process of its own; yields the process id of a stand-in, None for Chromium."""
    if chromium:
        from tests.graph.browser import Browser

        with Browser() as browser:
            tab = browser.tab(url)
            tab.wait("Number(document.querySelector('#camera').dataset.frames) > 3", 30)
            yield None
        return
    page = subprocess.Popen([sys.executable, "-m", "benchmarks.console_cost", "--page", url])
    try:
        yield page.pid
    finally:
        page.kill()
        page.wait()


def start_console(stack: Stack, folder: Path) -> tuple[Process, str]:
    """Start a console_node; returns it and its address."""
    given = {"port": 0, "audit_file": str(folder / "audit.jsonl"), "page_busy_s": 0.0}
    node = stack.start_child(console_spec((), stack.environment, given))
    node.wait_for("ready: ")
    return node, re.findall(r"ready: (\S+)", node.text)[-1]


def with_console(stack: Stack, folder: Path, seconds: float, found: ConsoleFigures, chromium: bool) -> None:
    """One round with the console and a page."""
    node, url = start_console(stack, folder)
    try:
        with page_on(url, chromium) as page:
            time.sleep(2.0)
            with cpu_of(node.popen.pid, found.cpu), cpu_of(page, found.page_cpu):
                drive(stack, seconds, found)
            found.memory_mb.append(psutil.Process(node.popen.pid).memory_info().rss / 1e6)
    finally:
        node.end()


def six_steps(stack: Stack, folder: Path) -> str:
    """Run the mission; returns the result as text."""
    stack.start_child(mission_spec((), stack.environment, folder / "mission.json")).wait_for("ready")
    node, url = start_console(stack, folder)
    stack.reset()
    page = Socket(url)
    page.send(t="take")
    text = MISSION.replace("INSTRUCTION", stack.instruction)
    for _ in range(10):  # until the console has discovered mission_node
        time.sleep(1.5)
        page.refused.clear()
        page.send(t="mission", text=text)
        time.sleep(1.0)
        if not page.refused:
            break
    began, mission = time.monotonic(), {}
    while time.monotonic() - began < 300 and mission.get("phase") != "ended":
        time.sleep(0.2)
        mission = page.state.get("mission") or {}
    node.end()
    if not mission:
        return f"mission of six steps: never began: {page.refused}"
    steps = ", ".join(f"{step['words']}: {step['progress']}" for step in mission["steps"])
    return (
        f"mission of six steps ({stack.instruction}): {mission['phase']} {mission.get('code', '')} "
        f"after {time.monotonic() - began:.0f} s; {steps}"
    )


def paired(without: list[float], beside: list[float]) -> list[float]:
    """By how much the second value of each pair exceeds the first, %."""
    return [100 * (b / a - 1) for a, b in zip(without, beside, strict=False)]


def spread(values: list[float]) -> str:
    """The median and quartiles of values, and the values, as text."""
    if len(values) < 2:
        return ", ".join(f"{value:+.1f} %" for value in values) or "-"
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    each = ", ".join(f"{value:+.1f}" for value in values)
    return f"median {middle:+.1f} %, quartiles {low:+.1f} and {high:+.1f} % ({each})"


def report(without: ConsoleFigures, beside: ConsoleFigures) -> None:
    """Print the figures."""
    for name, of, unit in (
        ("decision p50", lambda f: statistics.median(f.decisions), "ms"),
        ("decision p95", lambda f: percentile(f.decisions, 95) or 0.0, "ms"),
        ("gate's period p50", lambda f: statistics.median(f.gaps), "ms"),
        ("gate's jitter p50", lambda f: percentile(f.jitter(), 50) or 0.0, "ms"),
        ("gate's jitter p99", lambda f: percentile(f.jitter(), 99) or 0.0, "ms"),
    ):
        a, b = of(without), of(beside)
        change = f"{100 * (b / a - 1):+.1f} %" if a else "-"
        print(f"{name}: {a:.2f} {unit} without, {b:.2f} with ({change}; asked ±{100 * ASKED:.0f} % of p50)")
    print(f"decision p50, each round against its neighbour: {spread(paired(without.medians, beside.medians))}")
    counts = f"{len(without.decisions)} and {len(beside.decisions)} decisions"
    print(f"n = {counts}, {len(without.gaps)} and {len(beside.gaps)} velocities")
    print(
        f"console_node with a page: CPU {statistics.mean(beside.cpu):.1f} % of a core, "
        f"memory {max(beside.memory_mb):.0f} MB"
    )
    if beside.page_cpu:
        print(f"the page's stand-in, not counted above: CPU {statistics.mean(beside.page_cpu):.1f} % of a core")
    a, b = statistics.mean(without.decider_cpu), statistics.mean(beside.decider_cpu)
    print(f"vlm_nav_node: CPU {a:.1f} % of a core without, {b:.1f} % with")
    loads = ", ".join(f"{load:.1f}" for load in (*without.load, *beside.load))
    print(f"{os.cpu_count()} cores; load of the machine at the end of each round: {loads}")


def main() -> None:
    """Run the rounds and the mission, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=4, help="rounds; each runs once without and once with")
    parser.add_argument("--seconds", type=float, default=60.0, help="length of each round")
    parser.add_argument("--chromium", action="store_true", help="a real browser on this machine is the page")
    parser.add_argument("--no-mission", action="store_true", help="skip the mission at the end")
    parser.add_argument("--page", metavar="URL", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.page:
        Socket(options.page, reads=False)
        threading.Event().wait()
    folder = Path(tempfile.mkdtemp())
    without, beside = ConsoleFigures(), ConsoleFigures()
    with Stack(folder) as stack:
        stack.make_ready()
        drive(stack, min(10.0, options.seconds), ConsoleFigures())  # the first forwards are slow
        for number in range(options.rounds):
            print(f"round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
            parts = [
                lambda: drive(stack, options.seconds, without),
                lambda: with_console(stack, folder, options.seconds, beside, options.chromium),
            ]
            for part in parts if number % 2 == 0 else parts[::-1]:
                part()
        if options.rounds:
            report(without, beside)
        if not options.no_mission:
            print(six_steps(stack, folder))


if __name__ == "__main__":
    main()
