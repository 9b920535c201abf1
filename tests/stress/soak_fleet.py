"""Soak a fleet: edges ask for as long as you like, while its replicas and its directory are killed.

    python -m tests.stress.soak_fleet --minutes 10 [--edges 24] [--replicas 3] [--kill-s 20] [--out FILE.json]

Starts Ray on this machine, a directory and CPU replicas of the text pair's target, and edges that know the directory's
address only, a process each. Every answer is compared with what the target alone answers. Every --kill-s seconds a
replica is killed, by turns its verifier and the Ray actor that keeps it, and every --kill-directory-s the directory.
Exit code 1 where an answer was wrong or lost, or the fleet does not come back.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from specdec.models import load_model
from specdec.models.threads import set_threads
from specnav.fleet.cluster import reach, start_here, stop_here
from specnav.fleet.run import end_fleet, start_directory, wait_settled
from specnav.fleet.settings import FleetSettings, ReplicaBounds
from specnav.fleet.state import FleetState
from specnav.fleet.status import FleetStatus
from specnav.paths import DEFAULT_TEXT_DRAFT, DEFAULT_TEXT_TARGET
from specnav.signals import ends_on_signals
from tests.stress.soak_client import SoakClientJob
from tests.stress.soak_crew import Crew
from tests.stress.soak_verifier import ask_for

METHODS = ("ar", "sd", "fsd", "specedge", "sd+overlap:stream", "sd+overlap:continue")
RESUME_S = 120.0
CALL_S, BACK_S, END_S = 60.0, 120.0, 90.0


class Killer:
    """Kills what is due, and counts it."""

    def __init__(self, ray: Any, actor: Any, kill_s: float, kill_directory_s: float, chance: random.Random) -> None:
        self.done: Counter[str] = Counter()
        self._ray = ray
        self._actor = actor
        self._every = {"replica": kill_s, "directory": kill_directory_s}
        now = time.monotonic()
        self._due = {what: now + every for what, every in self._every.items() if every}
        self._chance = chance

    def look(self) -> None:
        """Kill what is due now."""
        for what, due in self._due.items():
            if time.monotonic() >= due:
                self._due[what] = due + self._every[what]
                with suppress(psutil.Error, self._ray.exceptions.RayError):
                    self._kill(what)

    def status(self) -> FleetStatus:
        """How the fleet is; waits for a directory that was just killed."""
        until = time.monotonic() + CALL_S
        while True:
            try:
                return self._ray.get(self._actor.status.remote(), timeout=CALL_S)
            except self._ray.exceptions.RayError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.2)

    def _kill(self, what: str) -> None:
        status = self.status()
        if what == "directory":
            os.kill(status.pid, signal.SIGKILL)
            self.done["directory"] += 1
            return
        # The busiest one, whose death is felt most.
        serving = [one for one in status.replicas if one.state == "ready"]
        if not serving:
            self.done["none to kill"] += 1
            return
        one = max(serving, key=lambda one: (one.active, self._chance.random()))
        verifier = psutil.Process(one.report.pid)
        if self.done["verifier"] <= self.done["actor"]:
            verifier.kill()
            self.done["verifier"] += 1
        else:
            parent = verifier.parent()
            assert parent is not None
            parent.kill()
            verifier.kill()  # as on a machine that is gone; else it would end its answers first
            self.done["actor"] += 1


def quantile(values: list[float], share: float) -> float:
    """Of the values, 0.0 without any."""
    if len(values) < 2:
        return sum(values)
    return statistics.quantiles(values, n=100, method="inclusive")[round(share * 100) - 1]


@contextmanager
def fleet_of(replicas: int, verify_ms: float, state: Path) -> Any:
    """A fleet on a Ray of its own: Ray, the directory's actor, its address."""
    here = start_here(replicas + 2)
    try:
        ray = reach(here.ray)
        from specnav.fleet.replica import node_address

        server = {"model": str(DEFAULT_TEXT_TARGET), "verify_ms": verify_ms, "drain_s": 5.0, "kv_gb": 0.25}
        settings = FleetSettings(server, ReplicaBounds(replicas, replicas), home=node_address())
        actor = start_directory(ray, state, FleetState("soak", settings, replicas, 0), "")
        try:
            from rich.console import Console

            status = wait_settled(ray, actor, BACK_S, Console(stderr=True), "replicas")
            yield ray, actor, status.address
        finally:
            with suppress(Exception):
                end_fleet(ray, actor, state)
            ray.shutdown()
    finally:
        stop_here(here)


def main() -> int:
    """Run it; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--edges", type=int, default=24)
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--kill-s", type=float, default=20.0, metavar="S", help="between kills of a replica, 0: none")
    parser.add_argument("--kill-directory-s", type=float, default=45.0, metavar="S", help="of the directory, 0: none")
    parser.add_argument("--pause", type=float, default=8.0, metavar="S", help="of an edge between two answers")
    parser.add_argument("--verify-ms", type=float, default=15.0, metavar="MS", help="pacing, so that answers last")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="figures as JSON")
    given = parser.parse_args()
    if given.minutes <= 0 or given.edges < 1 or given.replicas < 1:
        parser.error("--minutes, --edges and --replicas must be above 0")
    chance = random.Random(given.seed)
    target = load_model(str(DEFAULT_TEXT_TARGET))
    set_threads(0, target)
    questions = ask_for(target)
    state = Path(tempfile.mkdtemp(prefix="soak-fleet-"))
    with ExitStack() as stack:
        stack.enter_context(ends_on_signals())
        ray, actor, address = stack.enter_context(fleet_of(given.replicas, given.verify_ms, state))

        def new_job(place: int, number: int) -> SoakClientJob:
            return SoakClientJob(
                number=number,
                address=address,
                methods=METHODS,
                draft=str(DEFAULT_TEXT_DRAFT),
                target="",
                questions=questions,
                seed=given.seed * 10_000 + number,
                pause_s=given.pause,
                resume_s=RESUME_S,
            )

        crew = stack.enter_context(Crew(new_job, given.edges))
        crew.wait_ready()
        killer = Killer(ray, actor, given.kill_s, given.kill_directory_s, chance)
        began = time.monotonic()
        try:
            while (lasted := time.monotonic() - began) < given.minutes * 60:
                crew.hear(0.5)
                killer.look()
        except KeyboardInterrupt:
            print("interrupted: the figures so far", flush=True)
        crew.end(END_S)
        status = killer.status()
        until = time.monotonic() + BACK_S
        while not status.settled and time.monotonic() < until:
            time.sleep(0.5)
            status = killer.status()
    tally = crew.tally
    lost = tally.count("lost") + tally.died
    undisturbed = [*tally.gaps_s]
    result = {
        "config": {**vars(given), "out": str(given.out)},
        "seconds": round(lasted, 1),
        "answers": tally.answers,
        "wrong": tally.count("wrong"),
        "lost": lost,
        "cancelled": tally.count("cancelled"),
        "answers_resumed": tally.resumed,
        "resumes": tally.resumes,
        "killed": dict(killer.done),
        "gap_s": {"p50": quantile(undisturbed, 0.5), "p99": quantile(undisturbed, 0.99)},
        "gap_resumed_s": {
            "p50": quantile(tally.resumed_gaps_s, 0.5),
            "p99": quantile(tally.resumed_gaps_s, 0.99),
            "max": max(tally.resumed_gaps_s, default=0.0),
        },
        "by_method": {method: dict(counts) for method, counts in sorted(tally.ended.items())},
        "settled_at_the_end": status.settled,
        "told": tally.told,
    }
    print(json.dumps(result, indent=1))
    if given.out is not None:
        given.out.write_text(json.dumps(result, indent=1) + "\n")
    return int(bool(lost or tally.count("wrong") or not status.settled))


if __name__ == "__main__":
    sys.exit(main())
