# SPDX-License-Identifier: Apache-2.0
"""How often shadow drafts may be made: drafts that are only compared with tokens of a cloud that decodes alone.

They cost nothing if the edge has its own device, and their full time if edge and cloud share one. So the slowdown of
the cloud's tokens during shadow drafting is measured. The total cost, including the draft model's prefill, stays a
small share of the time. While drafting is far from worthwhile, shadow drafts become rarer and rarer.
"""

from __future__ import annotations

from dataclasses import dataclass

from specdec.estimates.measured import CalmMean, Measured

SHARE = 0.005
"""Largest share by which shadow drafts may lengthen an answer."""
AT_FIRST = 1.0
"""Extra allowance for the first shadow drafts, in token times."""
BETWEEN, MOST_BETWEEN = 8, 1024
"""Tokens between two shadow drafts, and the most while drafting does not pay."""
_GUESS, _GUESS_TOKENS = 0.5, 2.0
"""Prior cost of shadow drafting, in seconds per second, and the weight of this prior, in token times."""
_UNSEEN = 1.0
"""Least assumed cost if not all of the cost is visible."""


@dataclass
class _Stretch:
    """Tokens between two that the edge waited for without drafting. Tokens that arrive while the edge computes are read
    late, so their single times are meaningless.
    """

    tokens: int = 0
    seconds: float = 0.0
    drafting_s: float = 0.0
    drafted: bool = False


class ShadowBudget:
    """The budget of one decoder, over all its answers."""

    def __init__(self, measured: Measured) -> None:
        """measured: tells whether the full cost of shadow drafts is visible."""
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
        """The cloud decodes alone from here on; start a new stretch."""
        self._stretch = _Stretch()

    def heard(self, tokens: int, seconds: float, drafting_s: float, waited: bool, drafted: bool) -> None:
        """Tokens arrived from a cloud that decodes alone.

        Args:
            tokens: How many.
            seconds: Seconds since the previous tokens.
            drafting_s: Seconds of that which the edge spent on drafting.
            waited: Whether the edge was waiting when they arrived.
            drafted: Whether the cloud used its own draft model, so that they do not show the time of a single token.
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
        """The edge spent this many seconds on drafting while the cloud decoded alone."""
        self._making_s += seconds
        if self._tokens:
            self._drafted_s += seconds
        else:
            self._risked_s += seconds

    @property
    def cost(self) -> float:
        """Seconds by which one second of shadow drafting lengthens an answer."""
        return self._cost(self._measured.may_feel_drafts_unseen)

    def _cost(self, unseen: bool) -> float:
        """unseen: whether part of the cost is not visible."""
        known_s = _GUESS_TOKENS * (self._quiet.value or 0.0)
        if known_s + self._compared_s <= 0.0:
            return _GUESS
        found = (_GUESS * known_s + self._late_s) / (known_s + self._compared_s)
        return min(max(found, _UNSEEN if unseen else 0.0), 2.0)

    @property
    def due(self) -> bool:
        """Whether a shadow draft should be made now."""
        return self._tokens >= self._next and self.affordable

    @property
    def affordable(self) -> bool:
        """Whether the cost so far, and that of one more shadow draft, is within the budget. Drafting before the very
        first token is not counted if the full cost is visible, because measuring it takes a few more drafts.
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
        """A shadow draft is complete. known: enough drafts were compared to plan with. pays: drafting is worthwhile, or
        may soon be.
        """
        self._one_s, self._making_s = self._making_s, 0.0
        if not known:
            self._between = 1
        elif pays:
            self._between = BETWEEN
        else:
            self._between = min(max(2 * self._between, BETWEEN), MOST_BETWEEN)
        self._next = self._tokens + self._between
