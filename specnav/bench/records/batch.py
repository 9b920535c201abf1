# SPDX-License-Identifier: Apache-2.0
"""What one verifier bears: the measured cost of a shared forward, and how many clients get their tokens in time.

`BatchCurve` is a measurement (`specnav bench study batch`), `rounds_a_second` plans with it: a closed queueing
network of n clients that think (draft, and wait for the link) and one server that serves all who wait at once.
Milliseconds; needs no model.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from specnav.results.demo import Setting, Versioned
from specnav.results.files import read_json

BATCH_FILE = "batch.json"
_ROUNDS_OF_FIXED_POINT = 30


class CurvePoint(msgspec.Struct, frozen=True, kw_only=True):
    """A forward of this many sessions with this many rows each: shared, and each session's own one after the other."""

    sessions: int
    rows: int
    together_ms: float
    apart_ms: float


class PromptDelay(msgspec.Struct, frozen=True, kw_only=True):
    """What a long prompt does to the verdicts of other sessions while it comes in.

    chunk: rows of it in a forward. alone_ms: a verdict without it; during_ms, worst_ms: with it, the median and the
    longest; of `verdicts` measured. opened_ms: until the prompt was in.
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
    """`batch.json`. context: tokens that each session held. threads: CPU threads of a forward. clock: forwards are in
    milliseconds of the "processor" or of the "wall"; prompts are of the wall.
    """

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
        """One shared forward of this many sessions with this many rows each.

        Straight lines between what was measured; beyond it the last line goes on, below it the first value stays.
        """
        by_rows: dict[int, list[tuple[float, float]]] = {}
        for one in self.points:
            by_rows.setdefault(one.rows, []).append((one.sessions, one.together_ms))
        line = [(float(count), on_line(sorted(points), sessions)) for count, points in by_rows.items()]
        return on_line(sorted(line), rows)


def on_line(points: Sequence[tuple[float, float]], x: float) -> float:
    """The value at x on straight lines through points in order of x; the last line goes on and never falls."""
    if x <= points[0][0] or len(points) == 1:
        return points[0][1]
    place = min(bisect_left([at for at, _ in points], x), len(points) - 1)
    (low, before), (high, after) = points[place - 1], points[place]
    slope = (after - before) / (high - low)
    if x > high:
        return after + max(0.0, slope) * (x - high)
    return before + slope * (x - low)


def load_curve(path: Path) -> BatchCurve:
    """A curve from its file, or from the folder that a study wrote. Raises EvaluationError."""
    places = (path / BATCH_FILE, path / "batch" / BATCH_FILE) if path.is_dir() else (path,)
    found = next((place for place in places if place.is_file()), places[0])
    return read_json(found, BatchCurve)


@dataclass(frozen=True)
class Flow:
    """What a round asks of the verifier.

    think_ms: from a verdict to the next draft's arrival (drafting and the round trip); 0 where the cloud goes on by
    itself. forward_ms: time of a round's forwards by the sessions that share them. most: sessions in a forward.
    """

    think_ms: float
    forward_ms: Callable[[float], float]
    most: float = float("inf")


def rounds_a_second(clients: int, flow: Flow) -> float:
    """How many rounds a second a verifier gives this many clients together, by mean values.

    A round takes Z + W + f(b): Z to think; f the forward of the b = rate · f(b) sessions that share it; W the rest of
    the forward that runs when a draft arrives, half of one on average (and never less than f − Z: the client's own
    forward ended that long ago, and another has begun), times the chance that one runs, which is how busy the verifier
    is with one client less. Where Z = 0 all are back at once, W = 0 and b is everybody.
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
    """The most clients each of which still gets a rate. at_least: all numbers that were measured hold it."""

    clients: float
    at_least: bool = False

    def __str__(self) -> str:
        return f"{'≥ ' if self.at_least else ''}{self.clients:.0f}"


def most_clients(rates: Mapping[int, float], bound: float) -> Capacity:
    """By number of clients, the rate that each of them gets (all but a twentieth): how many may there be?

    Between the largest number that holds the bound and the next one, a straight line; 0 where none holds it.
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
