# SPDX-License-Identifier: Apache-2.0
"""Suffix lookup: find the longest ending of the present text that occurred earlier, and copy what followed it.

One text holds the earlier answers, the present prompt and the present answer, so phrases are found in all of them
(prompt lookup; suffix decoding, arXiv 2411.04975, for past answers). Independent of models.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any

from specdec.draft import common_length

LONGEST_ENDING = 8
SHORTEST_ENDING = 1
MOST_TOKENS = 1 << 16
_BREAK = -1
"""Separates two texts, and replaces tokens that must not be drafted: no match crosses it."""


@dataclass(frozen=True)
class Found:
    """ids: the tokens that followed. matched: length of the matched ending; 0: no match."""

    ids: tuple[int, ...] = ()
    matched: int = 0


class SuffixMemory:
    """A growing text with an index of where each ending occurred last. Lives as long as its decoder."""

    def __init__(self, most_tokens: int = MOST_TOKENS) -> None:
        """most_tokens: above this size the older half is dropped; 0: everything is dropped before each answer."""
        self._most = most_tokens
        self._text: list[int] = []
        self._ends: dict[tuple[int, ...], int] = {}
        self._begun = 0
        self._never: Set[int] = frozenset()
        self._tried = [0] * (LONGEST_ENDING + 1)
        self._right = [0] * (LONGEST_ENDING + 1)

    def __len__(self) -> int:
        return len(self._text)

    def begin(self, prompt: Sequence[int], never: Set[int] = frozenset()) -> None:
        """Begin an answer to this prompt. never: tokens that must not be drafted."""
        self._never = never
        if len(self._text) > self._most:
            self._forget()
        self._add(_BREAK)
        for token in prompt:
            self._add(token)
        self._begun = len(self._text)

    def follow(self, answer: Sequence[int]) -> None:
        """Update the present answer; tokens that are no longer part of it are removed."""
        known = self._text[self._begun :]
        now = [self._plain(token) for token in answer] if self._never else list(answer)
        same = common_length(known, now)
        del self._text[self._begun + same :]
        for token in answer[same:]:
            self._add(token)

    def after(self, size: int) -> Found:
        """At most `size` tokens that followed the longest ending with an earlier occurrence."""
        text = self._text
        for length in range(min(LONGEST_ENDING, len(text)), SHORTEST_ENDING - 1, -1):
            ending = tuple(text[-length:])
            if _BREAK in ending:
                continue
            place = self._ends.get(ending)
            if place is None or place >= len(text) or tuple(text[place - length : place]) != ending:
                continue  # no occurrence, or only in removed text
            return Found(self._copied(place, size), length)
        return Found()

    def chances(self, found: Found) -> list[float]:
        """The chance of each found token if all before it are right, from how often endings of that length led to the
        right token. A copied token makes the ending longer by one.

        Endings of 2 tokens that were right 6 times of 8 give (6 + 1) / (8 + 2) = 0.7.
        """
        lengths = (min(found.matched + place, LONGEST_ENDING) for place in range(len(found.ids)))
        return [(self._right[length] + 1) / (self._tried[length] + 2) for length in lengths]

    def _copied(self, place: int, size: int) -> tuple[int, ...]:
        """The tokens from `place` on; a copy that reaches the end of the text repeats itself."""
        ids: list[int] = []
        whole = len(self._text)
        for at in range(place, place + size):
            token = self._text[at] if at < whole else ids[at - whole]
            if token == _BREAK:
                break
            ids.append(token)
        return tuple(ids)

    def _plain(self, token: int) -> int:
        return _BREAK if token in self._never else token

    def _add(self, token: int) -> None:
        """Append one token, and index the endings before it."""
        text, place, plain = self._text, len(self._text), self._plain(token)
        matched, before = 0, 0
        for length in range(SHORTEST_ENDING, min(LONGEST_ENDING, place) + 1):
            if plain == _BREAK or text[place - length] == _BREAK:
                break
            ending = tuple(text[place - length : place])
            known = self._ends.get(ending)
            if known is not None and known < place:
                matched, before = length, known
            self._ends[ending] = place
        if matched:
            self._tried[matched] += 1
            self._right[matched] += text[before] == plain
        text.append(plain)

    def _forget(self) -> None:
        kept = self._text[len(self._text) - self._most // 2 :]
        self._text, self._ends = [], {}
        for token in kept:
            self._add(token)


def special_ids(tokenizer: Any) -> frozenset[int]:
    """The special token ids of a tokenizer. They include picture placeholders, which must never be drafted."""
    added = getattr(tokenizer, "added_tokens_decoder", {})
    special = {int(index) for index, token in added.items() if getattr(token, "special", False)}
    return frozenset(special | set(getattr(tokenizer, "all_special_ids", ())))
