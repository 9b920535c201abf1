"""What a draft learns: the target's distribution wherever the draft itself, or the target, has come to.

On-policy distillation: some of the rows are what the draft has just said, so that it learns where it really errs
(GKD, arXiv 2306.13649; for drafts DistillSpec, arXiv 2310.08461; while serving, online speculative decoding, arXiv
2310.07177), the others are the target's own words, the places that a verified answer goes through. The distance is a
mixture of both directions of the Kullback-Leibler divergence, and the likeliest token of the target counts by itself:
that is what greedy acceptance asks for.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from training.drafts.figures import draft_figures
from training.drafts.network import Network, Rows
from training.exits.samples import Sample, load_samples

RENEWED_EVERY = 100
"""Batches between two rounds of the draft's own words; a checkpoint is kept after a whole number of rounds."""
POOL = 96
GREEDY_ROUNDS = 4
"""Every so many rounds the draft speaks greedily, else at temperature 1."""
GAP_SHARE = 0.25


@dataclass(frozen=True)
class DistilSpec:
    """All that a worker process needs to build its task.

    target: folder or id; "" where there is none, and texts alone say what the target picks. draft: the folder to start
    from. texts, given, prompts, held_out: files of samples (what the target said, what was given to read, what the
    draft is to go on from, greedy texts of the target that are only measured on). length: of a row; new_tokens: of the
    draft's answers. on_policy, given_share: shares of rows that the draft has said, and that were given. reverse: share
    of KL(draft | target) in the distance, the rest is KL(target | draft). hard: share of the likeliest token in the
    loss.
    """

    target: str
    draft: str
    texts: Path
    given: Path
    prompts: Path
    held_out: Path
    length: int
    new_tokens: int
    on_policy: float
    given_share: float
    reverse: float
    hard: float
    gamma: int


class DistilTask:
    """The draft and its loss, for the training room's loop."""

    def __init__(self, spec: DistilSpec, device: str) -> None:
        self.spec = spec
        self.draft = Network(spec.draft, device, trained=True)
        self.target = Network(spec.target, device) if spec.target else None
        self.model = self.draft.module
        self.texts = load_samples(spec.texts)
        self.given = load_samples(spec.given)
        self.prompts = load_samples(spec.prompts) if self.target is not None else []
        self.held_out = load_samples(spec.held_out)
        self._said: list[Sample] = []
        self._batches = 0

    def batch(self, generator: torch.Generator, size: int) -> tuple[Tensor, ...]:
        """ids, positions and learn as in `Rows`; pictures' features of draft and target, empty where there are none."""
        said = round(size * self.spec.on_policy) if self.prompts else 0
        if said and self._batches % RENEWED_EVERY == 0:
            self._said = self._speak(generator)
        self._batches += 1
        given = round(size * self.spec.given_share) if self.given else 0
        given = size - said if not self.texts else min(given, size - said)
        samples = [
            *_drawn(self._said, said, generator),
            *_drawn(self.given, given, generator),
            *_drawn(self.texts, size - said - given, generator),
        ]
        rows = self.draft.rows(samples, self.spec.length)
        positions = rows.positions if self.draft.sees else self._with_gaps(rows, generator)
        none = torch.zeros(0)
        seen = none if rows.features is None else rows.features
        taught = none
        if self.target is not None and rows.features is not None:
            other = self.target.rows(samples, self.spec.length)
            assert other.features is not None
            taught = other.features
        return rows.ids, positions, rows.learn, seen, taught

    def loss(
        self, ids: Tensor, positions: Tensor, learn: Tensor, seen: Tensor, taught: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Distance from the target's distribution, or surprise at its picks where only these are known."""
        wanted, learn = ids[:, 1:], learn[:, 1:]
        ids, positions = ids[:, :-1], positions[..., :-1]
        log_q = self.draft.logits(ids, positions, seen if seen.numel() else None).log_softmax(-1)
        weight = learn / learn.sum().clamp(min=1)
        if self.target is None:
            surprise = -log_q.gather(-1, wanted[..., None]).squeeze(-1)
            agrees = ((log_q.argmax(-1) == wanted) * weight).sum()
            total = (surprise * weight).sum()
            return total, {"loss": total.detach(), "agrees": agrees.detach()}
        with torch.no_grad():
            log_p = self.target.logits(ids, positions, taught if taught.numel() else None).log_softmax(-1)
            likeliest = log_p.argmax(-1)
        forward = (log_p.exp() * (log_p - log_q)).sum(-1)
        reverse = (log_q.exp() * (log_q - log_p)).sum(-1)
        apart = (1 - self.spec.reverse) * forward + self.spec.reverse * reverse
        picked = -log_q.gather(-1, likeliest[..., None]).squeeze(-1)
        total = (((1 - self.spec.hard) * apart + self.spec.hard * picked) * weight).sum()
        agrees = ((log_q.argmax(-1) == likeliest) * weight).sum()
        return total, {
            "loss": total.detach(),
            "apart": (forward * weight).sum().detach(),
            "agrees": agrees.detach(),
        }

    def at_checkpoint(self) -> dict[str, float]:
        """τ and agreement on what is held out, with the weights as they are."""
        figures = draft_figures(self.draft, self.held_out, self.spec.gamma)
        return {"tau": figures.tau, "agreement": figures.agreement}

    def _speak(self, generator: torch.Generator) -> list[Sample]:
        """What the draft says to some prompts by now."""
        prompts = _drawn(self.prompts, POOL, generator)
        greedy = self._batches // RENEWED_EVERY % GREEDY_ROUNDS == GREEDY_ROUNDS - 1
        seed = int(torch.randint(2**31, (1,), generator=generator))
        return self.draft.answer(prompts, self.spec.new_tokens, 0.0 if greedy else 1.0, seed)

    def _with_gaps(self, rows: Rows, generator: torch.Generator) -> Tensor:
        """Positions with one gap in some rows: what learns on short rows should know long distances, too (positional
        skip-wise training, arXiv 2309.10400).
        """
        count, length = rows.ids.shape
        room = min(self.draft.loaded.context_limit, 1 << 15) - length
        if room < 2:
            return rows.positions
        split = torch.randint(1, length, (count, 1), generator=generator)
        gap = torch.randint(1, room, (count, 1), generator=generator)
        gap = gap * (torch.rand(count, 1, generator=generator) < GAP_SHARE)
        return rows.positions + gap * (torch.arange(length)[None] >= split)


def _drawn(samples: list[Sample], count: int, generator: torch.Generator) -> list[Sample]:
    if not samples:
        return []
    return [samples[index] for index in torch.randint(len(samples), (count,), generator=generator).tolist()]
