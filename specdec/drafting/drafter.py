# SPDX-License-Identifier: Apache-2.0
"""The interface of all drafters: follow an answer step by step, and hand out drafts.

A drafter guesses. Wrong guesses cost only time, because the target decides every token. One step is one forward pass of
the draft model, so that the caller can poll the link between any two steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from specdec.draft import Draft, promise_of
from specdec.drafting.memory import PromptMemory
from specdec.models import LoadedModel, Prompt
from specdec.models.plans import Plan, Preparation, Prepared, planned
from specdec.models.session import SessionCursor
from specdec.options import GenerationOptions
from specdec.sampling import Chooser

Pays = Callable[[Sequence[float]], int]
"""Takes the acceptance chances of a tree's nodes, likeliest first; returns how many nodes are worth sending."""


@dataclass(frozen=True)
class Proposal:
    """A draft that is ready to be sent.

    Attributes:
        draft: The draft.
        guess: Token ids of its likeliest path.
        q: The rows float32 [k, vocab] that its tokens were sampled from; None if ids suffice.
        ranks: Rank of each tree node by likelihood, 0 first.
        promise: Tokens that the draft model expects to be accepted; 0 if not computed.
        chances: The draft model's chance that each token is accepted; in a chain, given that all before it are.
    """

    draft: Draft
    guess: tuple[int, ...]
    q: Tensor | None = None
    ranks: tuple[int, ...] = ()
    promise: float = 0.0
    chances: tuple[float, ...] = ()

    def followed_by(self, other: Proposal) -> Proposal:
        """The two joined into one chain."""
        chances = self.chances + other.chances
        return Proposal(
            Draft(self.draft.base, self.draft.ids + other.draft.ids),
            self.guess + other.guess,
            None if self.q is None or other.q is None else torch.cat([self.q, other.q]),
            promise=promise_of(chances) if chances else self.promise,
            chances=chances,
        )


class Drafter(Protocol):
    """Drafts for one answer. Answers are sequences of token ids, verified or assumed."""

    def prefill(self, prompt: Prompt) -> None:
        """Prefill the prompt. Raises ModelError if the draft model cannot take it."""
        ...

    def drafted(self, answer: Sequence[int]) -> int:
        """Present depth of the draft after `answer`: tokens of a chain, levels of a tree."""
        ...

    def step(self, answer: Sequence[int], size: int) -> bool:
        """One forward pass for the draft after `answer`, up to depth `size`; False if the draft is complete."""
        ...

    def take(self, answer: Sequence[int], size: int, room: int) -> Proposal:
        """The draft after `answer`: at most `size` tokens of a chain, and no path longer than `room`."""
        ...


def read_both(scores: Tensor, tokens: Tensor) -> tuple[list[list[float]], list[list[int]]]:
    """Scores [rows, n] and ids [rows, n] as lists, read from the device in one transfer."""
    if scores.device.type == "cpu":
        return scores.tolist(), tokens.tolist()
    both = torch.stack([scores.double(), tokens.double()]).tolist()  # float64 holds ids exactly
    return both[0], [[int(token) for token in row] for row in both[1]]


class DraftModel:
    """A draft model that follows one answer, as used by all drafters."""

    def __init__(
        self, model: LoadedModel, options: GenerationOptions, memory: PromptMemory | None = None
    ) -> None:
        """memory: caches kept from earlier prompts; None: none."""
        self._model = model
        self._memory = memory
        self.cursor = SessionCursor(model.new_session() if memory is None else memory.session(), options)
        self.chooser = Chooser(options)
        self.options = options
        self.eos_ids = model.eos_token_ids
        self.vocab_size = model.vocab_size
        self.device = model.device
        self.never_drafted = model.never_drafted
        banned = sorted(model.never_drafted)
        self.stays_on_device = model.device.type != "cpu"
        self.banned = tuple(banned)
        self._banned = torch.tensor(banned, device=model.device) if banned else None

    @planned
    def prefill(self, prompt: Prompt) -> Plan[None]:
        """Prefill the prompt. Raises ModelError if the model cannot take it."""
        if self._memory is None:
            prepared: Prepared = yield Preparation(self._model, prompt)
            yield from self.cursor.prefill.plan(prepared)
            return
        yield from self.cursor.prefill.plan(self._memory.prepare(prompt))
        self._memory.fed()

    @property
    def runs(self) -> bool:
        """Whether drafting several tokens before reading any of them is possible and worthwhile."""
        return (self.stays_on_device or self._model.runner.static is not None) and self.cursor.runs

    def room(self, answer_length: int) -> int:
        """How many tokens can be drafted before the draft model's context is full."""
        return self._model.context_limit - self.cursor.prompt_length - answer_length

    @property
    def branches_left(self) -> int:
        """How many more branches a token tree may have."""
        return self.cursor.session.branches_left

    def without_placeholders(self, rows: Tensor) -> Tensor:
        """The rows [n, vocab] with tokens that must never be drafted set to -inf."""
        return rows if self._banned is None else rows.index_fill(1, self._banned, float("-inf"))
