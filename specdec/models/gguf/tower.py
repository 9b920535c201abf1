# SPDX-License-Identifier: Apache-2.0
"""The vision tower of a GGUF model, on torch: from the safetensors beside the file, or from an mmproj-….gguf.

llama.cpp takes the tower's output as rows of a prompt, so only the tower is loaded here, not the language model. Both
sources yield the same modules: ours for Qwen2-VL, the library's for Qwen2.5-VL.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from specdec.errors import ModelError
from specdec.models.direct import read_shape
from specdec.models.direct.modules import ImageFeatures, VisionTower
from specdec.models.direct.pixels import PixelProcessor, pixel_processor_of
from specdec.models.direct.reading import NoInitialValues
from specdec.models.direct.shapes import VisionShape
from specdec.models.gguf.mmproj import (
    PROJECTORS,
    QWEN2_5_VL,
    QWEN2_VL,
    TEMPORAL_PATCH,
    WINDOW_PIXELS,
    parts,
    read_tensor,
)
from specdec.models.gguf_header import Header, read_header
from specdec.models.images import ImagePreparer

_TOKENS = {
    "image_token_id": "<|image_pad|>",
    "video_token_id": "<|video_pad|>",
    "vision_start_token_id": "<|vision_start|>",
    "vision_end_token_id": "<|vision_end|>",
}
"""Picture tokens: their names in a config and in a vocabulary."""
_PAD = "<|vision_pad|>"
_LEAST_PIXELS, _MOST_PIXELS = 56 * 56, 28 * 28 * 1280
"""Default bounds on a picture's pixels: the library's minimum, and the maximum of `specdec.models.images`."""


@dataclass(frozen=True)
class GgufTower:
    """A tower with its picture preparation.

    network: has `get_image_features`. preparer: prepares pictures. image_token_id: placeholder of a part of a picture.
    placeholder_ids: all ids that stand for pictures, which must never be drafted.
    """

    network: TowerNetwork
    preparer: ImagePreparer
    image_token_id: int
    placeholder_ids: frozenset[int]


class TowerNetwork(nn.Module):
    """A tower behind the interface of a complete model."""

    def __init__(self, visual: nn.Module) -> None:
        super().__init__()
        self.visual = visual

    @torch.inference_mode()
    def get_image_features(self, pixel_values: Tensor, image_grid_thw: Tensor) -> ImageFeatures:
        """pixel_values [patches, features], image_grid_thw int64 [images, 3] -> embeddings in `pooler_output`."""
        found = self.visual(pixel_values, image_grid_thw)
        return ImageFeatures((found if isinstance(found, Tensor) else found.pooler_output,))


def load_tower(gguf_path: Path, mmproj: Path | None, width: int, pixels: int = 0) -> GgufTower | None:
    """Load the tower of a GGUF file whose embeddings are `width` wide; None if there is none.

    Sources in order: `mmproj` if given, the Hugging Face folder that holds the file, the mmproj*.gguf beside it.
    pixels: as in `load_model`. Raises ModelError for a tower of another width or kind.
    """
    folder = gguf_path.parent
    if mmproj is None and _has_tower(folder):
        return _from_folder(folder, width, pixels)
    mmproj = mmproj or _beside(gguf_path)
    return None if mmproj is None else _from_mmproj(gguf_path, mmproj, width, pixels)


def _has_tower(folder: Path) -> bool:
    """Whether the folder has a vision-language model with weights."""
    config = _json(folder / "config.json")
    return bool(config.get("vision_config")) and any(folder.glob("*.safetensors"))


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _beside(gguf_path: Path) -> Path | None:
    """The mmproj*.gguf beside a file; of several, the one with the file's name. Raises ModelError if none fits."""
    found = sorted(gguf_path.parent.glob("mmproj*.gguf"))
    own = gguf_path.with_name(f"mmproj-{gguf_path.name}")
    if own in found or len(found) < 2:
        return own if own in found else next(iter(found), None)
    raise ModelError(f"{gguf_path.parent} has {len(found)} files mmproj*.gguf: name one with the option mmproj")


def _from_folder(folder: Path, width: int, pixels: int) -> GgufTower:
    shape = read_shape(folder)
    vision: Any
    if shape is not None and shape.vision is not None:
        config: Any = shape
        family, vision, gives = QWEN2_VL, shape.vision, shape.vision.hidden_size
    else:
        from specdec.models.loading import read_config

        config = read_config(str(folder))
        family, vision = config.model_type, config.vision_config
        if family not in (QWEN2_VL, QWEN2_5_VL):
            raise ModelError(
                f"{folder} has a vision tower of type {family!r}: only {QWEN2_VL} and {QWEN2_5_VL} are supported"
            )
        vision = VisionShape.from_library(vision) if family == QWEN2_VL else vision
        gives = vision.hidden_size if family == QWEN2_VL else vision.out_hidden_size
    _check_width(folder, gives, width)
    weights = _weights(folder, [name for name, _ in parts(family, vision.depth)])
    network = _network(family, vision, weights, folder)
    listed = _json(folder / "tokenizer.json").get("added_tokens") or []
    named = {token["content"]: token["id"] for token in listed}
    ids = {name: getattr(config, name, None) for name in _TOKENS}
    return _tower(network, _preparer_of(folder, vision, pixels), ids, named, folder)


def _preparer_of(folder: Path, vision: Any, pixels: int) -> ImagePreparer:
    """The preparer that preprocessor_config.json describes; made without the library if all settings are known here."""
    if isinstance(vision, VisionShape) and (folder / "preprocessor_config.json").is_file():
        processor = pixel_processor_of(folder, vision)
        if processor is not None:
            return ImagePreparer(processor, most_pixels=pixels)
    return ImagePreparer.from_folder(str(folder), vision, pixels)


def _weights(folder: Path, wanted: list[str]) -> dict[str, Tensor]:
    """The tower's tensors in float32; no other tensors are read."""
    found: dict[str, Tensor] = {}
    try:
        for path in sorted(folder.glob("*.safetensors")):
            with safe_open(path, framework="pt") as file:
                there = {name.removeprefix("model."): name for name in file.keys()}  # noqa: SIM118 (not a dict)
                for name in wanted:
                    if f"visual.{name}" in there:
                        found[name] = file.get_tensor(there[f"visual.{name}"]).to(torch.float32)
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{folder} has no usable weights: copy it again") from error
    if missing := sorted(set(wanted) - set(found)):
        raise ModelError(f"{folder} lacks visual.{missing[0]}: the checkpoint is incomplete")
    return found


def _from_mmproj(gguf_path: Path, mmproj: Path, width: int, pixels: int) -> GgufTower:
    header = read_header(mmproj)
    data = header.metadata
    projector = data.get("clip.vision.projector_type") or data.get("clip.projector_type")
    family = PROJECTORS.get(str(projector))
    if family is None:
        kind = f"of kind {projector!r}" if projector else "not a vision tower at all"
        raise ModelError(f"{mmproj} is {kind}: the mmproj of a Qwen2-VL or Qwen2.5-VL is needed")
    try:
        _check_width(mmproj, data["clip.vision.projection_dim"], width)
        vision = _vision_shape(header) if family == QWEN2_VL else _library_config(header)
        preparer = _preparer(header, vision, gguf_path.parent, pixels)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise ModelError(f"{mmproj} lacks {error}: convert it again") from error
    made = {
        name: part.join([read_tensor(header, one) for one in part.names])
        for name, part in parts(family, data["clip.vision.block_count"])
    }
    network = _network(family, vision, _with_their_names(made), mmproj)
    metadata = read_header(gguf_path).metadata
    listed = metadata.get("tokenizer.ggml.tokens") or []
    named = {token: index for index, token in enumerate(listed) if token in (*_TOKENS.values(), _PAD)}
    ids = {name: metadata.get(f"specnav.{name}", named.get(token)) for name, token in _TOKENS.items()}
    return _tower(network, preparer, ids, named, gguf_path)


def _vision_shape(header: Header) -> VisionShape:
    """Shape of a Qwen2-VL tower. Widths are taken from the tensors, because old files omit or misname them."""
    data = header.metadata
    width = header.tensors["v.patch_embd.weight"].shape[0]
    ups = [header.tensors[f"v.blk.0.ffn_{way}.bias"].shape[0] for way in ("up", "down")]
    return VisionShape(
        depth=data["clip.vision.block_count"],
        embed_dim=width,
        hidden_size=data["clip.vision.projection_dim"],
        num_heads=data["clip.vision.attention.head_count"],
        mlp_width=max(ups),
        in_channels=3,
        patch_size=data["clip.vision.patch_size"],
        temporal_patch_size=TEMPORAL_PATCH,
        spatial_merge_size=data.get("clip.vision.spatial_merge_size", 2),
    )


def _library_config(header: Header) -> Any:
    """The library's config of a Qwen2.5-VL tower."""
    from transformers.models.qwen2_5_vl.configuration_qwen2_5_vl import Qwen2_5_VLVisionConfig

    data = header.metadata
    depth, pattern = data["clip.vision.block_count"], data["clip.vision.n_wa_pattern"]
    return Qwen2_5_VLVisionConfig(
        depth=depth,
        hidden_size=header.tensors["v.patch_embd.weight"].shape[0],
        intermediate_size=header.tensors["v.blk.0.ffn_gate.weight"].shape[0],
        num_heads=data["clip.vision.attention.head_count"],
        out_hidden_size=data["clip.vision.projection_dim"],
        patch_size=data["clip.vision.patch_size"],
        spatial_merge_size=data.get("clip.vision.spatial_merge_size", 2),
        temporal_patch_size=TEMPORAL_PATCH,
        window_size=data.get("clip.vision.window_size", WINDOW_PIXELS),
        fullatt_block_indexes=[index for index in range(depth) if (index + 1) % pattern == 0],
        rope_parameters={"rope_type": "axial", "rope_theta": VisionShape.rope_theta},
    )


def _with_their_names(made: dict[str, Tensor]) -> dict[str, Tensor]:
    """Swap the names of the MLPs' two ends if an old converter confused them; the inner width is the larger one."""
    for way_in, way_out in (("fc1", "fc2"), ("up_proj", "down_proj")):
        first = made.get(f"blocks.0.mlp.{way_in}.weight")
        if first is not None and first.shape[0] < first.shape[1]:
            others = {way_in: way_out, way_out: way_in}
            return {
                ".".join(others.get(part, part) for part in name.split(".")): one
                for name, one in made.items()
            }
    return made


def _preparer(header: Header, vision: Any, folder: Path, pixels: int) -> ImagePreparer:
    """The preparer described by the folder's preprocessor_config.json, or by the mmproj itself."""
    data = header.metadata
    patch, merge = data["clip.vision.patch_size"], data.get("clip.vision.spatial_merge_size", 2)
    if (folder / "preprocessor_config.json").is_file():
        return _preparer_of(folder, vision, pixels)
    size = {
        "shortest_edge": data.get("clip.vision.image_min_pixels", _LEAST_PIXELS),
        "longest_edge": data.get("clip.vision.image_max_pixels", _MOST_PIXELS),
    }
    mean, deviation = (tuple(map(float, data[f"clip.vision.image_{name}"])) for name in ("mean", "std"))
    return ImagePreparer(
        PixelProcessor(patch, TEMPORAL_PATCH, merge, size, 1 / 255, mean, deviation), most_pixels=pixels
    )


def _network(family: str, vision: Any, weights: dict[str, Tensor], whose: Path) -> TowerNetwork:
    """The modules with their weights. Raises ModelError if shapes do not fit."""
    visual: nn.Module
    if family == QWEN2_VL:
        with torch.device("meta"), NoInitialValues():
            visual = VisionTower(vision)
    else:
        from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import (
            Qwen2_5_VisionTransformerPretrainedModel,
        )

        visual = Qwen2_5_VisionTransformerPretrainedModel._from_config(vision, attn_implementation="sdpa")
    try:
        visual.load_state_dict(weights, strict=True, assign=True)
    except RuntimeError as error:
        raise ModelError(
            f"{whose} has a vision tower whose shapes do not fit: convert or copy it again"
        ) from error
    return TowerNetwork(visual).eval().requires_grad_(False)


def _check_width(whose: Path, gives: int, width: int) -> None:
    if gives != width:
        raise ModelError(
            f"{whose} has a vision tower for embeddings of width {gives}, and the GGUF file's width is {width}: they "
            "belong to two models"
        )


def _tower(
    network: TowerNetwork,
    preparer: ImagePreparer,
    ids: dict[str, int | None],
    named: dict[str, int],
    whose: Path,
) -> GgufTower:
    image = ids["image_token_id"]
    if image is None:
        raise ModelError(f"{whose} has no token {_TOKENS['image_token_id']}: it takes no pictures")
    every = {*ids.values(), named.get(_PAD)}
    return GgufTower(network, preparer, image, frozenset(one for one in every if one is not None))
