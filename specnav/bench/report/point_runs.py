# SPDX-License-Identifier: Apache-2.0
"""Compares several operating points: the data of a folder of bench runs, one run per point. Draws nothing.

Each cell has up to three figures: ours, the paper's, and the result of the paper's formula with the paper's numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from specdec.errors import OptionsError
from specdec.methods import get_method
from specdec.options import DecodingOptions
from specdec.sampling.recoveries import Recovery
from specnav.bench.data import latency
from specnav.bench.data.acceptance import WantedAcceptance, read_acceptance
from specnav.bench.data.papers import figures
from specnav.bench.records.bench import BenchResults, BenchRow, load_bench
from specnav.bench.records.journal import load_answers
from specnav.bench.records.predicted import (
    CLOUD_SD,
    HINTED,
    PREDRAFTED,
    Parts,
    Prediction,
    formula_of,
    predictions_of,
)
from specnav.bench.records.summary import common_answers, ours_for, time_scale_of, unscaled
from specnav.bench.studies.figures import system_of
from specnav.results.demo import RESULTS_FILE, number_of
from specnav.results.errors import EvaluationError

TABLES = {
    "speedup": "Tokens a second over cloud AR",
    "tau": "τ, tokens gained a round",
    "tpot_ms": "Milliseconds a token",
    "tokens_per_s": "Tokens a second",
}
DIGITS = {"speedup": 2, "tau": 2, "tpot_ms": 1, "tokens_per_s": 1}


@dataclass(frozen=True)
class PointRun:
    """The run of one point.

    folder: relative to the folder of all runs. printed: the paper's own numbers, if the run has the paper's acceptance.
    time_scale: the factor on every time of the point.
    """

    folder: str
    results: BenchResults
    predicted: list[Prediction]
    printed: Printed | None
    time_scale: float

    def ours(self, row: BenchRow, quantity: str) -> float | None:
        """A figure of the run, converted to the point's own times."""
        if quantity == "speedup":
            return row.speedup_vs_ar
        return unscaled(getattr(row, quantity), quantity, self.time_scale)

    @property
    def title(self) -> str:
        """The point's title; the folder's name without a point."""
        return self.results.point.title if self.results.point else self.folder


@dataclass(frozen=True)
class PointCell:
    """Our figure, the paper's, and its formula's with the paper's numbers; "" for a missing one."""

    ours: str
    paper: str
    formula: str = ""

    def __str__(self) -> str:
        if not self.paper and not self.formula:
            return self.ours
        return " / ".join([self.ours or "–", self.paper or "–", *([self.formula] if self.formula else [])])


@dataclass(frozen=True)
class PointsTable:
    """A table of methods by points. rows: (method, one cell per point)."""

    title: str
    rows: list[tuple[str, list[PointCell]]]


def load_points(folder: Path, warn: Callable[[str], None]) -> list[PointRun]:
    """Load the runs in the subfolders of `folder`, ordered by name. Raises EvaluationError if none can be read.

    A run that cannot be read is left out. If its settings are not numbers, the paper's figures are left out. warn: gets
    a line for each.
    """
    found = []
    for place in sorted(path.parent for path in folder.glob(f"*/{RESULTS_FILE}")):
        try:
            results = load_bench(place)
            answers = common_answers(load_answers(place), [row.method for row in results.rows])
            scale = time_scale_of(results.config)
            number_of(results.config, "temperature")
        except EvaluationError as error:
            warn(f"{place.name} is left out: {error}")
            continue
        predicted: list[Prediction] = []
        printed: Printed | None = None
        try:
            predicted, printed = predictions_of(results, answers), printed_of(results)
        except (EvaluationError, OptionsError) as error:
            warn(f"{place.name} is shown without the paper's own numbers: {error}")
        found.append(PointRun(place.name, results, predicted, printed, scale))
    if not found:
        raise EvaluationError(f"{folder} holds no run of an operating point that can be read")
    return found


def points_tables(runs: Sequence[PointRun]) -> list[PointsTable]:
    """One table per quantity: always speed-up and τ, others only if a paper prints them."""
    printed = {f.quantity for run in runs for f in run.results.printed}
    return [
        _table(quantity, title, runs)
        for quantity, title in TABLES.items()
        if quantity in ("speedup", "tau") or quantity in printed
    ]


def _table(quantity: str, title: str, runs: Sequence[PointRun]) -> PointsTable:
    measured = [row.method for run in runs for row in run.results.rows]
    printed = [f.method for run in runs for f in run.results.printed if f.quantity == quantity and f.over == "ar"]
    methods = [name for name in dict.fromkeys([*measured, *printed]) if quantity != "speedup" or name != "ar"]
    return PointsTable(title, [(method, [_cell(quantity, method, run) for run in runs]) for method in methods])


def _cell(quantity: str, method: str, run: PointRun) -> PointCell:
    digits = DIGITS[quantity]
    row = next((row for row in run.results.rows if row.method == method), None)
    ours = None if row is None else run.ours(row, quantity)
    paper = paper_of(run, method, quantity)
    formula = formula_at(run, method, quantity)
    return PointCell(*("" if value is None else f"{value:.{digits}f}" for value in (ours, paper, formula)))


def paper_of(run: PointRun, method: str, quantity: str) -> float | None:
    """The paper's figure for a method; a speed-up over another method is multiplied by that method's over `ar`."""
    found = {(f.method, f.over): f.value for f in run.results.printed if f.quantity == quantity}
    if (method, "ar") in found or quantity != "speedup":
        return found.get((method, "ar"))
    over = next((other for one, other in found if one == method), None)
    return found[method, over] * found[over, "ar"] if over is not None and (over, "ar") in found else None


def formula_at(run: PointRun, method: str, quantity: str) -> float | None:
    """The result of the method's formula with the paper's own numbers."""
    printed = run.printed
    if printed is None or method == "ar":
        return None
    if quantity == "speedup":
        return printed.over_ar(method)
    return unscaled(printed.a_token(method), quantity, run.time_scale) if quantity == "tpot_ms" else None


def other_figures(run: PointRun) -> list[str]:
    """The paper's speed-ups over methods other than `ar`, in words."""
    return [
        f"{f.method} over {f.over}: paper {f.value:.2f}×, ours "
        + ("not in this run" if (ours := ours_for(f, run.results.rows)) is None else f"{ours:.2f}×")
        for f in run.results.printed
        if f.quantity == "speedup" and f.over != "ar"
    ]


@dataclass(frozen=True)
class Printed:
    """A paper's numbers at its point. Times are milliseconds; those of forwards may depend on their rows.

    miss: miss rate of its pre-drafts; None if not printed. row_ms: time to send one row of the target's distribution
    down the link; rows_up_ms: time to send the rows of a round up. Both are 0 if not printed.
    """

    gamma: int
    tau: float
    alpha: float
    draft_ms: float
    cloud_draft_ms: float
    verify_ms: float
    rtt_ms: float
    miss: float | None = None
    row_ms: float = 0.0
    rows_up_ms: float = 0.0

    @property
    def ar_ms(self) -> float:
        """Time per token of cloud AR: a forward over one row."""
        return latency.forward_ms(self.verify_ms, 1)

    def a_token(self, method: str) -> float | None:
        """Milliseconds per token by the method's formula; None if there is no formula or a number is missing."""
        formula = formula_of(method)
        if formula is None or formula is PREDRAFTED:  # no paper prints how much is drafted after the verdict
            return None
        named = get_method(method)
        if not named.drafts and not named.cloud_drafts:
            return self.ar_ms if not named.split else latency.split(1, 0.0, self.ar_ms, self.rtt_ms / 2)
        draft, link = self.gamma * self.draft_ms, self.rtt_ms
        verify = latency.forward_ms(self.verify_ms, self.gamma + 1)
        if formula is CLOUD_SD:
            verify += self.gamma * self.cloud_draft_ms
        if formula is HINTED and self.miss is None:
            return None
        if named.recovery is Recovery.ROW and self.row_ms:
            link = latency.dssd_comm(self.alpha, self.gamma, self.row_ms, self.rtt_ms)
        if named.recovery is Recovery.CLOUD:
            link += self.rows_up_ms
        parts = Parts(self.tau, self.alpha, self.gamma, draft, verify, link, 1.0 if self.miss is None else self.miss)
        return formula.a_token(parts)

    def over_ar(self, method: str) -> float | None:
        """Speed-up over cloud AR by the method's formula."""
        token = self.a_token(method)
        return None if token is None else self.ar_ms / token


def printed_of(results: BenchResults) -> Printed | None:
    """The paper's numbers for a run at a point with its paper's acceptance; None for any other run.

    Raises EvaluationError for settings that are not numbers.
    """
    wanted, config = wanted_of(results), results.config
    if results.point is None or wanted is None:
        return None
    gamma = int(number_of(config, "gamma", DecodingOptions.gamma, 1))
    # A tau refers to its own draft length, which may differ from that of the paper's point.
    alpha = wanted.value if wanted.kind == "alpha" else latency.acceptance_for(wanted.value, wanted.gamma)
    system, paper = system_of(results.point), figures()["dssd_003"]
    draft_ms, bandwidth = number_of(config, "draft_ms"), number_of(config, "bandwidth_mbps")
    cloud = number_of(config, "cloud_draft_ms", draft_ms)
    is_dssd = any(one.where.startswith("dssd_003.") for one in results.point.figures)
    return Printed(
        gamma=gamma,
        tau=latency.expected_tokens(alpha, gamma),
        alpha=alpha,
        draft_ms=latency.forward_ms(draft_ms, 1),
        cloud_draft_ms=latency.forward_ms(cloud, 1),
        verify_ms=number_of(config, "verify_ms"),
        rtt_ms=number_of(config, "rtt_ms"),
        miss=None if system is None else system.miss / 100,
        row_ms=ROW_MS_AT_100 * 100 / bandwidth if is_dssd and bandwidth else 0.0,
        rows_up_ms=8 * paper["uplink_bytes"]["dsd"] / (bandwidth * 1e3) if is_dssd and bandwidth else 0.0,
    )


ROW_MS_AT_100 = 8.0
"""DSSD, Table 1: |V| b / R_down at 100 Mb/s."""


def wanted_of(results: BenchResults) -> WantedAcceptance | None:
    """The acceptance that a run emulated; None if it emulated none."""
    text = str(results.config.get("acceptance") or "").partition(" ")[0]
    return read_acceptance(text, 0) if text else None
