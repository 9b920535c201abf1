"""Exits with random weights."""

from __future__ import annotations

import torch

from specdec.models import LoadedModel
from specdec.verifying.exits import (
    ExitAdapters,
    Exits,
)


def random_exits(model: LoadedModel, layers: tuple[int, ...] = (0, 1), seed: int = 0) -> Exits:
    torch.manual_seed(seed)
    adapters = ExitAdapters(len(layers), model.runner.hidden_size, 16)
    torch.nn.init.normal_(adapters.up, std=0.2)
    return Exits(model, adapters, layers, dict.fromkeys(layers, 0.5))
