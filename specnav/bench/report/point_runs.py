# SPDX-License-Identifier: Apache-2.0
"""Several operating points side by side: what a folder of bench runs says, one run a point. Data only.

Each cell has up to three figures: ours, the paper's, and what the paper's own formula gives at its own numbers.
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
from specnav.bench.records.summary import common_answers, ours_for, unscaled
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
    """One point's run. folder: relative to the folder of all. printed: the paper's own numbers, where the run is at its
    acceptance. time_scale: what every time of the point was multiplied by.
    """

    folder: str
    results: BenchResults
    predicted: list[Prediction]
    printed: Printed | None
    time_scale: float

    def ours(self, row: BenchRow, quantity: str) -> float | None:
        """A figure of the run, as at the point's own times."""
        if quantity == "speedup":
            return row.speedup_vs_ar
        return unscaled(getattr(row, quantity), quantity, self.time_scale)

    @property
    def title(self) -> str:
        """The point in a few words."""
        return self.results.point.title if self.results.point else self.folder


@dataclass(frozen=True)
class PointCell:
    """A figure of ours, the paper's, and its formula's at its own numbers; "" where there is none."""

    ours: str
    paper: str
    formula: str = ""

    def __str__(self) -> str:
        if not self.paper and not self.formula:
            return self.ours
        return " / ".join([self.ours or "–", self.paper or "–", *([self.formula] if self.formula else [])])


@dataclass(frozen=True)
class PointsTable:
    """rows: a method and its cells, one a point."""

    title: str
    rows: list[tuple[str, list[PointCell]]]


def load_points(folder: Path, warn: Callable[[str], None]) -> list[PointRun]:
    """The runs in the folders below `folder`, by name. Raises EvaluationError where none can be read.

    A run that cannot be read is left out; of one whose settings say no numbers the paper's are left out. warn: gets a
    line for each.
    """
    found = []
    for place in sorted(path.parent for path in folder.glob(f"*/{RESULTS_FILE}")):
        try:
            results = load_bench(place)
            answers = common_answers(load_answers(place), [row.method for row in results.rows])
            scale = number_of(results.config, "time_scale", 1.0)
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
    """A table for every quantity: always speed-ups and τ, the others where a paper prints one."""
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
    """What the point's paper prints of a method; of a speed-up over another than `ar` the product."""
    found = {(f.method, f.over): f.value for f in run.results.printed if f.quantity == quantity}
    if (method, "ar") in found or quantity != "speedup":
        return found.get((method, "ar"))
    over = next((other for one, other in found if one == method), None)
    return found[method, over] * found[over, "ar"] if over is not None and (over, "ar") in found else None


def formula_at(run: PointRun, method: str, quantity: str) -> float | None:
    """What the method's formula gives at the paper's own numbers."""
    printed = run.printed
    if printed is None or method == "ar":
        return None
    if quantity == "speedup":
        return printed.over_ar(method)
    return unscaled(printed.a_token(method), quantity, run.time_scale) if quantity == "tpot_ms" else None


def other_figures(run: PointRun) -> list[str]:
    """What a paper prints over another method than `ar`, in words."""
    return [
        f"{f.method} over {f.over}: paper {f.value:.2f}×, ours "
        + ("not in this run" if (ours := ours_for(f, run.results.rows)) is None else f"{ours:.2f}×")
        for f in run.results.printed
        if f.quantity == "speedup" and f.over != "ar"
    ]


@dataclass(frozen=True)
class Printed:
    """A paper's numbers at its point; times in ms, of forwards by their rows. miss: of its pre-drafts, None: not
    printed. row_ms, rows_up_ms: what a row of the target takes down the link, and a round's rows up, where printed.
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
        """A token of cloud AR: a forward of one row."""
        return latency.forward_ms(self.verify_ms, 1)

    def a_token(self, method: str) -> float | None:
        """Milliseconds a token by the method's formula; None where no formula is about it or lacks a number."""
        formula = formula_of(method)
        if formula is None or formula is PREDRAFTED:  # how much is drafted after the verdict is printed nowhere
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
        """The speed-up over cloud AR by the method's formula."""
        token = self.a_token(method)
        return None if token is None else self.ar_ms / token


def printed_of(results: BenchResults) -> Printed | None:
    """The paper's numbers of a run at a point with its paper's acceptance; None for any other run. Raises
    EvaluationError for settings that are no numbers.
    """
    wanted, config = wanted_of(results), results.config
    if results.point is None or wanted is None:
        return None
    gamma = int(number_of(config, "gamma", DecodingOptions.gamma, 1))
    # A tau is of its own draft length; the paper's point may have another.
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
    """The acceptance that a run emulated; None where it emulated none."""
    text = str(results.config.get("acceptance") or "").partition(" ")[0]
    return read_acceptance(text, 0) if text else None
