"""Gemma 3 for text (1B, 270M): norms around attention and MLP whose weights are short of 1, scaled embeddings, five
layers with a window and a rotary table of their own to one that sees everything.
"""

from typing import Any

from specdec.models.families.family import Family, unknown_layer_types, window_by_layer_type


def _missing(config: Any) -> str:
    if config.attn_logit_softcapping:
        return "a cap on attention scores"
    if config.use_bidirectional_attention:
        return "attention in both directions"
    return unknown_layer_types(config)


GEMMA3 = Family(
    "gemma3_text",
    norm_offset=1.0,
    before_mlp="pre_feedforward_layernorm",
    after_attention="post_attention_layernorm",
    after_mlp="post_feedforward_layernorm",
    scaled_embeddings=True,
    window=window_by_layer_type,
    ropes=("full_attention", "sliding_attention"),
    missing=_missing,
)
