# SPDX-License-Identifier: Apache-2.0
"""The text stages: the target learns the oracle's answers, the draft the target's distributions.

Both read the frozen tower's cached image tokens. In addition to the next token they learn where the named object is: by
a probe of the early image tokens (grounding), and by one attention head that must attend to it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from specdec.whole_files import replacing
from specnav.recipes import architecture as arch
from specnav.recipes.architecture import (
    TARGET_TEXT,
    TrainedTextShape,
    TrainedVisionShape,
    export_weights,
    save_model_folder,
)
from specnav.recipes.decoder import TrainableDecoder
from specnav.recipes.frames import FrameData, Pairs, load_frames
from specnav.recipes.loop import read_checkpoint
from specnav.recipes.questions import (
    ANSWER,
    PREFIX,
    QuestionBook,
    QuestionEncoder,
    attention_mask,
    draw_rows,
    image_positions,
)
from specnav.recipes.tower import TrainableTower, patchify
from specnav.recipes.vision_stage import flip_order

NOISE = 0.1
GROUNDING, GROUNDING_POSITIVE = 2.0, 2.0
ATTENTION, ATTENTION_ROWS = 0.3, 18
DISTILLED = 0.8
FEATURE_RMS = 0.5
"""Root mean square of the cached features; their scale is folded into the merger."""


@dataclass(frozen=True)
class FrameTextSpec:
    """All inputs that a worker process needs to build its task.

    teacher: checkpoint of a target whose distributions are learnt. pairs: (kind, colour) pairs to ask for; None: all
    training pairs.
    """

    data: FrameData
    shape: TrainedTextShape
    teacher: Path | None = None
    pairs: Pairs | None = None


def cache_features(
    data: FrameData, weights: dict[str, Tensor], progress: Callable[[int, int], None], rescaled: bool = True
) -> None:
    """Write features float16 [2 * count, 40, out] (mirrored frames in the second half) and the tower's weights.

    rescaled: scale the features to FEATURE_RMS; must be False for a tower on which a target was already trained.
    """
    count, weights = data.count, dict(weights)
    shape = TrainedVisionShape(out=weights["merger.mlp.2.weight"].shape[0])
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tower = TrainableTower(shape).to(device).eval()
    tower.load_state_dict(weights)
    frames = load_frames(data.frames, count)

    @torch.inference_mode()
    def features(index: np.ndarray, mirror: bool) -> Tensor:
        pixels = torch.from_numpy(frames.pick(index))
        patches = patchify(pixels.flip(2) if mirror else pixels).to(device)
        with torch.autocast(device, dtype=torch.bfloat16):
            return tower(patches).float().cpu()

    sample = features(np.arange(0, count, max(count // 300, 1)), False)
    scale = FEATURE_RMS / float(sample.pow(2).mean().sqrt()) if rescaled else 1.0
    for name in ("merger.mlp.2.weight", "merger.mlp.2.bias"):
        weights[name] = weights[name] * scale
    with replacing(data.features) as partial:
        table = np.lib.format.open_memmap(
            partial, "w+", np.float16, (2 * count, arch.IMAGE_TOKENS, shape.out)
        )
        for start in range(0, count, 250):
            index = np.arange(start, min(start + 250, count))
            for mirror in (False, True):
                table[index + count * mirror] = (features(index, mirror) * scale).half().numpy()
            progress(start + len(index), count)
        table.flush()
        torch.save(weights, data.tower)


class FrameTextTask:
    """Trains one decoder on questions about cached frames; with a teacher, it learns the teacher's distributions."""

    def __init__(self, spec: FrameTextSpec, device: str) -> None:
        from navsim.kinds import COLOURS, KINDS, TRAIN_PAIRS
        from specnav.recipes.vocabulary import build_tokenizer

        self.count = count = spec.data.count
        labels = load_frames(spec.data.frames, count).labels
        self.features = np.load(spec.data.features, mmap_mode="r")
        self.encoder = QuestionEncoder(build_tokenizer())
        kinds, colours = [kind.name for kind in KINDS], list(COLOURS)
        allowed = set(TRAIN_PAIRS if spec.pairs is None else spec.pairs)
        self.book = QuestionBook(labels[: count - spec.data.held_back], kinds, colours, allowed)
        self.flip = flip_order().numpy()
        width = self.features.shape[-1]
        self.sigma = torch.from_numpy(
            self.features[: count : max(count // 500, 1)].astype(np.float32).std((0, 1))
        )
        self.sigma = self.sigma.to(device)
        self.weights = self.encoder.weights.to(device)
        self.model = TrainableDecoder(spec.shape, width)
        self.teacher: TrainableDecoder | None = None
        if spec.teacher is not None:
            self.teacher = TrainableDecoder(TARGET_TEXT, width).to(device).eval().requires_grad_(False)
            self.teacher.load_state_dict(read_checkpoint(spec.teacher)["model"])

    def batch(self, generator: torch.Generator, size: int) -> tuple[Tensor, ...]:
        """Draw random questions: (ids, pads, wanted, cells, features)."""
        rng = random.Random(int(torch.randint(2**62, (1,), generator=generator)))
        questions, mirrored, ids, pads, wanted, cells = draw_rows(
            self.book, self.encoder, rng, size, self.flip
        )
        index = np.array([question.frame for question in questions]) + self.count * mirrored
        features = torch.from_numpy(np.stack([self.features[i] for i in index]).astype(np.float32))
        return ids, pads, wanted, cells, features

    def loss(self, ids: Tensor, pads: Tensor, wanted: Tensor, cells: Tensor, features: Tensor):
        """Weighted cross-entropy (or distillation), plus the losses of grounding and attention."""
        length = ids.shape[1]
        positions, mask = image_positions(pads, length), attention_mask(pads, length)
        if self.model.training:
            features = features + NOISE * self.sigma * torch.randn_like(features)
        logits, grounding, scores = self.model(ids, features, positions, mask, PREFIX, ANSWER)
        real = wanted >= 0
        weight = self.weights[wanted.clamp(min=0)] * real
        entropy = F.cross_entropy(logits.flatten(0, 1), wanted.clamp(min=0).flatten(), reduction="none")
        text = (entropy.view_as(weight) * weight).sum() / weight.sum()
        main = text
        if self.teacher is not None:
            with torch.no_grad():
                taught, _, _ = self.teacher(ids, features, positions, mask, PREFIX, ANSWER)
            apart = F.kl_div(
                logits.log_softmax(-1), taught.log_softmax(-1), reduction="none", log_target=True
            ).sum(-1)
            main = DISTILLED * (apart * weight).sum() / weight.sum() + (1 - DISTILLED) * text
        ground = F.binary_cross_entropy_with_logits(
            grounding, cells, pos_weight=torch.full((), GROUNDING_POSITIVE, device=cells.device)
        )
        seen = cells.any(1)
        looks = scores[:, :ATTENTION_ROWS].softmax(-1)[:, :, PREFIX : PREFIX + arch.IMAGE_TOKENS]
        mass = (looks * cells[:, None]).sum(-1).clamp(min=1e-6)
        look = (-mass.log().mean(1) * seen).sum() / seen.sum().clamp(min=1)
        total = main + GROUNDING * ground + ATTENTION * look
        with torch.no_grad():
            picked = logits.argmax(-1)
            right = picked == wanted
            all_right = (right | ~real).all(1).float().mean()
            sees = right[:, 1].float().mean()
        return total, {
            "loss": total.detach(),
            "text": text.detach(),
            "ground": ground.detach(),
            "look": look.detach(),
            "token": (right & real).sum().detach() / real.sum(),
            "answer": all_right.detach(),
            "sees": sees.detach(),
        }


def save_trained(spec: FrameTextSpec, checkpoint: Path, out: Path) -> None:
    """Write the model folder of a stage's checkpoint."""
    tower = torch.load(spec.data.tower, weights_only=True)
    weights = export_weights(tower, read_checkpoint(checkpoint)["model"])
    save_model_folder(out, TrainedVisionShape(out=spec.shape.width), spec.shape, weights)
