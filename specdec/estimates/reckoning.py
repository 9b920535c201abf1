# SPDX-License-Identifier: Apache-2.0
"""Calibrates a controller's predictions with the observed rounds.

The latency formulas ignore other effects of the machine: shared cores, the scheduler, messages inside the process. So
time and tokens of rounds are compared with the predictions, separately for each mode, and later predictions are scaled
accordingly. If a mode is not used, its correction decays.

The plan that looks best does so partly by luck, so a chosen plan usually gains less than predicted. Plans are compared
by the plain predictions, which explores more and pays off. The figure reported for the chosen plan allows for this
bias.
"""

from __future__ import annotations

from dataclasses import dataclass

_MOST = 4.0
"""A round longer than this many times its prediction is an outlier and clipped to that."""
_TIME_KEPT, _TOKENS_KEPT = 0.9, 0.97
_TIME_PRIOR, _TOKENS_PRIOR = 4.0, 12.0
"""Prior weight: rounds that matched the prediction."""
_FADES = 0.99


@dataclass
class _PromiseSums:
    """Decaying sums of predicted and observed values. one: the last prediction."""

    promised: float = 0.0
    came: float = 0.0
    one: float = 0.0

    def add(self, promised: float, came: float, kept: float) -> None:
        self.promised = kept * self.promised + promised
        self.came = kept * self.came + came
        self.one = promised

    def more(self, promised: float, came: float) -> None:
        """Extend the last entry."""
        self.promised += promised
        self.came += came

    def fade(self) -> None:
        self.promised *= _FADES
        self.came *= _FADES

    def factor(self, prior: float, usual: float = 1.0) -> float:
        """Ratio of observed to predicted values. usual: prior ratio. prior: weight of the prior, in rounds."""
        known = prior * self.one
        return (self.came + usual * known) / (self.promised + known) if self.promised > 0.0 else usual


@dataclass
class _Burst:
    """Rounds that arrived together: the first one late, the others right after it. longer: the time factor before it.
    """

    promised: float = 0.0
    came: float = 0.0
    longer: float = 1.0

    @property
    def counted(self) -> float:
        """Their total time, with outliers clipped."""
        return min(self.came, _MOST * self.promised * self.longer)


class PromiseCalibration:
    """The calibration of one mode."""

    def __init__(self, usual: float = 1.0) -> None:
        """usual: prior ratio of observed to predicted tokens when a plan of this mode is chosen."""
        self._usual = usual
        self._time = _PromiseSums()
        self._tokens = _PromiseSums()
        self._burst = _Burst()

    def came(self, round_s: float, tokens: float, took_s: float, gained: float) -> None:
        """One round has ended.

        A round that is faster than predicted after a late one was queued behind it, as happens when the link's delay
        varies. Such rounds are counted together, and clipped together if they are outliers.

        Args:
            round_s: Predicted seconds, before any correction.
            tokens: Predicted tokens, before any correction.
            took_s: Observed seconds.
            gained: Observed tokens.
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
        """Let the correction decay, because another mode was chosen."""
        self._time.fade()
        self._tokens.fade()

    @property
    def time(self) -> float:
        """Ratio of observed to predicted round time."""
        return self._time.factor(_TIME_PRIOR)

    @property
    def tokens(self) -> float:
        """Ratio of observed to predicted tokens per round."""
        return self._tokens.factor(_TOKENS_PRIOR)

    @property
    def longer(self) -> float:
        """Ratio of observed to predicted time per token."""
        return self.time / self.tokens

    @property
    def to_promise(self) -> float:
        """As `longer`, for a chosen plan: includes the selection bias."""
        return self.time / self._tokens.factor(_TOKENS_PRIOR, self._usual)
