# SPDX-License-Identifier: Apache-2.0
"""The run's folder: results are written after every fault, so that nothing measured is lost."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from specnav.drill.definitions import Drill
from specnav.drill.judging import row_of
from specnav.drill.report import write_drill_report
from specnav.drill.results import DrillResults, DrillRun, LeakCheck
from specnav.results.demo import SCHEMA, Setting, describe_machine
from specnav.run_folder import started_at


@dataclass
class DrillJournal:
    """The results so far."""

    folder: Path
    config: dict[str, Setting]
    machine: dict[str, Setting] = field(default_factory=describe_machine)
    began: float = field(default_factory=time.monotonic)
    started_at: str = field(default_factory=started_at)
    runs: dict[str, list[DrillRun]] = field(default_factory=dict)
    drills: dict[str, tuple[Drill, float]] = field(default_factory=dict)
    leaks: list[LeakCheck] = field(default_factory=list)
    interrupted: bool = False
    error: str = ""

    def add(self, drill: Drill, bound_s: float, run: DrillRun) -> None:
        """Add a run of a fault."""
        self.drills[drill.name] = (drill, bound_s)
        self.runs.setdefault(drill.name, []).append(run)
        self.save()

    def results(self) -> DrillResults:
        """All results so far."""
        return DrillResults(
            schema=SCHEMA,
            config=self.config,
            machine=self.machine,
            faults=[
                row_of(drill, bound_s, self.runs[name]) for name, (drill, bound_s) in self.drills.items()
            ],
            runs=[run for runs in self.runs.values() for run in runs],
            leaks=self.leaks,
            interrupted=self.interrupted,
            error=self.error,
            started_at=self.started_at,
            wall_s=time.monotonic() - self.began,
        )

    def save(self) -> None:
        """Write results.json."""
        self.results().save(self.folder)

    def report(self) -> Path:
        """Write results.json and draw the report."""
        self.save()
        return write_drill_report(self.folder)
