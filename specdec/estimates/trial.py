# SPDX-License-Identifier: Apache-2.0
"""Drafts on trial: whether they bring anything, where no formula can tell.

A near cloud with short forwards may be this very machine, and slow because the edge drafts. There what tokens took with
drafts is compared with what they took while the cloud was left in peace. Drafts that lost are barred, for longer each
time. While they win by little, the cloud is left in peace now and then, more and more seldom: it may have been slow at
the time that they are compared with.
"""

from __future__ import annotations

from specdec.estimates.measured import Measured

_TRY = 24
"""Tokens with drafts, before they are judged."""
_KEPT = 0.95
"""Of what tokens took before, at each round."""
_BARRED = 64
_PEACE, _BETWEEN_PEACE = 12, 96
"""Tokens of the cloud alone that tell what one takes, and tokens with drafts before it is asked for them."""
_CLEAR = 1.5
"""This many times as quick as the cloud in peace needs no proof."""
_MOST = 4096


class Trial:
    """Counts over the answers of one decoder. Times in seconds. why: in words, drafts are barred."""

    def __init__(self, measured: Measured) -> None:
        self._measured = measured
        self._said = self._barred_until = 0
        self._tokens = self._seconds = 0.0
        self._tried = 0
        self.why = ""
        self._barred_for, self._between_peace = _BARRED, _BETWEEN_PEACE

    @property
    def is_barred(self) -> bool:
        """Whether the cloud is to go on alone now, whatever drafts promise."""
        return self._said < self._barred_until and self._measured.may_feel_drafts_unseen

    def came(self, drafting: bool, gained: int, took_s: float | None) -> None:
        """A round is over that brought this many tokens. took_s: None where that reports something else, too."""
        self._said += gained
        if not drafting or not gained or took_s is None:
            return
        self._tokens = _KEPT * self._tokens + gained
        self._seconds = _KEPT * self._seconds + took_s
        self._tried += gained
        if self._tried < _TRY or not self._measured.may_feel_drafts_unseen:
            return
        in_peace_s = self._measured.alone_in_peace_s
        alone_s = in_peace_s or self._measured.told_rows_s(1) or self._measured.alone_s or 0.0
        drafting_s = self._seconds / self._tokens
        if _CLEAR * drafting_s <= alone_s:
            return
        if in_peace_s is None:
            self._leave_in_peace()
        elif drafting_s > alone_s:
            took = f"{1e3 * drafting_s:.3g} ms a token, {1e3 * alone_s:.3g} without"
            self._bar(self._barred_for, f"no drafts for {self._barred_for} tokens: with them it took {took}")
            self._barred_for = min(2 * self._barred_for, _MOST)
        elif self._tried >= self._between_peace:
            self._between_peace = min(2 * self._between_peace, _MOST)
            self._leave_in_peace()

    def _leave_in_peace(self) -> None:
        self._measured.forget_peace()
        self._bar(_PEACE, f"no drafts for {_PEACE} tokens, to see what the cloud takes in peace")

    def _bar(self, tokens: int, why: str) -> None:
        self.why = why
        self._barred_until = self._said + tokens
        self._tokens = self._seconds = 0.0
        self._tried = 0
