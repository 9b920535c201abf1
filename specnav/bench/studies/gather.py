"""From the bench runs in a study's folder to its `study.json`."""

from __future__ import annotations

from pathlib import Path

import msgspec

from specnav.bench.capacity import BATCH_FILE, load_curve
from specnav.bench.core.journal import load_answers
from specnav.bench.core.predicted import predictions_of
from specnav.bench.core.records import BenchResults, load_bench
from specnav.bench.core.summary import common_answers
from specnav.bench.studies.catalogue import study_named
from specnav.bench.studies.records import CellRecord, FormulaRecord, SettingRecord, StudyResults
from specnav.results.demo import RESULTS_FILE
from specnav.results.files import read_json

CELLS = "cells"
"""Folder of a study's measurements, a file each."""


def gather(folder: Path, results: StudyResults) -> StudyResults:
    """The same study with what its measurements say now; one that is not there any more leaves what was known of it.

    Raises EvaluationError.
    """
    study = study_named(results.name)
    with_runs = study.kind in ("runs", "drafts")
    results = (_with_runs if with_runs else _with_measurements)(folder, results)
    return msgspec.structs.replace(results, words=list(study.read(results).words))


def _with_measurements(folder: Path, results: StudyResults) -> StudyResults:
    """The cells and the curve that lie in the folder."""
    cells = {path.name: read_json(path, CellRecord) for path in sorted((folder / CELLS).glob("*.json"))}
    if cells:
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
