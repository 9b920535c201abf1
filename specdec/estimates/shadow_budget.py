# SPDX-License-Identifier: Apache-2.0
"""How often shadow drafts may be made: drafts that are only compared with what the cloud says by itself.

They cost nothing where the edge has a device of its own, and as much as they take where edge and cloud share one: so it
is measured how much slower the cloud's words come while one is made. What they cost in all, the prompt that the draft
model takes in for them included, stays a small share of the time, and where drafts are far from being worth their
while they are made more and more seldom.
"""

from __future__ import annotations

from dataclasses import dataclass

from specdec.estimates.measured import CalmMean, Measured

SHARE = 0.005
"""Of the time, at most, that shadow drafts may make an answer longer."""
AT_FIRST = 1.0
"""Tokens' time that the first ones may cost beside."""
BETWEEN, MOST_BETWEEN = 8, 1024
"""Tokens between two shadow drafts, and the most where they do not pay."""
_GUESS, _GUESS_TOKENS = 0.5, 2.0
"""Seconds that a second of shadow drafting costs, before that was measured; as if it had been found in this long."""
_UNSEEN = 1.0
"""What it is held to cost at least where not all of that can be seen."""


@dataclass
class _Stretch:
    """Tokens from one that was waited for, with nothing drafted meanwhile, to the next such one: what comes while the
    edge computes is there long before it is looked at, and single times say nothing.
    """

    tokens: int = 0
    seconds: float = 0.0
    drafting_s: float = 0.0
    drafted: bool = False


class ShadowBudget:
    """Counts over the answers of one decoder."""

    def __init__(self, measured: Measured) -> None:
        """measured: tells whether all that shadow drafts cost is seen."""
        self._measured = measured
        self._quiet = CalmMean(24)
        self._stretch = _Stretch()
        self._unjudged: list[_Stretch] = []
        self._alone_s = 0.0
        self._drafted_s = self._risked_s = 0.0
        self._making_s = self._one_s = 0.0
        self._late_s = self._compared_s = 0.0
        self._tokens = 0
        self._next = 0
        self._between = 1

    def begin(self) -> None:
        """The cloud goes on alone from here; what was before says nothing of when its tokens come."""
        self._stretch = _Stretch()

    def heard(self, tokens: int, seconds: float, drafting_s: float, waited: bool, drafted: bool) -> None:
        """Tokens of a cloud that goes on alone, so long after those before; drafting_s: of it went into drafts. waited:
        they were not there before they were looked for. drafted: the cloud drafted for them, so that single ones say
        nothing of how long a token takes.
        """
        self._tokens += tokens
        self._alone_s += seconds
        stretch = self._stretch
        stretch.tokens += tokens
        stretch.seconds += seconds
        stretch.drafting_s += drafting_s
        stretch.drafted |= drafted
        if drafting_s > 0.0 or not waited:
            return
        self._stretch = _Stretch()
        if stretch.drafted:
            return
        if stretch.drafting_s > 0.0:
            self._unjudged.append(stretch)
        else:
            self._quiet.add(stretch.seconds / stretch.tokens)
        if (quiet_s := self._quiet.value) is not None:
            for one in self._unjudged:
                late_s = one.seconds - one.tokens * quiet_s
                self._late_s += min(max(late_s, -one.drafting_s), 2.0 * one.drafting_s)
                self._compared_s += one.drafting_s
            self._unjudged.clear()

    def drafted(self, seconds: float) -> None:
        """The edge computed so long for drafts while the cloud went on alone."""
        self._making_s += seconds
        if self._tokens:
            self._drafted_s += seconds
        else:
            self._risked_s += seconds

    @property
    def cost(self) -> float:
        """Seconds that a second of shadow drafting makes an answer longer."""
        return self._cost(self._measured.may_feel_drafts_unseen)

    def _cost(self, unseen: bool) -> float:
        """unseen: not all of it is seen."""
        known_s = _GUESS_TOKENS * (self._quiet.value or 0.0)
        if known_s + self._compared_s <= 0.0:
            return _GUESS
        found = (_GUESS * known_s + self._late_s) / (known_s + self._compared_s)
        return min(max(found, _UNSEEN if unseen else 0.0), 2.0)

    @property
    def due(self) -> bool:
        """Whether a shadow draft is to be made now."""
        return self._tokens >= self._next and self.affordable

    @property
    def affordable(self) -> bool:
        """Whether what they have cost, and another would, is little enough. What was drafted before the very first
        token does not count, where all costs are seen: it takes a few more drafts to see them.
        """
        if not self._tokens:
            return True
        token_s = self._quiet.value or self._alone_s / self._tokens
        unseen = self._measured.may_feel_drafts_unseen
        drafted_s = self._drafted_s + (self._risked_s if unseen else 0.0)
        if self._compared_s > 0.0:
            drafted_s += self._one_s
        return self._cost(unseen) * drafted_s <= AT_FIRST * token_s + SHARE * self._alone_s

    def made(self, known: bool, pays: bool) -> None:
        """One was made. known: enough is known of drafts to plan by. pays: drafts are, or may soon be, worth while."""
        self._one_s, self._making_s = self._making_s, 0.0
        if not known:
            self._between = 1
        elif pays:
            self._between = BETWEEN
        else:
            self._between = min(max(2 * self._between, BETWEEN), MOST_BETWEEN)
        self._next = self._tokens + self._between
