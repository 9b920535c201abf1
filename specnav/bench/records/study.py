# SPDX-License-Identifier: Apache-2.0
"""What a study leaves on disk: `study.json`, enough to draw it again. Times are milliseconds, as they were run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from specdec.options import DecodingOptions
from specnav.bench.data.points import PointRecord
from specnav.bench.records.batch import BATCH_FILE, BatchCurve, load_curve
from specnav.bench.records.bench import BenchResults, BenchRow, load_bench
from specnav.bench.records.clients import ClientsRow
from specnav.bench.records.journal import load_answers
from specnav.bench.records.predicted import predictions_of
from specnav.bench.records.summary import common_answers
from specnav.results.demo import RESULTS_FILE, Setting, Versioned, number_of
from specnav.results.files import read_json, write_json

STUDY_FILE = "study.json"


class FormulaRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a paper's latency formula makes of a method's own parts (specnav.bench.records.predicted).

    draft, verify: a round's; redrafted: r; sync: Tr; *_token: after the first token.
    """

    method: str
    formula: str
    gamma: float
    tau: float
    draft: float
    verify: float
    redrafted: float
    sync: float
    predicted_token: float
    measured_token: float


class SettingRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One setting: the bench run in `folder` and what it measured."""

    folder: str
    label: str
    x: float
    rows: list[BenchRow] = msgspec.field(default_factory=list)
    formulas: list[FormulaRecord] = msgspec.field(default_factory=list)

    def row(self, method: str) -> BenchRow | None:
        """A method's figures, None before anything was answered."""
        return next((row for row in self.rows if row.method == method), None)

    def value(self, method: str, of: Callable[[BenchRow], float | None]) -> float | None:
        """One of a method's figures; None where it was not measured."""
        row = self.row(method)
        return None if row is None else of(row)

    def formula(self, method: str) -> FormulaRecord | None:
        """What a method's formula says."""
        return next((one for one in self.formulas if one.method == method), None)

    def late(self, method: str) -> float | None:
        """Draft tokens that had to be drafted after the verdict, percent of all (r of the formula)."""
        found = self.formula(method)
        return None if found is None else 100 * found.redrafted

    def off(self, method: str) -> float | None:
        """By how much a token took longer than the method's formula says, percent."""
        found = self.formula(method)
        return None if found is None else 100 * (found.measured_token / found.predicted_token - 1)


class CellRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement of the study of many clients, as it was run.

    name: what was measured, in words. gamma: as it was set; some methods choose their own. groups: of the verifier's
    sessions, which take turns. rtt_ms: of the operating point, before it was scaled. wall_s: starting included.
    """

    name: str
    method: str
    gamma: int
    groups: int
    rtt_ms: float
    row: ClientsRow
    wall_s: float = 0.0


class DraftRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One draft model of the study of drafts. backend: what runs it. kind: its number type. row_ms: (rows of a forward,
    milliseconds it takes, median). context: tokens held meanwhile. folders: of its settings.
    """

    label: str
    backend: str
    kind: str
    size_mb: float
    threads: int
    context: int
    row_ms: list[tuple[int, float]]
    folders: list[str]


class PayloadRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of one scheme with one sampling. up, down: mean of all rounds; rejected_*: of rounds that ended in a
    rejection. again: further requests for parts of the row, a rejection. whole_rows: rejections that took a whole row.
    """

    scheme: str
    sampling: str
    rounds: int
    acceptance: float
    up: float
    down: float
    rejected_down: float
    rejected_p95: float
    rejected_max: int
    again: float
    whole_rows: int


class StudyResults(Versioned, frozen=True, kw_only=True):
    """`study.json`. time_scale: every time of the operating point was multiplied by it.

    config: of the first setting's run. asked: settings it was to have. cells: of the
    study of many clients. curve: of the study of forwards, or the one to plan with. drafts: of the study of drafts.
    """

    name: str
    settings: list[SettingRecord]
    time_scale: float = 1.0
    point: PointRecord | None = None
    config: dict[str, Setting] = msgspec.field(default_factory=dict)
    machine: dict[str, Setting] = msgspec.field(default_factory=dict)
    notes: list[str] = msgspec.field(default_factory=list)
    cells: list[CellRecord] = msgspec.field(default_factory=list)
    curve: BatchCurve | None = None
    drafts: list[DraftRecord] = msgspec.field(default_factory=list)
    payloads: list[PayloadRecord] = msgspec.field(default_factory=list)
    asked: int = 0
    interrupted: bool = False
    error: str = ""
    started_at: str = ""
    wall_s: float = 0.0

    @property
    def done(self) -> int:
        """How much of what was asked has been measured."""
        return sum(bool(one.rows) for one in self.settings) + len(self.cells)

    @property
    def gamma(self) -> int:
        """Draft tokens a round, where the study does not vary them."""
        return int(number_of(self.config, "gamma", DecodingOptions.gamma, 1))

    def series(
        self, method: str, value: Callable[[BenchRow], float | None]
    ) -> tuple[tuple[float, float], ...]:
        """(x, value) of a method over the settings in which it was measured."""
        found = [(one.x, one.value(method, value)) for one in self.settings]
        return tuple((x, y) for x, y in found if y is not None)

    def with_formula(self) -> frozenset[str]:
        """Methods that one of the papers' formulas is about."""
        return frozenset(formula.method for one in self.settings for formula in one.formulas)

    def methods(self) -> list[str]:
        """Every method of the settings, in order."""
        return list(dict.fromkeys(row.method for one in self.settings for row in one.rows))


def save_study(folder: Path, results: StudyResults) -> None:
    """Write `study.json`, atomically."""
    write_json(folder / STUDY_FILE, results)


def load_study(folder: Path) -> StudyResults:
    """Read `study.json`. Raises EvaluationError."""
    return read_json(folder / STUDY_FILE, StudyResults)


def load_studies(folder: Path) -> Sequence[tuple[str, StudyResults]]:
    """(folder below, results) of every study in a folder, by the time they were begun."""
    found = [(path.parent.name, load_study(path.parent)) for path in sorted(folder.glob(f"*/{STUDY_FILE}"))]
    return sorted(found, key=lambda one: one[1].started_at)


CELLS = "cells"
"""Folder of a study's measurements, a file each."""


def gather(folder: Path, results: StudyResults) -> StudyResults:
    """The same study with what its measurements say now; one that is not there any more leaves what was known of it.

    Raises EvaluationError.
    """
    return (_with_runs if results.settings else _with_measurements)(folder, results)


def measured_cells(folder: Path) -> dict[str, CellRecord]:
    """By their files, the measurements that a study's folder holds. Raises EvaluationError."""
    return {path.name: read_json(path, CellRecord) for path in sorted((folder / CELLS).glob("*.json"))}


def _with_measurements(folder: Path, results: StudyResults) -> StudyResults:
    """The cells and the curve that lie in the folder."""
    if cells := measured_cells(folder):
        wall_s = sum(one.wall_s for one in cells.values())
        results = msgspec.structs.replace(results, cells=list(cells.values()), wall_s=wall_s)
    if (folder / BATCH_FILE).is_file():
        results = msgspec.structs.replace(results, curve=load_curve(folder))
    return results


def _with_runs(folder: Path, results: StudyResults) -> StudyResults:
    """What the settings' bench runs say."""
    runs = {
        one.folder: load_bench(folder / one.folder)
        for one in results.settings
        if (folder / one.folder / RESULTS_FILE).is_file()
    }
    settings = [
        _measured(one, folder / one.folder, runs[one.folder]) if one.folder in runs else one
        for one in results.settings
    ]
    results = msgspec.structs.replace(results, settings=settings)
    if runs:
        first = next(iter(runs.values()))
        results = msgspec.structs.replace(
            results,
            config=first.config,
            machine=first.machine,
            notes=list(dict.fromkeys(note for run in runs.values() for note in run.notes)),
            started_at=min(run.started_at for run in runs.values()),
            wall_s=sum(run.wall_s for run in runs.values()),
        )
    return results


def _measured(setting: SettingRecord, place: Path, run: BenchResults) -> SettingRecord:
    answers = common_answers(load_answers(place), [row.method for row in run.rows])
    formulas = [
        FormulaRecord(
            method=one.method,
            formula=one.formula.name,
            gamma=one.parts.drafted,
            tau=one.parts.tau,
            draft=one.parts.draft,
            verify=one.parts.verify,
            redrafted=one.parts.miss,
            sync=one.parts.sync,
            predicted_token=one.predicted_token,
            measured_token=one.measured_token,
        )
        for one in predictions_of(run, answers)
    ]
    rows = [row for row in run.rows if row.answers]
    return msgspec.structs.replace(setting, rows=rows, formulas=formulas)
