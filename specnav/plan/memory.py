# SPDX-License-Identifier: Apache-2.0
"""Computes the memory of a pair from its configurations alone; modules are built on torch's meta device, unloaded.

The parts are weights, the float32 copy of the head for logits on a CPU, keys and values per token, and the temporary
memory of a forward and of a picture. Only the temporary memory is an estimate.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specdec.errors import ModelError, first_line

BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
WHOLE = ("lm_head", "visual")
"""Parts that loading does not quantise (specdec.models.loading)."""
BLOCK_4BIT = 64
"""Numbers that share one float32 scale in 4 bits."""
PICTURE_TOKENS = 1280
PATCHES_A_TOKEN = 4


@dataclass(frozen=True)
class ModelMemory:
    """Memory of one model in bytes.

    weights: of the loaded model. head: of the head's float32 copy. kv_a_token: KV cache per token, 0 without one.
    forward, picture: temporary memory of a forward over 256 rows, and of the vision tower on one picture of 1,280
    tokens.
    """

    name: str
    parameters: int
    weights: int
    head: int
    kv_a_token: int
    forward: int
    picture: int


def config_of(name: str) -> Any:
    """The transformers config of a folder, a published model's name, or a hub id. Raises ModelError."""
    from transformers import CONFIG_MAPPING

    from specdec.models.loading import read_config

    if name in PUBLISHED and not Path(name).is_dir():
        known = dict(PUBLISHED[name])
        return CONFIG_MAPPING[known.pop("model_type")](**known)
    return read_config(name)


def memory_of(name: str, dtype: str, quantize: str, device: str) -> ModelMemory:
    """Memory of a model with a number type, on "cpu" or "cuda". Raises ModelError if its config cannot be read."""
    import torch
    from torch import nn

    from specdec.models.loading import loader_of

    config = config_of(name)
    loader = loader_of(name, config)
    try:
        with torch.device("meta"):
            network = loader.from_config(config)
        network.tie_weights()  # if the config says so
    except Exception as error:  # whatever the library raises for sizes that no model has
        said = f"{name} cannot be planned, its configuration describes no model ({first_line(error)})"
        raise ModelError(said) from error
    size = BYTES[dtype]
    quantised = {
        id(module.weight): module
        for path, module in network.named_modules()
        if quantize != "none" and type(module) is nn.Linear and not any(part in path for part in WHOLE)
    }
    weights = parameters = 0
    for parameter in network.parameters():
        parameters += parameter.numel()
        module = quantised.get(id(parameter))
        if module is None:
            weights += parameter.numel() * size
        elif quantize == "4bit":
            weights += parameter.numel() // 2 + 4 * -(-parameter.numel() // BLOCK_4BIT)
        else:
            weights += parameter.numel() + 4 * module.out_features
    text = config.get_text_config()
    head = 4 * text.vocab_size * text.hidden_size if size < 4 and device == "cpu" else 0
    heads = getattr(text, "num_attention_heads", None) or 0  # a recurrent model has no heads and no growing cache
    head_dim = getattr(text, "head_dim", None) or text.hidden_size // max(1, heads)
    kv_heads = (getattr(text, "num_key_value_heads", None) or heads) if heads else 0
    inner = getattr(text, "intermediate_size", None) or 4 * text.hidden_size
    forward = 256 * (4 * text.hidden_size + 3 * inner) * size + 64 * 4 * text.vocab_size
    return ModelMemory(
        name,
        parameters,
        weights,
        head,
        text.num_hidden_layers * 2 * kv_heads * head_dim * size,
        forward,
        _picture(getattr(config, "vision_config", None), size),
    )


def _picture(vision: Any, size: int) -> int:
    """Bytes of the vision tower's widest layer, with its pixels and the attention scores of one head."""
    if vision is None:
        return 0
    patches = PICTURE_TOKENS * PATCHES_A_TOKEN
    width = getattr(vision, "embed_dim", None) or vision.hidden_size
    inner = getattr(vision, "intermediate_size", None) or int(width * getattr(vision, "mlp_ratio", 4))
    return int(patches * (6 * width + 2 * inner) * size + patches * patches * size)


_QWEN2_VISION = {"depth": 32, "embed_dim": 1280, "num_heads": 16, "mlp_ratio": 4}
_QWEN2_5_VISION = {"depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16}
_QWEN3_VISION: dict[str, Any] = {"depth": 24, "hidden_size": 1024, "intermediate_size": 4096, "num_heads": 16}
_QWEN3_VISION |= {"deepstack_visual_indexes": [5, 11, 17]}
_QWEN3_VISION_LARGE: dict[str, Any] = {"depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "num_heads": 16}
_QWEN3_VISION_LARGE |= {"deepstack_visual_indexes": [8, 16, 24]}


def _text(
    hidden: int, inner: int, layers: int, heads: int, kv_heads: int, vocabulary: int, head_dim: int = 0
) -> dict[str, Any]:
    sizes = {"hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": layers}
    sizes |= {"num_attention_heads": heads, "num_key_value_heads": kv_heads, "vocab_size": vocabulary}
    return sizes | ({"head_dim": head_dim} if head_dim else {})


def _model(kind: str, text: dict[str, Any], tied: bool, vision: dict[str, Any] | None = None) -> dict[str, Any]:
    whole = {"model_type": kind, "tie_word_embeddings": tied}
    if vision is None:
        return {**whole, **text}
    width = "hidden_size" if kind == "qwen2_vl" else "out_hidden_size"
    return {**whole, "text_config": text, "vision_config": {**vision, width: text["hidden_size"]}}


PUBLISHED: dict[str, dict[str, Any]] = {
    "Qwen/Qwen2-VL-2B-Instruct": _model("qwen2_vl", _text(1536, 8960, 28, 12, 2, 151936), True, _QWEN2_VISION),
    "Qwen/Qwen2-VL-7B-Instruct": _model("qwen2_vl", _text(3584, 18944, 28, 28, 4, 152064), False, _QWEN2_VISION),
    "Qwen/Qwen2.5-VL-3B-Instruct": _model("qwen2_5_vl", _text(2048, 11008, 36, 16, 2, 151936), True, _QWEN2_5_VISION),
    "Qwen/Qwen2.5-VL-7B-Instruct": _model("qwen2_5_vl", _text(3584, 18944, 28, 28, 4, 152064), False, _QWEN2_5_VISION),
    "Qwen/Qwen3-VL-2B-Instruct": _model("qwen3_vl", _text(2048, 6144, 28, 16, 8, 151936, 128), True, _QWEN3_VISION),
    "Qwen/Qwen3-VL-8B-Instruct": _model(
        "qwen3_vl", _text(4096, 12288, 36, 32, 8, 151936, 128), False, _QWEN3_VISION_LARGE
    ),
    "Qwen/Qwen3-0.6B": _model("qwen3", _text(1024, 3072, 28, 16, 8, 151936, 128), True),
    "Qwen/Qwen3-8B": _model("qwen3", _text(4096, 12288, 36, 32, 8, 151936, 128), False),
    "meta-llama/Llama-3.2-1B-Instruct": _model("llama", _text(2048, 8192, 16, 32, 8, 128256, 64), True),
    "meta-llama/Llama-3.1-8B-Instruct": _model("llama", _text(4096, 14336, 32, 32, 8, 128256, 128), False),
    "mistralai/Mistral-7B-Instruct-v0.3": _model("mistral", _text(4096, 14336, 32, 32, 8, 32768, 128), False),
}  # fmt: skip
"""Published models by name, for planning without a hub: the fields of their config.json that determine memory."""
