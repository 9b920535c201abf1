# Copyright 2026 spec_vlm_nav maintainers
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.

"""
Summary of the last rounds: the method's choices, the verifier's load, and each token's origin.

Pure; computed from the round records that the decoder keeps anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
import enum

from specdec.edge.stats import RoundStats

LAST = 20
SHARED = 1.05


@dataclass(frozen=True)
class RoundHistory:
    """
    Summary of the last rounds; times are means, ms.

    rounds: their number; 0: nothing is known. plan, why: the controller's choice in the last round
    (method `auto`). queue_ms: wait in the cloud for a forward pass. sessions: answers that shared a
    forward pass.
    """

    method: str = ""
    plan: str = ""
    why: str = ""
    rounds: int = 0
    queue_ms: float = 0.0
    forward_ms: float = 0.0
    sessions: float = 1.0
    tau: float = 0.0

    @property
    def load(self) -> str:
        """Return the verifier's load in words; "" if nothing is known yet."""
        if not self.rounds:
            return ""
        shared = f", shared by {self.sessions:.1f} answers" if self.sessions >= SHARED else ""
        busy = "busy: " if self.queue_ms > self.forward_ms else ""
        return (
            f"{busy}a forward pass takes {self.forward_ms:.3g} ms{shared}, "
            f"rounds wait {self.queue_ms:.3g} ms for it"
        )


def course_of(method: str, rounds: Sequence[RoundStats]) -> RoundHistory:
    """Return the summary of the last LAST rounds."""
    last = rounds[-LAST:]
    if not last:
        return RoundHistory(method)
    count = len(last)
    return RoundHistory(
        method,
        last[-1].mode,
        last[-1].why,
        count,
        sum(one.queue_ms for one in last) / count,
        sum(one.verify_ms for one in last) / count,
        sum(one.batch for one in last) / count,
        sum(one.gained for one in last) / count,
    )


class Origin(enum.Enum):
    """Origin of a token, as in DecisionMetrics."""

    TARGET = 0  # the target's own: a bonus or recovered token
    DRAFTED = 1  # an accepted draft token
    AHEAD = 2  # an accepted draft token that was prepared before the previous verdict
    UNVERIFIED = 3  # only the draft model produced it


def origins_of(rounds: Sequence[RoundStats], verified: int, count: int) -> list[int]:
    """
    Return the origins of `count` tokens, of which the first `verified` are verified.

    Each round contributes its accepted draft tokens, prepared ones first, then the target's own
    token.
    """
    found: list[int] = []
    for one in rounds:
        drafted = max(0, one.gained - 1)
        ahead = min(drafted, one.ready or 0)
        found += [Origin.AHEAD.value] * ahead + [Origin.DRAFTED.value] * (drafted - ahead)
        found += [Origin.TARGET.value] * min(1, one.gained)
    found = (found + [Origin.TARGET.value] * verified)[:verified]
    return found + [Origin.UNVERIFIED.value] * (count - verified)


def known_so_far(rounds: Sequence[RoundStats], verified: int, count: int) -> tuple[int, list[int]]:
    """
    Return how many of the first `count` tokens have a known origin, and these origins.

    A token is emitted a moment before its round is recorded; it is left out until then.
    """
    known = min(verified, sum(one.gained for one in rounds))
    if known < verified:
        return known, origins_of(rounds, known, known)
    return count, origins_of(rounds, verified, count)
