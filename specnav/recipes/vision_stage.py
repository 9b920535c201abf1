# SPDX-License-Identifier: Apache-2.0
"""The vision stage: one tower for both models, trained with dense labels for the content and position of every patch.

Text losses alone gave no grounding in models this small; the simulator's segmentation provides dense labels for free.
Afterwards the tower is frozen and its image tokens are cached for the text stages.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specnav.recipes import architecture as arch
from specnav.recipes.architecture import TrainedVisionShape
from specnav.recipes.frames import FrameData, FrameSet, load_frames
from specnav.recipes.loop import read_checkpoint
from specnav.recipes.tower import TrainableTower, patch_order, patchify

KINDS = 8
COLOURS = 9
_NEITHER = 0.4  # weight of "no object" among the kinds and colours
_BEARING = 45.0  # degrees per unit of the bearing label
CELL_SIZE = arch.MERGE**2


class DenseLabels(NamedTuple):
    """Labels per frame, with patches in merge order.

    kind, colour: int64 [n, 160] (last class: none). log_distance, bearing: float32 [n, 160]. columns: float32 [n, 16],
    log metres.
    """

    kind: Tensor
    colour: Tensor
    log_distance: Tensor
    bearing: Tensor
    columns: Tensor


def dense_labels(labels: np.ndarray) -> DenseLabels:
    """Per-patch labels of FRAME records."""
    owner = labels["owner"].astype(np.int64)
    things = labels["objects"]
    rows = np.arange(len(labels))[:, None]
    safe = np.maximum(owner, 0)
    none = owner < 0
    kind = np.where(none, KINDS, things["kind"][rows, safe]).astype(np.int64)
    colour = np.where(none, COLOURS, things["colour"][rows, safe]).astype(np.int64)
    distance = np.log(np.maximum(things["distance"][rows, safe], 0.05)).astype(np.float32)
    bearing = (things["bearing"][rows, safe] / _BEARING).astype(np.float32)
    columns = np.log(np.maximum(labels["columns"], 0.1)).astype(np.float32)
    return DenseLabels(*(torch.from_numpy(part) for part in (kind, colour, distance, bearing, columns)))


def flip_order() -> Tensor:
    """For each patch (merge order) of a mirrored frame, its index in the original frame, int64 [160]."""
    order = patch_order()
    rows, columns = order // arch.GRID_W, order % arch.GRID_W
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order))
    return place[rows * arch.GRID_W + (arch.GRID_W - 1 - columns)]


class DenseHeads(nn.Module):
    """Image tokens [n, 40, out] -> per-patch predictions; used in training only."""

    def __init__(self, out: int) -> None:
        super().__init__()
        self.outputs = KINDS + 1 + COLOURS + 1 + 2
        self.patches = nn.Linear(out, CELL_SIZE * self.outputs)
        self.token = nn.Linear(out, 2 + arch.MERGE)  # own position, distances of the columns

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(logits of kind, of colour, (log distance, bearing) per patch, (position, column distances) per token)."""
        n = tokens.shape[0]
        said = self.patches(tokens).float().view(n, -1, self.outputs)
        kind, colour, rest = said.split([KINDS + 1, COLOURS + 1, 2], dim=-1)
        return kind, colour, rest, self.token(tokens).float()


class TowerWithHeads(nn.Module):
    """The model of the vision stage."""

    def __init__(self, shape: TrainedVisionShape) -> None:
        super().__init__()
        self.tower = TrainableTower(shape)
        self.head = DenseHeads(shape.out)


class VisionTask:
    """Trains on random frames, half of them mirrored, with small changes of brightness."""

    def __init__(self, data: FrameData, device: str) -> None:
        self.frames: FrameSet = load_frames(data.frames, data.count)
        self.train_count = data.count - data.held_back
        self.labels = dense_labels(self.frames.labels)
        self.model = TowerWithHeads(TrainedVisionShape())
        self.flip = flip_order()
        self.weights = torch.ones(KINDS + 1, device=device), torch.ones(COLOURS + 1, device=device)
        for weight in self.weights:
            weight[-1] = _NEITHER
        self.own_place = own_places().to(device)

    def batch(self, generator: torch.Generator, size: int) -> tuple[Tensor, ...]:
        """Draw random frames: (patches, *labels)."""
        index = torch.randint(self.train_count, (size,), generator=generator)
        pixels = torch.from_numpy(self.frames.pick(index.numpy()))
        kind, colour, distance, bearing, columns = (part[index] for part in self.labels)
        half = size // 2
        pixels = torch.cat([pixels[:half].flip(2), pixels[half:]])
        mirrored = [torch.cat([p[:half][:, self.flip], p[half:]]) for p in (kind, colour, distance, bearing)]
        mirrored[3][:half] *= -1
        columns = torch.cat([columns[:half].flip(1), columns[half:]])
        patches = patchify(pixels)
        gain = 1 + 0.08 * torch.randn(size, 1, 1, generator=generator)
        shift = 0.08 * torch.randn(size, 1, 1, generator=generator)
        return (patches * gain + shift, *mirrored, columns)

    def loss(
        self, patches: Tensor, kind: Tensor, colour: Tensor, distance: Tensor, bearing: Tensor, columns: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Cross-entropies of kind and colour, absolute errors of the rest."""
        said_kind, said_colour, said_rest, said_token = self.model.head(self.model.tower(patches))
        owned = kind < KINDS
        count = owned.sum().clamp(min=1)
        kind_loss = F.cross_entropy(said_kind.flatten(0, 1), kind.flatten(), self.weights[0])
        colour_loss = F.cross_entropy(said_colour.flatten(0, 1), colour.flatten(), self.weights[1])
        distance_error = ((said_rest[..., 0] - distance).abs() * owned).sum() / count
        bearing_error = ((said_rest[..., 1] - bearing).abs() * owned).sum() / count
        place = (said_token[..., :2] - self.own_place).abs().mean()
        wide = columns.view(-1, 1, arch.CELLS_W, arch.MERGE).expand(-1, arch.CELLS_H, -1, -1).flatten(1, 2)
        column_error = (said_token[..., 2:] - wide).abs().mean()
        total = kind_loss + 0.5 * colour_loss + distance_error + 1.5 * bearing_error + 0.3 * place + 0.4 * column_error
        with torch.no_grad():
            kind_right = (((said_kind.argmax(-1) == kind) & owned).sum() / count).detach()
            colour_right = (((said_colour.argmax(-1) == colour) & owned).sum() / count).detach()
        return total, {
            "loss": total.detach(),
            "kind": kind_right,
            "colour": colour_right,
            "log_distance": distance_error.detach(),
            "bearing_deg": bearing_error.detach() * _BEARING,
            "columns": column_error.detach(),
        }


def tower_weights(checkpoint: Path) -> dict[str, Tensor]:
    """The trained tower's state dict, without heads."""
    prefix, model = "tower.", read_checkpoint(checkpoint)["model"]
    return {name.removeprefix(prefix): value for name, value in model.items() if name.startswith(prefix)}


def own_places() -> Tensor:
    """Row and column of each image token, float32 [40, 2] in -1..1."""
    rows = torch.linspace(-1, 1, arch.CELLS_H).repeat_interleave(arch.CELLS_W)
    return torch.stack([rows, torch.linspace(-1, 1, arch.CELLS_W).repeat(arch.CELLS_H)], dim=-1)
