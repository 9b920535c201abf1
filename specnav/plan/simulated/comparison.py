# SPDX-License-Identifier: Apache-2.0
"""Compares the simulation with real processes: simulates a saved run of `specnav bench clients` with its settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from specdec.link.shaping import LinkProfile
from specdec.options import DecodingOptions
from specnav.bench.data.latency import acceptance_for
from specnav.bench.records.capacity import CLIENTS_FILE, ClientsRow, ClientsRun
from specnav.plan.simulated.pair import (
    METHODS,
    OVERHEAD_MS,
    TREE_DEPTH,
    RowTimes,
    SimulatedPair,
    tree_for,
)
from specnav.plan.simulated.replica import ReplicaPolicy
from specnav.plan.simulated.session import SimulatedDecision
from specnav.plan.simulated.simulation import Fleet, Window, Workload, simulate
from specnav.results.demo import number_of, percentile
from specnav.results.errors import EvaluationError
from specnav.results.files import read_json

SECONDS = 60.0
"""Simulated time after the warm-up."""
WARM_MS = 5_000.0
RATE_MAY, GAP_MAY = 0.15, 0.25
"""Allowed relative error of the simulation, for throughput and for the 95th percentile."""
PACED = float("inf")
"""The knee of a paced forward, whose time does not grow beyond its last number of rows."""
NO_TIME_MS = 0.05
"""Assumed time of an unpaced draft forward, which the file does not contain."""


@dataclass(frozen=True)
class MeasuredComparison:
    """One measurement and its simulation.

    Rates: tokens per second of all clients. Gaps: 95th percentile of the time between two chunks at a client,
    including prompts, milliseconds; None if the file has none.
    """

    method: str
    clients: int
    rate: float
    simulated_rate: float
    gap_ms: float | None
    simulated_gap_ms: float
    batch: float
    simulated_batch: float
    mark: str = ""

    @property
    def rate_off(self) -> float:
        """Relative error of the rate: simulated over measured, minus one."""
        return self.simulated_rate / self.rate - 1

    @property
    def gap_off(self) -> float | None:
        """Relative error of the gap."""
        return self.simulated_gap_ms / self.gap_ms - 1 if self.gap_ms else None

    @property
    def off(self) -> bool:
        """Whether an error is larger than allowed."""
        return abs(self.rate_off) > RATE_MAY or abs(self.gap_off or 0.0) > GAP_MAY


def load_clients(place: Path) -> ClientsRun:
    """Load a saved run from its file or folder. Raises EvaluationError."""
    found = read_json(place / CLIENTS_FILE if place.is_dir() else place, ClientsRun)
    rows = [row for row in found.rows if row.method in METHODS and row.rate > 0]
    if not rows:
        raise EvaluationError(
            f"{place} contains no measurement of a method that can be simulated ({', '.join(METHODS)})"
        )
    return msgspec.structs.replace(found, rows=rows)


def fleet_of(saved: ClientsRun, row: ClientsRow, overhead_ms: float = OVERHEAD_MS) -> Fleet:
    """The fleet of a measurement: its clients, which ask one question after another, and one verifier.

    overhead_ms: of a round on the edge. Raises EvaluationError if the verifier was not paced, since times are unknown.
    """
    config = saved.config
    verify_ms = number_of(config, "verify_ms")
    if not verify_ms:
        raise EvaluationError(
            "that run's verifier was not paced, so the times of its forwards are unknown"
        )
    draft_ms = number_of(config, "draft_ms") or NO_TIME_MS
    gamma = int(number_of(config, "gamma", DecodingOptions.gamma, 1))
    alpha = acceptance_for(row.tokens_a_round, gamma)
    tree = acceptance_for(row.tokens_a_round, TREE_DEPTH) if row.method == "specedge" else tree_for(alpha)
    pair = SimulatedPair(
        draft_ms=draft_ms,
        cloud_draft_ms=number_of(config, "cloud_draft_ms") or draft_ms,
        gamma=gamma,
        alpha=alpha,
        tree_alpha=tree,
        overhead_ms=overhead_ms,
        knee=PACED,
    )
    link = LinkProfile(
        rtt_ms=number_of(config, "rtt_ms"),
        jitter_ms=number_of(config, "jitter_ms"),
        bandwidth_mbps=number_of(config, "bandwidth_mbps"),
        loss=number_of(config, "loss"),
    )
    work = Workload(
        robots=row.clients,
        rate=float("inf"),
        arrivals="after",
        prompts=tuple(row.prompt_tokens) or (100,),
        answers=tuple(row.answer_tokens) or (int(number_of(config, "max_new_tokens", 64)),),
        picture_bytes=0,
    )
    return Fleet(work, pair, RowTimes(verify_ms, PACED), 1, ((link, 1.0),), ReplicaPolicy())


def played_beside(
    saved: ClientsRun, row: ClientsRow, seed: int = 0, overhead_ms: float = OVERHEAD_MS
) -> MeasuredComparison:
    """Simulate one measurement with its own settings. Raises EvaluationError."""
    window = Window(WARM_MS, 1e3 * SECONDS, 0.0)
    played = simulate(fleet_of(saved, row, overhead_ms), row.method, seed, window, keep=True)
    tokens, gaps = delivered(sorted(played.decisions, key=lambda one: one.began_ms), window)
    return MeasuredComparison(
        method=row.method,
        clients=row.clients,
        rate=row.rate,
        simulated_rate=tokens / SECONDS,
        gap_ms=row.gap_ms_p95 or None,
        simulated_gap_ms=percentile(gaps, 95) or 0.0,
        batch=row.server.get("sessions_a_forward", row.batch),
        simulated_batch=played.counted.batch,
        mark=row.mark,
    )


def delivered(decisions: Sequence[SimulatedDecision], window: Window) -> tuple[int, list[float]]:
    """(tokens delivered in the measured time, times between two chunks of one client, including prompts)."""
    tokens, gaps = 0, []
    last: dict[int, float] = {}
    for one in decisions:
        for at, count in one.chunks:
            if window.warm_ms <= at <= window.end_ms:
                tokens += count
                if one.robot in last:
                    gaps.append(at - last[one.robot])
            last[one.robot] = at
    return tokens, gaps
