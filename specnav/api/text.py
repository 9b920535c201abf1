# SPDX-License-Identifier: Apache-2.0
"""The text of an answer for clients: without the stop string that ended it, and never retracted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specdec.text.stop import StopText
from specdec.text.streaming import StreamingText


class AnswerText:
    """Turns ids into text. Text that may start a stop string is held back until that is decided."""

    def __init__(self, tokenizer: Any, stops: Sequence[str], least: int = 0) -> None:
        """least: minimum length, as in StopText."""
        self._text = StreamingText(tokenizer)
        self._stop = StopText(tokenizer, stops, least=least)
        self._stops = tuple(stops)
        self._given = 0

    def push(self, ids: Sequence[int]) -> str:
        """Add ids; returns the text that has become final."""
        for token in ids:
            self._stop.push(token)
        self._text.push(ids)
        return self._give(len(self._text.text) - _begun(self._text.text, self._stops))

    def finish(self) -> str:
        """End the answer; returns the remaining text."""
        self._text.finish()
        return self._give(len(self._text.text))

    def _give(self, end: int) -> str:
        if self._stop.place is not None:
            end = min(end, self._stop.place)
        fresh = self._text.text[self._given : end]
        self._given += len(fresh)
        return fresh


def _begun(text: str, stops: Sequence[str]) -> int:
    """Number of characters at the end of a text that may start a stop string."""
    last = text[-1:]
    lengths = (
        n for stop in stops for n in range(1, len(stop)) if stop[n - 1] == last and text.endswith(stop[:n])
    )
    return max(lengths, default=0)
