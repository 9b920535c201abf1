"""A Follower keeps one model session in step with an answer that grows and is sometimes taken back.

It compares what the session has been fed with what the answer is now, rolls back to where they part, and
feeds the rest, so that nothing is ever fed twice or left out (TRAPS 8, 9). Edge and cloud use the same one.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specdec.models import EncodedPrompt, ModelSession
from specdec.models.runner import LayerObserver


class Follower:
    """One model session following one answer. Answer positions count from 0 at the first token after the
    prompt.
    """

    def __init__(self, session: ModelSession) -> None:
        self._session = session
        self._prompt_length = 0
        self._prompt_row: Tensor | None = None
        self._fed: list[int] = []

    @property
    def fed(self) -> int:
        """How many answer tokens the session's cache holds."""
        return len(self._fed)

    @property
    def prompt_length(self) -> int:
        """Tokens of the prompt as this model expands it."""
        return self._prompt_length

    def prefill(self, encoded: EncodedPrompt, observer: LayerObserver | None = None) -> Tensor:
        """Feed the prompt; returns logits [vocab] of answer position 0."""
        self._prompt_row = self._session.prefill(encoded, observer)
        self._prompt_length = self._session.length
        self._fed = []
        return self._prompt_row

    def rows(
        self, answer: Sequence[int], draft: Sequence[int] = (), observer: LayerObserver | None = None
    ) -> Tensor:
        """Logits [len(draft) + 1, vocab] of the answer positions len(answer) .. len(answer) + len(draft).

        Feeds in one pass what the cache lacks of answer + draft. Row i is what the model says after
        answer + draft[:i].
        """
        assert self._prompt_row is not None, "prefill first"
        sequence = [*answer, *draft]
        start = self._sync(sequence, len(answer))
        wanted = len(draft) + 1
        pending = sequence[start:]
        if not pending:  # only at the very start of an answer: the prompt's own last row
            return self._prompt_row[None]
        last_only = wanted == 1
        logits = self._session.extend(pending, last_only=last_only, observer=observer)
        self._fed.extend(pending)
        if last_only:
            return logits
        if len(answer) == 0:
            return torch.cat([self._prompt_row[None], logits])
        return logits[-wanted:]

    def _sync(self, sequence: Sequence[int], answer_length: int) -> int:
        """Roll back to the common prefix, short of the row before the first wanted; returns its length."""
        limit = min(len(self._fed), len(sequence))
        common = limit if self._fed[:limit] == sequence[:limit] else 0
        while common < limit and self._fed[common] == sequence[common]:
            common += 1
        # The logits after the last answer token are wanted, so that token must be fed now (again, if it was
        # before).
        common = min(common, max(answer_length - 1, 0))
        if common < len(self._fed):
            self._session.rollback(self._prompt_length + common)
            del self._fed[common:]
        return common
