"""Stop strings: an answer ends with the token that completes one of them in its text.

Decided token by token by whoever gives out verified tokens, so that it does not depend on how they came. Special tokens
count as they are spelled, like with Hugging Face's `stop_strings`; other than there, the text is that of the answer
alone: a stop string cannot begin in the prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specdec.errors import OptionsError


class StopText:
    """Watches an answer for stop strings. Without any it needs no tokenizer and costs nothing."""

    def __init__(self, tokenizer: Any, stops: Sequence[str], history: Sequence[int] = ()) -> None:
        """history: the answer's ids so far; `found` tells whether they hold a stop string already.

        Raises OptionsError for stop strings without a tokenizer.
        """
        if stops and tokenizer is None:
            raise OptionsError("stop strings need a tokenizer where the answer is put together: give one")
        self._tokenizer = getattr(tokenizer, "tokenizer", None) or tokenizer
        self._stops = tuple(stops)
        # A token holds at least one byte; the one before these may only change how their first one is spelled.
        self._window = 1 + max((len(stop.encode()) for stop in stops), default=0)
        self._ids: list[int] = []
        self.found = False
        for token in history:
            self.push(token)

    def push(self, token: int) -> bool:
        """Add the answer's next token; True once its text holds a stop string: nothing may follow then."""
        if self._stops and not self.found:
            self._ids = [*self._ids, token][-self._window :]
            # Half a character decodes to a replacement character, which no stop string may hold.
            text = self._tokenizer.decode(
                self._ids, skip_special_tokens=False, clean_up_tokenization_spaces=False
            )
            self.found = any(stop in text for stop in self._stops)
        return self.found
