# SPDX-License-Identifier: Apache-2.0
"""Configurations of published models, limited to the fields that determine memory, for planning without a hub.

Keys are the published names. Numbers are those of each model's config.json.
"""

from __future__ import annotations

from typing import Any

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


def _seeing(kind: str, text: dict[str, Any], vision: dict[str, Any], tied: bool) -> dict[str, Any]:
    width = "hidden_size" if kind == "qwen2_vl" else "out_hidden_size"
    vision = {**vision, width: text["hidden_size"]}
    return {"model_type": kind, "text_config": text, "vision_config": vision, "tie_word_embeddings": tied}


PUBLISHED: dict[str, dict[str, Any]] = {
    "Qwen/Qwen2-VL-2B-Instruct": _seeing("qwen2_vl", _text(1536, 8960, 28, 12, 2, 151936), _QWEN2_VISION, True),
    "Qwen/Qwen2-VL-7B-Instruct": _seeing("qwen2_vl", _text(3584, 18944, 28, 28, 4, 152064), _QWEN2_VISION, False),
    "Qwen/Qwen2.5-VL-3B-Instruct": _seeing(
        "qwen2_5_vl", _text(2048, 11008, 36, 16, 2, 151936), _QWEN2_5_VISION, True
    ),
    "Qwen/Qwen2.5-VL-7B-Instruct": _seeing(
        "qwen2_5_vl", _text(3584, 18944, 28, 28, 4, 152064), _QWEN2_5_VISION, False
    ),
    "Qwen/Qwen3-VL-2B-Instruct": _seeing(
        "qwen3_vl", _text(2048, 6144, 28, 16, 8, 151936, 128), _QWEN3_VISION, True
    ),
    "Qwen/Qwen3-VL-8B-Instruct": _seeing(
        "qwen3_vl", _text(4096, 12288, 36, 32, 8, 151936, 128), _QWEN3_VISION_LARGE, False
    ),
    "Qwen/Qwen3-0.6B": {
        "model_type": "qwen3", **_text(1024, 3072, 28, 16, 8, 151936, 128), "tie_word_embeddings": True
    },
    "Qwen/Qwen3-8B": {
        "model_type": "qwen3", **_text(4096, 12288, 36, 32, 8, 151936, 128), "tie_word_embeddings": False
    },
    "meta-llama/Llama-3.2-1B-Instruct": {
        "model_type": "llama", **_text(2048, 8192, 16, 32, 8, 128256, 64), "tie_word_embeddings": True
    },
    "meta-llama/Llama-3.1-8B-Instruct": {
        "model_type": "llama", **_text(4096, 14336, 32, 32, 8, 128256, 128), "tie_word_embeddings": False
    },
    "mistralai/Mistral-7B-Instruct-v0.3": {
        "model_type": "mistral", **_text(4096, 14336, 32, 32, 8, 32768, 128), "tie_word_embeddings": False
    },
}  # fmt: skip
