# SPDX-License-Identifier: Apache-2.0
"""The objectives of the text target's stages: next tokens, and avoiding loops.

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
from specnav.recipes.text.models import LlamaShape, build_model
from specnav.recipes.text.rows import RowSource, draw_positions, own_rows

AVOIDANCE = 0.5
OWN_SHARE = 0.5
"""Share of the rows with own texts of the target, if there are any."""


@dataclass(frozen=True)
class TextTaskSpec:
    """All inputs that a worker process needs to build its task.

    encoded: the corpus on disk. start_from: a checkpoint of the same shape. own: texts of the target, which only show
    what to avoid.
    """

    encoded: Path
    shape: LlamaShape
    vocabulary: int
    end: int
    length: int
    start_from: Path | None = None
    own: Path | None = None


class TextTask:
    """One stage's model and loss."""

    def __init__(self, spec: TextTaskSpec, device: str) -> None:
        self.spec = spec
        self.source = RowSource(spec.encoded, spec.length)
        self.model = build_model(spec.shape, spec.vocabulary, spec.end)
        if spec.start_from is not None:
            self.model.load_state_dict(read_checkpoint(spec.start_from)["model"])
        self.own = None if spec.own is None else own_rows(load_samples(spec.own), spec.length, spec.end)

    def batch(self, generator: torch.Generator, size: int) -> tuple[Tensor, ...]:
        """ids, positions int64 [size, length]; learn, avoid float32 [size, length]."""
        drawn = size if self.own is None else size - round(size * OWN_SHARE)
        ids = self.source.draw(generator, drawn)
        learn, avoid = torch.ones(size, self.spec.length), torch.zeros(size, self.spec.length)
        if self.own is not None:
            own_ids, circles = self.own
            picked = torch.randint(len(own_ids), (size - drawn,), generator=generator)
            ids = torch.cat([ids, own_ids[picked]])
            learn[drawn:], avoid[drawn:] = 0, circles[picked]
        return ids, draw_positions(generator, size, self.spec.length), learn, avoid

    def loss(
        self, ids: Tensor, positions: Tensor, learn: Tensor, avoid: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Weighted cross-entropy with unlikelihood."""
        wanted, learn, avoid = ids[:, 1:], learn[:, 1:], avoid[:, 1:]
        logits = self._logits(ids, positions)
        surprise = F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), reduction="none").view_as(learn)
        text = (surprise * learn).sum() / learn.sum().clamp(min=1)
        circles = -torch.log1p(-torch.exp(-surprise).clamp(max=0.999))
        circling = (circles * avoid).sum() / avoid.sum().clamp(min=1)
        return text + AVOIDANCE * circling, {"text": text.detach(), "circling": circling.detach()}

    def _logits(self, ids: Tensor, positions: Tensor) -> Tensor:
        ids = ids[:, :-1]
        # Without a mask, transformers interprets a gap in the positions as the beginning of another text.
        mask = torch.ones_like(ids)
        hidden = self.model.model(
            input_ids=ids, position_ids=positions[:, :-1], attention_mask=mask, use_cache=False
        ).last_hidden_state
        return self.model.lm_head(hidden).float()
