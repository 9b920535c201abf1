# SPDX-License-Identifier: Apache-2.0
"""Identifies the model that adapters belong to, by hashes of its shape and of a few of its weights.

Equal for one checkpoint in float32 and bfloat16 (values are compared as bfloat16), and for quantised copies of it,
whose matrices are not compared. In float16 only the shape is compared: its values are rounded already, and rounding
them again to bfloat16 gives some values that differ from those of the other number types.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec
import torch
from torch import Tensor, nn

from specdec.models.loaded import LoadedModel

_SAMPLED_ROWS = 64
_HEX = 16
_SHAPE_FIELDS = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "rms_norm_eps",
    "vocab_size",
)


class Fingerprint(msgspec.Struct, frozen=True):
    """Hashes of a model. shape: of the architecture. kept: of norms and embeddings; None in float16. matrices: of the
    layers' matrices; None if quantised or in float16.
    """

    shape: str
    kept: str | None
    matrices: str | None = None

    def difference(self, other: Fingerprint) -> str:
        """Describe the difference between two models; "" if there is none."""
        if self.shape != other.shape:
            return "another architecture"
        if None not in (self.kept, other.kept) and self.kept != other.kept:
            return "other weights"
        if None not in (self.matrices, other.matrices) and self.matrices != other.matrices:
            return "other weights"
        return ""


def fingerprint(model: LoadedModel) -> Fingerprint:
    """The fingerprint of a loaded model."""
    core = model.network.model
    text = core.language_model if model.is_multimodal else core
    shape = [model.network.config.model_type, *(getattr(text.config, name, None) for name in _SHAPE_FIELDS)]
    about = hashlib.sha256(repr(shape).encode()).hexdigest()[:_HEX]
    if text.embed_tokens.weight.dtype == torch.float16:
        return Fingerprint(about, None)
    layers = list(text.layers)
    norms = [
        weight
        for layer in layers
        for weight in (layer.input_layernorm.weight, layer.post_attention_layernorm.weight)
    ]
    kept = [
        text.norm.weight,
        *norms,
        _some_rows(text.embed_tokens.weight),
        _some_rows(model.network.lm_head.weight),
    ]
    linear = [module for layer in layers for module in (layer.self_attn.o_proj, layer.mlp.down_proj)]
    whole = all(type(module) is nn.Linear for module in linear)
    matrices = _hash(_some_rows(module.weight, 4) for module in linear) if whole else None
    return Fingerprint(about, _hash(kept), matrices)


def _some_rows(weight: Tensor, count: int = _SAMPLED_ROWS) -> Tensor:
    return weight[:: max(weight.shape[0] // count, 1)]


@torch.inference_mode()
def _hash(tensors: Iterable[Tensor]) -> str:
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.to(torch.bfloat16).contiguous().cpu().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:_HEX]
