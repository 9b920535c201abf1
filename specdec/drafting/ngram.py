# SPDX-License-Identifier: Apache-2.0
"""N-gram lookup: what followed the last time that two tokens stood together, in the prompt or the answer.

Targets repeat names and phrases that a small draft model has forgotten; looking them up costs nothing (prompt lookup
decoding drafts from the same idea).
"""

from __future__ import annotations

from collections.abc import Sequence, Set


class NgramLookup:
    """Remembers what came after every pair of tokens in a text that grows at its end."""

    def __init__(self, prompt: Sequence[int] = (), never: Set[int] = frozenset()) -> None:
        """never: tokens that are not worth proposing."""
        self._never = never
        self._text = list(prompt)
        self._prompt_length = len(self._text)
        self._next: dict[tuple[int, int], int] = {}
        self._learn(2)

    def follow(self, answer: Sequence[int]) -> None:
        """The answer is this by now; it goes on with what it was before."""
        known = len(self._text) - self._prompt_length
        self._text.extend(answer[known:])
        self._learn(max(2, self._prompt_length + known))

    def pair(self) -> tuple[int, int] | None:
        """The last two tokens; None where there are not that many."""
        return (self._text[-2], self._text[-1]) if len(self._text) >= 2 else None

    def after(self, pair: tuple[int, int] | None) -> int | None:
        """What came after these two the last time; None where they never stood together."""
        return None if pair is None else self._next.get(pair)

    def _learn(self, first: int) -> None:
        text = self._text
        for place in range(first, len(text)):
            if text[place] not in self._never:
                self._next[text[place - 2], text[place - 1]] = text[place]
