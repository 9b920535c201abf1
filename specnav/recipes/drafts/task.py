# SPDX-License-Identifier: Apache-2.0
"""The objective of a draft: the target's distribution on texts of the draft itself and of the target.

On-policy distillation: some rows are texts that the draft has just generated, so that it learns where it really errs
(GKD, arXiv 2306.13649; for drafts DistillSpec, arXiv 2310.08461; while serving, online speculative decoding, arXiv
2310.07177). The other rows are the target's own texts, the contexts of a verified answer. The distance is a mixture of
both directions of the Kullback-Leibler divergence. The target's likeliest token has an additional term, because greedy
acceptance depends on it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from specnav.recipes.drafts.config import TrainDraftConfig
from specnav.recipes.drafts.figures import checkpoint_figures
from specnav.recipes.drafts.network import DraftNetwork
from specnav.recipes.drafts.packing import of_size, pack, within_texts
from specnav.recipes.drafts.teacher import Teacher, learnt_places
from specnav.recipes.errors import TrainingError
from specnav.recipes.samples import ExitSample, fitting, load_samples
from specnav.recipes.some_tokens import some_tokens

RENEWED_EVERY = 100
"""Batches between two rounds of the draft's own texts; checkpoints are saved after whole rounds."""
POOL = 96
GREEDY_ROUNDS = 4
"""One in this many rounds the draft generates greedily, otherwise at temperature 1."""
LEARNT_SHARE = 0.75
"""Share of a batch's positions reserved for learnt tokens; the rest is prompts and unused space in the rows."""
LEAST = 1e-6


@dataclass(frozen=True)
class DistilSpec:
    """All inputs that a worker process needs to build its task, beside the samples in the run folder.

    start: the draft's folder to start from. lessons: files of the target's distributions on the texts, if known.
    """

    config: TrainDraftConfig
    start: str
    lessons: tuple[Path, ...] = ()


class DistilTask:
    """The draft and its loss, for the training loop."""

    def __init__(self, spec: DistilSpec, device: str) -> None:
        self.spec = spec
        self.config = config = spec.config
        self.draft = DraftNetwork(spec.start, device, trained=True)
        self.target = DraftNetwork(config.target, device) if config.target else None
        self.model = self.draft.module
        self.teacher = Teacher(self.target, self.draft, config.length)
        for file in spec.lessons:
            self.teacher.learn_from(file)
        self.texts, self.given = (
            fitting(_own_part(load_samples(config.samples(name))), config.length) for name in ("texts", "given")
        )
        self.prompts = load_samples(config.samples("prompts")) if self.target is not None else []
        self.held_out = load_samples(config.samples("held-out"))
        self._said: list[ExitSample] = []
        self._batches = 0
        if not self.texts and not self.given:
            raise TrainingError("no text is long enough to learn from: give prompts with longer answers")

    def goes_on(self, step: int) -> None:
        """Continue after `step` updates, with the rounds of an uninterrupted run."""
        self._batches = step

    def batch(self, generator: torch.Generator, size: int) -> tuple[Tensor, ...]:
        """Draw one batch: (ids, positions, sees, where, likely, chances, weights, features, among).

        ids, positions, sees, where, features, among: see `DraftNetwork.logits`; sees, features and among are empty if
        unused. likely int64, chances float32, both [places, top]: the target's likeliest tokens, as indices into
        `among` if that is used, and their log-probabilities. weights: [places].
        """
        if self.prompts and self.config.on_policy and self._batches % RENEWED_EVERY == 0:
            self._said = self._speak(generator)
        self._batches += 1
        none = torch.zeros(0)
        if not self.draft.packs(self.config.length):
            samples = [self._one(generator) for _ in range(size)]
            rows = self.draft.rows(samples, self.config.length)
            ids, positions, sees, where = rows.ids[:, :-1], rows.positions[..., :-1], none, learnt_places(rows)
            features = none if rows.features is None else rows.features
        else:
            samples, packed = pack(lambda: self._one(generator), size, self.config.length)
            ids, positions, sees, features = packed.ids.long(), packed.positions.long(), within_texts(packed.text), none
            where = packed.learn.flatten().nonzero()[:, 0]
        if not len(where):
            raise TrainingError("no token of an answer fits into a row: give a larger --length")
        lessons = self.teacher.lessons(samples)
        likely = torch.cat([lesson.likely for lesson in lessons]).long()
        chances = torch.cat([lesson.chances for lesson in lessons]).float()
        places = math.ceil(LEARNT_SHARE * size * self.config.length)
        where, likely, chances, weights = of_size(where, (likely, chances), places, generator)
        among = none
        if 0 < self.config.tokens < self.draft.vocabulary:
            among, likely, chances = some_tokens(likely, chances, self.config.tokens, self.draft.vocabulary, generator)
        return ids, positions, sees, where, likely, chances, weights, features, among

    def loss(
        self,
        ids: Tensor,
        positions: Tensor,
        sees: Tensor,
        where: Tensor,
        likely: Tensor,
        chances: Tensor,
        weights: Tensor,
        features: Tensor,
        among: Tensor,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Distance from the target's distribution over its likeliest tokens and one class for all others."""
        logits = self.draft.logits(
            ids, positions, features if features.numel() else None, sees if sees.numel() else None, where,
            among if among.numel() else None,
        )  # fmt: skip
        log_q = logits.gather(-1, likely) - logits.logsumexp(-1, keepdim=True)
        p, q = chances.exp(), log_q.exp()
        others_p, others_q = ((1 - of.sum(-1)).clamp(min=LEAST) for of in (p, q))
        others = others_p.log() - others_q.log()
        forward = (p * (chances - log_q)).sum(-1) + others_p * others
        reverse = (q * (log_q - chances)).sum(-1) - others_q * others
        apart = (1 - self.config.reverse) * forward + self.config.reverse * reverse
        weight = weights / weights.sum().clamp(min=1)
        total = (((1 - self.config.hard) * apart - self.config.hard * log_q[:, 0]) * weight).sum()
        agrees = ((logits.argmax(-1) == likely[:, 0]) * weight).sum()
        return total, {
            "loss": total.detach(),
            "apart": (forward * weight).sum().detach(),
            "agrees": agrees.detach(),
            "tokens": weights.sum(),
        }

    def at_checkpoint(self) -> dict[str, float]:
        """τ and agreement on the held-out texts with the current weights."""
        return checkpoint_figures(self.draft, self.held_out, self.config.gamma)

    def _speak(self, generator: torch.Generator) -> list[ExitSample]:
        """The draft's current answers to some prompts."""
        prompts = _drawn(self.prompts, POOL, generator)
        greedy = self._batches // RENEWED_EVERY % GREEDY_ROUNDS == GREEDY_ROUNDS - 1
        seed = int(torch.randint(2**31, (1,), generator=generator))
        said = self.draft.answer(prompts, self.config.new_tokens, 0.0 if greedy else 1.0, seed)
        return fitting(said, self.config.length)

    def _one(self, generator: torch.Generator) -> ExitSample:
        """One text to learn from: the draft's own, a given one, or the target's."""
        lot = float(torch.rand((), generator=generator))
        said, given = self.config.on_policy, self.config.given_share if self.given else 0.0
        if self._said and lot < said:
            return _drawn(self._said, 1, generator)[0]
        if self.given and (not self.texts or lot >= 1 - min(given, 1 - said)):
            return _drawn(self.given, 1, generator)[0]
        return _drawn(self.texts or self._said, 1, generator)[0]


def _drawn(samples: list[ExitSample], count: int, generator: torch.Generator) -> list[ExitSample]:
    if not samples:
        return []
    return [samples[index] for index in torch.randint(len(samples), (count,), generator=generator).tolist()]


def _own_part(samples: list[ExitSample]) -> list[ExitSample]:
    """The samples of this process; each text belongs to one process, so the target evaluates it only once."""
    if not torch.distributed.is_initialized():
        return samples
    return samples[torch.distributed.get_rank() :: torch.distributed.get_world_size()] or samples
