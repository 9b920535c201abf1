# SPDX-License-Identifier: Apache-2.0
"""The run's folder: results are written after every episode, so that finished episodes are never lost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from specnav.demo.config import DemoConfig
from specnav.report import write_report
from specnav.results.demo import (
    SCHEMA,
    Comparison,
    DemoResults,
    EpisodeResult,
    LatencyRow,
    Setting,
    describe_machine,
    summarise,
)
from specnav.results.trace import EpisodeTrace, save_trace
from specnav.run_folder import started_at
from specnav.settings import shown_settings


def settings_of(config: DemoConfig) -> dict[str, Setting]:
    """The settings in the form of results.json."""
    return shown_settings(config, leave_out=("out", "headless"), paths=("target_model", "draft_model"))


class DemoJournal:
    """The results so far, written to disk at every step."""

    def __init__(self, run: Path, config: DemoConfig, weights: tuple[tuple[str, int, int], ...]) -> None:
        """`weights`: name, size and modification time of the target's files when the run began."""
        self.weights = weights
        self.run = run
        self.error = ""
        self.interrupted = False
        self.comparison = Comparison()
        self.study: list[LatencyRow] = []
        self.traces: list[EpisodeTrace] = []
        self._began = time.monotonic()
        self._started_at = started_at()
        self._settings = settings_of(config)
        self._machine = describe_machine()
        self._phases: dict[str, float] = {}

    @property
    def episodes(self) -> list[EpisodeResult]:
        """Results of the finished episodes."""
        return [trace.result for trace in self.traces]

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Measure the duration of a step of the run."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._phases[name] = self._phases.get(name, 0.0) + time.monotonic() - began

    def add(self, trace: EpisodeTrace) -> None:
        """Add an episode and save it."""
        self.traces.append(trace)
        save_trace(self.run, trace)
        self.save()

    def results(self) -> DemoResults:
        """All results so far."""
        return DemoResults(
            schema=SCHEMA,
            config=self._settings,
            machine=self._machine,
            episodes=self.episodes,
            summary=summarise(self.episodes, self.comparison),
            latency_study=self.study,
            interrupted=self.interrupted,
            error=self.error,
            started_at=self._started_at,
            wall_s=time.monotonic() - self._began,
            phases_s=dict(self._phases),
        )

    def save(self) -> None:
        """Write results.json."""
        self.results().save(self.run)

    def report(self) -> Path:
        """Write results.json and draw the report."""
        self.save()
        return write_report(self.run)
