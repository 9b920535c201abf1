"""What a controller promised of its plans against what came of them, and how to promise better.

A formula knows nothing of what a machine does beside: forwards that share a core, a scheduler, messages in a process.
So time and tokens of rounds are compared with what was promised, each kind of plan by itself, and the next promise of
that kind is made longer or shorter by as much. What was not tried for long is believed again, little by little.
"""

from __future__ import annotations

from dataclasses import dataclass

_MOST = 4.0
"""A round that took longer than so many times what was promised, a hiccup, counts as that long."""
_TIME_KEPT, _TOKENS_KEPT = 0.9, 0.97
_TIME_PRIOR, _TOKENS_PRIOR = 4.0, 12.0
"""Rounds that went as promised, before any."""
_FADES = 0.99


@dataclass
class _Sums:
    """Promised and came, of late. one: the last that was promised."""

    promised: float = 0.0
    came: float = 0.0
    one: float = 0.0

    def add(self, promised: float, came: float, kept: float) -> None:
        self.promised = kept * self.promised + promised
        self.came = kept * self.came + came
        self.one = promised

    def fade(self) -> None:
        self.promised *= _FADES
        self.came *= _FADES

    def factor(self, prior: float) -> float:
        """How many times as much came as was promised."""
        known = prior * self.one
        return (self.came + known) / (self.promised + known) if self.promised > 0.0 else 1.0


class Reckoning:
    """Of one kind of plan."""

    def __init__(self) -> None:
        self._time = _Sums()
        self._tokens = _Sums()

    def came(self, round_s: float, tokens: float, took_s: float, gained: int) -> None:
        """One round. round_s, tokens: as they were reckoned before any correction."""
        if round_s > 0.0 and tokens > 0.0:
            self._time.add(round_s, min(took_s, _MOST * round_s * self.time), _TIME_KEPT)
            self._tokens.add(tokens, gained, _TOKENS_KEPT)

    def fade(self) -> None:
        """Another kind of plan was taken."""
        self._time.fade()
        self._tokens.fade()

    @property
    def time(self) -> float:
        """A round takes so many times as long as is reckoned."""
        return self._time.factor(_TIME_PRIOR)

    @property
    def tokens(self) -> float:
        """A round brings so many times as many tokens."""
        return self._tokens.factor(_TOKENS_PRIOR)

    @property
    def longer(self) -> float:
        """A token takes so many times as long as is reckoned."""
        return self.time / self.tokens
