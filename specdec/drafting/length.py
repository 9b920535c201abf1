# SPDX-License-Identifier: Apache-2.0
"""The axis `length`: how long a draft should be. Fixed, from measurements, or until the draft is doubtful.

A policy decides how deep a draft may become, and when a shallower draft should be sent anyway.
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
"""Greatest depth of a draft that is sent once further drafting does not pay."""
MAX_TRIGGERED = 64
"""Greatest depth of a draft that no trigger ends."""


@dataclass(frozen=True)
class Prospects:
    """The draft model's expectations. promise: accepted tokens of the draft. frontier: the same for the nodes that the
    next forward pass would process, an upper bound on what that pass can add.
    """

    promise: float
    frontier: float

    @classmethod
    def of_chain(cls, chances: Sequence[float]) -> Prospects:
        """chances: of each token of an unfinished chain, given that all before it are accepted."""
        return cls(promise_of(chances), prod(chances))


@dataclass(frozen=True)
class LengthPolicy:
    """name: one of LENGTHS, or a trigger (specdec.drafting.triggers). gamma: the requested depth, used until
    measurements exist.
    """

    name: str
    gamma: int

    @cached_property
    def trigger(self) -> Trigger | None:
        """The trigger that ends a doubtful draft; None for other policies."""
        return make_trigger(self.name)

    @property
    def weighs(self) -> bool:
        """Whether each forward pass is weighed against sending the draft (`pays`)."""
        return self.name in ("marginal", "worth")

    @property
    def asks_chances(self) -> bool:
        """Whether the draft model's probability of each token is needed."""
        return self.weighs or self.trigger is not None

    def size(self, measured: Measured) -> int:
        """How deep the next draft may become."""
        return self.usual(measured) if self.trigger is None else MAX_TRIGGERED

    def usual(self, measured: Measured) -> int:
        """How deep a draft is likely to become."""
        if self.name in ("fixed", "latency") or self.trigger is not None:
            return self.gamma
        draft_s, verify_s = measured.draft_s, measured.verify_s
        # A draft that queues in the cloud was early, so `pipeline` must not become shorter because of the queue.
        rtt_s = measured.rtt_s if self.name == "pipeline" else measured.away_s
        if draft_s is None or verify_s is None or rtt_s is None:
            return self.gamma
        if self.weighs:
            return max(MAX_MARGINAL, self.gamma)
        if self.name == "pipeline":
            return pipeline_depth(draft_s, verify_s, rtt_s, max(MAX_SOLVED, self.gamma))
        acceptance = [measured.chain.chance(depth) for depth in range(MAX_SOLVED)]
        verify_rows_s = measured.cloud_forwards.measured_s
        return best_length(acceptance, draft_s, lambda rows: verify_rows_s(rows) or verify_s, rtt_s)

    def pays(self, prospects: Prospects, since_s: float, measured: Measured) -> bool:
        """Whether one more forward pass gains more tokens than arrive in its time on average.

        since_s: seconds since the last verdict. Used by `marginal` and `worth` only; without measurements, True.
        """
        draft_s, verify_s, rtt_s = measured.draft_s, measured.verify_s, measured.away_s
        if not self.weighs or draft_s is None or verify_s is None or rtt_s is None:
            return True
        gain = measured.kept.value * measured.grown.against(measured.chain.chance(1)) * prospects.frontier
        price = measured.forward_price
        if price is None:
            price = (1.0 + measured.kept.value * prospects.promise) / (since_s + rtt_s + verify_s) * draft_s
        return gain > price

    def ends_at(self, chances: Sequence[float]) -> int | None:
        """How many tokens to send because the trigger fires at the last of them; None if it does not fire."""
        return None if self.trigger is None else fires_at(self.trigger, chances)

    def cut_s(self, measured: Measured) -> float:
        """Seconds of drafting after which the draft is sent as it is; infinite except for `latency`.

        With one draft in flight while the next is made, a round costs max(drafting, RTT + verification) (PicoSpec).
        Drafting for longer than the exchange only makes the cloud wait.
        """
        if self.name != "latency" or measured.verify_s is None or measured.away_s is None:
            return float("inf")
        return measured.away_s + measured.verify_s


def pipeline_depth(draft_s: float, verify_s: float, rtt_s: float, limit: int) -> int:
    """The depth that solves verify = depth * draft + RTT (SpecEdge), clipped to 1..`limit`.

    A verification of 94.2 ms and a draft forward pass of 11 ms give 7, 5 and 4 at an RTT of 15, 40 and 50 ms.
    """
    if draft_s <= 0.0:
        return limit
    return max(1, min(limit, round((verify_s - rtt_s) / draft_s)))


def best_length(acceptance: list[float], draft_s: float, verify_s: Callable[[int], float], rtt_s: float) -> int:
    """The chain length with the most expected tokens per second, with one draft in flight.

    acceptance[i]: chance that token i is accepted if all before it are. verify_s: seconds to verify n rows.
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
