# SPDX-License-Identifier: Apache-2.0
"""The simulation's model of a pair: time and acceptance of drafts, and the rounds of a method."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

from specdec.drafting.length import pipeline_depth
from specdec.errors import OptionsError
from specdec.methods import Method, get_method
from specdec.options import DecodingOptions
from specnav.bench.data.latency import forward_ms
from specnav.plan.simulated.times import SimulatedForwardTimes
from specnav.results.errors import EvaluationError

METHODS = ("ar", "cloud-sd", "sd", "fsd", "specedge", "auto")
"""Methods that can be simulated."""
TREE_FAILS = 0.66
"""Ratio of the rejection rate of a level in a tree of 32 nodes to that of a token in a chain. On the shipped text pair,
a tree of depth 10 has τ 3.28, a chain of 4 has τ 2.06.
"""
MAX_DEPTH = 16
DRAFT_BYTES, TREE_BYTES, VERDICT_BYTES, HINTED_BYTES = 18, 125, 15, 173
"""Sizes of a round's messages on the shipped text pair: a chain, a tree, a verdict, and a verdict with its hints."""
OVERHEAD_MS = 1.0
"""Time of a round between a verdict and the next message (docs/figures.md: 0.35 on quiet cores, 1.3 to 4 with other
work). Without it, a draft that is ready could join the forward that begins when its verdict is sent.
"""
TOKEN_BYTES = 3
"""Bytes per prompt token on the wire."""


@dataclass(frozen=True)
class SimulatedPair:
    """Times and acceptance of a pair.

    draft_ms: time of a draft forward on the edge, a number or by rows (RowMs). cloud_draft: times of the draft model
    in the cloud. gamma: draft tokens of a chain. alpha, tree_alpha: probability that a token of a chain, or a level of
    a tree, is accepted if all before it were. miss: share of verdicts for which fsd has no draft ready. overhead_ms:
    time of a round on the edge in addition to drafting.
    """

    draft_ms: float
    cloud_draft: SimulatedForwardTimes
    gamma: int = DecodingOptions.gamma
    alpha: float = 0.6
    tree_alpha: float = 0.736
    miss: float = 0.5563
    overhead_ms: float = OVERHEAD_MS

    def __post_init__(self) -> None:
        """Check the values. Raises EvaluationError."""
        for name in ("alpha", "tree_alpha", "miss"):
            if not 0 <= getattr(self, name) <= 1:
                raise EvaluationError(f"{name} is {getattr(self, name):g}: a share is from 0 to 1")
        if self.gamma < 1 or self.draft_ms < 0 or self.overhead_ms < 0:
            raise EvaluationError("a draft must have at least one token and a time of at least 0")

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
