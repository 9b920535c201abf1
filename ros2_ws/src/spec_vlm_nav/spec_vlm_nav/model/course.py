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
How the last answer came: what the method chose and why, what the verifier had to do, each token.

Pure; from the records that the decoder keeps of its rounds anyway.
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
    How the last rounds went; times are means, ms. rounds: how many they were; 0: nothing is known.

    plan, why: of the last round, where a controller chose it (`auto`). queue_ms: waiting in the
    cloud for a forward. sessions: answers that shared it.
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
        """Return the verifier's load in words; "" while nothing is known."""
        if not self.rounds:
            return ""
        shared = f", shared by {self.sessions:.1f} answers" if self.sessions >= SHARED else ""
        busy = "busy: " if self.queue_ms > self.forward_ms else ""
        return (
            f"{busy}a forward takes {self.forward_ms:.3g} ms{shared}, "
            f"rounds wait {self.queue_ms:.3g} ms for it"
        )


def course_of(method: str, rounds: Sequence[RoundStats]) -> RoundHistory:
    """Return how the last rounds went."""
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
    """How a token of an answer came, as in DecisionMetrics."""

    TARGET = 0  # the target's own: behind an accepted draft, or in the place of a rejected token
    DRAFTED = 1  # drafted, and accepted
    AHEAD = 2  # drafted ahead of the verdict before, and accepted
    UNVERIFIED = 3  # the draft model alone


def origins_of(rounds: Sequence[RoundStats], verified: int, count: int) -> list[int]:
    """
    Return the origins of `count` tokens, of which the first `verified` are.

    Each round gives what it gained: accepted draft tokens, those that stood ready first, and the
    target's own at the end.
    """
    found: list[int] = []
    for one in rounds:
        drafted = max(0, one.gained - 1)
        ahead = min(drafted, one.ready or 0)
        found += [Origin.AHEAD.value] * ahead + [Origin.DRAFTED.value] * (drafted - ahead)
        found += [Origin.TARGET.value] * min(1, one.gained)
    found = (found + [Origin.TARGET.value] * verified)[:verified]
    return found + [Origin.UNVERIFIED.value] * (count - verified)


def known_so_far(
    rounds: Sequence[RoundStats], verified: int, count: int
) -> tuple[int, list[int]]:
    """
    Return how many of the `count` tokens that came so far can be told by origin, and the origins.

    A token is given out a moment before its round is on record: it is left out until then.
    """
    known = min(verified, sum(one.gained for one in rounds))
    if known < verified:
        return known, origins_of(rounds, known, known)
    return count, origins_of(rounds, verified, count)
