# SPDX-License-Identifier: Apache-2.0
"""Stop strings: an answer ends with the token that completes one of them in its text.

Decided token by token by the code that gives out verified tokens, so that it does not depend on how they came. What is
searched is the text that `decode` gives for the answer so far. Special tokens count as they are spelled, like with
Hugging Face's `stop_strings`; unlike there, a stop string cannot begin in the prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specdec.errors import OptionsError
from specdec.text.streaming import StreamingText


class StopText:
    """Watches an answer for stop strings. Without any it needs no tokenizer and costs nothing.

    found: whether the answer is over. place: where the stop string begins in the shown text, which has no special
    tokens; None where it is not in that text, or not found.
    """

    def __init__(
        self, tokenizer: Any, stops: Sequence[str], history: Sequence[int] = (), least: int = 0
    ) -> None:
        """history: the answer's ids so far; `found` tells whether they hold a stop string already. least: tokens that
        the answer has at least; a stop string that an earlier token completes does not count.

        Raises OptionsError for stop strings without a tokenizer.
        """
        if stops and tokenizer is None:
            raise OptionsError("stop strings need a tokenizer: give the decoder one")
        self._stops = tuple(stops)
        self._longest = max(map(len, stops), default=0)
        self._least = least
        self._tokens = 0
        self._shown, self._spelled = (
            _Searched(tokenizer, skips) if stops else None for skips in (True, False)
        )
        self.found = False
        self.place: int | None = None
        for token in history:
            self.push(token)

    def push(self, token: int) -> bool:
        """Add the answer's next token; True once its text holds a stop string: nothing may follow then."""
        if self.found or self._shown is None or self._spelled is None:
            return self.found
        self._tokens += 1
        counts = self._tokens >= self._least
        self.found = self._spelled.push(token, self._stops, self._longest, counts) is not None
        self.place = self._shown.push(token, self._stops, self._longest, self.found)
        return self.found


class _Searched:
    """The text of an answer, and how much of it stop strings were looked for in."""

    def __init__(self, tokenizer: Any, skip_special_tokens: bool) -> None:
        self._text = StreamingText(tokenizer, skip_special_tokens)
        self._ignored = 0  # where the last stop string ends that did not count

    def push(self, token: int, stops: Sequence[str], longest: int, counts: bool) -> int | None:
        """Where the first stop string begins that the text holds now and did not before; None: there is none."""
        start = max(0, len(self._text.text) - longest + 1)  # what stands behind that may have changed
        self._text.push([token])
        text = self._text.text[start:] + self._text.tail
        if not counts:
            ends = (start + place + len(stop) for stop in stops if (place := text.rfind(stop)) >= 0)
            self._ignored = max(self._ignored, *ends, 0)
            return None
        places = (text.find(stop, max(0, self._ignored - start - len(stop) + 1)) for stop in stops)
        return min((start + place for place in places if place >= 0), default=None)
