# SPDX-License-Identifier: Apache-2.0
"""A pair of models as the simulation sees it: what a draft takes, how much of it is accepted, and a method's rounds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

from specdec.drafting.length import pipeline_depth
from specdec.errors import OptionsError
from specdec.methods import Method, get_method
from specdec.options import DecodingOptions
from specdec.row_ms import RowMs
from specnav.plan.simulated.times import SimulatedForwardTimes
from specnav.results.errors import EvaluationError

METHODS = ("ar", "cloud-sd", "sd", "fsd", "specedge", "auto")
"""Those that are modelled."""
TREE_FAILS = 0.66
"""A level of a tree of 32 nodes fails this many times as often as a token of a chain: τ 3.28 with depth 10 on the
shipped text pair, where a chain of 4 has 2.06.
"""
MAX_DEPTH = 16
DRAFT_BYTES, TREE_BYTES, VERDICT_BYTES, HINTED_BYTES = 18, 125, 15, 173
"""A round's messages on the shipped text pair: a chain, a tree; a verdict, and one with its hints."""
OVERHEAD_MS = 1.0
"""Of a round, between a verdict and what follows it (docs/figures.md: 0.35 on quiet cores, 1.3 to 4 beside other work).
Without it a draft that stands ready would still join the forward that begins as its verdict leaves.
"""
TOKEN_BYTES = 3
"""Of a prompt's ids on the wire."""


@dataclass(frozen=True)
class SimulatedPair:
    """draft_ms: a draft forward on the edge, a number or by rows (RowMs). cloud_draft: the same model beside the
    target. gamma: draft tokens of a chain. alpha, tree_alpha: chance that a token of a chain, a level of a tree, is
    accepted where all before it were. miss: share of verdicts that fsd has no draft ready for. overhead_ms: of a
    round on the edge beside drafting.
    """

    draft_ms: float
    cloud_draft: SimulatedForwardTimes
    gamma: int = DecodingOptions.gamma
    alpha: float = 0.6
    tree_alpha: float = 0.736
    miss: float = 0.5563
    overhead_ms: float = OVERHEAD_MS

    def __post_init__(self) -> None:
        """Raises EvaluationError for chances that are none."""
        for name in ("alpha", "tree_alpha", "miss"):
            if not 0 <= getattr(self, name) <= 1:
                raise EvaluationError(f"{name} is {getattr(self, name):g}: a share is from 0 to 1")
        if self.gamma < 1 or self.draft_ms < 0 or self.overhead_ms < 0:
            raise EvaluationError("a draft must have at least one token and a time of at least 0")

    def draft_at(self, rows: int) -> float:
        """Milliseconds of a draft forward with this many rows."""
        return self.draft_ms.for_rows(rows) if isinstance(self.draft_ms, RowMs) else self.draft_ms

    @property
    def log_alpha(self) -> float:
        """For drawing how many tokens of a chain are accepted."""
        return math.log(max(self.alpha, 1e-12)) if self.alpha < 1 else -1e-12

    @property
    def log_tree_alpha(self) -> float:
        """The same of a tree's levels."""
        return math.log(max(self.tree_alpha, 1e-12)) if self.tree_alpha < 1 else -1e-12


@dataclass(frozen=True)
class MethodModel:
    """How one method answers on one link: what the simulation needs of a method.

    streams: the cloud goes on alone. cloud_drafts: with a draft model of its own. size: tokens of a chain, levels of a
    tree; 0 where nothing is drafted. rows: of the verification. draft_ms: a draft forward on the edge. predrafts: for
    likely verdicts, prepare_ms in all. grows: a tree grows on while its verdict is out. up, down: bytes of a round.
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
    """A method that is modelled. Raises EvaluationError."""
    try:
        method = get_method(name)
    except OptionsError as error:
        raise EvaluationError(str(error)) from None
    if name not in METHODS:
        raise EvaluationError(f"method {name!r} is not modelled: choose from {', '.join(METHODS)}")
    return method


def way_of(name: str, pair: SimulatedPair, target: SimulatedForwardTimes, rtt_ms: float) -> MethodModel:
    """A method's way, with a tree as deep as fills a verification of it alone (SpecEdge). Raises EvaluationError."""
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


def accepted(drawn: Random, log_alpha: float, most: int) -> int:
    """Tokens accepted of `most`, each with the same chance after the one before it."""
    return min(most, int(math.log(1.0 - drawn.random()) / log_alpha))
