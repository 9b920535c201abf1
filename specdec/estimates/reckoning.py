# SPDX-License-Identifier: Apache-2.0
"""What a controller promised of its plans against the result of them, and how to promise better.

A formula knows nothing of what a machine does beside: forwards that share a core, a scheduler, messages in a process.
So time and tokens of rounds are compared with what was promised, each kind of plan by itself, and the next promise of
that kind is made longer or shorter by as much. What was not tried for long is believed again, little by little.

The plan that looks best does so by luck in part, so what is chosen usually brings less than was reckoned. Choosing by
what was reckoned tries more, and pays; what is promised of the choice allows for it.
"""

from __future__ import annotations

from dataclasses import dataclass

_MOST = 4.0
"""A round that took longer than this many times what was promised, a hiccup, counts as that long."""
_TIME_KEPT, _TOKENS_KEPT = 0.9, 0.97
_TIME_PRIOR, _TOKENS_PRIOR = 4.0, 12.0
"""Rounds that went as promised, before any."""
_FADES = 0.99


@dataclass
class _PromiseSums:
    """Promised and came, of late. one: the last that was promised."""

    promised: float = 0.0
    came: float = 0.0
    one: float = 0.0

    def add(self, promised: float, came: float, kept: float) -> None:
        self.promised = kept * self.promised + promised
        self.came = kept * self.came + came
        self.one = promised

    def more(self, promised: float, came: float) -> None:
        """Of the last one."""
        self.promised += promised
        self.came += came

    def fade(self) -> None:
        self.promised *= _FADES
        self.came *= _FADES

    def factor(self, prior: float, usual: float = 1.0) -> float:
        """How many times as much came as was promised. usual: of what else is not known; prior: rounds of that."""
        known = prior * self.one
        return (self.came + usual * known) / (self.promised + known) if self.promised > 0.0 else usual


@dataclass
class _Burst:
    """Rounds that came together: the first one late, the others at once behind it. longer: as was reckoned before."""

    promised: float = 0.0
    came: float = 0.0
    longer: float = 1.0

    @property
    def counted(self) -> float:
        """Of the time that they took, what is not a hiccup."""
        return min(self.came, _MOST * self.promised * self.longer)


class PromiseCalibration:
    """Of one kind of plan."""

    def __init__(self, usual: float = 1.0) -> None:
        """usual: this many times as many tokens as are reckoned come of a plan of this kind that is chosen."""
        self._usual = usual
        self._time = _PromiseSums()
        self._tokens = _PromiseSums()
        self._burst = _Burst()

    def came(self, round_s: float, tokens: float, took_s: float, gained: float) -> None:
        """One round. round_s, tokens: as they were reckoned before any correction. One that came sooner than was
        promised has waited behind the one before, if that was late, as it is where a link's delay varies: together they
        say what they took, and whether it was a hiccup.
        """
        if round_s <= 0.0 or tokens <= 0.0:
            return
        self._tokens.add(tokens, gained, _TOKENS_KEPT)
        burst = self._burst
        if burst.promised and took_s < round_s * burst.longer:
            counted = burst.counted
            burst.promised += round_s
            burst.came += took_s
            self._time.more(round_s, burst.counted - counted)
        else:
            self._burst = _Burst(round_s, took_s, self.time)
            self._time.add(round_s, self._burst.counted, _TIME_KEPT)

    def fade(self) -> None:
        """Another kind of plan was taken."""
        self._time.fade()
        self._tokens.fade()

    @property
    def time(self) -> float:
        """A round takes this many times as long as is reckoned."""
        return self._time.factor(_TIME_PRIOR)

    @property
    def tokens(self) -> float:
        """A round brings this many times as many tokens."""
        return self._tokens.factor(_TOKENS_PRIOR)

    @property
    def longer(self) -> float:
        """A token takes this many times as long as is reckoned."""
        return self.time / self.tokens

    @property
    def to_promise(self) -> float:
        """The same of a plan that is chosen."""
        return self.time / self._tokens.factor(_TOKENS_PRIOR, self._usual)
