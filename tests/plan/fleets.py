"""Small fleets for the tests, whose forwards take what a test says."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from specdec.link.shaping import LinkProfile
from specnav.plan.simulated import search
from specnav.plan.simulated.pair import RowTimes, SimulatedPair
from specnav.plan.simulated.replica import ReplicaPolicy
from specnav.plan.simulated.simulation import Fleet, Window, Workload

FLAT = float("inf")


@pytest.fixture
def few_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that do not ask how exact a plan's figures are."""
    monkeypatch.setattr(search, "ENOUGH", 150)
    monkeypatch.setattr(search, "FEW", 150)


class ExponentialTimes:
    """Forwards whose times are drawn anew each time."""

    def __init__(self, mean_ms: float, seed: int = 1) -> None:
        self._drawn, self._mean_ms = Random(seed), mean_ms

    def forward_ms(self, sessions: int, rows: int, prompt_rows: int) -> float:
        return self._drawn.expovariate(1 / self._mean_ms)


def pair(**changes: Any) -> SimulatedPair:
    return SimulatedPair(**{"draft_ms": 5.0, "cloud_draft_ms": 5.0, "overhead_ms": 0.0, "knee": FLAT, **changes})


def fleet(robots: int = 10, rate: float = 0.5, gpus: int = 1, verify_ms: float = 40.0, **changes: Any) -> Fleet:
    """changes: of the Fleet; `work`: further settings of the Workload."""
    work = {"prompts": (50,), "answers": (20,), "picture_bytes": 0, **changes.pop("work", {})}
    settings = {"pair": pair(), "target": RowTimes(verify_ms, FLAT), "policy": ReplicaPolicy(), **changes}
    return Fleet(work=Workload(robots, rate, **work), gpus=gpus, **settings)


def single_server(robots: int, rate: float, arrivals: str, mean_ms: float) -> Fleet:
    """A decision is one forward, which no other shares: a queue of the textbooks."""
    return fleet(
        robots, rate, target=ExponentialTimes(mean_ms), policy=ReplicaPolicy(rows=1),
        work={"prompts": (1,), "answers": (1,), "arrivals": arrivals},
    )  # fmt: skip


LINK = LinkProfile(rtt_ms=40.0)
WINDOW = Window(5_000.0, 30_000.0, 5_000.0)
