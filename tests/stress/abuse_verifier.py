"""Abuse a real verifier, one kind after the other, and see what honest clients notice and what memory it takes.

    python -m tests.stress.abuse_verifier [--only NAME ...] [--verify-ms 40] [--seconds 6] [--turns 3] [--out FILE.json]

Two honest edges ask all the time, one drafting (`sd`), one that listens to a stream (`ar`). The abuse is off and on by
turns; the table has medians over those phases of each phase's p50 and p95. Wants a quiet machine: the row `nothing`
says how quiet it was, and `cores` how long the verifier's threads waited for a core, without and with the abuse, in
parts of the time. Exit code 1 where a verifier died, or an honest answer was lost.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from cloud_verifier.classes import ClientClass
from cloud_verifier.config import ServerConfig
from cloud_verifier.limits import Limits
from cloud_verifier.security.folder import KeyFolder, new_pair
from cloud_verifier.security.keyring import utc_now
from cloud_verifier.security.records import ClientKey
from cloud_verifier.serving import settle_memory
from specdec.edge.decoder import EdgeDecoder, connect
from specdec.models import LoadedModel, Prompt, chat_prompt, load_model
from specdec.models.threads import set_threads
from specdec.options import GenerationOptions
from specnav.errors import HarnessError
from specnav.paths import DEFAULT_DRAFT, DEFAULT_TARGET
from specnav.results.demo import percentile
from tests.stress.abuses import ABUSES, KEYED, Ammunition, Hostile, png
from tests.stress.soak_crew import fork_server
from tests.stress.watched_verifier import WatchedVerifier

KV_GB = 0.125
SESSION_TIMEOUT_S = 5.0
SETTLE_S = 1.5
"""Of a phase without abuse: what came before it is worked off."""
WARM_S = 2.0
READY_S = 120.0
LOST_S = 60.0
LOOK_S = 0.02
METHODS = ("sd", "ar")
MOST_SLOWER, MOST_OVER = 1.5, 1.1


@dataclass(frozen=True)
class AbuseRow:
    """What one abuse did. ms: by method the p50 and p95 without and with it; first_ms: the same of first tokens, of all
    methods. budget_mb: what the verifier may take. core_wait: how long its threads together waited for a core, without
    and with it, in parts of the time.
    """

    name: str
    before_mb: float
    peak_mb: float
    after_mb: float
    budget_mb: float
    ms: dict[str, tuple[float, float, float, float]]
    samples: dict[str, tuple[int, int]]
    first_ms: tuple[float, float, float, float]
    core_wait: tuple[float, float]
    sent: int
    replies: dict[str, int]
    problems: list[str]

    def slower(self, method: str) -> float:
        """p95 with the abuse over p95 without."""
        return self.ms[method][3] / max(self.ms[method][1], 1e-9)

    def text(self) -> str:
        """For people."""
        figures = "".join(
            "{:4.0f} {:4.0f} → {:4.0f} {:4.0f}".format(*self.ms[m]) + f" {self.slower(m):4.1f}×  " for m in METHODS
        )
        memory = f"{self.before_mb:4.0f} {self.peak_mb:5.0f} {self.after_mb:5.0f} of {self.budget_mb:4.0f}"
        missed = " memory" * (self.peak_mb > MOST_OVER * self.budget_mb)
        missed += "".join(f" {m}" for m in METHODS if self.slower(m) > MOST_SLOWER)
        told = ", ".join(f"{count} {kind}" for kind, count in Counter(self.replies).most_common(3))
        figures += "{:4.0f} {:4.0f} → {:4.0f} {:4.0f}  ".format(*self.first_ms)
        figures += "{:3.0%} → {:3.0%}  ".format(*self.core_wait)
        return f"{self.name:16} {memory}  {figures}{self.sent} sent: {told}{'  MISSED' + missed if missed else ''}"


def ask(address: str, method: str, key: str | None, prompt: Prompt, pipe: Connection) -> None:
    """An honest edge, a process of its own: asks until something comes through the pipe; then tells how long each of
    its verdicts took and each first token, (time, ms), and what went wrong.
    """
    draft = load_model(str(DEFAULT_DRAFT))
    set_threads(0, draft)
    settle_memory()
    options = GenerationOptions(48, min_new_tokens=48)
    taken: list[tuple[float, float]] = []
    first: list[tuple[float, float]] = []
    error = ""
    with connect(address, connect_timeout_s=30, reply_timeout_s=10, key=key) as link:
        decoder = EdgeDecoder(link, draft, method, resume_timeout_s=LOST_S)
        pipe.send("ready")
        try:
            while not pipe.poll():
                asked = last = time.monotonic()
                told = 0
                for _ in decoder.generate(prompt, options):
                    now, rounds = time.monotonic(), decoder.stats.rounds
                    if last == asked:
                        first.append((now, 1e3 * (now - asked)))
                    elif method == "ar":  # what a listener waits from one token to the next
                        taken.append((now, 1e3 * (now - last)))
                    else:
                        taken += [(now, one.wait_ms) for one in rounds[told:]]
                    last, told = now, len(rounds)
        except Exception as failure:
            error = f"{method}: {type(failure).__name__}: {failure}"
    pipe.send((taken, first, error))


def abuse(name: str, address: str, ammunition: Ammunition, pipe: Connection) -> None:
    """The hostile client, a process of its own: abuses between True and False, ends with None and tells what it did.

    It gets the cores that nothing else wants: what it takes to make messages is not what its messages cost.
    """
    os.setpriority(os.PRIO_PROCESS, 0, 19)
    hostile = Hostile(address, ammunition)
    pipe.send("ready")
    steps: Iterator[None] | None = None
    while True:
        while steps is None or pipe.poll():
            order = pipe.recv()
            if steps is not None:
                steps.close()
                hostile.drop_all()
                steps = None
            if order is None:
                pipe.send((hostile.sent, dict(hostile.replies)))
                return
            if order:
                steps = ABUSES[name](hostile)
        next(steps)


@contextmanager
def other_process(target: object, *arguments: object) -> Iterator[Connection]:
    """Runs with a pipe as its last argument; ready when yielded. Raises HarnessError."""
    context = fork_server()
    ours, theirs = context.Pipe()
    process = context.Process(target=target, args=(*arguments, theirs), daemon=True)  # type: ignore[arg-type]
    process.start()
    theirs.close()
    try:
        receive(ours, READY_S)
        yield ours
    finally:
        process.join(2.0)
        process.kill()
        process.join()


def receive(pipe: Connection, patience_s: float) -> object:
    """The next thing out of a pipe. Raises HarnessError where none comes."""
    try:
        if pipe.poll(patience_s):
            return pipe.recv()
    except EOFError:
        pass
    raise HarnessError(f"a client said nothing for {patience_s:.0f} s, or has ended")


class MemoryWatch(threading.Thread):
    """Samples the memory of the verifier, MB."""

    def __init__(self, verifier: WatchedVerifier) -> None:
        super().__init__(daemon=True)
        self._verifier = verifier
        self._ended = threading.Event()
        self.died = ""

    def run(self) -> None:
        """Look until instructed to end."""
        while not self._ended.wait(LOOK_S):
            try:
                self._verifier.look()
            except HarnessError as error:
                self.died = str(error)
                return

    def end(self) -> None:
        """Stop looking."""
        self._ended.set()
        self.join()


def measure(name: str, config: ServerConfig, model: LoadedModel, seconds: float, turns: int) -> AbuseRow:
    """One abuse of a verifier of its own. Raises HarnessError."""
    ammunition = arm(model)
    prompt = chat_prompt(model, "go to the red ball and stop in front of it")
    logs = Path(tempfile.mkdtemp(prefix=f"abuse-{name}-"))
    with ExitStack() as stack:
        verifier = stack.enter_context(WatchedVerifier(config, logs))
        key = str(Path(config.keys) / "edges" / "edge.key") if config.keys else None
        honest = [
            stack.enter_context(other_process(ask, verifier.address, method, key, prompt)) for method in METHODS
        ]
        hostile = stack.enter_context(other_process(abuse, name, verifier.address, ammunition))
        time.sleep(WARM_S)
        before_mb = verifier.look().rss_mb
        watch = MemoryWatch(verifier)
        watch.start()
        phases: list[tuple[bool, float, float]] = []
        waits: dict[bool, list[float]] = {False: [], True: []}
        for on in [False, True] * turns:
            hostile.send(on)
            time.sleep(0.0 if on else SETTLE_S)
            began, waited = time.monotonic(), core_wait_s(verifier.pid)
            time.sleep(seconds)
            phases.append((on, began, time.monotonic()))
            waits[on].append((core_wait_s(verifier.pid) - waited) / seconds)
        hostile.send(None)
        sent, replies = receive(hostile, LOST_S)  # type: ignore[misc]
        time.sleep(SESSION_TIMEOUT_S + 1.0)
        watch.end()
        peak_mb = max(peak_of(verifier.pid), *(s.rss_mb for s in verifier.life.samples)) if not watch.died else 0.0
        after_mb = verifier.life.samples[-1].rss_mb
        problems = [watch.died] * bool(watch.died)
        ms, samples = {}, {}
        firsts: list[tuple[float, float]] = []
        for method, pipe in zip(METHODS, honest, strict=True):
            pipe.send("end")
            taken, first, error = receive(pipe, LOST_S)  # type: ignore[misc]
            problems += [error] * bool(error)
            ms[method], samples[method] = figures(taken, phases)
            firsts += first
        first_ms = figures(firsts, phases)[0]
        verifier.read_log()
        problems += verifier.life.errors
    budget_mb = before_mb + (config.kv_gb * 2**30 + config.max_total_queued_mb * 2**20) / 1e6
    core_wait = statistics.median(waits[False]), statistics.median(waits[True])
    return AbuseRow(
        name, before_mb, peak_mb, after_mb, budget_mb, ms, samples, first_ms, core_wait, sent, replies, problems
    )


def figures(
    taken: Sequence[tuple[float, float]], phases: Sequence[tuple[bool, float, float]]
) -> tuple[tuple[float, float, float, float], tuple[int, int]]:
    """(p50, p95 without, p50, p95 with the abuse), medians over phases; and how many verdicts without and with."""
    found: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    count = {False: 0, True: 0}
    for on, began, ended in phases:
        times = [ms for at, ms in taken if began <= at <= ended]
        if not times:
            times = [1e3 * (ended - began)]  # nothing came for as long as that
        else:
            count[on] += len(times)
        found[on].append((statistics.median(times), percentile(times, 95) or 0.0))
    medians = [statistics.median(one[place] for one in found[on]) for on in (False, True) for place in (0, 1)]
    return (medians[0], medians[1], medians[2], medians[3]), (count[False], count[True])


def peak_of(pid: int) -> float:
    """The most memory that a process has had, MB."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) * 1024 / 1e6


def core_wait_s(pid: int) -> float:
    """Seconds that the threads of a process have been ready to run and had no core."""
    waited = 0
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):  # a thread that has just ended
            waited += int(path.read_text().split()[1])
    return waited / 1e9


def arm(model: LoadedModel) -> Ammunition:
    """What abuses need to know of the model: as many pictures as fit its context, and the allowed pixels."""

    def look(pictures: int) -> Prompt:
        side = int((0.99 * Limits.image_pixels / max(pictures, 1)) ** 0.5)
        return chat_prompt(model, "look", images=[png(side, side)] * pictures)

    pictures = Limits.images
    while pictures > 1 and model.prompt_length(look(pictures)) > 0.95 * model.context_limit:
        pictures -= 1
    many = look(pictures)
    return Ammunition(model.vocab_size, model.context_limit, look(1).ids, many.ids, many.images)


def new_keys() -> str:
    """A folder of keys with one edge in it."""
    folder = KeyFolder(Path(tempfile.mkdtemp(prefix="abuse-keys-")) / "keys")
    folder.create()
    public, secret = new_pair()
    folder.new(ClientKey("edge", public, utc_now(), ClientClass.ROBOT), secret)
    return str(folder.path)


def main() -> int:
    """Run them; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", nargs="*", choices=list(ABUSES), default=list(ABUSES), metavar="NAME")
    parser.add_argument("--verify-ms", type=float, default=40.0, metavar="MS", help="pacing of the target's forwards")
    parser.add_argument("--seconds", type=float, default=6.0, metavar="S", help="of a phase")
    parser.add_argument("--turns", type=int, default=3, help="phases without and with the abuse")
    parser.add_argument("--out", type=Path, help="figures as JSON")
    given = parser.parse_args()
    model = load_model(str(DEFAULT_TARGET))
    set_threads(0, model)
    kinds = " · ".join(f"{kind} p50 p95 → p50 p95" for kind in (*METHODS, "first token"))
    print(f"{'':16} memory, MB: before, peak, after of budget   ms: {kinds} · cores")
    rows = []
    for name in given.only:
        config = ServerConfig(
            str(DEFAULT_TARGET),
            verify_ms=given.verify_ms,
            kv_gb=KV_GB,
            session_timeout_s=SESSION_TIMEOUT_S,
            keys=new_keys() if name in KEYED else "",
        )
        try:
            rows.append(measure(name, config, model, given.seconds, given.turns))
        except HarnessError as error:
            print(f"{name:16} FAULT: {error}", flush=True)
            return 1
        print(rows[-1].text(), *(f"\n    FAULT: {problem[:500]}" for problem in rows[-1].problems), flush=True)
    if given.out is not None:
        given.out.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    return int(any(row.problems for row in rows))


if __name__ == "__main__":
    sys.exit(main())
