# SPDX-License-Identifier: Apache-2.0
"""Empirical test of whether drafting pays, for cases where no formula can tell.

A near cloud with short forward passes may be this machine, and slow because the edge drafts. In that case the time per
token with drafts is compared with the time measured while the edge did not draft. If drafting loses, it is barred, for
longer each time. While it wins by little, drafting pauses now and then, ever more rarely, to renew the reference: the
cloud may have been slow for other reasons when it was measured.
"""

from __future__ import annotations

from specdec.estimates.measured import Measured

_TRY = 24
"""Tokens with drafts before they are judged."""
_KEPT = 0.95
"""Decay of earlier token times, per round."""
_BARRED = 64
_PEACE, _BETWEEN_PEACE = 12, 96
"""Tokens of the cloud alone per reference measurement, and tokens with drafts before the first one."""
_CLEAR = 1.5
"""Drafting that is this many times as fast as the undisturbed cloud needs no further test."""
_MOST = 4096


class Trial:
    """The test of one decoder, over all its answers. Times in seconds. why: the reason for which drafts are barred."""

    def __init__(self, measured: Measured) -> None:
        self._measured = measured
        self._said = self._barred_until = 0
        self._tokens = self._seconds = 0.0
        self._tried = 0
        self.why = ""
        self._barred_for, self._between_peace = _BARRED, _BETWEEN_PEACE

    @property
    def is_barred(self) -> bool:
        """Whether the cloud must decode alone now, whatever is predicted for drafts."""
        return self._said < self._barred_until and self._measured.may_feel_drafts_unseen

    def came(self, drafting: bool, gained: int, took_s: float | None) -> None:
        """A round gained this many tokens. took_s: its time; None if that includes a change of plan."""
        self._said += gained
        if not drafting or not gained or took_s is None:
            return
        self._tokens = _KEPT * self._tokens + gained
        self._seconds = _KEPT * self._seconds + took_s
        self._tried += gained
        if self._tried < _TRY or not self._measured.may_feel_drafts_unseen:
            return
        in_peace_s = self._measured.alone_in_peace_s
        alone_s = in_peace_s or self._measured.cloud_forwards.told_s(1) or self._measured.alone_s or 0.0
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
        self._bar(_PEACE, f"no drafts for {_PEACE} tokens, to time the cloud undisturbed")

    def _bar(self, tokens: int, why: str) -> None:
        self.why = why
        self._barred_until = self._said + tokens
        self._tokens = self._seconds = 0.0
        self._tried = 0
