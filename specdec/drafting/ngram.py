# SPDX-License-Identifier: Apache-2.0
"""N-gram lookup: the token that followed the last occurrence of a token pair in the prompt or the answer.

Targets repeat names and phrases that a small draft model misses; looking them up costs almost nothing (the idea of
prompt lookup decoding).
"""

from __future__ import annotations

from collections.abc import Sequence, Set


class NgramLookup:
    """Indexes the token after each pair of tokens in a growing text."""

    def __init__(self, prompt: Sequence[int] = (), never: Set[int] = frozenset()) -> None:
        """never: tokens that are never proposed."""
        self._never = never
        self._text = list(prompt)
        self._prompt_length = len(self._text)
        self._next: dict[tuple[int, int], int] = {}
        self._learn(2)

    def follow(self, answer: Sequence[int]) -> None:
        """Update the answer, which must extend the previous one."""
        known = len(self._text) - self._prompt_length
        self._text.extend(answer[known:])
        self._learn(max(2, self._prompt_length + known))

    def pair(self) -> tuple[int, int] | None:
        """The last two tokens; None if there are fewer."""
        return (self._text[-2], self._text[-1]) if len(self._text) >= 2 else None

    def after(self, pair: tuple[int, int] | None) -> int | None:
        """The token that followed this pair the last time; None if the pair is unknown."""
        return None if pair is None else self._next.get(pair)

    def _learn(self, first: int) -> None:
        text = self._text
        for place in range(first, len(text)):
            if text[place] not in self._never:
                self._next[text[place - 2], text[place - 1]] = text[place]
