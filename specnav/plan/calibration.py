# SPDX-License-Identifier: Apache-2.0
"""Calibrates `specnav plan fleet` from your own measurement, an operating point, or a paper's table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from specdec.options import DecodingOptions
from specdec.row_ms import RowMs
from specnav.bench.data.acceptance import read_acceptance
from specnav.bench.data.latency import acceptance_for
from specnav.bench.data.papers import figure, figures
from specnav.bench.data.points import POINTS, load_point, paper_acceptance
from specnav.bench.records.capacity import BATCH_FILE, CLIENTS_FILE, load_curve
from specnav.bench.records.study import STUDY_FILE, StudyResults
from specnav.bench.records.summary import time_scale_of
from specnav.bench.studies.cost import CostAsked
from specnav.errors import UsageError
from specnav.plan.simulated.comparison import load_clients
from specnav.plan.simulated.pair import (
    KNEE_ROWS,
    TREE_DEPTH,
    CurveTimes,
    RowTimes,
    SimulatedForwardTimes,
    SimulatedPair,
    tree_for,
)
from specnav.results.demo import Setting, number_of
from specnav.results.errors import EvaluationError

TABLE = "a100"
"""FSD's Table 9: a server of Vicuna-7B on an A100, a client of Vicuna-68M on a Jetson, by rows."""
TABLE_WORDS = "Fast edge-cloud decoding with early exits, Table 9"
ROBOT_MISS = "fsd_000.robot.miss"


@dataclass(frozen=True)
class PlanCalibration:
    """The inputs of the simulation. words: the source of each value."""

    target: SimulatedForwardTimes
    pair: SimulatedPair
    words: list[str]

    def with_pair(self, words: list[str], **changes: Any) -> PlanCalibration:
        """With other values of the pair, and their sources."""
        return PlanCalibration(self.target, replace(self.pair, **changes), words)


def calibrated(gpu: str | None, measured: Path | None) -> PlanCalibration:
    """Calibrate from the one argument that is given. Raises UsageError, EvaluationError."""
    if (gpu is None) == (measured is None):
        raise UsageError(
            "forward times are needed; give one of: --gpu NAME (an operating point of config/points, or "
            f"{TABLE}), --measured PATH (the result of specnav bench study batch, study clients or clients)"
        )
    if measured is not None:
        return _from_files(measured)
    assert gpu is not None
    return _from_table() if gpu == TABLE else _from_point(gpu)


def gpu_names() -> list[str]:
    """Names that --gpu accepts, in addition to a .yaml file."""
    return [TABLE, *sorted(found.stem for found in POINTS.glob("*.yaml"))]


def _usual(target: SimulatedForwardTimes, draft_ms: float, words: list[str]) -> PlanCalibration:
    """A calibration with the papers' acceptance, for lack of a better one."""
    work = CostAsked()
    alpha = acceptance_for(work.tau, work.gamma)
    pair = SimulatedPair(draft_ms, draft_ms, work.gamma, alpha, tree_for(alpha), figure(ROBOT_MISS) / 100)
    usual = f"acceptance: τ {work.tau:g} at γ {work.gamma} (FSD, Table 1); misses of fsd: its robot's (Table 8)"
    return PlanCalibration(target, pair, [*words, usual])


def _column(place: int) -> RowMs:
    table: Mapping[int, list[float]] = figures()["fsd_000"]["batch_latency"]
    points, longest = [], 0.0
    for rows in sorted(table):  # printed times vary by 0.5 ms at few rows; make them monotonic
        longest = max(longest, float(table[rows][place]))
        points.append((int(rows), longest))
    return RowMs(tuple(points))


def _from_table() -> PlanCalibration:
    words = [
        f"forwards: Vicuna-7B on an A100 by rows ({TABLE_WORDS}); a prompt's row: 1/{KNEE_ROWS:g} of a forward",
        "drafts: Vicuna-68M on a Jetson by rows, in the cloud the same (the same table)",
    ]
    return _usual(RowTimes(_column(0)), _column(1), words)


def _from_point(name: str) -> PlanCalibration:
    if not name.endswith((".yaml", ".yml")) and name not in gpu_names():
        raise UsageError(f"GPU {name!r} is unknown: choose {', '.join(gpu_names())}, or give a .yaml file")
    point, record = load_point(name)
    if not point.verify_ms:
        raise UsageError(
            f"operating point {name} has no verification time; choose another --gpu"
        )
    rows = (
        "by rows"
        if isinstance(point.verify_ms, RowMs)
        else f"level up to {KNEE_ROWS:g} rows, then in proportion"
    )
    words = [
        f"forwards and drafts: operating point {record.name}, {record.title} ({record.source}); {rows}",
        *(f"assumed there: {words}" for words in record.assumed),
    ]
    found, gamma = _usual(RowTimes(point.verify_ms), point.draft_ms, words), point.gamma
    cloud_draft_ms = point.draft_ms if point.cloud_draft_ms is None else point.cloud_draft_ms
    found = found.with_pair(found.words, gamma=gamma, cloud_draft_ms=cloud_draft_ms)
    if not point.acceptance:
        return found
    printed = read_acceptance(paper_acceptance(point), gamma)
    alpha = printed.value if printed.kind == "alpha" else acceptance_for(printed.value, printed.gamma)
    said = f"acceptance: {printed.words}, the operating point's"
    return found.with_pair([*words, said], alpha=alpha, tree_alpha=tree_for(alpha))


def _from_files(path: Path) -> PlanCalibration:
    if path.name == CLIENTS_FILE or (path.is_dir() and (path / CLIENTS_FILE).is_file()):
        saved = load_clients(path)
        taus = {row.method: row.tokens_a_round for row in saved.rows}
        return _from_settings(saved.config, taus, time_scale_of(saved.config), f"a run of bench clients ({path})")
    for place in (path, path / "clients"):
        if place.name == STUDY_FILE:
            place = place.parent
        if (place / STUDY_FILE).is_file() and not (place / BATCH_FILE).is_file():
            study = StudyResults.load(place)
            if study.cells:
                taus = {cell.method: cell.row.tokens_a_round for cell in study.cells}
                found = _from_settings(
                    study.config, taus, study.time_scale, f"the study of many clients ({place})"
                )
                if study.curve is None:
                    return found
                forwards = f"forwards: {study.curve.model} on {study.curve.device}, the curve in {place}"
                return replace(found, target=CurveTimes(study.curve), words=[forwards, *found.words])
    curve = load_curve(path)
    words = [
        f"forwards: {curve.model} on {curve.device}, {curve.threads} CPU threads, measured by the study batch ({path})",
        f"drafts: Vicuna-68M on a Jetson by rows ({TABLE_WORDS}), in the cloud the same; give yours with --draft-ms",
    ]
    return _usual(CurveTimes(curve), _column(1), words)


def _from_settings(
    config: Mapping[str, Setting], taus: Mapping[str, float], scale: float, where: str
) -> PlanCalibration:
    """Calibrate from a paced run: its pacing without the time scale, and its measured acceptance."""
    verify_ms, draft_ms = number_of(config, "verify_ms"), number_of(config, "draft_ms")
    if not verify_ms or not draft_ms:
        raise EvaluationError(f"{where} was not paced on both sides, so the times of its forwards are unknown")
    gamma = int(number_of(config, "gamma", DecodingOptions.gamma, 1))
    words = [
        f"forwards and drafts: as {where} was paced; level up to {KNEE_ROWS:g} rows, then in proportion",
        f"acceptance: measured there (τ {', '.join(f'{name} {tau:.2f}' for name, tau in taus.items())})",
    ]
    found = _usual(RowTimes(verify_ms * (1 / scale)), draft_ms * (1 / scale), words)
    chains = [tau for name, tau in taus.items() if name in ("sd", "fsd", "cloud-sd")]
    alpha = acceptance_for(chains[0], gamma) if chains else found.pair.alpha
    tree = acceptance_for(taus["specedge"], TREE_DEPTH) if "specedge" in taus else tree_for(alpha)
    return found.with_pair(words if chains else found.words, gamma=gamma, alpha=alpha, tree_alpha=tree)
