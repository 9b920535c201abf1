"""Logits processors that depend on what was said before: logit bias, repetition penalty, minimum length, a grammar;
and before all of them what makes a draft as weak as it was asked to be (specdec.sampling.disturbed).

They come before temperature and the cuts of `processors.py`, in the order of Hugging Face `generate`, and count at
temperature 0 as well. What becomes of a row is a pure function of the ids before it: there is no state to roll back
(TRAPS 14), and two sides that agree on the ids agree on the adjustment.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from concurrent.futures import Future
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor

from specdec.errors import ModelError
from specdec.options import GenerationOptions
from specdec.sampling.choices import Choices, choices_after
from specdec.sampling.disturbed import Disturbance
from specdec.sampling.grammar import FollowedGrammar, Mask, only
from specdec.sampling.processors import NEVER
from specdec.token_tree import TokenTree

T = TypeVar("T")
Soon: TypeAlias = T | Future[T]
"""What is worked out elsewhere (specdec.isolation) comes as a future."""
Masks = Future[Mask] | None


class IsolatedFollower(Protocol):
    """One in a worker."""

    def masks(self, answer: Sequence[int], tails: Sequence[Sequence[int]]) -> Future[Mask]:
        """As FollowedGrammar.masks."""
        ...

    def forced(self, answer: Sequence[int], most: int) -> Future[list[int]]:
        """As FollowedGrammar.forced."""
        ...

    def choices(self, answer: Sequence[int], most: int) -> Future[Choices]:
        """As `choices_after`."""
        ...


class AnyGrammar(Protocol):
    """A Grammar, or one in a worker."""

    @property
    def eos_ids(self) -> Set[int]:
        """Tokens that end an answer."""
        ...

    def follow(self) -> Any:
        """For one answer: a FollowedGrammar, or an IsolatedFollower."""
        ...

    def check_room(self, most: int) -> None:
        """Raise OptionsError where no answer of so many tokens follows it."""
        ...


class Adjuster:
    """Adjusts raw logits of one answer. Where nothing is asked for (`active` False) rows come back untouched."""

    def __init__(
        self,
        options: GenerationOptions,
        prompt_ids: Sequence[int],
        eos_ids: Set[int],
        vocab_size: int,
        device: torch.device | str = "cpu",
        grammar: AnyGrammar | None = None,
        disturbance: Disturbance | None = None,
    ) -> None:
        """prompt_ids: at least one; the repetition penalty counts them like the answer's. Only WHICH ids occur
        matters, so it is the same whether an image's placeholder stands there once or expanded. grammar: the one
        that options.grammar names, compiled. disturbance: of a model that drafts; it comes first.

        Raises ModelError for a bias on an id outside the vocabulary, OptionsError for a grammar that no answer of so
        many tokens follows.
        """
        outside = [token for token, _ in options.logit_bias if token >= vocab_size]
        if outside:
            raise ModelError(f"logit_bias names id {outside[0]}, but the vocabulary has {vocab_size} ids")
        self._penalty = options.repetition_penalty
        self._min_new_tokens = options.min_new_tokens if eos_ids else 0
        self._prompt = frozenset(prompt_ids)
        self._eos_ids = sorted(eos_ids)
        self._eos = torch.tensor(self._eos_ids, dtype=torch.long, device=device)
        self._biased = torch.tensor([token for token, _ in options.logit_bias], device=device)
        self._bias = torch.tensor([bias for _, bias in options.logit_bias], device=device)
        self._grammar: FollowedGrammar | IsolatedFollower | None = None if grammar is None else grammar.follow()
        self._disturbed = None if disturbance is None else disturbance.after(prompt_ids)
        if grammar is not None:
            grammar.check_room(options.max_new_tokens)

    @property
    def active(self) -> bool:
        """False where every row would come back as it is."""
        asked = self._penalty != 1.0 or self._min_new_tokens > 0 or self._biased.numel() > 0
        return asked or self._grammar is not None or self._disturbed is not None

    def forced(self, answer: Sequence[int], most: int) -> Soon[list[int]]:
        """The tokens that must follow an answer because its grammar allows no others, at most so many: an end is the
        last of them. None without a grammar. Raises ModelError where the answer does not follow it.
        """
        return [] if self._grammar is None else self._grammar.forced(answer, most)

    def choices(self, answer: Sequence[int], most: int) -> Soon[Choices]:
        """What may follow an answer where its grammar leaves few choices, at most so many nodes; none without one."""
        if self._grammar is None:
            return Choices(TokenTree())
        if not isinstance(self._grammar, FollowedGrammar):
            return self._grammar.choices(answer, most)
        place = self._grammar.place(answer)
        return Choices(TokenTree()) if place is None else choices_after(self._grammar.grammar, place, most)

    def ask_chain(self, answer: Sequence[int], draft: Sequence[int] = ()) -> Masks:
        """Have what the grammar allows worked out elsewhere, where that is done: `chain` takes what comes of it. To be
        called before the forward that rows come from.
        """
        return self._ask(answer, _chain_tails(draft))

    def ask_nodes(self, answer: Sequence[int], ids: Sequence[int], parents: Sequence[int], rows: int) -> Masks:
        """The same for the last `rows` of a tree's: `nodes` takes what comes of it."""
        if self._grammar is None or isinstance(self._grammar, FollowedGrammar):
            return None
        return self._ask(answer, _paths(ids, parents)[-rows:])

    def chain(
        self, rows: Tensor, answer: Sequence[int], draft: Sequence[int] = (), masks: Mask | None = None
    ) -> Tensor:
        """rows float [len(draft) + 1, vocab], row i of what follows answer + draft[:i] -> float32, adjusted."""
        if not self.active:
            return rows
        return self._adjust(rows, answer, _chain_tails(draft), masks)

    def nodes(
        self,
        rows: Tensor,
        answer: Sequence[int],
        ids: Sequence[int],
        parents: Sequence[int],
        masks: Mask | None = None,
    ) -> Tensor:
        """The same for a tree: rows [n, vocab] of the last n of (the answer alone, node 0, node 1, ...).

        parents: node indices, -1 for children of the answer's end; a parent comes before its child.
        """
        if not self.active:
            return rows
        paths = _paths(ids, parents)
        return self._adjust(rows, answer, paths[len(paths) - rows.shape[0] :], masks)

    def _ask(self, answer: Sequence[int], tails: Sequence[Sequence[int]]) -> Masks:
        if self._grammar is None or isinstance(self._grammar, FollowedGrammar):
            return None
        return self._grammar.masks(answer, tails)

    def _adjust(
        self, rows: Tensor, answer: Sequence[int], tails: Sequence[Sequence[int]], masks: Mask | None
    ) -> Tensor:
        """Row i follows answer + tails[i]. masks: what the grammar allows there, where that is known already."""
        scores = rows.float()[:]  # a tensor of its own: what a forward has attached to its logits is no longer so
        if self._disturbed is not None:
            scores = self._disturbed.rows(scores, answer, tails)
        if self._biased.numel():
            scores = scores.index_add(1, self._biased, self._bias.expand(scores.shape[0], -1))
        if self._penalty != 1.0:
            scores = self._penalise(scores, self._prompt.union(answer), tails)
        if masks is None and self._grammar is not None:
            found = self._grammar.masks(answer, tails)
            masks = found.result() if isinstance(found, Future) else found
        if len(answer) < self._min_new_tokens:
            too_short = np.array([len(answer) + len(tail) < self._min_new_tokens for tail in tails])
            if masks is not None:
                too_short &= ~only(masks, self._eos_ids)  # what is complete ends, however short it is
            no_end = torch.from_numpy(too_short).to(scores.device)[:, None]
            ends = scores.index_select(1, self._eos).masked_fill(no_end, NEVER)
            scores = scores.index_copy(1, self._eos, ends)
        return scores if masks is None else forbid(scores, masks)

    def _penalise(self, scores: Tensor, seen: Set[int], tails: Sequence[Sequence[int]]) -> Tensor:
        """Make ids less likely that were seen before a row: positive logits divided, negative ones multiplied."""
        common = torch.tensor(sorted(seen), device=scores.device).expand(scores.shape[0], -1)
        width = max(len(tail) for tail in tails)
        filler = next(iter(seen))  # an id may stand there twice: its score is read and written as one
        own = [[*tail, *[filler] * (width - len(tail))] for tail in tails]
        ids = torch.cat([common, torch.tensor(own, dtype=torch.long, device=scores.device)], dim=1)
        before = scores.gather(1, ids)
        after = torch.where(before < 0, before * self._penalty, before / self._penalty)
        return scores.scatter(1, ids, after)


def _chain_tails(draft: Sequence[int]) -> list[Sequence[int]]:
    return [draft[:length] for length in range(len(draft) + 1)]


def _paths(ids: Sequence[int], parents: Sequence[int]) -> list[Sequence[int]]:
    """What leads to the answer's end, and to each node behind it."""
    paths: list[Sequence[int]] = [()]
    for token, parent in zip(ids, parents, strict=True):
        paths.append((*paths[parent + 1], token))
    return paths


def forbid(scores: Tensor, masks: Mask) -> Tensor:
    """scores float [n, vocab] with -inf where masks [n, vocab] say no."""
    return scores.masked_fill(torch.from_numpy(~masks).to(scores.device), float("-inf"))
