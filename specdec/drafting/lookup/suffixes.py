# SPDX-License-Identifier: Apache-2.0
"""What was said before, found by how the text ends now: the longest ending that stood earlier tells what may follow.

One text holds the earlier answers and the prompt and answer at hand, so that a phrase of yesterday is found like one of
the prompt (prompt lookup; over past answers suffix decoding, arXiv 2411.04975). Knows no model.
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
"""Stands between two texts, and for what must not be drafted: nothing is found across it."""


@dataclass(frozen=True)
class Found:
    """ids: what followed. matched: tokens of the ending that led there; 0: none was found."""

    ids: tuple[int, ...] = ()
    matched: int = 0


class SuffixMemory:
    """A text that grows, and where each of its endings has stood last. Lives as long as its decoder."""

    def __init__(self, most_tokens: int = MOST_TOKENS) -> None:
        """most_tokens: the oldest half is forgotten when there are more; 0: all of it, before every answer."""
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
        """An answer to this prompt begins. never: tokens that must not be drafted."""
        self._never = never
        if len(self._text) > self._most:
            self._forget()
        self._add(_BREAK)
        for token in prompt:
            self._add(token)
        self._begun = len(self._text)

    def follow(self, answer: Sequence[int]) -> None:
        """The answer is this by now; what it was before and is no more is taken back."""
        known = self._text[self._begun :]
        now = [self._plain(token) for token in answer] if self._never else list(answer)
        same = common_length(known, now)
        del self._text[self._begun + same :]
        for token in answer[same:]:
            self._add(token)

    def after(self, size: int) -> Found:
        """At most `size` tokens that followed the longest ending which stood somewhere before."""
        text = self._text
        for length in range(min(LONGEST_ENDING, len(text)), SHORTEST_ENDING - 1, -1):
            ending = tuple(text[-length:])
            if _BREAK in ending:
                continue
            place = self._ends.get(ending)
            if place is None or place >= len(text) or tuple(text[place - length : place]) != ending:
                continue  # never, or only in what was taken back
            return Found(self._copied(place, size), length)
        return Found()

    def chances(self, found: Found) -> list[float]:
        """How likely each token of what was found is to follow if all before it do, by how often endings as long led to
        the right token so far. A copied token makes the ending longer by one.

        Endings of 2 tokens that were right 6 times of 8 give (6 + 1) / (8 + 2) = 0.7.
        """
        lengths = (min(found.matched + place, LONGEST_ENDING) for place in range(len(found.ids)))
        return [(self._right[length] + 1) / (self._tried[length] + 2) for length in lengths]

    def _copied(self, place: int, size: int) -> tuple[int, ...]:
        """The tokens from `place` on; what reaches the end of the text goes on with itself."""
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
        """One more token; the endings before it are known from now on, and where they went on."""
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
    """Ids of a tokenizer that are not words: what stands for pictures is among them, and must never be drafted."""
    added = getattr(tokenizer, "added_tokens_decoder", {})
    special = {int(index) for index, token in added.items() if getattr(token, "special", False)}
    return frozenset(special | set(getattr(tokenizer, "all_special_ids", ())))
