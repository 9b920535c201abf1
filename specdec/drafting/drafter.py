"""The edge's small model at work: it follows the verified answer and proposes what may come next."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from specdec.drafting.draft import Draft
from specdec.follower import Follower
from specdec.models import LoadedModel, Prompt
from specdec.options import GenerationOptions
from specdec.sampling import Chooser


class Drafter:
    """Drafts for one answer. Its guesses only cost time when wrong: the target decides every token."""

    def __init__(self, model: LoadedModel, options: GenerationOptions) -> None:
        self._model = model
        self._follower = Follower(model.new_session())
        self._chooser = Chooser(options)
        banned = sorted(model.never_drafted)
        self._banned = torch.tensor(banned, device=model.device) if banned else None

    def prefill(self, prompt: Prompt) -> None:
        """Feed the prompt. Raises ModelError where the draft model cannot take it."""
        self._follower.prefill(self._model.encode(prompt))

    def room(self, answer_length: int) -> int:
        """How many tokens may still be drafted before the draft model's context is full."""
        return self._model.context_limit - self._follower.prompt_length - answer_length

    @torch.inference_mode()
    def chain(self, answer: Sequence[int], gamma: int) -> Draft:
        """Draft a chain of up to `gamma` tokens after `answer`; it ends early at an EOS token."""
        sequence = list(answer)
        base = len(sequence)
        for _ in range(min(gamma, self.room(base))):
            row = self._follower.rows(sequence)
            if self._banned is not None:
                row = row.index_fill(1, self._banned, float("-inf"))
            token = self._chooser.choose(row, len(sequence))[0]
            sequence.append(token)
            if token in self._model.eos_token_ids:
                break
        return Draft(base, tuple(sequence[base:]))
