# SPDX-License-Identifier: Apache-2.0
"""The simulation's model of a pair: times of forwards, acceptance of drafts, and the rounds of a method.

Times of a forward that many sessions share come from a measured curve, a paper, or a pacing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, partial
from random import Random
from typing import Protocol

from specdec.drafting.length import pipeline_depth
from specdec.errors import OptionsError
from specdec.methods import Method, get_method
from specdec.options import DecodingOptions
from specdec.row_ms import RowMs
from specnav.bench.data.latency import forward_ms
from specnav.bench.records.capacity import BatchCurve, on_line
from specnav.results.errors import EvaluationError

KNEE_ROWS = 156.0
"""Knee of an A100 in 16 bits: 312 TFLOP/s over 2 TB/s. Below it, reading the weights takes longer than computing."""
METHODS = ("ar", "cloud-sd", "sd", "fsd", "specedge", "auto")
"""Methods that can be simulated."""
TREE_FAILS = 0.66
"""Ratio of the rejection rate of a level in a tree of 32 nodes to that of a token in a chain. On the shipped text pair,
a tree of depth 10 has τ 3.28, a chain of 4 has τ 2.06.
"""
TREE_DEPTH = 6
"""Assumed levels of `specedge`'s tree, because a measured run does not record them."""
MAX_DEPTH = 16
DRAFT_BYTES, TREE_BYTES, VERDICT_BYTES, HINTED_BYTES = 18, 125, 15, 173
"""Sizes of a round's messages on the shipped text pair: a chain, a tree, a verdict, and a verdict with its hints."""
OVERHEAD_MS = 1.0
"""Time of a round between a verdict and the next message (docs/notebook/measurements.md: 0.35 on quiet cores, 1.3 to 4
with other work). Without it, a draft that is ready could join the forward that begins when its verdict is sent.
"""
TOKEN_BYTES = 3
"""Bytes per prompt token on the wire."""


def tree_for(alpha: float) -> float:
    """The assumed acceptance of a tree's level, if only that of a chain is known."""
    return 1 - TREE_FAILS * (1 - alpha)


class SimulatedForwardTimes(Protocol):
    """Milliseconds of a forward, for `sessions` sessions that verify or decode together with rows of prompts."""

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

    Times by rows are interpolated linearly, and the last line is extended, except for a pacing. A single time holds up
    to the knee, the rows that the device computes while it reads the weights; beyond, time grows in proportion. Rows of
    prompts, for which no paper prints a time, cost their computation: a one-row forward's time divided by the knee.
    """

    def __init__(self, ms: float, knee: float = KNEE_ROWS) -> None:
        """ms: a number or a RowMs. knee: rows; infinite for a pacing, where additional rows cost nothing.

        Raises EvaluationError unless times are positive.
        """
        if not ms > 0:
            raise EvaluationError("forward times must be more than 0 ms: give those of the GPU")
        points = [(float(rows), one) for rows, one in ms.points] if isinstance(ms, RowMs) else []
        points += [(1e6, points[-1][1])] if points and knee == math.inf else []
        self._by_rows = cache(partial(on_line, points)) if points else None
        self._ms = float(ms)
        self._knee = knee

    def forward_ms(self, sessions: int, rows: int, prompt_rows: int) -> float:
        """See SimulatedForwardTimes."""
        if self._by_rows is None:
            return self._ms * max(1.0, (rows + prompt_rows) / self._knee)
        return self._by_rows(max(1, rows)) + prompt_rows * self._ms / self._knee


@dataclass(frozen=True)
class SimulatedPair:
    """Times and acceptance of a pair.

    draft_ms, cloud_draft_ms: time of a draft forward on the edge, and in the cloud; a number or by rows (RowMs). gamma:
    draft tokens of a chain. alpha, tree_alpha: probability that a token of a chain, or a level of a tree, is accepted
    if all before it were. miss: share of verdicts for which fsd has no draft ready. overhead_ms: time of a round on the
    edge in addition to drafting. knee: of the draft model in the cloud (RowTimes).
    """

    draft_ms: float
    cloud_draft_ms: float
    gamma: int = DecodingOptions.gamma
    alpha: float = 0.6
    tree_alpha: float = 0.736
    miss: float = 0.5563
    overhead_ms: float = OVERHEAD_MS
    knee: float = KNEE_ROWS

    def __post_init__(self) -> None:
        """Check the values. Raises EvaluationError."""
        for name in ("alpha", "tree_alpha", "miss"):
            if not 0 <= getattr(self, name) <= 1:
                raise EvaluationError(f"{name} is {getattr(self, name):g}: a share is from 0 to 1")
        if self.gamma < 1 or self.draft_ms < 0 or self.overhead_ms < 0:
            raise EvaluationError("a draft must have at least one token and a time of at least 0")

    @property
    def cloud_draft(self) -> RowTimes:
        """Times of the draft model in the cloud. Raises EvaluationError unless they are positive."""
        return RowTimes(self.cloud_draft_ms, self.knee)

    def draft_at(self, rows: int) -> float:
        """Milliseconds of a draft forward over `rows` rows."""
        return forward_ms(self.draft_ms, rows)


@dataclass(frozen=True)
class MethodModel:
    """The simulation's model of one method on one link.

    streams: whether the cloud decodes without the edge. cloud_drafts: whether the cloud has its own draft model. size:
    tokens of a chain, or levels of a tree; 0 without drafts. rows: of the verification. draft_ms: time of a draft
    forward on the edge. tree: whether drafts are trees, which keep growing during verification. predrafts: whether the
    edge drafts for likely verdicts, which takes prepare_ms in all. up, down: bytes of a round.
    """

    name: str
    streams: bool
    cloud_drafts: bool
    size: int
    rows: int
    draft_ms: float
    tree: bool = False
    predrafts: bool = False
    prepare_ms: float = 0.0
    up: int = DRAFT_BYTES
    down: int = VERDICT_BYTES


def checked(name: str) -> Method:
    """The method of this name, if it can be simulated. Raises EvaluationError."""
    try:
        method = get_method(name)
    except OptionsError as error:
        raise EvaluationError(str(error)) from None
    if name not in METHODS:
        raise EvaluationError(f"method {name!r} cannot be simulated: choose from {', '.join(METHODS)}")
    return method


def way_of(name: str, pair: SimulatedPair, target: SimulatedForwardTimes, rtt_ms: float) -> MethodModel:
    """The model of a method; a tree is as deep as the edge can draft during one verification (SpecEdge).

    Raises EvaluationError.
    """
    method = checked(name)
    draft_ms = pair.draft_at(1)
    if method.cloud == "stream":
        size = pair.gamma if method.cloud_drafts else 0
        return MethodModel(name, True, method.cloud_drafts, size, size + 1, draft_ms)
    if method.tree is not None:
        verify_ms = target.forward_ms(1, method.tree.budget + 1, 0)
        depth = pipeline_depth(draft_ms, verify_ms, rtt_ms, min(MAX_DEPTH, method.tree.budget))
        level_ms = pair.draft_at(max(1, method.tree.budget // depth))
        return MethodModel(
            name, False, False, depth, method.tree.budget + 1, level_ms, tree=True, up=TREE_BYTES
        )
    prepare_ms = pair.gamma * pair.draft_at(method.rows) if method.predrafts else 0.0
    return MethodModel(
        name, False, False, pair.gamma, pair.gamma + 1, draft_ms, predrafts=method.predrafts, prepare_ms=prepare_ms,
        down=HINTED_BYTES if method.hints else VERDICT_BYTES,
    )  # fmt: skip


def accepted(drawn: Random, alpha: float, most: int) -> int:
    """Draw the number of accepted tokens, at most `most`; each has the probability `alpha` after the one before it."""
    log_alpha = math.log(max(alpha, 1e-12)) if alpha < 1 else -1e-12
    return min(most, int(math.log(1.0 - drawn.random()) / log_alpha))
