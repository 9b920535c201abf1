"""The text of an answer as clients see it: without the stop string that ended it, and never taken back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specdec.text.streaming import StreamingText


class AnswerText:
    """Ids in, text out. What may be a stop string, or the beginning of one, is held back until that is known."""

    def __init__(self, tokenizer: Any, stops: Sequence[str]) -> None:
        self._text = StreamingText(tokenizer)
        self._stops = tuple(stops)
        self._held = ""

    def push(self, ids: Sequence[int]) -> str:
        """Add ids; returns the text that is now certain."""
        self._held += self._text.push(ids)
        certain = _certain(self._held, self._stops)
        fresh, self._held = self._held[:certain], self._held[certain:]
        return fresh

    def finish(self, stopped: bool) -> str:
        """The answer is over; returns the rest. stopped: a stop string has ended it."""
        rest = self._held + self._text.finish()
        if stopped:
            found = [place for stop in self._stops if (place := rest.find(stop)) >= 0]
            rest = rest[: min(found, default=len(rest))]
        return rest


def _certain(text: str, stops: Sequence[str]) -> int:
    """How much of a text no stop string can change."""
    certain = len(text)
    for stop in stops:
        if (place := text.find(stop)) >= 0:
            certain = min(certain, place)
            continue
        for length in range(min(len(stop) - 1, len(text)), 0, -1):
            if text.endswith(stop[:length]):
                certain = min(certain, len(text) - length)
                break
    return certain
