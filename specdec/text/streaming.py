# SPDX-License-Identifier: Apache-2.0
"""Incremental detokenization: token ids in, text out, equal to `tokenizer.decode(ids)` and never retracted.

Shown text is final: no later token can change a character of it. Uncertain text is held back:
- bytes of byte-level tokens that do not form a complete character yet;
- an unfinished run of byte-fallback tokens (`<0x41>`), because decoders of the tokenizers library replace every byte of
  a run that is not valid UTF-8, complete characters at its beginning included;
- a space, and the text after it, that `clean_up_tokenization_spaces` may still remove.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

_REPLACEMENT = "\ufffd"
_WINDOW = 64
"""Most token ids that are decoded again with each push, unless a run of bytes is longer."""
_CONTEXT = 8
"""Earlier ids that are decoded together with new ones: tokenizers treat the first token of a text differently."""
_BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")
_CLEANED = frozenset(" .?!,'ntmsver")
"""Characters in the patterns of the library's clean-up, each of which begins with a space."""
_LONGEST_CLEANED = len(" n ' t")
"""Length of the longest such pattern, considering that one removal may create the next match."""


class StreamingText:
    """Incremental detokenizer: `text + tail == tokenizer.decode(ids)`, and `text` is final.

    Example: a character of three bytes arrives as three byte-level tokens. `push` returns "" twice and the character
    the third time; until then `tail` ends with the replacement character.

    Attributes:
        text: Everything shown so far.
        tail: The rest of `decode(ids)`, which may still change.
    """

    def __init__(self, tokenizer: Any, skip_special_tokens: bool = True) -> None:
        self._tokenizer = getattr(tokenizer, "tokenizer", None) or tokenizer
        self._skip_special_tokens = skip_special_tokens
        self._skipped = _special_ids(self._tokenizer) if skip_special_tokens else frozenset()
        self._cleans = _cleans_up(self._tokenizer)
        self._ids: list[int] = []
        self._first = 0  # of the ids that are still decoded
        self._known = 0  # characters of their text that are in `text` or `_uncleaned`
        self._uncleaned = ""
        self.text = ""
        self.tail = ""

    def push(self, ids: Sequence[int]) -> str:
        """Add token ids.

        Args:
            ids: The ids that follow those pushed before.

        Returns:
            The text that has become final; may be "".
        """
        self._ids += [token for token in ids if token not in self._skipped and self._piece(token) is not None]
        window = self._ids[self._first :]
        ended = len(window)
        while ended and self._is_byte(window[ended - 1]):
            ended -= 1
        decoded = self._decode(window)
        settled = decoded if ended == len(window) else self._decode(window[:ended])
        if settled.endswith(_REPLACEMENT):
            settled = settled[:-1]  # the rest of a character may still come
        self._uncleaned += settled[self._known :]
        self._known = max(self._known, len(settled))
        certain = _certain_length(self._uncleaned) if self._cleans else len(self._uncleaned)
        fresh = self._clean(self._uncleaned[:certain])
        self._uncleaned = self._uncleaned[certain:]
        self.text += fresh
        self.tail = self._clean(self._uncleaned + decoded[self._known :])
        if len(window) > _WINDOW and settled == decoded:
            self._shorten_window()
        return fresh

    def finish(self) -> str:
        """End the answer.

        Returns:
            The text that was held back.
        """
        fresh, self.tail, self._uncleaned = self.tail, "", ""
        self._known = len(self._decode(self._ids[self._first :]))
        self.text += fresh
        return fresh

    def _shorten_window(self) -> None:
        context = self._decode(self._ids[-_CONTEXT:])
        if context:  # otherwise a space that is dropped at the beginning of a text would be dropped here
            self._first, self._known = len(self._ids) - _CONTEXT, len(context)

    def _decode(self, ids: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(
            ids, skip_special_tokens=self._skip_special_tokens, clean_up_tokenization_spaces=False
        )
        return text

    def _clean(self, text: str) -> str:
        return str(self._tokenizer.clean_up_tokenization(text)) if self._cleans else text

    def _is_byte(self, token: int) -> bool:
        return _BYTE.fullmatch(self._piece(token) or "") is not None

    def _piece(self, token: int) -> str | None:
        """The vocabulary's string of a token; None for an unknown id, which `decode` leaves out."""
        backend: Any = getattr(self._tokenizer, "backend_tokenizer", None)
        if hasattr(backend, "id_to_token"):
            piece: str | None = backend.id_to_token(token)
            return piece
        if hasattr(self._tokenizer, "convert_ids_to_tokens"):
            return str(self._tokenizer.convert_ids_to_tokens(token))
        return ""


def pieces_of(tokenizer: Any, ids: Sequence[int], ended: bool = True) -> tuple[str, ...]:
    """The text that each token adds, special tokens included. Joined they equal `tokenizer.decode(ids)`.

    A token that only begins a character adds nothing; the token that completes it adds the character. ended: no token
    follows; otherwise text that is not final yet is left out.
    """
    stream = StreamingText(tokenizer, skip_special_tokens=False)
    pieces = [stream.push([token]) for token in ids]
    if pieces and ended:
        pieces[-1] += stream.finish()
    return tuple(pieces)


def _certain_length(text: str) -> int:
    """Length of the prefix that the library's clean-up treats in the same way whatever follows."""
    for end in range(len(text), 0, -1):
        if text[end - 1] not in _CLEANED or " " not in text[max(0, end - _LONGEST_CLEANED) : end]:
            return end
    return 0


def _cleans_up(tokenizer: Any) -> bool:
    """Whether `decode` cleans up spaces. For BPE the library does so only with a second setting."""
    if not getattr(tokenizer, "clean_up_tokenization_spaces", False):
        return False
    backend = getattr(tokenizer, "backend_tokenizer", None)
    is_bpe = type(getattr(backend, "model", None)).__name__ == "BPE"
    twice = "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output"
    return not is_bpe or bool(getattr(tokenizer, twice, False))


def _special_ids(tokenizer: Any) -> frozenset[int]:
    """The ids that `decode` leaves out."""
    backend: Any = getattr(tokenizer, "backend_tokenizer", None)
    if hasattr(backend, "get_added_tokens_decoder"):
        return frozenset(
            index for index, token in backend.get_added_tokens_decoder().items() if token.special
        )
    return frozenset(getattr(tokenizer, "all_special_ids", ()))
