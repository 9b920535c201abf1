# SPDX-License-Identifier: Apache-2.0
"""The file of `specnav plan fleet`, `fleet.json`, which is enough to draw it again. Times are milliseconds."""

from __future__ import annotations

from pathlib import Path

import msgspec

from specnav.plan.simulated.measures import FleetFigures
from specnav.results.demo import Setting, Versioned
from specnav.results.files import read_json, write_json

FLEET_FILE = "fleet.json"


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


def save_fleet(folder: Path, results: FleetResults) -> None:
    """Write `fleet.json`, atomically."""
    write_json(folder / FLEET_FILE, results)


def load_fleet(folder: Path) -> FleetResults:
    """Read `fleet.json`. Raises EvaluationError."""
    return read_json(folder / FLEET_FILE, FleetResults)
