# SPDX-License-Identifier: Apache-2.0
"""Stop strings: an answer ends with the token that completes one of them in its text.

The check is made token by token by the code that yields verified tokens, so the result does not depend on how tokens
arrive. The searched text is `decode` of the answer so far. Special tokens are included as text, as with Hugging Face's
`stop_strings`; unlike there, a stop string cannot begin in the prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specdec.errors import OptionsError
from specdec.text.streaming import StreamingText


class StopText:
    """Watches an answer for stop strings. Without any it needs no tokenizer and costs nothing.

    found: whether a stop string is complete, so that the answer ends. place: where the stop string begins in the shown
    text, which has no special tokens; None if it is not in that text, or not found.
    """

    def __init__(
        self, tokenizer: Any, stops: Sequence[str], history: Sequence[int] = (), least: int = 0
    ) -> None:
        """history: the answer's ids so far; `found` is True if they hold a stop string. least: minimum length of the
        answer; stop strings completed by earlier tokens are ignored.

        Raises OptionsError for stop strings without a tokenizer.
        """
        if stops and tokenizer is None:
            raise OptionsError("stop strings need a tokenizer: give one to the decoder")
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
        """Add the answer's next token; returns True once the text holds a stop string. No token may follow then."""
        if self.found or self._shown is None or self._spelled is None:
            return self.found
        self._tokens += 1
        counts = self._tokens >= self._least
        self.found = self._spelled.push(token, self._stops, self._longest, counts) is not None
        self.place = self._shown.push(token, self._stops, self._longest, self.found)
        return self.found


class _Searched:
    """The text of an answer, and the search for stop strings in it."""

    def __init__(self, tokenizer: Any, skip_special_tokens: bool) -> None:
        self._text = StreamingText(tokenizer, skip_special_tokens)
        self._ignored = 0  # end of the last ignored stop string

    def push(self, token: int, stops: Sequence[str], longest: int, counts: bool) -> int | None:
        """Where the first newly completed stop string begins; None if there is none."""
        start = max(0, len(self._text.text) - longest + 1)  # text after this point may be new
        self._text.push([token])
        text = self._text.text[start:] + self._text.tail
        if not counts:
            ends = (start + place + len(stop) for stop in stops if (place := text.rfind(stop)) >= 0)
            self._ignored = max(self._ignored, *ends, 0)
            return None
        places = (text.find(stop, max(0, self._ignored - start - len(stop) + 1)) for stop in stops)
        return min((start + place for place in places if place >= 0), default=None)
