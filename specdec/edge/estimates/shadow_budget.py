"""How often shadow drafts may be made: drafts that are only compared with what the cloud says by itself.

They cost nothing where the edge has a device of its own, and as much as they take where edge and cloud share one: so it
is measured how much slower the cloud's words come while one is made. What they cost in all stays a small share of the
time, and where drafts are far from being worth their while they are made more and more seldom.
"""

from __future__ import annotations

from specdec.edge.estimates.running import CalmMean

SHARE = 0.005
"""Of the time, at most, that shadow drafts may make an answer longer."""
AT_FIRST = 1.0
"""Tokens' time that the first ones may cost beside."""
BETWEEN, MOST_BETWEEN = 8, 1024
"""Tokens between two shadow drafts, and the most where they do not pay."""
_GUESS, _GUESS_TOKENS = 0.5, 2.0
"""Seconds that a second of shadow drafting costs, before that was measured; as if it had been found in so long."""


class ShadowBudget:
    """Counts over the answers of one decoder."""

    def __init__(self) -> None:
        self._quiet = CalmMean(24)
        self._alone_s = 0.0
        self._drafted_s = 0.0
        self._before_s = 0.0
        self._late_s = self._compared_s = 0.0
        self._tokens = 0
        self._next = 0
        self._between = 1

    def heard(self, tokens: int, seconds: float, drafting_s: float, steady: bool) -> None:
        """Tokens of a cloud that goes on alone, so long after those before; drafting_s: of it went into drafts. steady:
        it has no draft model, so that all tokens take about as long.
        """
        self._tokens += tokens
        self._alone_s += seconds
        self._drafted_s += drafting_s
        before_s, self._before_s = self._before_s, drafting_s
        if not steady:
            return
        beside_s = drafting_s or before_s  # a forward that goes on when a draft is made has felt it, too
        if beside_s <= 0.0:
            self._quiet.add(seconds / tokens)
            return
        quiet_s = self._quiet.value
        if quiet_s is not None:
            self._late_s += min(max(seconds - tokens * quiet_s, -beside_s), 2.0 * beside_s)
            self._compared_s += drafting_s

    @property
    def cost(self) -> float:
        """Seconds that a second of shadow drafting makes an answer longer."""
        known_s = _GUESS_TOKENS * (self._quiet.value or 0.0)
        if known_s + self._compared_s <= 0.0:
            return _GUESS
        found = (_GUESS * known_s + self._late_s) / (known_s + self._compared_s)
        return min(max(found, 0.0), 2.0)

    @property
    def cost_is_known(self) -> bool:
        """Whether that was measured, and for long enough."""
        return self._compared_s > _GUESS_TOKENS * (self._quiet.value or 0.0) / 2

    @property
    def due(self) -> bool:
        """Whether a shadow draft is to be made now."""
        return self._tokens >= self._next and self.affordable

    @property
    def affordable(self) -> bool:
        """Whether what they have cost is little enough for another."""
        token_s = self._quiet.value
        if token_s is None:
            token_s = self._alone_s / self._tokens if self._tokens else 0.0
        return not self._tokens or self.cost * self._drafted_s <= AT_FIRST * token_s + SHARE * self._alone_s

    def made(self, known: bool, pays: bool) -> None:
        """One was made. known: enough is known of drafts to plan by. pays: drafts are, or may soon be, worth while."""
        if not known:
            self._between = 1
        elif pays:
            self._between = BETWEEN
        else:
            self._between = min(max(2 * self._between, BETWEEN), MOST_BETWEEN)
        self._next = self._tokens + self._between
