# SPDX-License-Identifier: Apache-2.0
"""One answer that grows token by token, and what the target must still compute before a draft is judged. Pure.

Every token of the answer is the target's own, whether it came from a draft, a plain step or a rebuilt cache. A draft is
therefore judged by comparing it with the answer, and only tokens beyond the answer need a forward pass.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

from specdec.draft import check_history
from specdec.errors import ProtocolError
from specdec.link.wire import DraftUp


@dataclass(frozen=True)
class AnswerBounds:
    """limit: most tokens of the answer. never: ids that no draft may hold. most: draft tokens per forward pass."""

    limit: int
    vocab_size: int
    eos_ids: Set[int]
    never: Set[int]
    most: int


class VllmAnswer:
    """ids: verified tokens, including a final EOS. epoch: number of verdicts that rejected a draft token."""

    def __init__(self, bounds: AnswerBounds, history: Sequence[int] = ()) -> None:
        """history: tokens verified earlier. Raises ProtocolError for an impossible history."""
        check_history(history, bounds.limit, bounds.eos_ids)
        self.bounds = bounds
        self._check(history)
        self.ids = list(history)
        self.epoch = 0

    @property
    def finished(self) -> bool:
        """True after an EOS, or once the answer has reached its limit."""
        return len(self.ids) >= self.bounds.limit or (bool(self.ids) and self.ids[-1] in self.bounds.eos_ids)

    def grow(self, tokens: Sequence[int]) -> None:
        """Append new tokens of the target; tokens after the end of the answer are ignored."""
        for token in tokens:
            if self.finished:
                return
            self.ids.append(token)

    def check(self, draft: DraftUp) -> None:
        """Raise ProtocolError for a draft that does not fit the answer."""
        if draft.parents is not None:
            raise ProtocolError("this verifier's engine, vLLM, does not take token trees: use sd, or --engine own")
        self._check(draft.ids)
        if draft.base > len(self.ids):
            raise ProtocolError(
                f"a draft starts at {draft.base} but only {len(self.ids)} tokens are verified"
            )
        if self.finished and draft.base == len(self.ids):
            raise ProtocolError("a draft came after the end of the answer")

    def verdict(self, draft: DraftUp) -> tuple[int, int] | None:
        """How many draft tokens are accepted, and the target's next token; None while that token is unknown."""
        stays = self._agreed(draft)
        at = draft.base + stays
        return (stays, self.ids[at]) if at < len(self.ids) else None

    def rest(self, draft: DraftUp) -> list[int]:
        """The part of an undecided draft that the target verifies next, after the answer."""
        room = min(self.bounds.most, self.bounds.limit - len(self.ids) - 1)
        rest = draft.ids[len(self.ids) - draft.base :][: max(0, room)]
        stop = next((place for place, token in enumerate(rest) if token in self.bounds.never), len(rest))
        return rest[:stop]

    def settle(self, draft: DraftUp, stays: int) -> None:
        """Account for a verdict that is being sent."""
        self.epoch += stays < len(draft.ids)

    def _agreed(self, draft: DraftUp) -> int:
        """Number of draft tokens that agree with the answer. Nothing is accepted at or after the answer's end."""
        bounds = self.bounds
        for place, token in enumerate(draft.ids):
            at = draft.base + place
            ends = token in bounds.eos_ids or token in bounds.never or at >= bounds.limit - 1
            if ends or at >= len(self.ids) or self.ids[at] != token:
                return place
        return len(draft.ids)

    def _check(self, ids: Sequence[int]) -> None:
        if any(not 0 <= token < self.bounds.vocab_size for token in ids):
            raise ProtocolError(f"a draft token is outside the vocabulary of {self.bounds.vocab_size}")
