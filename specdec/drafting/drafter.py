# SPDX-License-Identifier: Apache-2.0
"""What all drafters have in common: they follow an answer, step by step, and hand out what they have drafted.

A drafter guesses; its guesses only cost time when wrong, because the target decides every token. One step is one
forward of the draft model, so that the program that drives it can look at the link between any two of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from specdec.draft import Draft
from specdec.drafting.memory import PromptMemory
from specdec.models import LoadedModel, Prompt
from specdec.models.plans import Plan, Preparation, Prepared, planned
from specdec.models.session import SessionCursor
from specdec.options import GenerationOptions
from specdec.sampling import Chooser

Pays = Callable[[Sequence[float]], int]
"""How many of a tree's nodes are worth sending, of their chances to be accepted, likeliest first."""


@dataclass(frozen=True)
class Proposal:
    """A draft as it may leave. guess: the ids it is most likely to come to, if all goes well.

    q: the rows float32 [k, vocab] its tokens were sampled from; None where ids suffice. ranks: of a tree's nodes, 0 is
    the likeliest; chances: the draft model's of each to be accepted, in a chain if all before it are. promise: how many
    of them it expects to be; where that was asked for.
    """

    draft: Draft
    guess: tuple[int, ...]
    q: Tensor | None = None
    ranks: tuple[int, ...] = ()
    promise: float = 0.0
    chances: tuple[float, ...] = ()


class Drafter(Protocol):
    """Drafts for one answer. Answers are sequences of ids, verified or only assumed to be."""

    def prefill(self, prompt: Prompt) -> None:
        """Feed the prompt. Raises ModelError where the draft model cannot take it."""
        ...

    def drafted(self, answer: Sequence[int]) -> int:
        """How deep the draft after `answer` is already: tokens of a chain, levels of a tree."""
        ...

    def step(self, answer: Sequence[int], size: int) -> bool:
        """One forward for the draft after `answer`, which is to become `size` deep; False where it ends."""
        ...

    def take(self, answer: Sequence[int], size: int, room: int) -> Proposal:
        """What is drafted after `answer`, at most `size` tokens of a chain, and no path longer than `room`."""
        ...


def read_both(scores: Tensor, tokens: Tensor) -> tuple[list[list[float]], list[list[int]]]:
    """Scores [rows, n] and ids [rows, n] as lists; a device is asked once for both."""
    if scores.device.type == "cpu":
        return scores.tolist(), tokens.tolist()
    both = torch.stack([scores.double(), tokens.double()]).tolist()  # ids are exact as such, too
    return both[0], [[int(token) for token in row] for row in both[1]]


class DraftModel:
    """A draft model following one answer: what drafters of any shape need of it."""

    def __init__(
        self, model: LoadedModel, options: GenerationOptions, memory: PromptMemory | None = None
    ) -> None:
        """memory: what is kept of prompts before; None: nothing is."""
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
        """Feed the prompt. Raises ModelError where the model cannot take it."""
        if self._memory is None:
            prepared: Prepared = yield Preparation(self._model, prompt)
            yield from self.cursor.prefill.plan(prepared)
            return
        yield from self.cursor.prefill.plan(self._memory.prepare(prompt))
        self._memory.fed()

    @property
    def runs(self) -> bool:
        """Whether it pays, and is possible, to draft on without having read what was drafted."""
        return (self.stays_on_device or self._model.runner.static is not None) and self.cursor.runs

    def room(self, answer_length: int) -> int:
        """How many tokens may still be drafted before the draft model's context is full."""
        return self._model.context_limit - self.cursor.prompt_length - answer_length

    @property
    def branches_left(self) -> int:
        """How many more branches a tree may have."""
        return self.cursor.session.branches_left

    def without_placeholders(self, rows: Tensor) -> Tensor:
        """The rows [n, vocab] with what must never be drafted cut."""
        return rows if self._banned is None else rows.index_fill(1, self._banned, float("-inf"))
