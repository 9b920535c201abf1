# SPDX-License-Identifier: Apache-2.0
"""A study's file `study.json`, which is enough to draw it again. Times are milliseconds as measured, not rescaled."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import msgspec

from specdec.options import DecodingOptions
from specnav.bench.data.points import PointRecord
from specnav.bench.records.bench import BenchResults, BenchRow, load_answers
from specnav.bench.records.capacity import BATCH_FILE, BatchCurve, ClientsRow, load_curve
from specnav.bench.records.predicted import predictions_of
from specnav.bench.records.summary import common_answers
from specnav.results.demo import RESULTS_FILE, RunResults, Setting, number_of
from specnav.results.files import read_json

STUDY_FILE = "study.json"


class FormulaRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The prediction of a paper's latency formula for one method (specnav.bench.records.predicted).

    draft, verify: milliseconds per round. redrafted: r of the formula. sync: its Tr.
    *_token: milliseconds per token after the first.
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
    """One setting of a study: the bench run in `folder` and its measurements."""

    folder: str
    label: str
    x: float
    rows: list[BenchRow] = msgspec.field(default_factory=list)
    formulas: list[FormulaRecord] = msgspec.field(default_factory=list)

    def row(self, method: str) -> BenchRow | None:
        """A method's figures; None before the first answer."""
        return next((row for row in self.rows if row.method == method), None)

    def value(self, method: str, name: str, factor: float = 1.0) -> float | None:
        """One of a method's figures (a field of BenchRow) times a factor; None if it was not measured."""
        row = self.row(method)
        found: float | None = None if row is None else getattr(row, name)
        return None if found is None else factor * found

    def formula(self, method: str) -> FormulaRecord | None:
        """The prediction of a method's formula; None without one."""
        return next((one for one in self.formulas if one.method == method), None)

    def late(self, method: str) -> float | None:
        """Share of draft tokens that had to be drafted after the verdict, percent (r of the formula)."""
        found = self.formula(method)
        return None if found is None else 100 * found.redrafted

    def off(self, method: str) -> float | None:
        """How much longer a token took than the method's formula predicts, percent."""
        found = self.formula(method)
        return None if found is None else 100 * (found.measured_token / found.predicted_token - 1)


class CellRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement of the study of many clients.

    name: what was measured, in words. gamma: the setting; some methods choose their own. groups: number of groups of
    the verifier's sessions, which take turns. rtt_ms: of the operating point, unscaled. wall_s: includes starting.
    """

    name: str
    method: str
    gamma: int
    groups: int
    rtt_ms: float
    row: ClientsRow
    wall_s: float = 0.0


class DraftRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One draft model of the study of drafts.

    backend: the library that runs it. kind: its number type. context: tokens in the KV cache during the measurement.
    row_ms: (rows of a forward pass, its median milliseconds). folders: the bench runs of its settings.
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
    """Bytes per round of one recovery scheme with one kind of sampling.

    up, down: means over all rounds. rejected_*: over rounds that ended in a rejection. again: further requests for
    parts of the row, per rejection. whole_rows: rejections that needed the whole row.
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


class StudyResults(RunResults, frozen=True, kw_only=True):
    """`study.json`. time_scale: the factor on every time of the operating point.

    config: of the first setting's run. asked: number of planned measurements. cells: of the study of many clients.
    curve: of the study of forwards, or the curve used for planning. drafts: of the study of drafts.
    payloads: of the study of payloads.
    """

    FILE: ClassVar[str] = STUDY_FILE
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

    @property
    def done(self) -> int:
        """How many of the planned measurements exist."""
        return sum(bool(one.rows) for one in self.settings) + len(self.cells)

    @property
    def gamma(self) -> int:
        """Draft tokens per round, if the study does not vary them."""
        return int(number_of(self.config, "gamma", DecodingOptions.gamma, 1))

    def series(self, method: str, name: str, factor: float = 1.0) -> tuple[tuple[float, float], ...]:
        """(x, figure) of a method over the settings in which it was measured."""
        found = [(one.x, one.value(method, name, factor)) for one in self.settings]
        return tuple((x, y) for x, y in found if y is not None)

    def with_formula(self) -> frozenset[str]:
        """Methods that have a prediction from a paper's formula."""
        return frozenset(formula.method for one in self.settings for formula in one.formulas)

    def methods(self) -> list[str]:
        """Every method of the settings, in order."""
        return list(dict.fromkeys(row.method for one in self.settings for row in one.rows))


def load_studies(folder: Path) -> Sequence[tuple[str, StudyResults]]:
    """(subfolder, results) of every study in a folder, ordered by start time."""
    found = [(path.parent.name, StudyResults.load(path.parent)) for path in sorted(folder.glob(f"*/{STUDY_FILE}"))]
    return sorted(found, key=lambda one: one[1].started_at)


CELLS = "cells"
"""Folder of a study's measurements, one file each."""


def gather(folder: Path, results: StudyResults) -> StudyResults:
    """The study, updated from the measurements in its folder; deleted measurements keep their last known values.

    Raises EvaluationError.
    """
    return (_with_runs if results.settings else _with_measurements)(folder, results)


def measured_cells(folder: Path) -> dict[str, CellRecord]:
    """The measurements in a study's folder, by file name. Raises EvaluationError."""
    return {path.name: read_json(path, CellRecord) for path in sorted((folder / CELLS).glob("*.json"))}


def _with_measurements(folder: Path, results: StudyResults) -> StudyResults:
    """The study with the cells and the curve found in the folder."""
    if cells := measured_cells(folder):
        wall_s = sum(one.wall_s for one in cells.values())
        results = msgspec.structs.replace(results, cells=list(cells.values()), wall_s=wall_s)
    if (folder / BATCH_FILE).is_file():
        results = msgspec.structs.replace(results, curve=load_curve(folder))
    return results


def _with_runs(folder: Path, results: StudyResults) -> StudyResults:
    """The study with the results of its settings' bench runs."""
    runs = {
        one.folder: BenchResults.load(folder / one.folder)
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
