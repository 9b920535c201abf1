# SPDX-License-Identifier: Apache-2.0
"""The content of a vision tower's file, mmproj-….gguf, in the layout of llama.cpp's converter for Qwen2(.5)-VL."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
from gguf import GGUFWriter, VisionProjectorType
from torch import Tensor

from specdec.models.gguf.mmproj import QWEN2_5_VL, QWEN2_VL, TEMPORAL_PATCH, TensorRule, parts
from specnav.convert.content import Content, Planned
from specnav.convert.kinds import BF16, F32, GgufKind, kind_of_tensor, kind_of_tower
from specnav.convert.source import Source
from specnav.errors import UsageError

TOWERS = {QWEN2_VL: VisionProjectorType.QWEN2VL, QWEN2_5_VL: VisionProjectorType.QWEN25VL}
_LAYER_NORM_EPS = 1e-6
_IMAGE_SIZE = 560
"""The size that llama.cpp's converter writes if the config has none; these towers accept pictures of any size."""


def tower_content(folder: Path, config: Any, source: Source, kind: GgufKind) -> Content:
    """Plan a vision tower's file. config: transformers' config of the whole model.

    Raises UsageError for a tower that the format does not support.
    """
    family, vision = config.model_type, config.vision_config
    if vision.temporal_patch_size != TEMPORAL_PATCH or vision.in_channels != 3:
        raise UsageError(
            f"{folder} has a vision tower with other patches than llama.cpp's: it cannot be converted"
        )
    if getattr(vision, "hidden_act", "") != ("quick_gelu" if family == QWEN2_VL else "silu"):
        raise UsageError(f"{folder} has a vision tower with {vision.hidden_act}, which llama.cpp's lacks")
    pattern = _pattern(folder, vision) if family == QWEN2_5_VL else 0
    processor = _processor(folder)
    kind = kind_of_tower(kind)

    def describe(writer: GGUFWriter) -> None:
        writer.add_type(gguf.GGUFType.MMPROJ)
        writer.add_name(folder.resolve().name)
        writer.add_clip_has_vision_encoder(True)
        writer.add_clip_projector_type(TOWERS[family])
        writer.add_vision_projection_dim(config.get_text_config().hidden_size)
        writer.add_vision_image_size(_IMAGE_SIZE)
        writer.add_vision_patch_size(vision.patch_size)
        writer.add_vision_spatial_merge_size(vision.spatial_merge_size)
        writer.add_vision_embedding_length(_width(family, vision))
        writer.add_vision_feed_forward_length(_mlp_width(family, vision))
        writer.add_vision_block_count(vision.depth)
        writer.add_vision_head_count(vision.num_heads)
        writer.add_vision_attention_layernorm_eps(_LAYER_NORM_EPS)
        writer.add_vision_image_mean(processor["image_mean"])
        writer.add_vision_image_std(processor["image_std"])
        writer.add_vision_min_pixels(processor["size"]["shortest_edge"])
        writer.add_vision_max_pixels(processor["size"]["longest_edge"])
        if family == QWEN2_5_VL:
            writer.add_vision_use_silu(True)
            writer.add_vision_n_wa_pattern(pattern)
            writer.add_vision_window_size(vision.window_size)

    tensors = tuple(_tensors(family, vision.depth, source, kind))
    return Content("clip", kind, describe, tensors)


def _width(family: str, vision: Any) -> int:
    return int(vision.embed_dim if family == QWEN2_VL else vision.hidden_size)


def _mlp_width(family: str, vision: Any) -> int:
    return int(vision.embed_dim * vision.mlp_ratio if family == QWEN2_VL else vision.intermediate_size)


def _pattern(folder: Path, vision: Any) -> int:
    """Period of the full-attention blocks. Raises UsageError if the pattern is irregular."""
    whole = list(vision.fullatt_block_indexes)
    pattern = whole[0] + 1 if whole else vision.depth + 1
    if whole != [index for index in range(vision.depth) if (index + 1) % pattern == 0]:
        raise UsageError(
            f"{folder} has full attention in blocks {whole}: llama.cpp supports only every n-th"
        )
    return pattern


def _processor(folder: Path) -> dict[str, Any]:
    """Settings for preparing pictures, from the folder or transformers' defaults."""
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    known = ("preprocessor_config.json", "processor_config.json")
    try:
        if any((folder / name).is_file() for name in known):
            found = Qwen2VLImageProcessorPil.from_pretrained(str(folder))
        else:
            found = Qwen2VLImageProcessorPil()
        return json.loads(found.to_json_string())
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(
            f"{folder} has no settings for preparing pictures: check preprocessor_config.json"
        ) from error


def _tensors(family: str, depth: int, source: Source, kind: GgufKind) -> Iterator[Planned]:
    for name, part in parts(family, depth):
        stored = f"model.visual.{name}"
        if stored not in source:
            raise UsageError(f"{source.folder} lacks {stored}: the checkpoint is incomplete")
        shape = _shape(name, source.shape(stored))
        for index, written in enumerate(part.names):
            yield Planned(written, shape, _kind(written, shape, kind), _reader(source, stored, part, index))


def _shape(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of each tensor into which one is split."""
    if name == "patch_embed.proj.weight":
        return (*shape[:2], *shape[3:])
    return (shape[0] // 3, *shape[1:]) if ".qkv." in name else shape


def _kind(name: str, shape: tuple[int, ...], kind: GgufKind) -> GgufKind:
    """The type of a tensor; llama.cpp has no convolution in bfloat16."""
    if name.startswith("v.patch_embd") and kind is BF16:
        return F32
    return kind_of_tensor(kind, name, shape)


def _reader(source: Source, stored: str, part: TensorRule, index: int) -> Any:
    def read() -> Tensor:
        return part.split(source.read(stored))[index]

    return read
