"""Shrunken models with pictures that have no forward of ours: random weights, a processor as the library saves it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tests.helpers import tiny_models as tiny

TEXT = {
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    "initializer_range": 0.2,
    "bos_token_id": None,
    "pad_token_id": None,
}
TOWER = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}
PIXELS = {"do_resize": True, "size": {"height": 28, "width": 28}, "resample": 3}
IDEFICS_TOKENS = ["<fake_token_around_image>", "<image>", "<end_of_utterance>", "<global-img>"]
IDEFICS_TOKENS += [f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7)]


def build(kind: str, folder: Path) -> Path:
    """A model folder, as `save_pretrained` writes it."""
    tokenizer = tiny.make_tokenizer()
    if kind == "idefics3":
        tokenizer.add_special_tokens({"additional_special_tokens": [*tiny.SPECIALS, *IDEFICS_TOKENS]})
        tokenizer.chat_template = tiny.CHAT_TEMPLATE.replace(
            "<|vision_start|><|image_pad|><|vision_end|>", "<image>"
        )
    torch.manual_seed(5)
    model, processor, settings = BUILDERS[kind](tokenizer)
    names = settings.pop("tokens", {})
    with torch.no_grad():  # no padded row wins
        head = model.get_output_embeddings().weight
        head[len(tokenizer) :] = 0
        for name, parameter in model.named_parameters():  # what pictures say must be heard
            if name.endswith("input_projection_weight"):  # all zeros in a new model
                parameter.copy_(0.3 * torch.randn_like(parameter))
            elif "projector" in name or "connector" in name:
                parameter *= 4
    ends = list(tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"]))
    model.generation_config.eos_token_id = ends
    saved = tiny._save(model, tokenizer, folder)
    if names:
        told = json.loads((saved / "tokenizer_config.json").read_text(encoding="utf-8"))
        (saved / "tokenizer_config.json").write_text(json.dumps({**told, **names}), encoding="utf-8")
    processor.save_pretrained(saved)
    (saved / "processor_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return saved


def _text(tokenizer: Any, **own: Any) -> dict[str, Any]:
    return {**TEXT, "vocab_size": len(tokenizer) + tiny.PADDING, "tie_word_embeddings": False, **own}


def _id(tokenizer: Any, token: str = "<|image_pad|>") -> int:
    return int(tokenizer.convert_tokens_to_ids(token))


def _llava(tokenizer: Any) -> Any:
    """A tower of CLIP's whose picture always takes the same place."""
    from transformers import LlavaConfig, LlavaForConditionalGeneration
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    tower = {"model_type": "clip_vision_model", **TOWER}
    text = {"model_type": "llama", **_text(tokenizer)}
    config = LlavaConfig(vision_config=tower, text_config=text, image_token_index=_id(tokenizer))
    pixels = CLIPImageProcessorPil(size={"shortest_edge": 28}, crop_size={"height": 28, "width": 28})
    settings = {"processor_class": "LlavaProcessor", "image_token": "<|image_pad|>", "patch_size": 14}
    settings |= {"vision_feature_select_strategy": "default", "num_additional_image_tokens": 1}
    return LlavaForConditionalGeneration(config), pixels, settings


def _llava_onevision(tokenizer: Any) -> Any:
    """Pictures in parts, as many as their shape asks for; a processor that has a part for films."""
    from transformers import LlavaOnevisionConfig, LlavaOnevisionForConditionalGeneration
    from transformers.models.llava_onevision.image_processing_pil_llava_onevision import (
        LlavaOnevisionImageProcessorPil,
    )

    tower = {"model_type": "siglip_vision_model", **TOWER, "vision_use_head": False}
    text = {"model_type": "qwen2", **_text(tokenizer)}
    grid = [[28, 28], [28, 56], [56, 28], [56, 56]]
    ids = {"image_token_index": _id(tokenizer), "video_token_index": _id(tokenizer, "<|video_pad|>")}
    config = LlavaOnevisionConfig(vision_config=tower, text_config=text, image_grid_pinpoints=grid, **ids)
    pixels = LlavaOnevisionImageProcessorPil(size=PIXELS["size"], image_grid_pinpoints=grid)
    settings = {"processor_class": "LlavaOnevisionProcessor", "image_token": "<|image_pad|>"}
    settings |= {
        "video_token": "<|video_pad|>",
        "num_image_tokens": 4,
        "vision_feature_select_strategy": "full",
    }
    return LlavaOnevisionForConditionalGeneration(config), pixels, settings


def _idefics3(tokenizer: Any) -> Any:
    """Words of its own around a picture and between its parts."""
    from transformers import Idefics3Config, Idefics3ForConditionalGeneration
    from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil

    tower = {"model_type": "idefics3_vision", **TOWER}
    text = {"model_type": "llama", **_text(tokenizer)}
    config = Idefics3Config(
        vision_config=tower, text_config=text, image_token_id=_id(tokenizer, "<image>"), scale_factor=2,
        tie_word_embeddings=False,
    )  # fmt: skip
    pixels = Idefics3ImageProcessorPil(size={"longest_edge": 56}, max_image_size={"longest_edge": 28})
    return (
        Idefics3ForConditionalGeneration(config),
        pixels,
        {
            "processor_class": "Idefics3Processor",
            "image_seq_len": 1,
        },
    )


def _gemma3(tokenizer: Any) -> Any:
    """Tokens of a picture see one another; words before and behind it that are spelled with the prompt's own."""
    from transformers import Gemma3Config, Gemma3ForConditionalGeneration
    from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil

    names = {"image_token": "<|image_pad|>", "boi_token": "<|vision_start|>", "eoi_token": "<|vision_end|>"}
    tower = {"model_type": "siglip_vision_model", **TOWER, "vision_use_head": False}
    types = ["sliding_attention", "full_attention"]
    own = {"head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 24, "layer_types": types}
    config = Gemma3Config(
        vision_config=tower, text_config=_text(tokenizer, **own), mm_tokens_per_image=4,
        image_token_index=_id(tokenizer), boi_token_index=_id(tokenizer, "<|vision_start|>"),
        eoi_token_index=_id(tokenizer, "<|vision_end|>"), tie_word_embeddings=False,
    )  # fmt: skip
    tokenizer.chat_template = tiny.CHAT_TEMPLATE.replace("<|image_pad|><|vision_end|>", "")
    pixels = Gemma3ImageProcessorPil(size={"height": 28, "width": 28})
    settings = {"processor_class": "Gemma3Processor", "image_seq_length": 4, "tokens": names}
    return Gemma3ForConditionalGeneration(config), pixels, settings


def _glm4v(tokenizer: Any) -> Any:
    """Positions of rows and columns: what a picture does to those behind it is kept in the library's model."""
    from transformers import Glm4vConfig, Glm4vForConditionalGeneration
    from transformers.models.glm4v.image_processing_pil_glm4v import Glm4vImageProcessorPil

    rope = {
        "rope_type": "default",
        "rope_theta": 1e4,
        "mrope_section": [2, 3, 3],
        "partial_rotary_factor": 1.0,
    }
    tower = {"depth": 2, "hidden_size": 32, "num_heads": 2, "intermediate_size": 96, "out_hidden_size": 64}
    tower |= {"image_size": 56, "patch_size": 14}
    ids = {"image_token_id": "<|image_pad|>", "video_token_id": "<|video_pad|>"}
    ids |= {"image_start_token_id": "<|vision_start|>", "image_end_token_id": "<|vision_end|>"}
    ids |= {"video_start_token_id": "<|vision_start|>", "video_end_token_id": "<|vision_end|>"}
    config = Glm4vConfig(
        vision_config=tower, text_config=_text(tokenizer, rope_parameters=rope), tie_word_embeddings=False,
        **{name: _id(tokenizer, token) for name, token in ids.items()},
    )  # fmt: skip
    pixels = Glm4vImageProcessorPil(size={"shortest_edge": 28 * 28 * 2, "longest_edge": 28 * 28 * 32})
    names = {"image_token": "<|image_pad|>", "video_token": "<|video_pad|>"}
    return (
        Glm4vForConditionalGeneration(config),
        pixels,
        {"processor_class": "Glm4vProcessor", "tokens": names},
    )


BUILDERS: dict[str, Callable[[Any], Any]] = {
    "llava": _llava,
    "llava_onevision": _llava_onevision,
    "idefics3": _idefics3,
    "gemma3": _gemma3,
    "glm4v": _glm4v,
}
