# SPDX-License-Identifier: Apache-2.0
"""The objectives of the text pair's stages: next tokens, avoiding loops, and the target's distributions.

One task serves all stages. Every token of a row has two weights in the loss: `learn` for predicting it, and `avoid` for
making it unlikely (unlikelihood training, arXiv 1908.04319).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from specnav.recipes.loop import read_checkpoint
from specnav.recipes.samples import load_samples
from specnav.recipes.text.models import LlamaShape, build_model, trained_model
from specnav.recipes.text.rows import RowSource, draw_positions, own_rows

AVOIDANCE = 0.5
HARD_SHARE = 0.5
"""Share of the teacher's likeliest token in a distilled loss, because greedy acceptance depends on it."""


@dataclass(frozen=True)
class TextTaskSpec:
    """All inputs that a worker process needs to build its task.

    encoded: the corpus on disk. start_from: a checkpoint of the same shape. own: texts of the target; `own_share` is
    their share of the rows. teacher: (shape, checkpoint); with a teacher its distributions are learnt, also on own
    texts; without one, own texts only show what to avoid.
    """

    encoded: Path
    shape: LlamaShape
    vocabulary: int
    end: int
    length: int
    start_from: Path | None = None
    own: Path | None = None
    own_share: float = 0.0
    teacher: tuple[LlamaShape, Path] | None = None


class TextTask:
    """One stage's model and loss."""

    def __init__(self, spec: TextTaskSpec, device: str) -> None:
        self.spec = spec
        self.source = RowSource(spec.encoded, spec.length)
        self.model = build_model(spec.shape, spec.vocabulary, spec.end)
        if spec.start_from is not None:
            self.model.load_state_dict(read_checkpoint(spec.start_from)["model"])
        self.own: tuple[Tensor, Tensor, Tensor] | None = None
        if spec.own is not None:
            self.own = own_rows(load_samples(spec.own), spec.length, spec.end, taught=spec.teacher is not None)
        self.teacher = None
        if spec.teacher is not None:
            self.teacher = trained_model(spec.teacher[0], spec.vocabulary, spec.end, spec.teacher[1]).to(
                device
            )

    def batch(self, generator: torch.Generator, size: int) -> tuple[Tensor, ...]:
        """ids, positions int64 [size, length]; learn, avoid float32 [size, length]."""
        count = round(size * self.spec.own_share) if self.own is not None else 0
        ids = self.source.draw(generator, size - count)
        learn, avoid = torch.ones(ids.shape), torch.zeros(ids.shape)
        if self.own is not None:
            picked = torch.randint(len(self.own[0]), (count,), generator=generator)
            drawn = (part[picked] for part in self.own)
            ids, learn, avoid = (torch.cat(pair) for pair in zip((ids, learn, avoid), drawn, strict=True))
        return ids, draw_positions(generator, size, self.spec.length), learn, avoid

    def loss(
        self, ids: Tensor, positions: Tensor, learn: Tensor, avoid: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Weighted cross-entropy with unlikelihood, or distillation if there is a teacher."""
        wanted, learn, avoid = ids[:, 1:], learn[:, 1:], avoid[:, 1:]
        logits = self._logits(self.model, ids, positions)
        surprise = F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), reduction="none").view_as(learn)
        text = (surprise * learn).sum() / learn.sum().clamp(min=1)
        circles = -torch.log1p(-torch.exp(-surprise).clamp(max=0.999))
        circling = (circles * avoid).sum() / avoid.sum().clamp(min=1)
        said = {"text": text.detach(), "circling": circling.detach()}
        if self.teacher is None:
            return text + AVOIDANCE * circling, said
        with torch.no_grad():
            taught = self._logits(self.teacher, ids, positions)
            likeliest = taught.argmax(-1)
        log_q, log_p = logits.log_softmax(-1), taught.log_softmax(-1)
        apart = F.kl_div(log_q, log_p, reduction="none", log_target=True).sum(-1)
        hard = -log_q.gather(-1, likeliest[..., None]).squeeze(-1)
        total = (((1 - HARD_SHARE) * apart + HARD_SHARE * hard) * learn).sum() / learn.sum()
        agrees = ((logits.argmax(-1) == likeliest) * learn).sum() / learn.sum()
        return total, said | {
            "apart": (apart * learn).sum().detach() / learn.sum(),
            "agrees": agrees.detach(),
        }

    @staticmethod
    def _logits(model, ids: Tensor, positions: Tensor) -> Tensor:
        ids = ids[:, :-1]
        # Without a mask, transformers interprets a gap in the positions as the beginning of another text.
        mask = torch.ones_like(ids)
        hidden = model.model(
            input_ids=ids, position_ids=positions[:, :-1], attention_mask=mask, use_cache=False
        ).last_hidden_state
        return model.lm_head(hidden).float()
