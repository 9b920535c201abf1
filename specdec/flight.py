"""Drafts on their way: what the edge assumes while verdicts are out, and what a verdict does to that.

A draft may leave before the verdict on the one before it is known, assuming that all of that will be
accepted. The first verdict that says otherwise breaks the flight: everything behind it counts for nothing, on
both sides, and the next draft carries a new epoch so that the cloud knows (paper 002: interrupt and
rollback).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from specdec.drafting import Draft
from specdec.sampling.recovery import EdgeRecovery


@dataclass
class Sent:
    """A draft on its way. q: its rows, with rejection sampling. received_bytes: of replies that did not end
    it.
    """

    round: int
    draft: Draft
    sent_s: float
    sent_bytes: int
    draft_ms: float
    q: Tensor | None = None
    recovery: EdgeRecovery | None = None
    received_bytes: int = 0


class Flight:
    """The drafts of one session that wait for verdicts, oldest first."""

    def __init__(self) -> None:
        self._sent: deque[Sent] = deque()
        self.epoch = 0

    def __len__(self) -> int:
        return len(self._sent)

    @property
    def oldest(self) -> Sent | None:
        """The draft whose verdict comes next."""
        return self._sent[0] if self._sent else None

    def expected(self, answer: Sequence[int]) -> list[int]:
        """The answer if everything on its way is accepted."""
        if not self._sent:
            return list(answer)
        expected = [*answer[: self._sent[0].draft.base]]
        for sent in self._sent:
            expected = [*expected[: sent.draft.base], *sent.draft.ids]
        return expected

    def add(self, sent: Sent) -> None:
        """A draft left."""
        self._sent.append(sent)

    def settle(self, last: int, token: int) -> Sent:
        """The verdict on the oldest draft: `last` nodes of its chain stay and `token` follows. Returns the
        draft.

        The flight breaks unless all was accepted and the next draft goes on with that very token.
        """
        sent = self._sent.popleft()
        whole = last == len(sent.draft.ids)
        follows = not self._sent or self._sent[0].draft.ids[:1] == (token,)
        if not whole or not follows:
            self._sent.clear()
            self.epoch += 1
        return sent

    def clear(self) -> None:
        """Nothing is on its way any more; a session begins."""
        self._sent.clear()
        self.epoch = 0
