# SPDX-License-Identifier: Apache-2.0
"""Figures of simulated runs, with confidence intervals by batch means, and `fleet.json`, which is enough to draw a plan
again. Times are milliseconds.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from typing import ClassVar

import msgspec

from specnav.plan.simulated.simulation import FleetRun, Workload
from specnav.results.demo import Setting, Versioned, percentile

BATCHES = 10
T_9 = 2.262
"""Student's t for 95 % with nine degrees of freedom."""
LATE_SHARE = 0.02
"""A fleet is overloaded if more than this share of its decisions is unfinished at the end."""


class FleetFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of a simulated fleet. Times are milliseconds. *_ci: half of a 95 % confidence interval by batch means.

    decision_ms_*: from the time a decision is due until its answer is at the robot. token_ms_*: this time per token of
    the answer. due: decisions due within the measured time. wait_ms: mean wait of a verdict in the cloud. outside,
    outside_ms: sessions that waited for room in the KV cache, and for how long. idle: share of the GPUs' time. batch,
    rows: sessions and rows per forward. ways: for `auto`, the share of decisions by answering method.
    """

    method: str
    robots: int
    gpus: int
    overloaded: bool
    due: int
    decision_ms_p50: float
    decision_ms_p95: float
    decision_ms_p95_ci: float | None
    token_ms_p50: float
    token_ms_p95: float
    token_ms_p95_ci: float | None
    tokens_per_s: float
    idle: float
    wait_ms: float
    outside: int
    outside_ms: float
    batch: float
    rows: float
    forward_ms: float
    tau: float
    ways: dict[str, float] = msgspec.field(default_factory=dict)

    def p95(self, of: str) -> tuple[float, float | None]:
        """(95th percentile for a "decision" or a "token", half of its confidence interval)."""
        if of == "token":
            return self.token_ms_p95, self.token_ms_p95_ci
        return self.decision_ms_p95, self.decision_ms_p95_ci


def figures_of(played: FleetRun, method: str, work: Workload, gpus: int) -> FleetFigures:
    """The figures of a run. An unfinished decision counts with its time so far; many of them mean overload."""
    window = played.window
    until = window.end_ms + window.drain_ms
    took: list[tuple[float, float, int]] = []
    late = 0
    for one in played.decisions:
        ended = one.ended_ms if one.ended_ms >= 0 else until
        late += one.ended_ms < 0
        took.append((one.due_ms, ended - one.due_ms, one.answer))
    whole = [ms for _, ms, _ in took]
    each = [ms / answer for _, ms, answer in took]
    counted, forwards = played.counted, max(1, played.counted.forwards)
    ways = Counter(one.way for one in played.decisions if one.ended_ms >= 0)
    ended_tokens = sum(one.answer for one in played.decisions if one.ended_ms >= 0)
    return FleetFigures(
        method=method,
        robots=work.robots,
        gpus=gpus,
        overloaded=played.overloaded or late > LATE_SHARE * max(1, len(took)),
        due=len(took),
        decision_ms_p50=percentile(whole, 50) or 0.0,
        decision_ms_p95=percentile(whole, 95) or 0.0,
        decision_ms_p95_ci=batch_ci([(due, ms) for due, ms, _ in took], window.warm_ms, window.end_ms),
        token_ms_p50=percentile(each, 50) or 0.0,
        token_ms_p95=percentile(each, 95) or 0.0,
        token_ms_p95_ci=batch_ci([(due, ms / n) for due, ms, n in took], window.warm_ms, window.end_ms),
        tokens_per_s=1e3 * ended_tokens / played.lasted_ms,
        idle=max(0.0, 1 - counted.busy_ms / (played.lasted_ms * gpus)),
        wait_ms=counted.wait_ms / max(1, counted.waited),
        outside=counted.outside,
        outside_ms=counted.outside_ms / max(1, counted.outside),
        batch=counted.batch,
        rows=counted.rows / forwards,
        forward_ms=counted.busy_ms / forwards,
        tau=counted.gained / max(1, counted.rounds),
        ways={name: n / max(1, sum(ways.values())) for name, n in ways.most_common()} if method == "auto" else {},
    )


def batch_ci(values: Sequence[tuple[float, float]], begin: float, end: float) -> float | None:
    """Half of the 95 % confidence interval of the 95th percentile, from those of ten equal batches of time.

    values: (time, value). None if a batch is empty.
    """
    parts: list[list[float]] = [[] for _ in range(BATCHES)]
    for at, value in values:
        place = int(BATCHES * (at - begin) / max(1e-9, end - begin))
        if 0 <= place < BATCHES:
            parts[place].append(value)
    if not all(parts):
        return None
    found = [percentile(part, 95) or 0.0 for part in parts]
    return T_9 * statistics.stdev(found) / math.sqrt(BATCHES)


class MethodPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan for one method.

    needed: GPUs for all robots; None if the promise cannot be kept. most: robots that the given GPUs serve. marginal:
    further robots per additional GPU. here: figures with all robots on the given GPUs. alone: figures of one robot on
    one GPU. at_needed: figures with the GPUs needed. dollars_robot_hour: price of the GPUs needed and, if the edge
    drafts, of the edge. loads: (robots, p95, half of its confidence interval) on the given GPUs.
    """

    method: str
    needed: int | None
    most: int
    marginal: float
    here: FleetFigures
    alone: FleetFigures
    at_needed: FleetFigures | None
    dollars_robot_hour: float | None
    loads: list[tuple[int, float, float | None]] = msgspec.field(default_factory=list)


class SweepPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One round trip: robots that one GPU serves, and p95 of a single robot, by method."""

    rtt_ms: float
    robots: dict[str, int]
    alone_ms: dict[str, float]


class FleetResults(Versioned, frozen=True, kw_only=True):
    """`fleet.json`. calibrated: sources of the figures, in sentences. promise: in words."""

    FILE: ClassVar[str] = "fleet.json"
    robots: int
    gpus: int
    promise: str
    promise_ms: float
    promise_of: str
    calibrated: list[str]
    config: dict[str, Setting]
    methods: list[MethodPlan] = msgspec.field(default_factory=list)
    sweep: list[SweepPoint] = msgspec.field(default_factory=list)
    interrupted: bool = False
    started_at: str = ""
    wall_s: float = 0.0
    simulated: bool = True
