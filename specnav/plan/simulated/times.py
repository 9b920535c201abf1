# SPDX-License-Identifier: Apache-2.0
"""What a forward takes that many sessions share: from a measured curve, or from what a paper or a pacing says.

A `SimulatedForwardTimes` answers for a forward of `sessions` that verify or decode with `rows` rows together, and
`prompt_rows`
of prompts beside them.
"""

from __future__ import annotations

from typing import Protocol

from specdec.row_ms import RowMs
from specnav.bench.records.batch import BatchCurve, on_line
from specnav.results.errors import EvaluationError

KNEE_ROWS = 156.0
"""Of an A100 in 16 bits: 312 TFLOP/s over 2 TB/s. Up to there reading the weights takes longer than computing."""


class SimulatedForwardTimes(Protocol):
    """Milliseconds of a forward."""

    def forward_ms(self, sessions: int, rows: int, prompt_rows: int) -> float:
        """One forward of this many sessions, their rows together, and rows of prompts."""
        ...


class CurveTimes:
    """As `specnav bench study batch` measured it; rows of a prompt count as rows of one session more."""

    def __init__(self, curve: BatchCurve) -> None:
        self._curve = curve
        self._known: dict[tuple[int, int], float] = {}

    def forward_ms(self, sessions: int, rows: int, prompt_rows: int) -> float:
        """See ForwardTimes."""
        key = (sessions + (prompt_rows > 0), rows + prompt_rows)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._curve.latency_ms(key[0], key[1] / max(1, key[0]))
        return found


class RowTimes:
    """From a time by rows, or one for all: an operating point's, or a pacing.

    By rows: straight lines between what is given, the last one going on. One time: for as many rows as the device
    computes while it reads the weights (knee), and in proportion beyond. Rows of prompts, of which no paper prints the
    price, cost what computing takes: a one-row forward's time over the knee.
    """

    def __init__(self, ms: float, knee: float = KNEE_ROWS) -> None:
        """ms: a number or a RowMs. knee: rows; infinite for a pacing, under which no row has a price. Raises
        EvaluationError where a forward would take no time.
        """
        if not ms > 0:
            raise EvaluationError("forward times must be more than 0 ms: give those of the GPU")
        self._points = [(float(rows), one) for rows, one in ms.points] if isinstance(ms, RowMs) else None
        self._ms = float(ms)
        self._knee = knee
        self._known: dict[tuple[int, int], float] = {}

    def forward_ms(self, sessions: int, rows: int, prompt_rows: int) -> float:
        """See ForwardTimes."""
        key = (rows, prompt_rows)
        found = self._known.get(key)
        if found is None:
            if self._points is None:
                found = self._ms * max(1.0, (rows + prompt_rows) / self._knee)
            else:
                found = on_line(self._points, max(1, rows)) + prompt_rows * self._ms / self._knee
            self._known[key] = found
        return found
