"""Several operating points side by side: what a folder of bench runs says, one run a point. Data only.

Each cell has up to three figures: ours, the paper's, and what the paper's own formula gives at its own numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from specnav.bench.core.journal import load_answers
from specnav.bench.core.predicted import Prediction, predictions_of
from specnav.bench.core.records import BenchResults, BenchRow, load_bench
from specnav.bench.core.summary import common_answers, ours_for, unscaled
from specnav.bench.operating_points.formulas import Printed, printed_of
from specnav.results.demo import RESULTS_FILE
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
    """One point's run. folder: relative to the folder of all."""

    folder: str
    results: BenchResults
    predicted: list[Prediction]

    @property
    def printed(self) -> Printed | None:
        """The paper's own numbers, where the run is at its acceptance."""
        return printed_of(self.results)

    @property
    def time_scale(self) -> float:
        """What every time of the point was multiplied by."""
        return float(self.results.config.get("time_scale") or 1.0)

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
class Cell:
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
    """Rows are methods, columns points."""

    quantity: str
    title: str
    methods: list[str]
    cells: list[list[Cell]]


def load_points(folder: Path) -> list[PointRun]:
    """The runs in the folders below `folder`, by name. Raises EvaluationError."""
    found = []
    for place in sorted(path.parent for path in folder.glob(f"*/{RESULTS_FILE}")):
        results = load_bench(place)
        methods = [row.method for row in results.rows]
        answers = common_answers(load_answers(place), methods)
        found.append(PointRun(place.name, results, predictions_of(results, answers)))
    if not found:
        raise EvaluationError(f"{folder} holds no run of an operating point")
    return found


def points_tables(runs: Sequence[PointRun]) -> list[PointsTable]:
    """A table for every quantity: always speed-ups and τ, the others where a paper prints one."""
    printed = {f.quantity for run in runs if run.results.point for f in run.results.point.figures}
    return [
        _table(quantity, title, runs)
        for quantity, title in TABLES.items()
        if quantity in ("speedup", "tau") or quantity in printed
    ]


def _table(quantity: str, title: str, runs: Sequence[PointRun]) -> PointsTable:
    measured = [row.method for run in runs for row in run.results.rows]
    printed = [
        f.method
        for run in runs
        if run.results.point
        for f in run.results.point.figures
        if f.quantity == quantity and f.over == "ar"
    ]
    methods = [name for name in dict.fromkeys([*measured, *printed]) if quantity != "speedup" or name != "ar"]
    cells = [[_cell(quantity, method, run) for run in runs] for method in methods]
    return PointsTable(quantity, title, methods, cells)


def _cell(quantity: str, method: str, run: PointRun) -> Cell:
    digits = DIGITS[quantity]
    row = next((row for row in run.results.rows if row.method == method), None)
    ours = None if row is None else run.ours(row, quantity)
    paper = paper_of(run, method, quantity)
    formula = formula_at(run, method, quantity)
    return Cell(*("" if value is None else f"{value:.{digits}f}" for value in (ours, paper, formula)))


def paper_of(run: PointRun, method: str, quantity: str) -> float | None:
    """What the point's paper prints of a method; of a speed-up over another than `ar` the product."""
    figures = run.results.point.figures if run.results.point else []
    found = {(f.method, f.over): f.value for f in figures if f.quantity == quantity}
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
        for f in (run.results.point.figures if run.results.point else [])
        if f.quantity == "speedup" and f.over != "ar"
    ]
