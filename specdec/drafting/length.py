# SPDX-License-Identifier: Apache-2.0
"""How long a draft should be: fixed, from what was measured, or until it is doubtful. An axis of its own.

A policy says how deep a draft is to become, and when a draft that is not as deep yet should leave all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Literal

from specdec.draft import promise_of
from specdec.drafting.triggers import Trigger, fires_at, make_trigger
from specdec.estimates.measured import Measured

LengthName = Literal["fixed", "latency", "pipeline", "online", "marginal", "worth"]
LENGTHS: tuple[LengthName, ...] = ("fixed", "latency", "pipeline", "online", "marginal", "worth")
MAX_SOLVED = 16
MAX_MARGINAL = 10
"""A draft that leaves as soon as drafting on would not pay becomes no deeper than this."""
MAX_TRIGGERED = 64
"""A draft that no trigger ends is no deeper than this."""


@dataclass(frozen=True)
class Prospects:
    """What the draft model holds of its draft. promise: tokens that will be accepted; frontier: the same of the nodes
    that would go through the model next, so that a further forward can at most bring so much.
    """

    promise: float
    frontier: float

    @classmethod
    def of_chain(cls, chances: Sequence[float]) -> Prospects:
        """chances: of each token of a chain that goes on, if all before it are accepted."""
        return cls(promise_of(chances), prod(chances))


@dataclass(frozen=True)
class LengthPolicy:
    """name: one of LENGTHS, or a trigger's (specdec.drafting.triggers). gamma: the depth that was asked for; it stays
    wherever nothing is measured yet.
    """

    name: str
    gamma: int

    @cached_property
    def trigger(self) -> Trigger | None:
        """What ends a draft that has become doubtful; None for the other policies."""
        return make_trigger(self.name)

    @property
    def weighs(self) -> bool:
        """Whether each forward is weighed against leaving (`pays`)."""
        return self.name in ("marginal", "worth")

    @property
    def asks_chances(self) -> bool:
        """Whether the draft's probability of each token is needed."""
        return self.weighs or self.trigger is not None

    def size(self, measured: Measured) -> int:
        """How deep the next draft may become."""
        return self.usual(measured) if self.trigger is None else MAX_TRIGGERED

    def usual(self, measured: Measured) -> int:
        """How deep a draft is likely to become."""
        if self.name in ("fixed", "latency") or self.trigger is not None:
            return self.gamma
        draft_s, verify_s = measured.draft_s, measured.verify_s
        # A draft that waits in the cloud came too early for its forward: `pipeline` must not make it shorter yet.
        rtt_s = measured.rtt_s if self.name == "pipeline" else measured.away_s
        if draft_s is None or verify_s is None or rtt_s is None:
            return self.gamma
        if self.weighs:
            return max(MAX_MARGINAL, self.gamma)
        if self.name == "pipeline":
            return pipeline_depth(draft_s, verify_s, rtt_s, max(MAX_SOLVED, self.gamma))
        acceptance = [measured.acceptance(depth) for depth in range(MAX_SOLVED)]
        return best_length(acceptance, draft_s, lambda rows: measured.verify_rows_s(rows) or verify_s, rtt_s)

    def pays(self, prospects: Prospects, since_s: float, measured: Measured) -> bool:
        """Whether one more forward brings more tokens than come in its time on average.

        since_s: the time since the verdict. Only `marginal` and `worth` ask; what is not known speaks for drafting on.
        """
        draft_s, verify_s, rtt_s = measured.draft_s, measured.verify_s, measured.away_s
        if not self.weighs or draft_s is None or verify_s is None or rtt_s is None:
            return True
        gain = measured.kept.value * measured.grown.against(measured.acceptance(1)) * prospects.frontier
        price = measured.forward_price
        if price is None:
            price = (1.0 + measured.kept.value * prospects.promise) / (since_s + rtt_s + verify_s) * draft_s
        return gain > price

    def ends_at(self, chances: Sequence[float]) -> int | None:
        """How many tokens of a draft leave, because the trigger fires at the last of them; None where it does not."""
        return None if self.trigger is None else fires_at(self.trigger, chances)

    def cut_s(self, measured: Measured) -> float:
        """How long drafting may take before the draft leaves as it is; endless except for `latency`.

        A draft on its way while the next one is made costs max(drafting, RTT + verification) (PicoSpec):
        drafting longer than the exchange takes only makes the cloud wait.
        """
        if self.name != "latency" or measured.verify_s is None or measured.away_s is None:
            return float("inf")
        return measured.away_s + measured.verify_s


def pipeline_depth(draft_s: float, verify_s: float, rtt_s: float, limit: int) -> int:
    """The depth that solves verify = depth * draft + RTT (SpecEdge), 1 to `limit`.

    94.2 ms a verification and 11 ms a draft forward give 7, 5 and 4 at an RTT of 15, 40 and 50 ms.
    """
    if draft_s <= 0.0:
        return limit
    return max(1, min(limit, round((verify_s - rtt_s) / draft_s)))


def best_length(acceptance: list[float], draft_s: float, verify_s: Callable[[int], float], rtt_s: float) -> int:
    """The chain length with the most expected tokens a second, one draft on its way at a time.

    acceptance[i]: chance that token i stays if all before it did. verify_s: of this many rows.
    """
    best, best_rate = 1, 0.0
    expected, alive = 1.0, 1.0
    for index, chance in enumerate(acceptance):
        alive *= chance
        expected += alive
        rate = expected / ((index + 1) * draft_s + verify_s(index + 2) + rtt_s)
        if rate > best_rate:
            best, best_rate = index + 1, rate
    return best
