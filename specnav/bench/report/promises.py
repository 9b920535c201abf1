# SPDX-License-Identifier: Apache-2.0
"""Compares the speed that a controller promised for its plans with the measured speed, over windows of an answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from specdec.edge.stats import RoundStats
from specnav.bench.records.bench import AnswerRecord
from specnav.report.charts import ChartLine, LineChart

WINDOW_TOKENS = 32

Window = tuple[float, float]
"""(measured, promised) milliseconds for a window of tokens."""


def windows(rounds: Iterable[RoundStats], tokens: int = WINDOW_TOKENS) -> list[Window]:
    """Split an answer's rounds into windows of at least `tokens` tokens.

    Rounds without a promise are skipped. An incomplete last window is dropped.
    """
    found: list[Window] = []
    took = promised = 0.0
    gained = 0
    for one in rounds:
        if one.promised_ms <= 0.0 or one.took_ms <= 0.0:
            continue
        took, promised, gained = took + one.took_ms, promised + one.promised_ms, gained + one.gained
        if gained >= tokens:
            found.append((took, promised))
            took, promised, gained = 0.0, 0.0, 0
    return found


def mean_error(found: Sequence[Window]) -> float | None:
    """Mean of |promised speed / measured speed - 1|; None without windows."""
    return fmean(abs(took / promised - 1.0) for took, promised in found) if found else None


def promises_of(answers: Mapping[str, Sequence[AnswerRecord]]) -> dict[str, list[Window]]:
    """The windows of every method that a controller drives."""
    found = {
        method: [window for record in records for window in windows(record.rounds)]
        for method, records in answers.items()
    }
    return {method: several for method, several in found.items() if several}


def promises_chart(method: str, found: Sequence[Window]) -> LineChart:
    """Chart with one dot per window: promised and measured speed."""
    speeds = [(WINDOW_TOKENS / promised * 1e3, WINDOW_TOKENS / took * 1e3) for took, promised in found]
    ends = [min(min(one) for one in speeds), max(max(one) for one in speeds)]
    return LineChart(
        title=f"{method}: promised and measured",
        x_label="promised, tokens a second",
        y_label="measured",
        lines=(
            ChartLine(method, tuple(sorted(speeds)), method, joined=False),
            ChartLine("as promised", tuple((end, end) for end in ends), "formula", computed=True),
        ),
        caption=f"{len(found)} windows of {WINDOW_TOKENS} tokens of an answer; mean error of the promised speed "
        f"{100 * (mean_error(found) or 0.0):.1f} %. Promises correct for the bias of choosing the best-looking plan.",
    )
