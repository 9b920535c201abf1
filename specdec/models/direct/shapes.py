# SPDX-License-Identifier: Apache-2.0
"""The shape of a model from its config.json, if every setting in it is known.

An unknown setting, or an unexpected value, may mean something that this package does not implement; the result is then
None.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

Settings = Mapping[str, Any]

_SIZES = (
    "hidden_size",
    "intermediate_size",
    "max_position_embeddings",
    "num_attention_heads",
    "num_hidden_layers",
    "num_key_value_heads",
    "vocab_size",
)
_TOKENS = ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id")
_NO_MATTER = frozenset(
    {
        "attention_dropout",
        "bos_token_id",
        "dtype",
        "eos_token_id",
        "initializer_range",
        "pad_token_id",
        "transformers_version",
        "use_cache",
    }
)
"""Settings that do not matter here: those of training and of the library's `generate`."""


@dataclass(frozen=True)
class TextShape:
    """Shape of a decoder, with the library's names. mrope_section: None if positions have one axis."""

    hidden_size: int
    intermediate_size: int
    max_position_embeddings: int
    num_attention_heads: int
    num_hidden_layers: int
    num_key_value_heads: int
    vocab_size: int
    rms_norm_eps: float
    head_dim: int
    rope_theta: float
    qkv_bias: bool
    mrope_section: tuple[int, ...] | None = None


@dataclass(frozen=True)
class VisionShape:
    """Shape of a vision tower."""

    depth: int
    embed_dim: int
    hidden_size: int
    num_heads: int
    mlp_width: int
    in_channels: int
    patch_size: int
    temporal_patch_size: int
    spatial_merge_size: int
    rope_theta: float = 10000.0

    @classmethod
    def from_library(cls, config: Any) -> VisionShape:
        """The shape of a Qwen2-VL tower, from the library's config."""
        rope = getattr(config, "rope_parameters", None) or {}
        return cls(
            depth=config.depth,
            embed_dim=config.embed_dim,
            hidden_size=config.hidden_size,
            num_heads=config.num_heads,
            mlp_width=int(config.embed_dim * config.mlp_ratio),
            in_channels=config.in_channels,
            patch_size=config.patch_size,
            temporal_patch_size=config.temporal_patch_size,
            spatial_merge_size=config.spatial_merge_size,
            rope_theta=rope.get("rope_theta", cls.rope_theta),
        )


@dataclass(frozen=True)
class Shape:
    """Shape of a model. tied: the LM head shares the embedding's weight. Without vision, the token ids are None."""

    model_type: str
    text: TextShape
    tied: bool
    vision: VisionShape | None = None
    image_token_id: int | None = None
    video_token_id: int | None = None
    vision_start_token_id: int | None = None
    vision_end_token_id: int | None = None


def shape_of(config: Settings) -> Shape | None:
    """The shape that config.json describes; None unless all settings are known."""
    if config.get("model_type") == "llama":
        return _llama(config)
    if config.get("model_type") == "qwen2_vl":
        return _qwen2_vl(config)
    return None


def fits(
    settings: Settings, needed: Mapping[str, type], fixed: Settings, others: Collection[str] = ()
) -> bool:
    """Whether all `needed` settings exist with these types, `fixed` settings have these values if they exist, and any
    further setting is named in `others`.
    """
    return (
        all(type(settings.get(name)) is kind for name, kind in needed.items())
        and all(value == fixed[name] for name, value in settings.items() if name in fixed)
        and all(name in needed or name in fixed or name in others for name in settings)
    )


def _llama(config: Settings) -> Shape | None:
    needed = dict.fromkeys(_SIZES, int) | {
        "head_dim": int,
        "rms_norm_eps": float,
        "rope_parameters": dict,
        "tie_word_embeddings": bool,
    }
    fixed = {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "hidden_act": "silu",
        "mlp_bias": False,
        "model_type": "llama",
        "pretraining_tp": 1,
    }
    rope: Any = config.get("rope_parameters")
    if not fits(config, needed, fixed, _NO_MATTER) or not _is_rope(rope, "default"):
        return None
    text = TextShape(
        **{name: config[name] for name in _SIZES},
        rms_norm_eps=config["rms_norm_eps"],
        head_dim=config["head_dim"],
        rope_theta=rope["rope_theta"],
        qkv_bias=False,
    )
    return Shape("llama", text, config["tie_word_embeddings"])


def _qwen2_vl(config: Settings) -> Shape | None:
    needed = dict.fromkeys(_TOKENS, int) | {
        "text_config": dict,
        "vision_config": dict,
        "tie_word_embeddings": bool,
    }
    fixed = {"architectures": ["Qwen2VLForConditionalGeneration"], "model_type": "qwen2_vl"}
    if not fits(config, needed, fixed, _NO_MATTER):
        return None
    tied = config["tie_word_embeddings"]
    text, vision = _qwen2_vl_text(config["text_config"], tied), _qwen2_vl_vision(config["vision_config"])
    if text is None or vision is None or vision.hidden_size != text.hidden_size:
        return None
    return Shape("qwen2_vl", text, tied, vision, **{name: config[name] for name in _TOKENS})


def _qwen2_vl_text(config: Settings, tied: bool) -> TextShape | None:
    needed = dict.fromkeys(_SIZES, int) | {"rms_norm_eps": float, "rope_parameters": dict}
    layers = config.get("num_hidden_layers", 0)
    fixed = {
        "hidden_act": "silu",
        "layer_types": ["full_attention"] * layers if type(layers) is int else None,
        "model_type": "qwen2_vl_text",
        "sliding_window": None,
        "tie_word_embeddings": tied,
        "use_sliding_window": False,
    }
    rope: Any = config.get("rope_parameters")
    if not fits(config, needed, fixed, {*_NO_MATTER, "max_window_layers"}) or not _is_rope(
        rope, "default", {"mrope_section": list}
    ):
        return None
    head_dim = config["hidden_size"] // config["num_attention_heads"]
    section = tuple(rope["mrope_section"])
    if head_dim * config["num_attention_heads"] != config["hidden_size"] or 2 * sum(section) != head_dim:
        return None
    return TextShape(
        **{name: config[name] for name in _SIZES},
        rms_norm_eps=config["rms_norm_eps"],
        head_dim=head_dim,
        rope_theta=rope["rope_theta"],
        qkv_bias=True,
        mrope_section=section,
    )


def _qwen2_vl_vision(config: Settings) -> VisionShape | None:
    sizes = (
        "depth",
        "embed_dim",
        "hidden_size",
        "num_heads",
        "in_channels",
        "patch_size",
        "temporal_patch_size",
    )
    needed = dict.fromkeys(sizes, int) | {"rope_parameters": dict, "mlp_ratio": int}
    fixed = {"hidden_act": "quick_gelu", "model_type": "qwen2_vl_vision", "spatial_merge_size": 2}
    rope: Any = config.get("rope_parameters")
    if not fits(config, needed, fixed, _NO_MATTER) or not _is_rope(rope, "axial"):
        return None
    return VisionShape(
        **{name: config[name] for name in sizes},
        mlp_width=config["embed_dim"] * config["mlp_ratio"],
        spatial_merge_size=2,
        rope_theta=rope["rope_theta"],
    )


def _is_rope(rope: Any, kind: str, needed: Mapping[str, type] | None = None) -> bool:
    return isinstance(rope, dict) and fits(rope, {"rope_theta": float, **(needed or {})}, {"rope_type": kind})
