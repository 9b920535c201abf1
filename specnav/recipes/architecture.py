# SPDX-License-Identifier: Apache-2.0
"""The two models' sizes, and the conversion of trained weights to Hugging Face folders.

A folder written here loads with `Qwen2VLForConditionalGeneration.from_pretrained` and `AutoTokenizer`. Only
`nav_prompt.json`, the prompt of the training, is specific to this repository.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from specnav.recipes.folders import appearing_at_once

IMAGE_WIDTH, IMAGE_HEIGHT = 224, 140
PATCH, MERGE = 14, 2
GRID_H, GRID_W = IMAGE_HEIGHT // PATCH, IMAGE_WIDTH // PATCH  # 10 x 16 patches
CELLS_H, CELLS_W = GRID_H // MERGE, GRID_W // MERGE  # 5 x 8 image tokens
IMAGE_TOKENS = CELLS_H * CELLS_W
PIXEL_MEAN = (0.48145466, 0.4578275, 0.40821073)
PIXEL_STD = (0.26862954, 0.26130258, 0.27577711)
MROPE_SECTION = (4, 6, 6)
ROPE_THETA = 10_000.0
VISION_ROPE_THETA = 10_000.0
EMBEDDING_ROWS = 672
"""Rows of the embedding: the vocabulary, padded to a multiple of 8."""


@dataclass(frozen=True)
class TrainedVisionShape:
    """The vision tower of both models; only the width of the merger's last product differs."""

    depth: int = 3
    width: int = 96
    heads: int = 3
    out: int = 192


@dataclass(frozen=True)
class TrainedTextShape:
    """A Qwen2 decoder with heads of 32 dimensions and tied embeddings.

    In training, image tokens are probed after grounding_layer, and the first head of attention_layer learns where to
    look.
    """

    layers: int
    width: int
    inner: int
    heads: int
    kv_heads: int
    grounding_layer: int
    attention_layer: int

    @property
    def head_dim(self) -> int:
        """Dimensions of one head."""
        return self.width // self.heads


TARGET_TEXT = TrainedTextShape(8, width=192, inner=320, heads=6, kv_heads=2, grounding_layer=2, attention_layer=3)
DRAFT_TEXT = TrainedTextShape(2, width=128, inner=256, heads=4, kv_heads=2, grounding_layer=0, attention_layer=1)


def qwen2_vl_config(vision: TrainedVisionShape, text: TrainedTextShape) -> Any:
    """The transformers configuration for a vision and a text shape."""
    from transformers import Qwen2VLConfig

    from specnav.recipes.vocabulary import build_tokenizer

    ids = build_tokenizer().convert_tokens_to_ids
    eos, pad = ids("<|im_end|>"), ids("<|endoftext|>")
    return Qwen2VLConfig(
        text_config={
            "vocab_size": EMBEDDING_ROWS,
            "hidden_size": text.width,
            "intermediate_size": text.inner,
            "num_hidden_layers": text.layers,
            "num_attention_heads": text.heads,
            "num_key_value_heads": text.kv_heads,
            "max_position_embeddings": 2048,
            "rms_norm_eps": 1e-6,
            "tie_word_embeddings": True,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": ROPE_THETA,
                "mrope_section": list(MROPE_SECTION),
            },
            "bos_token_id": pad,
            "eos_token_id": eos,
            "pad_token_id": pad,
        },
        vision_config={
            "depth": vision.depth,
            "embed_dim": vision.width,
            "num_heads": vision.heads,
            "hidden_size": text.width,
            "mlp_ratio": 4,
            "patch_size": PATCH,
            "spatial_merge_size": MERGE,
            "temporal_patch_size": 2,
            "rope_parameters": {"rope_type": "axial", "rope_theta": VISION_ROPE_THETA},
        },
        image_token_id=ids("<|image_pad|>"),
        video_token_id=ids("<|video_pad|>"),
        vision_start_token_id=ids("<|vision_start|>"),
        vision_end_token_id=ids("<|vision_end|>"),
        tie_word_embeddings=True,
    )


def save_model_folder(
    folder: Path,
    vision: TrainedVisionShape,
    text: TrainedTextShape,
    weights: dict[str, Tensor] | None,
    dtype=torch.float16,
) -> None:
    """Write a complete model folder. weights: see `export_weights`; None: random initialisation.

    The folder is built next to its place and then renamed, so a reader never sees a partial model.
    """
    from transformers import GenerationConfig, Qwen2VLForConditionalGeneration
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    from spec_vlm_nav.language.prompting import PromptSpec
    from specnav.recipes.vocabulary import save_tokenizer

    config = qwen2_vl_config(vision, text)
    model = Qwen2VLForConditionalGeneration(config)
    if weights is not None:
        missing, unexpected = model.load_state_dict(weights, strict=False)
        if unexpected or set(missing) - {"lm_head.weight"}:
            raise ValueError(f"weights do not fit the model: missing {missing}, unexpected {unexpected}")
        model.tie_weights()
    model.generation_config = GenerationConfig(
        eos_token_id=config.text_config.eos_token_id,
        pad_token_id=config.text_config.pad_token_id,
        do_sample=False,
        max_new_tokens=64,
    )
    with appearing_at_once(folder) as building:
        model.to(dtype).save_pretrained(building)
        save_tokenizer(building)
        pixels = IMAGE_WIDTH * IMAGE_HEIGHT
        Qwen2VLImageProcessorPil(
            patch_size=PATCH,
            merge_size=MERGE,
            temporal_patch_size=2,
            image_mean=list(PIXEL_MEAN),
            image_std=list(PIXEL_STD),
            size={"shortest_edge": pixels, "longest_edge": pixels},
        ).save_pretrained(building)
        _name_image_processor(building / "preprocessor_config.json")
        PromptSpec.preset("tiny_nav").save(building)


def _name_image_processor(file: Path) -> None:
    """Set the published name of the image processor, which every transformers version maps to its own class."""
    said = json.loads(file.read_text(encoding="utf-8"))
    said["image_processor_type"] = "Qwen2VLImageProcessor"
    said["processor_class"] = "Qwen2VLProcessor"
    file.write_text(json.dumps(said, indent=2) + "\n", encoding="utf-8")


def export_weights(tower: dict[str, Tensor], text: dict[str, Tensor]) -> dict[str, Tensor]:
    """Join the weights of a trained tower and a trained text model under the names of Qwen2-VL.

    `ground.` is used only in training and left out. The tower reads one frame, Qwen2-VL two equal ones
    (temporal_patch_size 2), so its first weight is halved and repeated. A text model with another width has an
    `image_projection`, which is folded into the merger's last product.
    """
    tower, text = dict(tower), dict(text)
    width = tower["patch_embed.weight"].shape[0]
    patches = tower.pop("patch_embed.weight").float().view(width, 3, 1, PATCH, PATCH) / 2
    out = {"model.visual.patch_embed.proj.weight": patches.expand(-1, -1, 2, -1, -1).contiguous()}
    if (projection := text.pop("image_projection.weight", None)) is not None:
        tower["merger.mlp.2.weight"] = projection @ tower["merger.mlp.2.weight"]
        tower["merger.mlp.2.bias"] = projection @ tower["merger.mlp.2.bias"]
    out |= {f"model.visual.{name}": value for name, value in tower.items()}
    text = {name: value for name, value in text.items() if not name.startswith("ground.")}
    out |= {f"model.language_model.{name}": value for name, value in text.items()}
    return out


def import_weights(weights: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Split what `export_weights` has joined: (the tower's weights, the text model's weights)."""
    tower, text = (
        {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}
        for prefix in ("model.visual.", "model.language_model.")
    )
    tower["patch_embed.weight"] = tower.pop("patch_embed.proj.weight").sum(2).flatten(1)
    return tower, text
