"""Soak a real verifier: honest edges ask for as long as you like, while edges, links and the verifier itself fail.

    python -m tests.stress.soak_verifier --minutes 60 [--clients 16] [--pause 6] [--out FILE.json]

Each answer is compared with what the target alone answers. Meanwhile edges are killed in the middle of an answer, links
are cut, a hostile client sends garbage, and the verifier is killed, or drained, and started again on its port. Ctrl-C
ends it with the figures so far. Exit code 1 where an answer was wrong or lost, something went wrong inside the
verifier, it took more memory than it may, it grew by more than GROWN_MB, or a session was left at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import psutil

from cloud_verifier.config import ServerConfig
from specdec.methods import METHODS, get_method
from specdec.models import LoadedModel, chat_prompt, load_model
from specdec.models.local import generate_local
from specdec.models.threads import set_threads
from specdec.options import GenerationOptions
from specnav.drill.growth import Allowance, growth
from specnav.errors import HarnessError
from specnav.paths import DEFAULT_TEXT_DRAFT, DEFAULT_TEXT_TARGET
from specnav.signals import ends_on_signals
from specnav.supervise.faulty_link import FaultyLink
from tests.stress.fuzz_verifier import fuzz
from tests.stress.soak_client import SoakClientJob, SoakQuestion
from tests.stress.soak_crew import Crew
from tests.stress.watched_verifier import Life, WatchedVerifier

GROWN_MB = 40.0
"""What a life of the verifier may grow by once it is warm, by the median slope of its memory."""
GROWN_FDS, GROWN_THREADS = 5.0, 2.0
LEAST_LIFE_S = 600.0
"""Of a shorter life no growth is told: caches and what is kept of prompts fill first."""
KV_GB, SHARED_MB = 0.125, 16.0
MOST_OVER = 1.1
"""So much of its memory at the start and of KV_GB together may a life take at most."""
SESSION_TIMEOUT_S = 30.0
RESUME_S = 300.0
LOOK_S = 5.0
END_S = 60.0
GARBAGE = 3000
"""Messages of a burst, below what the bounds on one client let through at once."""
MORE_METHODS = (
    "sd+overlap:stream",
    "sd+overlap:continue",
    "sd+tree:8x3",
    "sd+leave:tokens",
    "fsd+overlap:hints",
)
ASKED = (
    "hello",
    "what is a dog?",
    "1 + 1 =",
    "Tell me a story about a ship that lost its way, and say how it came home again.",
    "List the planets in order. " * 12,
)


@dataclass(frozen=True)
class SoakEvent:
    """Something that goes wrong at a time, seconds from the beginning. what: kill, cut, garbage, restart or drain."""

    at_s: float
    what: str


def plan(seconds: float, chance: random.Random) -> list[SoakEvent]:
    """What goes wrong when. The verifier's restarts are over before half of the time, so that its last life is long."""
    events = [SoakEvent(seconds * share, "restart") for share in (0.08, 0.2, 0.3)] + [
        SoakEvent(seconds * 0.42, "drain")
    ]
    for what, every_s in (("kill", 25.0), ("cut", 50.0), ("garbage", 60.0)):
        at = 0.0
        while (at := at + every_s * (0.4 + 1.2 * chance.random())) < seconds * 0.96:
            events.append(SoakEvent(at, what))
    return sorted(events, key=lambda event: event.at_s)


class Soak:
    """One run, and its figures."""

    def __init__(
        self, verifier: WatchedVerifier, crew: Crew, link: FaultyLink, chance: random.Random, vocab: int
    ) -> None:
        self._verifier = verifier
        self._crew = crew
        self._link = link
        self._chance = chance
        self._vocab = vocab
        self._began = time.monotonic()
        self._opens_at: float | None = None
        self._cpu: dict[int, float] = {}
        self.cpu_s = 0.0
        self._count_cpu()
        self.cpu_s = 0.0  # what loading took is not counted
        self.done: Counter[str] = Counter()
        self.replies: Counter[str] = Counter()
        self.lasted_s = 0.0
        self.sessions_left = -1.0

    def run(self, seconds: float) -> None:
        """Let everything happen. Raises HarnessError where the verifier ends by itself."""
        events = plan(seconds, self._chance)
        next_line = 60.0
        while (now := self._now()) < seconds:
            while events and events[0].at_s <= now:
                self._let_happen(events.pop(0).what)
            if self._opens_at is not None and now >= self._opens_at:
                self._link.open()
                self._opens_at = None
            self._verifier.look()
            if now >= next_line:
                next_line += 60.0
                self._count_cpu()
                print(f"{now / 60:.0f} of {seconds / 60:g} min: {self.line()}", flush=True)
            due = [events[0].at_s] if events else []
            due += [] if self._opens_at is None else [self._opens_at]
            self._crew.hear(max(0.0, min([seconds, next_line, now + LOOK_S, *due]) - self._now()))

    def end(self) -> None:
        """Let all answers end, and see what is left in the verifier."""
        self.lasted_s = self._now()
        self._link.open()
        self._count_cpu()
        self._crew.end(END_S)
        until = time.monotonic() + 2 * SESSION_TIMEOUT_S
        while (left := self._verifier.gauges()["sessions"]) and time.monotonic() < until:
            time.sleep(1.0)
        self.sessions_left = left
        self._verifier.look()
        self._verifier.life.ended = "the end"
        self._verifier.read_log()

    def line(self) -> str:
        """How it goes."""
        tally, done = self._crew.tally, self.done
        return (
            f"{tally.answers} answers, {tally.count('wrong')} wrong, {self.lost} lost, {tally.resumed} resumed; "
            f"{tally.killed} edges killed, {done['cut']} cuts, {done['garbage']} garbage messages, verifier restarted "
            f"{done['restart'] + done['drain']} times; {self._verifier.life.samples[-1].rss_mb:.0f} MB, "
            f"{self.cpu_s / max(self._now(), 1e-9):.2f} cores, load {os.getloadavg()[0]:.1f}"
        )

    @property
    def lost(self) -> int:
        """Answers that did not come though nobody killed their edge."""
        return self._crew.tally.count("lost") + self._crew.tally.died

    def _now(self) -> float:
        return time.monotonic() - self._began

    def _let_happen(self, what: str) -> None:
        if what == "kill":
            self._crew.kill_one(self._chance)
        elif what == "cut":
            self.done["cut"] += self._opens_at is None
            self._link.shut()
            self._opens_at = self._now() + self._chance.uniform(0.3, 6.0)
        elif what == "garbage":
            seen = fuzz(self._verifier.address, GARBAGE, self._chance.randrange(1 << 30), self._vocab)
            self.done["garbage"] += seen.pop("sent")
            self.replies += seen
        else:
            self._count_cpu()
            if what == "drain":
                self._verifier.drain()
            else:
                self._verifier.kill()
            self._verifier.start()
            self.done[what] += 1

    def _count_cpu(self) -> None:
        for pid in (psutil.Process().pid, self._verifier.pid, *self._crew.pids):
            try:
                times = psutil.Process(pid).cpu_times()
            except psutil.Error:
                continue
            self.cpu_s += times.user + times.system - self._cpu.get(pid, 0.0)
            self._cpu[pid] = times.user + times.system


def ask_for(target: LoadedModel) -> tuple[SoakQuestion, ...]:
    """Questions of several lengths, greedy and sampled, and what the target alone answers."""
    found = []
    for number, text in enumerate(ASKED):
        prompt = chat_prompt(target, text)
        for options in (
            GenerationOptions((16, 32, 64)[number % 3]),
            GenerationOptions(40, temperature=0.8, seed=number, top_p=0.9 if number % 2 else 1.0),
            GenerationOptions(24, repetition_penalty=1.2, min_new_tokens=8),
        ):
            found.append(SoakQuestion(prompt, options, tuple(generate_local(target, prompt, options))))
    return tuple(found)


def figures_of(life: Life) -> dict[str, object]:
    """A life of the verifier in numbers; memory in MB, once a minute as well."""
    rss = [sample.rss_mb for sample in life.samples]
    first, last = life.samples[0], life.samples[-1]
    lasted = last.t_s - first.t_s
    rows = []
    if lasted >= LEAST_LIFE_S:
        rows = growth("verifier", life.samples, Allowance(GROWN_MB, GROWN_FDS, GROWN_THREADS))
    minutes: dict[int, float] = {}
    for sample in life.samples:
        minutes.setdefault(int((sample.t_s - first.t_s) // 60), round(sample.rss_mb, 1))
    return {
        "began_s": round(life.began_s, 1),
        "lasted_s": round(lasted, 1),
        "ended": life.ended,
        "rss_mb": {"start": rss[0], "median": statistics.median(rss), "max": max(rss), "last": rss[-1]},
        "rss_mb_each_minute": list(minutes.values()),
        "fds": [first.fds, last.fds],
        "threads": [first.threads, last.threads],
        "growth": [
            {"of": row.quantity, "grew": row.grew, "allowed": row.allowed, "flat": row.flat} for row in rows
        ],
        "errors": life.errors,
        "warnings": dict(life.warnings),
    }


def show(result: dict[str, object], lives: list[dict[str, object]]) -> None:
    """A few lines for people."""
    print(f"{result['line']}\nsessions left in the verifier: {result['sessions_left']}")
    for number, life in enumerate(lives, 1):
        rss, growths = life["rss_mb"], life["growth"]
        assert isinstance(rss, dict) and isinstance(growths, list)
        grew = "; ".join(f"{row['of']} grew {row['grew']:+.1f} of {row['allowed']:g}" for row in growths)
        print(
            f"verifier {number}: {life['lasted_s']} s, {life['ended']}; memory {rss['start']:.0f} MB at the start, "
            f"{rss['median']:.0f} median, {rss['max']:.0f} at most, {rss['last']:.0f} last; descriptors {life['fds']}, "
            f"threads {life['threads']}, start and end; {grew or 'too short for growth'}"
        )
    for text in (*result["faults"], *result["told"]):  # type: ignore[misc]
        print(f"FAULT: {text[:500]}")


def faults_of(soak: Soak, tally_wrong: int, lives: list[dict[str, object]]) -> list[str]:
    """What must not be."""
    faults = [f"{tally_wrong} wrong answers"] * bool(tally_wrong) + [f"{soak.lost} lost answers"] * bool(
        soak.lost
    )
    if soak.sessions_left > 0:
        faults.append(f"{soak.sessions_left:g} sessions are open though no caller asks")
    for number, life in enumerate(lives, 1):
        rss = life["rss_mb"]
        assert isinstance(rss, dict)
        if rss["max"] > (most := MOST_OVER * (rss["start"] + KV_GB * 2**30 / 1e6)):
            faults.append(f"verifier {number} took {rss['max']:.0f} MB, more than {most:.0f}")
        faults += [f"verifier {number} grew: {row}" for row in life["growth"] if not row["flat"]]  # type: ignore[attr-defined]
        faults += [f"verifier {number} said: {line}" for line in life["errors"]]  # type: ignore[attr-defined]
    return faults


def main() -> int:
    """Run it; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--pause", type=float, default=6.0, metavar="S", help="between answers; more: less load"
    )
    parser.add_argument(
        "--verify-ms", type=float, default=15.0, metavar="MS", help="pacing, so that answers last"
    )
    parser.add_argument("--out", type=Path, help="figures as JSON")
    given = parser.parse_args()
    if given.minutes <= 0 or given.clients < 1 or given.pause < 0:
        parser.error("--minutes, --clients and --pause must be above 0")
    chance = random.Random(given.seed)
    target = load_model(str(DEFAULT_TEXT_TARGET))
    set_threads(0, target)
    questions = ask_for(target)
    config = ServerConfig(
        str(DEFAULT_TEXT_TARGET),
        draft_model=str(DEFAULT_TEXT_DRAFT),
        session_timeout_s=SESSION_TIMEOUT_S,
        verify_ms=given.verify_ms,
        kv_gb=KV_GB,
        shared_mb=SHARED_MB,
    )
    logs = Path(tempfile.mkdtemp(prefix="soak-"))
    print(f"logs of the verifier: {logs}", flush=True)
    failed = ""
    with ExitStack() as stack:
        stack.enter_context(ends_on_signals())
        verifier = stack.enter_context(WatchedVerifier(config, logs, chance))
        link = stack.enter_context(FaultyLink(verifier.address))

        def new_job(place: int, number: int) -> SoakClientJob:
            names = [*METHODS, *MORE_METHODS]
            splits = place % 8 == 0  # a few have the target for its first layers
            return SoakClientJob(
                number=number,
                address=link.address if place % 2 else verifier.address,
                methods=tuple(name for name in names if splits or not get_method(name).split),
                draft=str(DEFAULT_TEXT_DRAFT),
                target=str(DEFAULT_TEXT_TARGET) if splits else "",
                questions=questions,
                seed=given.seed * 10_000 + number,
                pause_s=given.pause,
                resume_s=RESUME_S,
            )

        crew = stack.enter_context(Crew(new_job, given.clients))
        crew.wait_ready()
        soak = Soak(verifier, crew, link, chance, target.vocab_size)
        try:
            soak.run(given.minutes * 60)
        except KeyboardInterrupt:
            print("interrupted: the figures so far", flush=True)
        except (HarnessError, TimeoutError) as error:
            failed = str(error)
        try:
            soak.end()
        except (KeyboardInterrupt, HarnessError, OSError) as error:
            failed = failed or f"not ended well: {error!r}"
    lives = [figures_of(life) for life in verifier.lives]
    tally = crew.tally
    result: dict[str, object] = {
        "line": soak.line(),
        "seconds": round(soak.lasted_s, 1),
        "config": {**vars(given), "out": str(given.out), "session_timeout_s": SESSION_TIMEOUT_S},
        "answers": tally.answers,
        "wrong": tally.count("wrong"),
        "lost": soak.lost,
        "by_method": {method: dict(counts) for method, counts in sorted(tally.ended.items())},
        "answers_resumed": tally.resumed,
        "resumes": tally.resumes,
        "longest_answer_s": round(tally.longest_s, 1),
        "edges_killed": tally.killed,
        "edges_killed_in_an_answer": tally.killed_in_an_answer,
        "edges_died": tally.died,
        "happened": dict(soak.done),
        "replies_to_garbage": dict(soak.replies),
        "sessions_left": soak.sessions_left,
        "cores": round(soak.cpu_s / max(soak.lasted_s, 1e-9), 3),
        "verifiers": lives,
        "told": tally.told,
        "faults": faults_of(soak, tally.count("wrong"), lives) + [failed] * bool(failed),
    }
    show(result, lives)
    if given.out is not None:
        given.out.write_text(json.dumps(result, indent=1) + "\n")
    return int(bool(result["faults"]))


if __name__ == "__main__":
    sys.exit(main())
