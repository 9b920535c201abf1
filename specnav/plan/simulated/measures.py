# SPDX-License-Identifier: Apache-2.0
"""The figures of one simulated run, with confidence intervals from its batches."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence

import msgspec

from specnav.plan.simulated.simulation import FleetRun
from specnav.plan.simulated.workload import Workload
from specnav.results.demo import percentile

BATCHES = 10
T_9 = 2.262
"""Student's t for 95 % with nine degrees of freedom."""
LATE_SHARE = 0.02
"""With more decisions than this unfinished when all is over, the fleet is overloaded."""


class FleetFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What a simulated fleet came to. Times in ms; *_ci: half of a 95 % confidence interval, over the run's batches.

    decision_ms_*: from when a decision is due until its answer is at the robot. token_ms_*: the same over its tokens.
    due: decisions that fell due in the time that counts. wait_ms: of a verdict in the cloud. outside: sessions that had
    to wait for room in the cache. idle: of the GPUs' time. batch, rows: of a forward. ways: share of decisions by the
    method that answered them, for `auto`.
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
        """Of a "decision" or a "token", and half of its confidence interval."""
        if of == "token":
            return self.token_ms_p95, self.token_ms_p95_ci
        return self.decision_ms_p95, self.decision_ms_p95_ci


def figures_of(played: FleetRun, method: str, work: Workload, gpus: int) -> FleetFigures:
    """The figures of a run. What has not ended counts with the time it has lasted, and makes the fleet overloaded."""
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
    count = max(1, len(took))
    ways = Counter(one.way for one in played.decisions if one.ended_ms >= 0)
    ended_tokens = sum(one.answer for one in played.decisions if one.ended_ms >= 0)
    return FleetFigures(
        method=method,
        robots=work.robots,
        gpus=gpus,
        overloaded=played.overloaded or late > LATE_SHARE * count,
        due=len(took),
        decision_ms_p50=percentile(whole, 50) or 0.0,
        decision_ms_p95=percentile(whole, 95) or 0.0,
        decision_ms_p95_ci=batch_ci([(due, ms) for due, ms, _ in took], window.warm_ms, window.end_ms),
        token_ms_p50=percentile(each, 50) or 0.0,
        token_ms_p95=percentile(each, 95) or 0.0,
        token_ms_p95_ci=batch_ci([(due, ms / n) for due, ms, n in took], window.warm_ms, window.end_ms),
        tokens_per_s=1e3 * ended_tokens / window.measure_ms,
        idle=played.idle,
        wait_ms=played.wait_ms,
        outside=played.outside,
        outside_ms=played.outside_ms,
        batch=played.batch,
        rows=played.rows,
        forward_ms=played.forward_ms,
        tau=played.tau,
        ways={name: n / max(1, sum(ways.values())) for name, n in ways.most_common()} if method == "auto" else {},
    )


def batch_ci(values: Sequence[tuple[float, float]], begin: float, end: float, percent: float = 95) -> float | None:
    """Half of the 95 % confidence interval of a percentile: of those of ten equal stretches of time (batch means).

    values: (when, value). None where a stretch has none.
    """
    parts: list[list[float]] = [[] for _ in range(BATCHES)]
    for at, value in values:
        place = int(BATCHES * (at - begin) / max(1e-9, end - begin))
        if 0 <= place < BATCHES:
            parts[place].append(value)
    if not all(parts):
        return None
    found = [percentile(part, percent) or 0.0 for part in parts]
    return T_9 * statistics.stdev(found) / math.sqrt(BATCHES)
