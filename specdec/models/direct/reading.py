# SPDX-License-Identifier: Apache-2.0
"""Reads a model folder; returns None if the library must load it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from torch.overrides import TorchFunctionMode

from specdec.models.direct.modules import DecoderWeights, Network, SeeingModel
from specdec.models.direct.pixels import PixelProcessor, pixel_processor_of
from specdec.models.direct.shapes import Shape, shape_of
from specdec.models.direct.tokenizer import DirectTokenizer, tokenizer_of
from specdec.models.shared import shared_of, tokenizer_folder
from specdec.settings_files import check_regular

_OTHER_FILES = ("adapter_config.json", "model.safetensors.index.json")
_BROKEN = (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError, SafetensorError)
"""Errors of missing or malformed files. They are left to the library, which reports them."""


@dataclass(frozen=True, eq=False)
class DirectModel:
    """The parts of a LoadedModel. processor: for pictures; None if the model takes none."""

    network: Network
    tokenizer: DirectTokenizer
    eos_token_ids: frozenset[int]
    processor: PixelProcessor | None


def read_model(folder: Path) -> DirectModel | None:
    """Read a folder's model in float32 on the CPU; None if the library must load it.

    Raises ModelError for a draft that shares weights with a target that is not present.
    """
    try:
        if any((folder / name).exists() for name in _OTHER_FILES):
            return None
        shape = shape_of(_json(folder / "config.json"))
        eos = _eos_ids(_json(folder / "generation_config.json"))
        if shape is None or not eos:
            return None
        tokenizer = tokenizer_of(Path(tokenizer_folder(folder)), shape.model_type)
        processor = pixel_processor_of(folder, shape.vision) if shape.vision else None
        if tokenizer is None or (shape.vision and processor is None):
            return None
        return DirectModel(_network(shape, folder / "model.safetensors"), tokenizer, eos, processor)
    except _BROKEN:
        return None


def read_shape(folder: Path) -> Shape | None:
    """The shape that config.json describes; None if the library must read it."""
    try:
        return shape_of(_json(folder / "config.json"))
    except _BROKEN:
        return None


def read_tokenizer(folder: Path) -> DirectTokenizer | None:
    """Read only the tokenizer of a model folder; None if the library must load it."""
    try:
        return tokenizer_of(Path(tokenizer_folder(folder)), str(_json(folder / "config.json").get("model_type")))
    except _BROKEN:
        return None


def _json(path: Path) -> dict[str, Any]:
    check_regular(path)
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def _eos_ids(generation: dict[str, Any]) -> frozenset[int]:
    value = generation.get("eos_token_id")
    ids = frozenset(value if isinstance(value, list) else [value])
    return ids if all(type(one) is int for one in ids) else frozenset()


def _network(shape: Shape, path: Path) -> Network:
    """The modules with their weights. Raises ValueError or RuntimeError unless the file holds exactly these weights."""
    with torch.device("meta"), NoInitialValues():
        network = Network(shape)
    weights = _weights(shape, path)
    if (shared := shared_of(path.parent)) is not None:
        for name, tensor in shared.tensors().items():
            weights[_our_name(shape, name)] = tensor.to(torch.float32)
    if shape.tied:
        if "lm_head.weight" in weights:
            raise ValueError("a head of its own, and tied")
        weights["lm_head.weight"] = weights[_embedding_name(shape)]
    network.load_state_dict(weights, strict=True, assign=True)
    if shape.tied:
        core = network.model
        decoder = core.language_model if isinstance(core, SeeingModel) else core
        assert isinstance(decoder, DecoderWeights)
        network.lm_head.weight = decoder.embed_tokens.weight
    return network.eval().requires_grad_(False)


class NoInitialValues(TorchFunctionMode):
    """A context in which modules are created without random initial weights.

    Initialisation, even on the meta device, makes torch import its compiler.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__module__", None) == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))


def _weights(shape: Shape, path: Path) -> dict[str, Tensor]:
    """All tensors in float32, by the names of our modules."""
    with safe_open(path, framework="pt") as file:
        if (file.metadata() or {}).get("format") != "pt":
            raise ValueError("not written from PyTorch")
        weights = {}
        for name in file.keys():  # noqa: SIM118 (not a dict)
            tensor = file.get_tensor(name)
            if tensor.dtype not in (torch.float32, torch.float16, torch.bfloat16):
                raise ValueError(f"weights of type {tensor.dtype}")
            # As in the library, float32 tensors stay in the mapped file: their alignment affects the last bits of
            # products.
            weights[_our_name(shape, name)] = tensor.to(torch.float32)
        return weights


def _our_name(shape: Shape, name: str) -> str:
    """Our module's name for a tensor; Qwen2-VL checkpoints use the names of the original release."""
    if shape.vision is None:
        return name
    if name.startswith("visual."):
        return f"model.{name}"
    return name.replace("model.", "model.language_model.", 1) if name.startswith("model.") else name


def _embedding_name(shape: Shape) -> str:
    return _our_name(shape, "model.embed_tokens.weight")
