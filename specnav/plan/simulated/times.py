# SPDX-License-Identifier: Apache-2.0
"""Times of a forward that many sessions share: from a measured curve, a paper, or a pacing.

A `SimulatedForwardTimes` gives the time of a forward for `sessions` sessions that verify or decode `rows` rows in all,
together with `prompt_rows` rows of prompts.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Protocol

from specdec.row_ms import RowMs
from specnav.bench.records.batch import BatchCurve, on_line
from specnav.results.errors import EvaluationError

KNEE_ROWS = 156.0
"""Knee of an A100 in 16 bits: 312 TFLOP/s over 2 TB/s. Below it, reading the weights takes longer than computing."""


class SimulatedForwardTimes(Protocol):
    """Milliseconds of a forward."""

    def forward_ms(self, sessions: int, rows: int, prompt_rows: int) -> float:
        """Milliseconds of a forward. rows: of all sessions together. prompt_rows: additional rows of prompts."""
        ...


class CurveTimes:
    """Times measured by `specnav bench study batch`; rows of prompts count as rows of one more session."""

    def __init__(self, curve: BatchCurve) -> None:
        self._latency_ms = cache(curve.latency_ms)

    def forward_ms(self, sessions: int, rows: int, prompt_rows: int) -> float:
        """See SimulatedForwardTimes."""
        sharing = sessions + (prompt_rows > 0)
        return self._latency_ms(sharing, (rows + prompt_rows) / max(1, sharing))


class RowTimes:
    """Times from an operating point or a pacing, given by rows or as one time.

    Times by rows are interpolated linearly, and the last line is extended. A single time holds up to the knee, the rows
    that the device computes while it reads the weights; beyond, time grows in proportion. Rows of prompts, for which
    no paper prints a time, cost their computation: the time of a one-row forward divided by the knee.
    """

    def __init__(self, ms: float, knee: float = KNEE_ROWS) -> None:
        """ms: a number or a RowMs. knee: rows; infinite for a pacing, where additional rows cost nothing.

        Raises EvaluationError unless times are positive.
        """
        if not ms > 0:
            raise EvaluationError("forward times must be more than 0 ms: give those of the GPU")
        points = [(float(rows), one) for rows, one in ms.points] if isinstance(ms, RowMs) else []
        self._by_rows = cache(partial(on_line, points)) if points else None
        self._ms = float(ms)
        self._knee = knee

    def forward_ms(self, sessions: int, rows: int, prompt_rows: int) -> float:
        """See SimulatedForwardTimes."""
        if self._by_rows is None:
            return self._ms * max(1.0, (rows + prompt_rows) / self._knee)
        return self._by_rows(max(1, rows)) + prompt_rows * self._ms / self._knee
