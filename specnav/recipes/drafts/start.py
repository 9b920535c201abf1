# SPDX-License-Identifier: Apache-2.0
"""The initial draft of a training: an existing draft, or one made from some layers of its target.

A draft with the target's embeddings, some of its layers and its head starts far better than a random one (as in
DistilBERT, arXiv 1910.01108), and has the target's vocabulary by construction.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from specdec.models import LoadedModel
from specdec.models.loading import read_config
from specdec.models.shared import share as note_shared
from specdec.models.shared import shared_of
from specnav.recipes.drafts.config import LAYERS
from specnav.recipes.errors import TrainingError
from specnav.recipes.folders import appearing_at_once

SHARED_DTYPE = torch.bfloat16
"""Number type of a sharing draft's layers; a target converted from GGUF is in float32, which would double the size."""
_LAYERS = re.compile(r"(\d{1,4})(?:-(\d{1,4}))?")
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".index.json")


def start_folder(draft: str, target: LoadedModel, run: Path, share: bool = False, learn: str = "") -> str:
    """The folder or id to start from; for `layers:0,7`, a draft is made in the run folder first.

    Args:
        draft: A folder, a hub id, or layers of the target.
        target: The model that the draft learns from.
        run: The run folder.
        share: Make a draft that does not store embeddings and head (specdec.models.shared).
        learn: The only layers of a sharing draft that learn and are stored, by their numbers in the target; empty: all.

    Raises:
        TrainingError: These cannot be combined, or the target has no such layers.
    """
    if not draft.startswith(LAYERS):
        if share and shared_of(draft) is None:
            raise TrainingError(f"draft {draft} stores its own embeddings: share those of a target with layers:0,7")
        return draft
    picked = _layers(draft.removeprefix(LAYERS), f"draft {draft!r}", target)
    own = _layers(learn, f"learn {learn!r}", target) if learn else picked
    if not set(own) <= set(picked):
        raise TrainingError(f"learn {learn!r}: only layers that the draft has can learn, and it is {draft}")
    folder = run / "start"
    if not folder.is_dir():
        _make(target, picked, folder, share, own)
    return str(folder)


def _layers(numbers: str, setting: str, target: LoadedModel) -> list[int]:
    """Layer numbers from text like `0-12,19`. Raises TrainingError."""
    count = target.runner.layer_count
    picked: list[int] = []
    for part in numbers.split(","):
        bounds = _LAYERS.fullmatch(part.strip())
        first, last = (int(bounds[1]), int(bounds[2] or bounds[1])) if bounds else (-1, -1)
        if not max(picked, default=-1) < first <= last < count:
            raise TrainingError(
                f"{setting}: give layers of the target in rising order, 0 to {count - 1}, like {LAYERS}0-2,{count - 1}"
            )
        picked += range(first, last + 1)
    return picked


def _make(target: LoadedModel, picked: Sequence[int], folder: Path, share: bool, own: Sequence[int]) -> None:
    """Save the draft of the layers `picked`, of which a sharing draft stores the layers `own`."""
    import copy

    from torch import nn

    module = copy.deepcopy(target.hf_model)
    text = module.model.language_model if target.is_multimodal else module.get_decoder()
    if not hasattr(text, "layers"):
        raise TrainingError(f"the layers of {target.path} are not in the usual place: start from a draft's folder")
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
    if share and target.is_multimodal:
        raise TrainingError(f"{target.path} takes pictures: only drafts of text models share their target's embeddings")
    with appearing_at_once(folder) as building:
        if share:
            shared = [place for place, number in enumerate(picked) if number not in own]
            save_sharing(module, building, target.path, _shared_names(module, shared), picked)
        else:
            module.to(kept_dtype(target.path)).save_pretrained(building)
            add_companions(target.path, building, target)


def _shared_names(module: Any, layers: Sequence[int]) -> list[str]:
    """Checkpoint names of a draft's embeddings, head and some of its layers; tied weights are stored once."""
    embeddings, head = module.get_input_embeddings(), module.get_output_embeddings()
    parts = (embeddings, head, *(module.get_decoder().layers[place] for place in layers))
    shared = {id(weight) for part in parts for weight in part.parameters()}
    return [name for name, weight in module.named_parameters() if id(weight) in shared]


def save_sharing(module: Any, folder: Path, target: str, names: Sequence[str], layers: Sequence[int]) -> None:
    """Write a draft that shares the tensors `names` with its target: its own layers in half precision, its
    configuration, and a reference to the target.

    layers: see `specdec.models.shared.share`.
    """
    from safetensors.torch import save_file

    left_out = {*names, "lm_head.weight"}
    own = {name: weight for name, weight in module.state_dict().items() if name not in left_out}
    own = {name: weight.to(SHARED_DTYPE).contiguous().cpu() for name, weight in own.items()}
    save_file(own, folder / "model.safetensors", metadata={"format": "pt"})
    module.config.dtype = SHARED_DTYPE
    module.config._name_or_path = ""
    vars(module.config).pop("_model_name_or_path", None)  # the name from a GGUF file
    module.config.save_pretrained(folder)
    module.generation_config.save_pretrained(folder)
    note_shared(folder, target, names, layers)


def kept_dtype(path: str) -> torch.dtype:
    """The number type of a model folder's weights, and of a draft made from it."""
    if shared_of(path) is not None:
        return SHARED_DTYPE
    told = getattr(read_config(path), "dtype", None)
    return told if told in (torch.float16, torch.bfloat16) else torch.float32


def add_companions(source: str, folder: Path, model: LoadedModel) -> None:
    """Copy the files of a model folder other than weights: tokenizer, chat template, picture preprocessing."""
    place = Path(source)
    if not place.is_dir():
        model.tokenizer.save_pretrained(folder)
        return
    for file in place.iterdir():
        known = file.name.endswith(_WEIGHTS) or file.name.upper().startswith(("README", "LICENSE"))
        if file.is_file() and not known and not (folder / file.name).exists():
            shutil.copyfile(file, folder / file.name)
