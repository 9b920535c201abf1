# SPDX-License-Identifier: Apache-2.0
"""The capacity of one verifier: the measured cost of a shared forward pass, and how many clients it can serve in time.

`BatchCurve` and `ClientsRun` are measurements (`specnav bench study batch`, `specnav bench clients`). `rounds_a_second`
plans with a curve: a closed queueing network of n clients, which think (draft and wait for the link), and one server,
which serves all waiting clients in one batch. Times are milliseconds; needs no model.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import msgspec

from specnav.results.demo import Setting, Versioned
from specnav.results.files import read_json

BATCH_FILE, CLIENTS_FILE = "batch.json", "clients.json"
BUSY = 0.9
"""If more than this share of the machine's cores is busy, the processors limit the rate, not the verifier."""
CLIENT_BOUND, DISTURBED = "client-bound", "disturbed"
_ROUNDS_OF_FIXED_POINT = 30


class CurvePoint(msgspec.Struct, frozen=True, kw_only=True):
    """Time of forwards for `sessions` sessions with `rows` rows each: in one batch, and one session after another."""

    sessions: int
    rows: int
    together_ms: float
    apart_ms: float


class PromptDelay(msgspec.Struct, frozen=True, kw_only=True):
    """How a long prompt delays the verdicts of other sessions while it is prefilled.

    chunk: prompt rows per forward. alone_ms: time of a verdict without the prompt. during_ms, worst_ms: median and
    longest time of the `verdicts` measured during prefill. opened_ms: duration of the prefill.
    """

    label: str
    tokens: int
    pictures: int
    chunk: int
    sessions: int
    alone_ms: float
    during_ms: float
    worst_ms: float
    opened_ms: float
    verdicts: int


class BatchCurve(Versioned, frozen=True, kw_only=True):
    """`batch.json`. context: tokens in each session's KV cache. threads: CPU threads of a forward.

    clock: whether times of forwards are "processor" or "wall" time; times of prompts are always wall time.
    """

    FILE: ClassVar[str] = BATCH_FILE
    model: str
    device: str
    threads: int
    context: int
    points: list[CurvePoint]
    prompts: list[PromptDelay] = msgspec.field(default_factory=list)
    machine: dict[str, Setting] = msgspec.field(default_factory=dict)
    cores_busy: float | None = None
    clock: Literal["processor", "wall"] = "wall"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.points:
            raise ValueError("it has no measured forward")
        if any(one.sessions < 1 or one.rows < 1 or one.together_ms <= 0 for one in self.points):
            raise ValueError("sessions, rows and milliseconds of a forward must be above 0")

    def latency_ms(self, sessions: float, rows: float) -> float:
        """Time of one shared forward for `sessions` sessions with `rows` rows each.

        Interpolates linearly between measurements. Above them the last line is extended; below them the first value
        holds.
        """
        by_rows: dict[int, list[tuple[float, float]]] = {}
        for one in self.points:
            by_rows.setdefault(one.rows, []).append((one.sessions, one.together_ms))
        line = [(float(count), on_line(sorted(points), sessions)) for count, points in by_rows.items()]
        return on_line(sorted(line), rows)


class ClientsRow(msgspec.Struct, frozen=True, kw_only=True):
    """One method with one number of clients. Rates are tokens per second while all clients were active.

    slow: the rate that 95 % of the clients reach or exceed. verify_ms, queue_ms: medians over rounds, as reported in
    the verdicts; batch: their mean. tokens_a_round: tokens gained per round; rows: rows per round in a forward.
    server: the engine's own figures for this time. answers: complete answers; wrong: those that differ from the
    target's; near_ties: further answers that differ only at a near-tie, which rounding may flip.
    errors: clients that ended early, and why. cores_busy: share of the machine's cores in use by any program;
    cores_ours: by the verifier, the link and the clients. gap_ms, gap_ms_p95: median and 95th percentile of the time
    between two chunks of tokens at a client, including prompts. prompt_tokens, answer_tokens: lengths of the questions
    and of the target's answers.
    """

    method: str
    clients: int
    rate: float
    median: float
    slow: float
    verify_ms: float
    queue_ms: float
    batch: float
    answers: int
    wrong: int
    near_ties: int = 0
    errors: list[str] = msgspec.field(default_factory=list)
    server: dict[str, float] = msgspec.field(default_factory=dict)
    tokens_a_round: float = 1.0
    rows: float = 1.0
    cores_busy: float = 0.0
    cores_ours: float = 0.0
    seconds: float = 0.0
    gap_ms: float = 0.0
    gap_ms_p95: float = 0.0
    prompt_tokens: list[int] = msgspec.field(default_factory=list)
    answer_tokens: list[int] = msgspec.field(default_factory=list)

    @property
    def mark(self) -> str:
        """Why the verifier did not limit the rate: clients or other programs kept the cores busy; "" if it did."""
        if self.cores_busy <= BUSY:
            return ""
        return CLIENT_BOUND if self.cores_ours >= self.cores_busy / 2 else DISTURBED

    @property
    def cores_others(self) -> float:
        """Share of the machine's cores in use by other programs."""
        return max(0.0, self.cores_busy - self.cores_ours)


class ClientsRun(msgspec.Struct, frozen=True, kw_only=True):
    """`clients.json`. acceptance: one line, if it was emulated."""

    config: dict[str, Setting] = msgspec.field(default_factory=dict)
    started_at: str = ""
    interrupted: bool = False
    acceptance: str | None = None
    rows: list[ClientsRow]


def on_line(points: Sequence[tuple[float, float]], x: float) -> float:
    """Interpolate linearly at x between points sorted by x; the last line is extended and never falls."""
    if x <= points[0][0] or len(points) == 1:
        return points[0][1]
    place = min(bisect_left([at for at, _ in points], x), len(points) - 1)
    (low, before), (high, after) = points[place - 1], points[place]
    slope = (after - before) / (high - low)
    if x > high:
        return after + max(0.0, slope) * (x - high)
    return before + slope * (x - low)


def load_curve(path: Path) -> BatchCurve:
    """Load a curve from its file or from a study's folder. Raises EvaluationError."""
    places = (path / BATCH_FILE, path / "batch" / BATCH_FILE) if path.is_dir() else (path,)
    found = next((place for place in places if place.is_file()), places[0])
    return read_json(found, BatchCurve)


@dataclass(frozen=True)
class Flow:
    """The load that a round puts on the verifier.

    think_ms: from a verdict to the next draft's arrival (drafting and the round trip); 0 if the cloud continues without
    the edge. forward_ms: time of a round's forwards, by the number of sessions that share them. most: largest number
    of sessions in a forward.
    """

    think_ms: float
    forward_ms: Callable[[float], float]
    most: float = float("inf")


def rounds_a_second(clients: int, flow: Flow) -> float:
    """Rounds per second that a verifier gives `clients` clients together, by mean-value analysis.

    A round takes Z + W + f(b). Z is the think time. f(b) is the forward, which b = rate · f(b) sessions share. W is the
    expected rest of the forward that is running when a draft arrives. That rest is half a forward on average, and at
    least f − Z, because the next forward began when the client's own ended, a time Z ago. It is weighted by the
    probability that a forward is running: the verifier's utilisation with one client less. If Z = 0, all clients
    return at once, so W = 0 and b is all of them.
    """
    busy, sessions, rate = 0.0, 1.0, 0.0
    for count in range(1, clients + 1):
        chance = busy
        for _ in range(_ROUNDS_OF_FIXED_POINT):
            forward = flow.forward_ms(sessions)
            wait = chance * max(forward / 2, forward - flow.think_ms) if flow.think_ms > 0 else 0.0
            rate = count / (flow.think_ms + wait + forward)
            sessions = min(flow.most, max(1.0, rate * forward))
        rate = min(rate, flow.most / flow.forward_ms(flow.most)) if flow.most < float("inf") else rate
        busy = min(1.0, rate * flow.forward_ms(sessions) / sessions)
    return rate * 1e3


@dataclass(frozen=True)
class Capacity:
    """The largest number of clients that each get a required rate. at_least: even the largest number measured does."""

    clients: float
    at_least: bool = False

    def __str__(self) -> str:
        return f"{'≥ ' if self.at_least else ''}{self.clients:.0f}"


def most_clients(rates: Mapping[int, float], bound: float) -> Capacity:
    """The largest number of clients that each get at least the rate `bound`.

    rates: by number of clients, the rate that 95 % of them reach. Interpolates linearly between the largest number that
    meets the bound and the next one; 0 if none meets it.
    """
    counts = sorted(rates)
    held = [count for count in counts if rates[count] >= bound]
    if not held:
        return Capacity(0.0)
    last = held[-1]
    if last == counts[-1]:
        return Capacity(float(last), at_least=True)
    after = counts[counts.index(last) + 1]
    share = (rates[last] - bound) / (rates[last] - rates[after])
    return Capacity(float(int(last + share * (after - last))))
