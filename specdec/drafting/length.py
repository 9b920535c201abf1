"""How long a draft should be: fixed, or from what was measured. An axis of its own (METHODS.md, axis 7).

A policy says how deep a draft is to become, and when a draft that is not as deep yet should leave all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from specdec.estimates.measured import Measured

LengthName = Literal["fixed", "latency", "pipeline", "online", "marginal"]
LENGTHS: tuple[LengthName, ...] = ("fixed", "latency", "pipeline", "online", "marginal")
MAX_SOLVED = 16
MAX_MARGINAL = 10
"""A draft that leaves as soon as drafting on would not pay becomes no deeper than this."""


@dataclass(frozen=True)
class Prospects:
    """What the draft model holds of its draft. promise: tokens that will be accepted; frontier: the same of the nodes
    that would go through the model next, so that a further forward can at most bring so much.
    """

    promise: float
    frontier: float


@dataclass(frozen=True)
class LengthPolicy:
    """gamma: the depth that was asked for; it stays wherever nothing is measured yet."""

    name: LengthName
    gamma: int

    def size(self, measured: Measured) -> int:
        """How deep the next draft is to become."""
        if self.name in ("fixed", "latency"):
            return self.gamma
        draft_s, verify_s = measured.draft_s, measured.verify_s
        # A draft that waits in the cloud came too early for its forward: `pipeline` must not make it shorter yet.
        rtt_s = measured.rtt_s if self.name == "pipeline" else measured.away_s
        if draft_s is None or verify_s is None or rtt_s is None:
            return self.gamma
        if self.name == "marginal":
            return max(MAX_MARGINAL, self.gamma)
        if self.name == "pipeline":
            return pipeline_depth(draft_s, verify_s, rtt_s, max(MAX_SOLVED, self.gamma))
        acceptance = [measured.acceptance(depth) for depth in range(MAX_SOLVED)]
        return best_length(acceptance, draft_s, lambda rows: measured.verify_rows_s(rows) or verify_s, rtt_s)

    def pays(self, prospects: Prospects, since_s: float, measured: Measured) -> bool:
        """Whether one more forward brings more tokens than come in its time on average.

        since_s: the time since the verdict. Only `marginal` asks; whatever it does not know speaks for drafting on.
        """
        draft_s, verify_s, rtt_s = measured.draft_s, measured.verify_s, measured.away_s
        if self.name != "marginal" or draft_s is None or verify_s is None or rtt_s is None:
            return True
        gain = measured.kept.value * measured.grown.against(measured.acceptance(1)) * prospects.frontier
        rate = measured.tokens_per_s
        if rate is None:
            rate = (1.0 + measured.kept.value * prospects.promise) / (since_s + rtt_s + verify_s)
        return gain > rate * draft_s

    def cut_s(self, measured: Measured) -> float:
        """How long drafting may take before the draft leaves as it is; endless but for `latency`.

        A draft on its way while the next one is made costs max(drafting, RTT + verification) (paper 002):
        drafting longer than the exchange takes only makes the cloud wait.
        """
        if self.name != "latency" or measured.verify_s is None or measured.away_s is None:
            return float("inf")
        return measured.away_s + measured.verify_s


def pipeline_depth(draft_s: float, verify_s: float, rtt_s: float, limit: int) -> int:
    """The depth that solves verify = depth * draft + RTT (paper 001), 1 to `limit`.

    94.2 ms a verification and 11 ms a draft forward give 7, 5 and 4 at an RTT of 15, 40 and 50 ms.
    """
    if draft_s <= 0.0:
        return limit
    return max(1, min(limit, round((verify_s - rtt_s) / draft_s)))


def best_length(acceptance: list[float], draft_s: float, verify_s: Callable[[int], float], rtt_s: float) -> int:
    """The chain length with the most expected tokens a second, one draft on its way at a time.

    acceptance[i]: chance that token i stays if all before it did. verify_s: of so many rows.
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
