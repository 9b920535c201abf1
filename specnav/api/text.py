# SPDX-License-Identifier: Apache-2.0
"""The text of an answer as clients see it: without the stop string that ended it, and never taken back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specdec.text.stop import StopText
from specdec.text.streaming import StreamingText


class AnswerText:
    """Ids in, text out. What may be the beginning of a stop string is held back until that is known."""

    def __init__(self, tokenizer: Any, stops: Sequence[str], least: int = 0) -> None:
        """least: as in StopText, which ends the answer."""
        self._text = StreamingText(tokenizer)
        self._stop = StopText(tokenizer, stops, least=least)
        self._stops = tuple(stops)
        self._given = 0

    def push(self, ids: Sequence[int]) -> str:
        """Add ids; returns the text that is now certain."""
        for token in ids:
            self._stop.push(token)
        self._text.push(ids)
        return self._give(len(self._text.text) - _begun(self._text.text, self._stops))

    def finish(self) -> str:
        """The answer is over; returns the rest."""
        self._text.finish()
        return self._give(len(self._text.text))

    def _give(self, end: int) -> str:
        if self._stop.place is not None:
            end = min(end, self._stop.place)
        fresh = self._text.text[self._given : end]
        self._given += len(fresh)
        return fresh


def _begun(text: str, stops: Sequence[str]) -> int:
    """How many characters at the end of a text may begin a stop string."""
    last = text[-1:]
    lengths = (
        n for stop in stops for n in range(1, len(stop)) if stop[n - 1] == last and text.endswith(stop[:n])
    )
    return max(lengths, default=0)
