"""What training starts from: a draft that is there, or one made of some layers of its target.

A draft of the target's own embeddings, first and last layers and head begins far ahead of a random one (as DistilBERT
did, arXiv 1910.01108), and speaks the target's vocabulary by construction.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import torch

from specdec.models import LoadedModel
from specdec.models.loading import read_config
from specnav.recipes.errors import TrainingError
from specnav.recipes.folders import appearing_at_once

LAYERS = "layers:"
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".index.json")


def start_folder(draft: str, target: LoadedModel, run: Path) -> str:
    """The folder or id to start from; `layers:0,7` makes one in the run folder first. Raises TrainingError."""
    if not draft.startswith(LAYERS):
        return draft
    picked = _layers(draft, target)
    folder = run / "start"
    if not folder.is_dir():
        _make(target, picked, folder)
    return str(folder)


def _layers(draft: str, target: LoadedModel) -> list[int]:
    count = target.runner.layer_count
    try:
        picked = [int(part) for part in draft.removeprefix(LAYERS).split(",")]
    except ValueError:
        picked = []
    if not picked or picked != sorted(set(picked)) or picked[0] < 0 or picked[-1] >= count:
        raise TrainingError(
            f"draft {draft!r}: give layers of the target in rising order, 0 to {count - 1}, like layers:0,{count - 1}"
        )
    return picked


def _make(target: LoadedModel, picked: Sequence[int], folder: Path) -> None:
    import copy

    from torch import nn

    module = copy.deepcopy(target.hf_model)
    text = module.model.language_model if target.is_multimodal else module.get_decoder()
    if not hasattr(text, "layers"):
        raise TrainingError(f"{target.path} keeps its layers where they are not found: start from a draft's folder")
    text.layers = nn.ModuleList([text.layers[index] for index in picked])
    for place, layer in enumerate(text.layers):
        if hasattr(layer, "self_attn") and hasattr(layer.self_attn, "layer_idx"):
            layer.self_attn.layer_idx = place
    config = module.config.get_text_config()
    kinds = getattr(config, "layer_types", None)
    if kinds:
        config.layer_types = [kinds[index] for index in picked]
    config.num_hidden_layers = len(picked)
    if getattr(config, "max_window_layers", None) is not None:
        config.max_window_layers = min(config.max_window_layers, len(picked))
    with appearing_at_once(folder) as building:
        module.to(kept_dtype(target.path)).save_pretrained(building)
        add_companions(target.path, building, target)


def kept_dtype(path: str) -> torch.dtype:
    """The number type of a model folder's weights; a draft made of it is kept in the same."""
    told = getattr(read_config(path), "dtype", None)
    return told if told in (torch.float16, torch.bfloat16) else torch.float32


def add_companions(source: str, folder: Path, model: LoadedModel) -> None:
    """What a model folder has beside weights: tokenizer, chat template, how pictures are prepared."""
    place = Path(source)
    if not place.is_dir():
        model.tokenizer.save_pretrained(folder)
        return
    for file in place.iterdir():
        known = file.name.endswith(_WEIGHTS) or file.name.upper().startswith(("README", "LICENSE"))
        if file.is_file() and not known and not (folder / file.name).exists():
            shutil.copyfile(file, folder / file.name)
