"""The run's folder: results are written after every episode, so that whatever happens, what was finished is kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from datetime import datetime, timezone
from pathlib import Path

from evaluation.identity import Comparison
from evaluation.report import write_report
from evaluation.results import (
    SCHEMA,
    DemoResults,
    EpisodeResult,
    LatencyRow,
    Setting,
    check_settings,
    describe_machine,
    save_results,
    summarise,
)
from evaluation.trace import EpisodeTrace, save_trace
from specnav.demo.config import DemoConfig
from specnav.demo.errors import DemoError
from specnav.paths import ROOT, RUNS


def make_folder(config: DemoConfig, now: datetime) -> Path:
    """The run's new, empty folder. Raises DemoError when it holds something already or cannot be made."""
    run = (config.out or RUNS / f"demo-{now:%Y%m%d-%H%M%S}").resolve()
    try:
        if run.exists() and any(run.iterdir()):
            raise DemoError(f"{run} is not empty; give a new folder with --out")
        run.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DemoError(
            f"cannot use {run} for the run: {error.strerror or error}; give another with --out"
        ) from error
    return run


def shown_settings(config: DemoConfig) -> dict[str, Setting]:
    """The settings as results.json keeps them; paths inside the clone relative to it."""
    values: dict[str, object] = {entry.name: getattr(config, entry.name) for entry in fields(config)}
    for name in ("out", "headless"):
        values.pop(name)
    for name, value in values.items():
        if isinstance(value, Path) or name in ("target_model", "draft_model"):
            path = Path(str(value))
            values[name] = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(value)
    return check_settings(values)


class Journal:
    """What has happened so far, on disk at every step."""

    def __init__(self, run: Path, config: DemoConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self.run = run
        self.error = ""
        self.interrupted = False
        self.comparison = Comparison()
        self.study: list[LatencyRow] = []
        self.traces: list[EpisodeTrace] = []
        self._clock = clock
        self._began = clock()
        self._started_at = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._settings = shown_settings(config)
        self._machine = describe_machine()
        self._phases: dict[str, float] = {}

    @property
    def episodes(self) -> list[EpisodeResult]:
        """Results of the finished episodes."""
        return [trace.result for trace in self.traces]

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Measure a step of the run."""
        began = self._clock()
        try:
            yield
        finally:
            self._phases[name] = self._phases.get(name, 0.0) + self._clock() - began

    def add(self, trace: EpisodeTrace) -> None:
        """Keep an episode."""
        self.traces.append(trace)
        save_trace(self.run, trace)
        self.save()

    def results(self) -> DemoResults:
        """Everything known so far."""
        c = self.comparison
        return DemoResults(
            schema=SCHEMA,
            config=self._settings,
            machine=self._machine,
            episodes=self.episodes,
            summary=summarise(self.episodes, c.identical, c.answers, c.tokens),
            latency_study=self.study,
            interrupted=self.interrupted,
            error=self.error,
            started_at=self._started_at,
            wall_s=self._clock() - self._began,
            phases_s=dict(self._phases),
        )

    def save(self) -> None:
        """Write results.json."""
        save_results(self.run, self.results())

    def report(self) -> Path:
        """Write results.json and draw the report."""
        self.save()
        return write_report(self.run)
