"""Shrunken models of every family: random weights, few layers, narrow; heads, ropes, norms and patterns of layers as in
the published configurations named beside them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tests.helpers import tiny_models as tiny

WINDOW = 24
"""Of layers that have one: short, so that a short answer goes beyond it."""


def build(family: str, folder: Path, seed: int = 0) -> Path:
    """A model folder of the family, as `save_pretrained` writes it."""
    tokenizer = tiny.make_tokenizer()
    torch.manual_seed(seed)
    model = BUILDERS[family](tokenizer)
    _random_norms(model)
    with torch.no_grad():  # of tied embeddings, too: no padded row wins
        model.get_output_embeddings().weight[len(tokenizer) :] = 0
    if hasattr(model, "generation_config"):
        model.generation_config.eos_token_id = _ends(tokenizer)
    saved = tiny._save(model, tokenizer, folder)
    if family.endswith("_vl"):
        _save_processor(family, saved)
    return saved


def _random_norms(model: torch.nn.Module) -> None:
    """Norms of new models are all ones (or zeros): none of them would be missed."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name and name.endswith("weight"):
                parameter += 0.3 * torch.randn_like(parameter)


def _ends(tokenizer: Any) -> list[int]:
    return list(tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"]))


def _text(tokenizer: Any, **settings: Any) -> dict[str, Any]:
    return {
        "vocab_size": len(tokenizer) + tiny.PADDING,
        "num_hidden_layers": 3,
        "max_position_embeddings": 1024,
        "initializer_range": 0.15,
        "eos_token_id": _ends(tokenizer),
        "bos_token_id": None,
        "pad_token_id": None,
        **settings,
    }


def _llama(tokenizer: Any) -> Any:
    """Llama-3.2-1B: 32 heads of 64 with 8 of keys, ropes stretched 32 times."""
    from transformers import LlamaConfig, LlamaForCausalLM

    rope = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0, "low_freq_factor": 1.0}
    rope |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 64}
    sizes = {"hidden_size": 64, "intermediate_size": 256, "num_attention_heads": 8, "num_key_value_heads": 2}
    settings = _text(tokenizer, **sizes, head_dim=16, rope_parameters=rope, tie_word_embeddings=True)
    return LlamaForCausalLM(LlamaConfig(**settings))


def _mistral(tokenizer: Any) -> Any:
    """Mistral-7B-v0.1: 32 heads of 128 with 8 of keys, a window in every layer."""
    from transformers import MistralConfig, MistralForCausalLM

    sizes = {"hidden_size": 64, "intermediate_size": 224, "num_attention_heads": 8, "num_key_value_heads": 2}
    return MistralForCausalLM(MistralConfig(**_text(tokenizer, **sizes, sliding_window=WINDOW)))


def _qwen2(tokenizer: Any) -> Any:
    """Qwen2.5-7B: 28 heads of 128 with 4 of keys, biases; here with the windows that its config can ask for."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    sizes = {"hidden_size": 56, "intermediate_size": 296, "num_attention_heads": 7, "num_key_value_heads": 1}
    window = {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1}
    rope = {"rope_type": "default", "rope_theta": 1e6}
    return Qwen2ForCausalLM(Qwen2Config(**_text(tokenizer, **sizes, **window, rope_parameters=rope)))


def _qwen3(tokenizer: Any) -> Any:
    """Qwen3-0.6B: 16 heads of 128, wider together than the model, with 8 of keys, each normalised."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    sizes = {"hidden_size": 48, "intermediate_size": 144, "num_attention_heads": 6, "num_key_value_heads": 3}
    rope = {"rope_type": "default", "rope_theta": 1e6}
    settings = _text(tokenizer, **sizes, head_dim=16, rope_parameters=rope, tie_word_embeddings=True)
    return Qwen3ForCausalLM(Qwen3Config(**settings))


def _gemma3(tokenizer: Any) -> Any:
    """Gemma-3-1B: 4 heads of 256 with 1 of keys, 5 layers with a window to one without; here with capped logits."""
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    sizes = {"hidden_size": 64, "intermediate_size": 384, "num_attention_heads": 4, "num_key_value_heads": 1}
    types = ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"]
    own = {"head_dim": 32, "query_pre_attn_scalar": 24, "sliding_window": WINDOW, "layer_types": types}
    settings = _text(tokenizer, **sizes, **own, final_logit_softcapping=0.5, tie_word_embeddings=True)
    settings |= {"num_hidden_layers": 4, "initializer_range": 0.1}
    model = Gemma3ForCausalLM(Gemma3TextConfig(**settings))
    with torch.no_grad():  # scaled by the width, and tied: else every token is followed by itself
        model.get_input_embeddings().weight *= 0.1
    return model


def _vision_ids(tokenizer: Any) -> dict[str, int]:
    named = {"image_token_id": "<|image_pad|>", "video_token_id": "<|video_pad|>"}
    named |= {"vision_start_token_id": "<|vision_start|>", "vision_end_token_id": "<|vision_end|>"}
    return {name: tokenizer.convert_tokens_to_ids(token) for name, token in named.items()}


def _qwen2_5_vl(tokenizer: Any) -> Any:
    """Qwen2.5-VL-3B: 16 heads of 128 with 2 of keys; a vision tower with windows of 112 pixels."""
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    sizes = {"hidden_size": 64, "intermediate_size": 344, "num_attention_heads": 4, "num_key_value_heads": 1}
    rope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 3, 3]}
    text = _text(tokenizer, **sizes, rope_parameters=rope)
    vision = {"depth": 3, "hidden_size": 32, "intermediate_size": 86, "num_heads": 2, "out_hidden_size": 64}
    vision |= {"window_size": 56, "fullatt_block_indexes": [1]}
    config = Qwen2_5_VLConfig(text_config=text, vision_config=vision, **_vision_ids(tokenizer))
    return Qwen2_5_VLForConditionalGeneration(config)


def _qwen3_vl(tokenizer: Any) -> Any:
    """Qwen3-VL-2B: 16 heads of 128 with 8 of keys, ropes of the axes interleaved, pictures into the first layers."""
    from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

    sizes = {"hidden_size": 64, "intermediate_size": 192, "num_attention_heads": 4, "num_key_value_heads": 2}
    rope = {"rope_type": "default", "rope_theta": 5e6, "mrope_section": [3, 3, 2], "mrope_interleaved": True}
    text = _text(tokenizer, **sizes, head_dim=16, rope_parameters=rope)
    vision = {"depth": 4, "hidden_size": 32, "intermediate_size": 128, "num_heads": 2, "out_hidden_size": 64}
    vision |= {"deepstack_visual_indexes": [0, 2], "num_position_embeddings": 64, "patch_size": 16}
    config = Qwen3VLConfig(text_config=text, vision_config=vision, **_vision_ids(tokenizer))
    return Qwen3VLForConditionalGeneration(config)


def _save_processor(family: str, folder: Path) -> None:
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    patch = 16 if family == "qwen3_vl" else 14
    size = {"shortest_edge": (2 * patch) ** 2 * 4, "longest_edge": (2 * patch) ** 2 * 40}
    Qwen2VLImageProcessorPil(size=size, patch_size=patch, merge_size=2).save_pretrained(folder)


BUILDERS: dict[str, Callable[[Any], Any]] = {
    "llama": _llama,
    "mistral": _mistral,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "gemma3_text": _gemma3,
    "qwen2_5_vl": _qwen2_5_vl,
    "qwen3_vl": _qwen3_vl,
}
