"""The edges of `soak_verifier.py`, a process each, and what has become of their answers.

An answer that ends because its own process was killed is not a fault; any other that does not come is lost.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import multiprocessing.context
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

from tests.stress.soak_client import SoakAnswer, SoakClientJob, run_client

START_S = 300.0
TOLD = 20
"""Wrong and lost answers that are told in full."""


@dataclass
class SoakTally:
    """How answers ended, by method; what was wrong. resumed: answers that went on after a loss; resumes: attempts.
    longest_s: of one answer. gaps_s: the longest wait within each answer; resumed_gaps_s: of those that went on.
    """

    ended: dict[str, Counter[str]] = field(default_factory=dict)
    resumed: int = 0
    resumes: int = 0
    longest_s: float = 0.0
    gaps_s: list[float] = field(default_factory=list)
    resumed_gaps_s: list[float] = field(default_factory=list)
    killed: int = 0
    killed_in_an_answer: int = 0
    died: int = 0
    told: list[str] = field(default_factory=list)

    def add(self, said: SoakAnswer) -> None:
        """One answer more."""
        self.ended.setdefault(said.method, Counter())[said.what] += 1
        self.resumed += said.resumes > 0
        self.resumes += said.resumes
        self.longest_s = max(self.longest_s, said.seconds)
        if said.what != "lost":
            self.gaps_s.append(said.gap_s)
            self.resumed_gaps_s += [said.gap_s] * (said.resumes > 0)
        if said.text and len(self.told) < TOLD:
            self.told.append(f"{said.what}, {said.method}: {said.text}")

    def count(self, *whats: str) -> int:
        """Answers that ended so, of all methods."""
        return sum(counts[what] for counts in self.ended.values() for what in whats)

    @property
    def answers(self) -> int:
        """Those that came to an end of their own and could be compared."""
        return self.count("right", "wrong")


@dataclass
class _Member:
    job: SoakClientJob
    process: multiprocessing.context.ForkServerProcess
    pipe: Connection
    ready: bool = False
    answering: bool = False


def fork_server() -> multiprocessing.context.ForkServerContext:
    """Where edges are forked from: it has imported what they need, except for modules that lie beside this one, where a
    fork server does not look.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["specdec.edge.decoder", "cloud_verifier.serving", "specnav.supervise.children"])
    return context


class Crew:
    """All edges. Use it as a context manager: no process outlives it."""

    def __init__(self, new_job: Callable[[int, int], SoakClientJob], size: int) -> None:
        """new_job: makes the job of an edge, from its place and from how many edges were started before it."""
        self.tally = SoakTally()
        self._new_job = new_job
        self._size = size
        self._context = fork_server()
        self._members: dict[int, _Member] = {}
        self._started = 0

    def __enter__(self) -> Crew:
        for place in range(self._size):
            self._start(place)
        return self

    def __exit__(self, *_: object) -> None:
        for member in self._members.values():
            member.process.kill()
            member.process.join()
        self._members.clear()

    @property
    def pids(self) -> list[int]:
        """Of the edges that run."""
        return [member.process.pid for member in self._members.values() if member.process.pid]

    def wait_ready(self) -> None:
        """Until all have loaded. Raises TimeoutError."""
        until = time.monotonic() + START_S
        while not all(member.ready for member in self._members.values()):
            if time.monotonic() > until:
                raise TimeoutError(f"an edge was not ready after {START_S:.0f} s: ask for fewer")
            self.hear(0.2)

    def hear(self, seconds: float) -> None:
        """Take in what edges say for this long, and put another in the place of one that has died."""
        until = time.monotonic() + seconds
        while True:
            pipes = {member.pipe: place for place, member in self._members.items()}
            ready = multiprocessing.connection.wait(list(pipes), max(0.0, until - time.monotonic()))
            for pipe in ready:
                if not self._take(self._members[pipes[pipe]]):  # type: ignore[index]
                    self.tally.died += 1
                    self._bury(pipes[pipe])  # type: ignore[index]
                    self._start(pipes[pipe])  # type: ignore[index]
            if time.monotonic() >= until:
                return

    def kill_one(self, chance: random.Random) -> None:
        """SIGKILL one of those that are in the middle of an answer, or any where nobody is; start another."""
        answering = [place for place, member in self._members.items() if member.answering]
        place = chance.choice(answering or list(self._members))
        member = self._members[place]
        member.process.kill()
        member.process.join()
        while member.pipe.poll() and self._take(member):  # what it said before
            pass
        self.tally.killed += 1
        self.tally.killed_in_an_answer += member.answering
        self._bury(place)
        self._start(place)

    def end(self, patience_s: float) -> None:
        """Let all end with the answer they are at."""
        for member in self._members.values():
            try:
                member.pipe.send("end")
            except OSError:
                continue
        until = time.monotonic() + patience_s
        for place, member in list(self._members.items()):
            while member.pipe.poll(max(0.0, until - time.monotonic())) and self._take(member):
                pass
            member.process.join(max(0.0, until - time.monotonic()))
            if member.process.is_alive():
                self.tally.add(SoakAnswer("lost", "?", text=f"it did not end within {patience_s:.0f} s"))
                member.process.kill()
            self._bury(place)

    def _start(self, place: int) -> None:
        ours, theirs = self._context.Pipe()
        job = self._new_job(place, self._started)
        self._started += 1
        process = self._context.Process(target=run_client, args=(job, theirs), daemon=True)
        process.start()
        theirs.close()
        self._members[place] = _Member(job, process, ours)

    def _bury(self, place: int) -> None:
        member = self._members.pop(place)
        member.process.join()
        member.pipe.close()

    def _take(self, member: _Member) -> bool:
        """One thing that an edge says; False where it has ended."""
        try:
            said = member.pipe.recv()
        except (EOFError, OSError):
            return False
        assert isinstance(said, SoakAnswer)
        member.ready = True
        member.answering = said.what == "answering"
        if said.what in ("wrong", "lost"):
            print(f"{said.what}, {said.method}: {said.text}", file=sys.stderr, flush=True)
        if said.what not in ("ready", "answering"):
            self.tally.add(said)
        return True
