# SPDX-License-Identifier: Apache-2.0
"""Picks the tokens of many sessions at once: greedily or with shared noise, after the logits processors. The result
equals that of `specdec.sampling`'s Chooser and Adjuster token for token; tests compare the two.

The host assembles each row's settings from what it knows, so the device is never synchronised. Does not import vLLM.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from specdec.errors import ModelError
from specdec.options import GenerationOptions
from specdec.sampling.choice import AnyGrammar
from specdec.sampling.grammar import Mask, only
from specdec.sampling.noise import LARGE, noisy_argmax, noisy_argmax_of, seed_word
from specdec.sampling.processors import NEVER

Ids = npt.NDArray[np.int64]


class Guide:
    """Follows a grammar along one answer. fault: why that failed; tokens picked after a fault are void."""

    def __init__(self, grammar: AnyGrammar) -> None:
        self._followed = grammar.follow()
        self._ends = np.array(sorted(grammar.eos_ids), np.int64)
        self.fault: ModelError | None = None

    def masks(self, answer: Ids, draft: Ids) -> Mask | None:
        """Tokens allowed after the answer and after each draft token: bool [len(draft) + 1, vocab]; None after
        a fault.
        """
        chain = draft.tolist()
        try:
            found = self._followed.masks(answer.tolist(), [chain[:length] for length in range(len(chain) + 1)])
            # The wait is bounded: a worker has a time limit.
            masks: Mask = found.result() if isinstance(found, Future) else found
        except ModelError as error:  # other sessions share the forward pass, so it goes on
            self.fault = error
            return None
        # As in specdec.sampling: where only end tokens are allowed, the first of them is picked.
        masks[np.ix_(only(masks, self._ends.tolist()), self._ends[1:])] = False
        return masks


@dataclass(frozen=True)
class Rules:
    """How the tokens of one session are picked. history: tokens of its answer that came with the prompt. guide: follows
    its grammar, if it has one.
    """

    options: GenerationOptions
    seed_word: int
    bias_ids: Ids
    bias: npt.NDArray[np.float32]
    history: int = 0
    guide: Guide | None = None

    @classmethod
    def from_options(cls, options: GenerationOptions, history: int = 0, guide: Guide | None = None) -> Rules:
        """The rules for a session's options."""
        ids = np.array([token for token, _ in options.logit_bias], np.int64)
        bias = np.array([value for _, value in options.logit_bias], np.float32)
        return cls(options, seed_word(options.seed), ids, bias, history, guide)


@dataclass(frozen=True)
class WantedRows:
    """The rows of one session in a forward pass: one after its answer, and one after each draft token.

    answered: number of answer tokens. seen: int64 [n], prompt and answer. draft: int64 [k].
    """

    rules: Rules
    answered: int
    seen: Ids
    draft: Ids

    @property
    def masks(self) -> Mask | None:
        """Tokens that its grammar allows, bool [k + 1, vocab]; None without a grammar."""
        guide = self.rules.guide
        return None if guide is None else guide.masks(self.seen[len(self.seen) - self.answered :], self.draft)


def pick_rows(logits: Tensor, wanted: Sequence[WantedRows], eos_ids: Sequence[int]) -> Tensor:
    """Pick a token for each row: logits float [rows, vocab], grouped by session -> ids int64 [rows], same device."""
    spans = _spans(wanted)
    rows = _adjust(logits, wanted, spans, eos_ids)
    picks = rows.argmax(dim=-1)
    noisy = [
        (one, span) for one, span in zip(wanted, spans, strict=True) if one.rules.options.temperature > 0.0
    ]
    if not noisy:
        return picks
    index = np.concatenate([np.arange(*span) for _, span in noisy])
    repeat = np.array([stop - start for _, (start, stop) in noisy])
    where = _to(torch.from_numpy(index), rows)
    scores = rows if len(index) == rows.shape[0] else rows.index_select(0, where)
    options = [one.rules.options for one, _ in noisy]
    scores = _cut(scores.float(), options, repeat)
    positions = np.concatenate([one.answered + np.arange(stop - start) for one, (start, stop) in noisy])
    if scores.device.type == "cpu" and scores.shape[1] >= LARGE:
        seeds = np.repeat([one.rules.options.seed for one, _ in noisy], repeat).tolist()
        at = torch.from_numpy(positions)
        found = torch.cat(
            [noisy_argmax(scores[i : i + 1], seed, at[i : i + 1]) for i, seed in enumerate(seeds)]
        )
    else:
        words = np.repeat(np.array([one.rules.seed_word for one, _ in noisy], np.int64), repeat)
        found = noisy_argmax_of(
            scores, _to(torch.from_numpy(words), scores), _to(torch.from_numpy(positions), scores)
        )
    return picks.index_copy(0, where, found)


def accepted_and_next(picks: Tensor, drafts: Tensor, counts: Sequence[int]) -> Tensor:
    """The tokens that each session gains: the draft tokens that were picked as well, and the pick after them.

    Args:
        picks: int64 [rows]; counts[i] + 1 rows for session i.
        drafts: Draft tokens of all sessions, [sum(counts)].
        counts: Draft tokens of each session.

    Returns:
        int64 [sessions, max(counts) + 1], padded with -1.
    """
    most, many = max(counts), len(counts)
    sizes = np.array(counts)
    column = np.arange(most + 1)
    starts = np.cumsum(sizes + 1) - sizes - 1
    rows = starts[:, None] + np.minimum(column, sizes[:, None])
    firsts = np.cumsum(sizes) - sizes
    places = np.minimum(firsts[:, None] + column[:most], max(int(sizes.sum()) - 1, 0))
    inside = _to(torch.from_numpy(column[:most] < sizes[:, None]), picks)
    picked = picks[_to(torch.from_numpy(rows), picks)]
    if not most:
        return picked
    same = (picked[:, :most] == drafts.to(picks.dtype)[_to(torch.from_numpy(places), picks)]) & inside
    kept = torch.cat(
        [torch.ones(many, 1, dtype=torch.bool, device=picks.device), same.int().cumprod(1).bool()], 1
    )
    return torch.where(kept, picked, -1)


def _spans(wanted: Sequence[WantedRows]) -> list[tuple[int, int]]:
    spans, start = [], 0
    for one in wanted:
        stop = start + len(one.draft) + 1
        spans.append((start, stop))
        start = stop
    return spans


def _to(values: Tensor, like: Tensor) -> Tensor:
    """The values on `like`'s device; the copy does not synchronise."""
    if like.device.type == "cpu":
        return values
    return values.pin_memory().to(like.device, non_blocking=True)


def _adjust(
    logits: Tensor, wanted: Sequence[WantedRows], spans: Sequence[tuple[int, int]], eos_ids: Sequence[int]
) -> Tensor:
    """Apply logit bias, repetition penalty, minimum length and grammars, in this order, to the rows of sessions that
    use them.
    """
    biased: list[tuple[int, Ids, npt.NDArray[np.float32]]] = []
    seen: list[tuple[int, Ids, float]] = []
    no_end: list[int] = []
    guided: list[tuple[int, Mask]] = []
    for one, (start, stop) in zip(wanted, spans, strict=True):
        options = one.rules.options
        if one.rules.bias_ids.size:
            biased += [(row, one.rules.bias_ids, one.rules.bias) for row in range(start, stop)]
        if options.repetition_penalty != 1.0:
            before = np.unique(one.seen)
            for row in range(start, stop):
                ids = before if row == start else np.union1d(before, one.draft[: row - start])
                seen.append((row, ids, options.repetition_penalty))
        masks = one.masks
        short = range(start, min(stop, start + max(0, options.min_new_tokens - one.answered)))
        if masks is not None:
            guided.append((start, masks))
            complete = only(masks, sorted(eos_ids))  # a complete answer may end below the minimum length
            no_end += [row for row in short if not complete[row - start]]
        else:
            no_end += short
    if not (biased or seen or no_end or guided):
        return logits
    scores = logits.float().clone()
    if biased:
        values = torch.from_numpy(np.concatenate([bias for _, _, bias in biased]))
        scores.index_put_(
            _places([(row, ids) for row, ids, _ in biased], scores), _to(values, scores), accumulate=True
        )
    if seen:
        places = _places([(row, ids) for row, ids, _ in seen], scores)
        sizes = [len(ids) for _, ids, _ in seen]
        factors = torch.from_numpy(np.repeat(np.array([one for *_, one in seen], np.float32), sizes))
        factors = _to(factors, scores)
        found = scores[places]
        scores.index_put_(places, torch.where(found < 0, found * factors, found / factors))
    if no_end and eos_ids:
        ends = np.array(sorted(eos_ids), np.int64)
        scores.index_put_(
            _places([(row, ends) for row in no_end], scores), torch.full((), NEVER, device=scores.device)
        )
    if guided:
        index = np.concatenate([np.arange(start, start + len(masks)) for start, masks in guided])
        where = _to(torch.from_numpy(index), scores)
        wrong = _to(torch.from_numpy(~np.concatenate([masks for _, masks in guided])), scores)
        scores.index_copy_(0, where, scores.index_select(0, where).masked_fill(wrong, -math.inf))
    return scores


def _places(cells: Sequence[tuple[int, Ids]], like: Tensor) -> tuple[Tensor, Tensor]:
    rows = np.repeat(np.array([row for row, _ in cells]), [len(ids) for _, ids in cells])
    columns = np.concatenate([ids for _, ids in cells]).astype(np.int64)
    return _to(torch.from_numpy(rows), like), _to(torch.from_numpy(columns), like)


def _cut(scores: Tensor, options: Sequence[GenerationOptions], repeat: npt.NDArray[np.int64]) -> Tensor:
    """Apply each row's temperature, top-k, top-p and min-p to scores [n, vocab], as `cut_scores` does."""

    def column(values: Sequence[float], dtype: type = np.float32) -> Tensor:
        return _to(torch.from_numpy(np.repeat(np.array(values, dtype), repeat))[:, None], scores)

    vocab = scores.shape[1]
    scores = scores / column([one.temperature for one in options])
    by_k = any(0 < one.top_k < vocab for one in options)
    by_p = any(one.top_p < 1.0 for one in options)
    if by_k or by_p:
        ordered, order = torch.sort(scores, dim=-1, descending=True, stable=True)
        if by_k:
            k = column([one.top_k if 0 < one.top_k < vocab else vocab for one in options], np.int64)
            least = ordered.gather(1, k - 1)
            scores = scores.masked_fill(scores < least, NEVER)
            ordered = ordered.masked_fill(ordered < least, NEVER)
        if by_p:
            before = torch.softmax(ordered, dim=-1).cumsum(dim=-1).roll(1, dims=-1)
            before[:, 0] = 0.0
            most = column([one.top_p if one.top_p < 1.0 else math.inf for one in options])
            cut = torch.zeros_like(scores, dtype=torch.bool).scatter(-1, order, before >= most)
            scores = scores.masked_fill(cut, NEVER)
    if any(one.min_p > 0.0 for one in options):
        nearest = column([math.log(one.min_p) if one.min_p > 0.0 else -math.inf for one in options])
        scores = scores.masked_fill(scores < scores.amax(dim=-1, keepdim=True) + nearest, NEVER)
    return scores
