# SPDX-License-Identifier: Apache-2.0
"""The model families that run on our own forward pass, as differences from Llama. Every other causal model runs on the
library's forward pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec.models.layers.pieces import Layer, fuse, linear

_SILU = ("SiLU", "SiLUActivation")
"""Class names of SiLU modules: torch's, and the library's."""


@dataclass(frozen=True)
class Family:
    """Decoders with equal module names and structure. The defaults are those of Llama.

    Attributes:
        model_type: As in config.json.
        loader: The library's class that loads it.
        vision: Whether it takes pictures in the way of Qwen2-VL.
        norm_offset: Constant added to the stored weight of a norm.
        before_mlp: Name of the layer's norm before the MLP.
        after_attention: Name of the norm after attention; "": none.
        after_mlp: Name of the norm after the MLP; "": none.
        scaled_embeddings: Embeddings are multiplied by the square root of the width.
        window: Attention window by (text config, layer); 0: none.
        ropes: Layer types with separate rotary tables, by their names in `layer_types`.
        deepstack: The vision tower also yields rows for the first layers.
        missing: The feature of a text config that is not supported here; "": none.
    """

    model_type: str
    loader: str = "AutoModelForCausalLM"
    vision: bool = False
    norm_offset: float = 0.0
    before_mlp: str = "post_attention_layernorm"
    after_attention: str = ""
    after_mlp: str = ""
    scaled_embeddings: bool = False
    window: Callable[[Any, int], int] = lambda config, layer: 0
    ropes: tuple[str, ...] = ()
    deepstack: bool = False
    missing: Callable[[Any], str] = lambda config: ""

    def norm(self, module: Any) -> Tensor:
        """The factor of a norm: its weight plus the offset."""
        weight: Tensor = module.weight
        return weight + self.norm_offset if self.norm_offset else weight

    def ropes_of(self, config: Any) -> tuple[str, ...]:
        """Those of `ropes` that a model has layers of: the library makes tables for no others."""
        return tuple(kind for kind in self.ropes if kind in config.layer_types)

    def read_layer(self, layer: Any, config: Any, index: int) -> Layer:
        """Layer `index` from the library's (or our own) modules. Fused products share the modules' memory."""
        attention, mlp = layer.self_attn, layer.mlp
        return Layer(
            norm_1=self.norm(layer.input_layernorm),
            qkv=fuse([attention.q_proj, attention.k_proj, attention.v_proj]),
            qk_norm=self._qk_norm(attention, config),
            out=linear(attention.o_proj),
            after_attention=self._norm_named(layer, self.after_attention),
            norm_2=self.norm(getattr(layer, self.before_mlp)),
            gate_up=fuse([mlp.gate_proj, mlp.up_proj]),
            down=linear(mlp.down_proj),
            after_mlp=self._norm_named(layer, self.after_mlp),
            activation=F.silu if type(mlp.act_fn).__name__ in _SILU else mlp.act_fn,
            window=self.window(config, index),
            rope=self.ropes_of(config).index(config.layer_types[index]) if self.ropes else 0,
        )

    def _norm_named(self, layer: Any, name: str) -> Tensor | None:
        return self.norm(getattr(layer, name)) if name else None

    def _qk_norm(self, attention: Any, config: Any) -> Tensor | None:
        if not hasattr(attention, "q_norm"):
            return None
        query, key = self.norm(attention.q_norm), self.norm(attention.k_norm)
        heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
        return torch.cat([query.expand(heads, -1), key.expand(kv_heads, -1)])


def window_by_layer_type(config: Any, layer: int) -> int:
    """The window of sliding-attention layers; 0 for other layers."""
    types = getattr(config, "layer_types", None)
    sliding = types is not None and types[layer] == "sliding_attention"
    return config.sliding_window or 0 if sliding else 0


def unknown_layer_types(config: Any) -> str:
    """Describe layer types that are neither full nor sliding attention; "" if there are none."""
    others = set(getattr(config, "layer_types", None) or ()) - {"full_attention", "sliding_attention"}
    return f"layers of type {min(others)!r}" if others else ""


def _gemma3_lacks(config: Any) -> str:
    if config.attn_logit_softcapping:
        return "a cap on attention scores"
    if config.use_bidirectional_attention:
        return "attention in both directions"
    return unknown_layer_types(config)


def _windowed(model_type: str, **differences: Any) -> Family:
    """A family with a window in sliding-attention layers."""
    return Family(model_type, window=window_by_layer_type, missing=unknown_layer_types, **differences)


_PICTURES: dict[str, Any] = {"loader": "AutoModelForImageTextToText", "vision": True}
"""Pictures are rows of the prompt, in the same way for all Qwen-VL. Tower and rotary tables are the library's."""

FAMILIES = {
    family.model_type: family
    for family in (
        Family("llama"),  # Llama 2 and 3, and models with their modules
        Family("mistral", window=lambda config, layer: config.sliding_window or 0),  # in all layers or in none
        _windowed("qwen2"),  # biases
        _windowed("qwen3"),  # norms over queries and keys
        # Norms around attention and MLP, whose stored weights lack 1. Of six layers, five have a window and a separate
        # rotary table, and one has full attention.
        Family(
            "gemma3_text",
            norm_offset=1.0,
            before_mlp="pre_feedforward_layernorm",
            after_attention="post_attention_layernorm",
            after_mlp="post_feedforward_layernorm",
            scaled_embeddings=True,
            window=window_by_layer_type,
            ropes=("full_attention", "sliding_attention"),
            missing=_gemma3_lacks,
        ),
        _windowed("qwen2_vl", **_PICTURES),
        _windowed("qwen2_5_vl", **_PICTURES),  # windows in the vision tower
        Family("qwen3_vl", deepstack=True, **_PICTURES),  # interleaved m-rope
    )
}
