"""A target that was fine-tuned, as a folder of its own."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

STRENGTH = 0.3


def tuned(source: Path | str, folder: Path) -> Path:
    """The model of a folder in another, one of its matrices moved by a low-rank term; returns the other."""
    shutil.copytree(source, folder)
    weights = load_file(folder / "model.safetensors")
    weight = weights["model.layers.0.self_attn.o_proj.weight"]
    torch.manual_seed(5)
    weight += STRENGTH * torch.randn(weight.shape[0], 2) @ torch.randn(2, weight.shape[1])
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder
