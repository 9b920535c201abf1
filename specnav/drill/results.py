# SPDX-License-Identifier: Apache-2.0
"""The results schema of `specnav drill` (`results.json`, schema 1).

Times are milliseconds unless a name says otherwise. A figure that was not measured is null, never zero.
"""

from __future__ import annotations

import msgspec

from specnav.results.demo import RunResults


class DrillRun(msgspec.Struct, frozen=True, kw_only=True):
    """One injection of one fault.

    moving: whether the robot moved at that time. stop_ms: from the fault to the first zero on cmd_vel (0: it stood).
    moved_again_ms: from the stop to a motion during the fault (null: it stood until the end). reason_ms: from the fault
    to the published reason. recovered_ms: from the fault's end (or the next instruction) to motion.
    """

    fault: str
    run: int
    moving: bool
    stop_ms: float | None = None
    moved_again_ms: float | None = None
    reason: str = ""
    reason_ms: float | None = None
    recovered_ms: float | None = None
    problems: list[str] = []
    at_s: float = 0.0
    wall_s: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether there were no problems."""
        return not self.problems


class FaultRow(msgspec.Struct, frozen=True, kw_only=True):
    """All runs of one fault. bound: what the bound consists of, in words; moving: runs in which the robot moved."""

    fault: str
    what: str
    phase: str
    reaction: str
    bound: str
    bound_ms: float | None
    runs: int
    passed: int
    moving: int
    stop_ms: list[float] = []
    stop_ms_p50: float | None = None
    stop_ms_p99: float | None = None
    stop_ms_max: float | None = None
    reasons: dict[str, int] = {}
    reason_ms_p50: float | None = None
    reason_ms_max: float | None = None
    recovered_ms_p50: float | None = None
    recovered_ms_max: float | None = None
    problems: dict[str, int] = {}


class Sample(msgspec.Struct, frozen=True):
    """One process at one time: seconds since the beginning, resident memory, descriptors, threads."""

    t_s: float
    rss_mb: float
    fds: int
    threads: int


class GrowthRow(msgspec.Struct, frozen=True, kw_only=True):
    """Growth of one quantity of one process, from the median slope of all pairs of samples (Theil and Sen).

    grew: the slope times the watched time (or turns). allowed: most growth. unit: of first, last and grew.
    """

    process: str
    quantity: str
    unit: str
    first: float
    last: float
    grew: float
    allowed: float
    flat: bool


class LeakCheck(msgspec.Struct, frozen=True, kw_only=True):
    """An action repeated while the processes were watched."""

    what: str
    turns: int
    rows: list[GrowthRow] = []
    samples: dict[str, list[Sample]] = {}
    wall_s: float = 0.0


class DrillResults(RunResults, frozen=True, kw_only=True):
    """results.json of a drill."""

    faults: list[FaultRow] = msgspec.field(default_factory=list)
    runs: list[DrillRun] = msgspec.field(default_factory=list)
    leaks: list[LeakCheck] = msgspec.field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether all runs passed and nothing grew."""
        return all(run.passed for run in self.runs) and all(
            row.flat for leak in self.leaks for row in leak.rows
        )
