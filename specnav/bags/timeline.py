# SPDX-License-Identifier: Apache-2.0
"""A bag's time without long pauses.

A clock that was set or jumped leaves years between two messages; playing a bag must still take a bounded time.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

MAX_PAUSE_S = 10
_SECOND_NS, _DAY_S = 1_000_000_000, 86400


@dataclass(frozen=True)
class BagTimeline:
    """Pauses in which nothing was recorded, as (begin, end) in ns; each is shortened to MAX_PAUSE_S."""

    pauses: tuple[tuple[int, int], ...] = ()

    @classmethod
    def from_seconds(cls, seconds: Iterable[int]) -> BagTimeline:
        """Build it from the seconds in which something was recorded."""
        known = sorted(seconds)
        return cls(
            tuple(
                ((before + 1) * _SECOND_NS, after * _SECOND_NS)
                for before, after in itertools.pairwise(known)
                if after - before - 1 > MAX_PAUSE_S
            )
        )

    def played(self, time_ns: int) -> int:
        """A recorded time minus all shortening before it."""
        return time_ns - self._cut_before(bisect.bisect_right(self.pauses, time_ns, key=lambda pause: pause[1]))

    def recorded(self, played_ns: int) -> int:
        """The recorded time that belongs to a played one."""
        return played_ns + self._cut_before(bisect.bisect_right(self._ends, played_ns))

    @cached_property
    def _cuts(self) -> list[int]:
        """The total shortening up to and including each pause."""
        return list(
            itertools.accumulate(end - begin - MAX_PAUSE_S * _SECOND_NS for begin, end in self.pauses)
        )

    @cached_property
    def _ends(self) -> list[int]:
        """When each pause ends, in played time."""
        return [end - cut for (_, end), cut in zip(self.pauses, self._cuts, strict=True)]

    def _cut_before(self, pauses: int) -> int:
        return self._cuts[pauses - 1] if pauses else 0

    @property
    def longest_s(self) -> float:
        """The longest pause that is shortened."""
        return max((end - begin for begin, end in self.pauses), default=0) / _SECOND_NS

    @property
    def jumps(self) -> bool:
        """Whether a pause is longer than any robot's: the clock was set in between."""
        return self.longest_s > _DAY_S

    @property
    def notes(self) -> list[str]:
        """Remarks about the pauses."""
        if not self.pauses:
            return []
        count = "1 pause" if len(self.pauses) == 1 else f"{len(self.pauses)} pauses"
        return [f"{count} of up to {_length(self.longest_s)} in the recording, each played as {MAX_PAUSE_S} s at most"]


def _length(seconds: float) -> str:
    for name, size in (("years", 365.25 * _DAY_S), ("days", _DAY_S), ("hours", 3600)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {name}"
    return f"{seconds:.0f} s"
