"""Streaming text: token ids in, text out, never half a character and never taken back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_REPLACEMENT = "\ufffd"
_WINDOW = 64
"""Decoded text this long behind the end is settled and no longer decoded again."""


class StreamingText:
    """Incremental detokeniser. `text` is all that was pushed out so far."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = getattr(tokenizer, "tokenizer", None) or tokenizer
        self._ids: list[int] = []
        self._shown = ""
        self.text = ""

    def push(self, ids: Sequence[int]) -> str:
        """Add ids; returns the text that is now certain and was not returned before."""
        self._ids.extend(ids)
        decoded = self._decode()
        if decoded.endswith(_REPLACEMENT) and len(decoded) - len(decoded.rstrip(_REPLACEMENT)) < 4:
            decoded = decoded.rstrip(_REPLACEMENT)  # the rest of a character may still come
        fresh = decoded[len(self._shown) :]
        if fresh:
            self._shown = decoded
            self.text += fresh
        if len(self._ids) > _WINDOW and self._shown == self._decode():
            # Keep a few ids as context: a tokenizer may decode a token differently at the start of a text.
            self._ids = self._ids[-8:]
            self._shown = self._decode()
        return fresh

    def finish(self) -> str:
        """What was held back, at the end of the answer."""
        fresh = self._decode()[len(self._shown) :]
        self._shown += fresh
        self.text += fresh
        return fresh

    def _decode(self) -> str:
        text: str = self._tokenizer.decode(self._ids, skip_special_tokens=True)
        return text
