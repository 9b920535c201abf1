# SPDX-License-Identifier: Apache-2.0
"""One answer that grows token by token, and what is left to ask of the target before a draft is judged. Pure.

Whatever brings a token, a draft, a step alone or a cache that was made anew, it is the target's own: so a draft is
judged by comparing it with the answer, and only what goes beyond that takes a forward.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

from specdec.draft import check_history
from specdec.errors import ProtocolError
from specdec.link.wire import DraftUp


@dataclass(frozen=True)
class AnswerBounds:
    """limit: tokens that the answer may have. never: ids that no draft may hold. most: draft tokens of a forward."""

    limit: int
    vocab_size: int
    eos_ids: Set[int]
    never: Set[int]
    most: int


class VllmAnswer:
    """ids: verified, a final EOS included. epoch: how many verdicts did not accept a whole draft."""

    def __init__(self, bounds: AnswerBounds, history: Sequence[int] = ()) -> None:
        """history: what was verified before. Raises ProtocolError for an impossible one."""
        check_history(history, bounds.limit, bounds.eos_ids)
        self.bounds = bounds
        self._check(history)
        self.ids = list(history)
        self.epoch = 0

    @property
    def finished(self) -> bool:
        """True once an EOS was picked or the answer has all the tokens it may have."""
        return len(self.ids) >= self.bounds.limit or (bool(self.ids) and self.ids[-1] in self.bounds.eos_ids)

    def grow(self, tokens: Sequence[int]) -> None:
        """The target has said more; what comes behind an end counts for nothing."""
        for token in tokens:
            if self.finished:
                return
            self.ids.append(token)

    def check(self, draft: DraftUp) -> None:
        """Raise ProtocolError for a draft that does not fit."""
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
        """How many of its tokens stay, and the target's own behind them; None where that is not known yet."""
        stays = self._agreed(draft)
        at = draft.base + stays
        return (stays, self.ids[at]) if at < len(self.ids) else None

    def rest(self, draft: DraftUp) -> list[int]:
        """What of a draft without a verdict is to go through the target next, behind the answer."""
        room = min(self.bounds.most, self.bounds.limit - len(self.ids) - 1)
        rest = draft.ids[len(self.ids) - draft.base :][: max(0, room)]
        stop = next((place for place, token in enumerate(rest) if token in self.bounds.never), len(rest))
        return rest[:stop]

    def settle(self, draft: DraftUp, stays: int) -> None:
        """Its verdict leaves."""
        self.epoch += stays < len(draft.ids)

    def _agreed(self, draft: DraftUp) -> int:
        """Draft tokens that are the answer's, short of its end: nothing is accepted there or behind."""
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
