# SPDX-License-Identifier: Apache-2.0
"""From logits to tokens on which both sides must agree: an Adjuster, then a Chooser.

A Chooser picks greedily at temperature 0 and with shared noise above it. It is a pure function of (options, logits,
position), so equal inputs give equal tokens wherever it runs. Before it, an Adjuster applies everything that depends on
preceding tokens: logit bias, repetition penalty, minimum length and grammar; and first of all the noise that emulates a
weaker draft model (specdec.sampling.disturbed). An adjustment is a pure function of the ids before a row. So there is
no state to roll back, and two sides that agree on the ids agree on the adjustment.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor

from specdec.draft import TokenTree
from specdec.errors import ModelError
from specdec.options import GenerationOptions
from specdec.sampling.choices import Choices, choices_along
from specdec.sampling.disturbed import Disturbance
from specdec.sampling.grammar import FollowedGrammar, Mask, only
from specdec.sampling.noise import gumbel_noise, noisy_argmax
from specdec.sampling.processors import LARGE, NEVER, cut_scores, cut_to_few, process_logits


class GreedyPicks:
    """Greedy picks of all rows of a pass, computed on the device together with the logits and read once.

    found: int64 [2, rows]: the picks, and whether a row is finite.
    """

    def __init__(self, found: Tensor) -> None:
        self._found = found
        self._read: list[list[int]] | None = None

    def attach(self, logits: Tensor, start: int) -> None:
        """Attach the picks to logits of the rows from `start` on, for `choose` and `is_sound`."""
        logits.greedy_picks = (self, start)  # type: ignore[attr-defined]

    def read(self) -> list[list[int]]:
        """Picks and soundness of all rows; waits for the device the first time."""
        if self._read is None:
            self._read = self._found.tolist()
        return self._read


def is_sound(logits: Tensor) -> bool | None:
    """Whether the last row is finite, if the forward pass has determined that (NaNs propagate); None: unknown."""
    picks: tuple[GreedyPicks, int] | None = getattr(logits, "greedy_picks", None)
    return None if picks is None else bool(picks[0].read()[1][picks[1] + logits.shape[0] - 1])


def chances_of(logits: Tensor, tokens: Tensor, temperature: float) -> Tensor:
    """The model's probability of one token per row, before any cut: float32 [rows] on the logits' device.

    logits: float [rows, vocab]. tokens: int64 [rows]. Temperature 0 counts as 1, since greedy decoding has no
    distribution.
    """
    scores = logits if temperature in (0.0, 1.0) else logits / temperature
    return (scores.gather(1, tokens[:, None])[:, 0] - scores.logsumexp(-1)).exp()


def chance_on_cpu(logits: Tensor, token: int, temperature: float) -> float:
    """As `chances_of`, for one row [1, vocab] on a CPU. There each tensor operation costs as much as 10,000 logits, so
    this uses a single softmax kernel.
    """
    scores = logits if temperature in (0.0, 1.0) else logits / temperature
    return scores.softmax(1)[0, token].item()


def likeliest_on_cpu(logits: Tensor) -> tuple[int, float]:
    """The likeliest token of one row [1, vocab] on a CPU, and its `chances_of` at temperature 0. Of tokens that are
    equally likely in float32, the first is taken.

    Uses only the softmax kernel, which attention has just used: after a forward pass, the cost of a call is mostly that
    of loading the kernel's code.
    """
    chances = logits.softmax(1).numpy()[0]
    token = int(chances.argmax())
    return token, float(chances[token])


@dataclass(frozen=True)
class Chooser:
    """Picks one token per row. Deterministic: all randomness comes from options.seed."""

    options: GenerationOptions

    def choose(self, logits: Tensor, first_position: int) -> list[int]:
        """Logits float [rows, vocab] of the answer positions first_position, +1, ... -> one id per row."""
        picks: tuple[GreedyPicks, int] | None = getattr(logits, "greedy_picks", None)
        if picks is not None and self.options.temperature == 0.0:
            return picks[0].read()[0][picks[1] : picks[1] + logits.shape[0]]
        return self.pick(logits, first_position).tolist()

    def choose_at(self, logits: Tensor, positions: Tensor) -> list[int]:
        """As `choose`, for arbitrary answer positions int64 [rows], as in a tree."""
        return self.choose(logits, 0) if self.options.temperature == 0.0 else self.pick_at(logits, positions).tolist()

    def pick(self, logits: Tensor, first_position: int) -> Tensor:
        """As `choose`, but the ids int64 [rows] stay on the device, without a wait."""
        if self.options.temperature == 0.0:
            return logits.argmax(dim=-1)
        positions = torch.arange(first_position, first_position + logits.shape[0], device=logits.device)
        return self.pick_at(logits, positions)

    def pick_at(self, logits: Tensor, positions: Tensor) -> Tensor:
        """As `choose_at`, but the ids int64 [rows] stay on the device."""
        if self.options.temperature == 0.0:
            return logits.argmax(dim=-1)
        if logits.device.type == "cpu" and logits.shape[-1] >= LARGE:  # row by row, data stays in the CPU cache
            return torch.cat([self._pick_row(row, at) for row, at in zip(logits, positions[:, None], strict=True)])
        scores = cut_scores(logits, self.options)
        k = self.options.top_k
        if 0 < k < scores.shape[-1] // 4 and scores.device.type == "cpu":  # elsewhere the check costs too much
            # Only the support needs noise. Ties at the k-th score may make it larger than k, hence the check of k + 1.
            best, tokens = torch.topk(scores, k + 1, dim=-1)
            if bool(torch.isinf(best[:, -1]).all()):
                noisy = best.double() + gumbel_noise(self.options.seed, positions[:, None], tokens)
                return tokens.gather(1, noisy.argmax(dim=-1, keepdim=True))[:, 0]
        return noisy_argmax(scores, self.options.seed, positions)

    def _pick_row(self, row: Tensor, position: Tensor) -> Tensor:
        """As `pick_at`, for one large row [vocab] on a CPU; position and result are int64 [1]."""
        few = cut_to_few(row, self.options)
        if few is None:
            return noisy_argmax(cut_scores(row[None], self.options), self.options.seed, position)
        tokens, scores = few
        noisy = scores.double() + gumbel_noise(self.options.seed, position, tokens)
        return tokens[noisy.argmax()][None]

    def log_scores(self, logits: Tensor, positions: Tensor) -> Tensor:
        """Log-probabilities float [rows, vocab] of each token to be picked, for ranking candidates.

        Greedy: the model's log-probabilities. With shared noise the noise is known, so it is included.
        """
        if self.options.temperature == 0.0:
            return torch.log_softmax(logits, dim=-1)
        scores = process_logits(logits, self.options)
        tokens = torch.arange(scores.shape[-1], device=scores.device)
        noise = gumbel_noise(self.options.seed, positions[:, None], tokens[None, :])
        return torch.log_softmax(scores + noise.to(scores.dtype), dim=-1)


T = TypeVar("T")
Soon: TypeAlias = T | Future[T]
"""A value, or a future if it is computed in a worker (specdec.isolation)."""
Masks = Future[Mask] | None


class FollowerProtocol(Protocol):
    """A grammar follower in a worker."""

    def masks(self, answer: Sequence[int], tails: Sequence[Sequence[int]]) -> Future[Mask]:
        """As FollowedGrammar.masks."""
        ...

    def forced(self, answer: Sequence[int], most: int) -> Future[list[int]]:
        """As FollowedGrammar.forced."""
        ...

    def choices(self, answer: Sequence[int], most: int) -> Future[Choices]:
        """As `choices_along`."""
        ...


class AnyGrammar(Protocol):
    """A Grammar, or one in a worker."""

    @property
    def eos_ids(self) -> Set[int]:
        """Tokens that end an answer."""
        ...

    def follow(self) -> Any:
        """A follower for one answer: a FollowedGrammar or an IsolatedFollower."""
        ...

    def check_room(self, most: int) -> None:
        """Raise OptionsError if the grammar allows no answer of at most `most` tokens."""
        ...


class Adjuster:
    """Adjusts raw logits of one answer. Without any adjustment (`active` is False) rows are returned unchanged.

    Adjustments are applied before temperature and the cuts of `processors.py`, in the order of Hugging Face `generate`,
    at temperature 0 as well.
    """

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
        """Create the adjuster of one answer.

        Args:
            options: The answer's options.
            prompt_ids: At least one id; the repetition penalty includes them. Only the set of ids matters, so image
                placeholders may be expanded or not.
            eos_ids: Ids that end an answer.
            vocab_size: Size of the vocabulary.
            device: Device of the logits.
            grammar: `options.grammar`, compiled.
            disturbance: Noise of an emulated draft model; applied first.

        Raises:
            ModelError: A bias names an id outside the vocabulary.
            OptionsError: The grammar allows no answer within max_new_tokens.
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
        self._grammar: FollowedGrammar | FollowerProtocol | None = None if grammar is None else grammar.follow()
        self._disturbed = None if disturbance is None else disturbance.after(prompt_ids)
        if grammar is not None:
            grammar.check_room(options.max_new_tokens)

    @property
    def active(self) -> bool:
        """False if every row would be returned unchanged."""
        asked = self._penalty != 1.0 or self._min_new_tokens > 0 or self._biased.numel() > 0
        return asked or self._grammar is not None or self._disturbed is not None

    def forced(self, answer: Sequence[int], most: int) -> Soon[list[int]]:
        """The tokens that the grammar forces after an answer, at most `most`; an EOS is the last of them. Empty without
        a grammar. Raises ModelError if the answer does not follow the grammar.
        """
        return [] if self._grammar is None else self._grammar.forced(answer, most)

    def choices(self, answer: Sequence[int], most: int) -> Soon[Choices]:
        """Possible continuations of an answer if the grammar leaves few, in at most `most` nodes; empty without one."""
        if self._grammar is None:
            return Choices(TokenTree())
        if isinstance(self._grammar, FollowedGrammar):
            return choices_along(self._grammar, answer, most)
        return self._grammar.choices(answer, most)

    def ask_chain(self, answer: Sequence[int], draft: Sequence[int] = ()) -> Masks:
        """Start computing the grammar's masks in a worker, if grammars run there; pass the result to `chain`. Call
        before the forward pass that yields the rows.
        """
        return self._ask(answer, _chain_tails(draft))

    def ask_nodes(self, answer: Sequence[int], ids: Sequence[int], parents: Sequence[int], rows: int) -> Masks:
        """As `ask_chain`, for the last `rows` rows of a tree; pass the result to `nodes`."""
        if self._grammar is None or isinstance(self._grammar, FollowedGrammar):
            return None
        return self._ask(answer, _paths(ids, parents)[-rows:])

    def chain(
        self, rows: Tensor, answer: Sequence[int], draft: Sequence[int] = (), masks: Mask | None = None
    ) -> Tensor:
        """Adjust rows float [len(draft) + 1, vocab], of which row i follows answer + draft[:i] -> float32."""
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
        """As `chain`, for a tree: rows [n, vocab] for the last n of (the answer alone, node 0, node 1, ...).

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
        """Row i follows answer + tails[i]. masks: the grammar's masks, if computed already."""
        scores = rows.float()[:]  # a new tensor, without the greedy picks attached to the raw logits
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
                too_short &= ~only(masks, self._eos_ids)  # a complete answer ends even if it is too short
            no_end = torch.from_numpy(too_short).to(scores.device)[:, None]
            ends = scores.index_select(1, self._eos).masked_fill(no_end, NEVER)
            scores = scores.index_copy(1, self._eos, ends)
        return scores if masks is None else forbid(scores, masks)

    def _penalise(self, scores: Tensor, seen: Set[int], tails: Sequence[Sequence[int]]) -> Tensor:
        """Penalise ids that occurred before a row: divide positive logits, multiply negative ones."""
        common = torch.tensor(sorted(seen), device=scores.device).expand(scores.shape[0], -1)
        width = max(len(tail) for tail in tails)
        filler = next(iter(seen))  # duplicate ids are harmless: they get the same score
        own = [[*tail, *[filler] * (width - len(tail))] for tail in tails]
        ids = torch.cat([common, torch.tensor(own, dtype=torch.long, device=scores.device)], dim=1)
        before = scores.gather(1, ids)
        after = torch.where(before < 0, before * self._penalty, before / self._penalty)
        return scores.scatter(1, ids, after)


def _chain_tails(draft: Sequence[int]) -> list[Sequence[int]]:
    return [draft[:length] for length in range(len(draft) + 1)]


def _paths(ids: Sequence[int], parents: Sequence[int]) -> list[Sequence[int]]:
    """The token paths to the answer's end and to each node after it."""
    paths: list[Sequence[int]] = [()]
    for token, parent in zip(ids, parents, strict=True):
        paths.append((*paths[parent + 1], token))
    return paths


def forbid(scores: Tensor, masks: Mask) -> Tensor:
    """scores float [n, vocab] with -inf where masks [n, vocab] are False."""
    return scores.masked_fill(torch.from_numpy(~masks).to(scores.device), float("-inf"))
