# SPDX-License-Identifier: Apache-2.0
"""The language model in training form: Qwen2-VL's own layers on batches of equal length.

In addition to logits it returns the inputs of the auxiliary losses: grounding logits of the image tokens after an early
layer, and one head's attention. Both serve training only.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specnav.recipes.architecture import TrainedTextShape, TrainedVisionShape, qwen2_vl_config
from specnav.recipes.tower import rotate


class TrainableDecoder(nn.Module):
    """A Qwen2 decoder that reads cached image features.

    `image_projection` maps the common features to another width; export folds it into the merger.
    """

    def __init__(self, shape: TrainedTextShape, features: int) -> None:
        from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLTextModel

        super().__init__()
        self.shape = shape
        config = qwen2_vl_config(TrainedVisionShape(), shape).text_config
        config._attn_implementation = "sdpa"  # the only one that takes a mask of bools
        text: Any = Qwen2VLTextModel(config)
        self.embed_tokens, self.layers, self.norm = text.embed_tokens, text.layers, text.norm
        self.rotary_emb = text.rotary_emb
        self.image_projection = nn.Linear(features, shape.width, bias=False) if features != shape.width else None
        self.ground = nn.Linear(shape.width, 1)
        nn.init.normal_(self.embed_tokens.weight, std=0.02)
        for name, weight in self.named_parameters():
            if name.startswith("layers") and weight.dim() == 2:
                scale = (2 * shape.layers) ** -0.5 if name.endswith(("o_proj.weight", "down_proj.weight")) else 1.0
                nn.init.normal_(weight, std=scale * weight.shape[1] ** -0.5 * 0.7)
            elif name.endswith("bias"):
                nn.init.zeros_(weight)

    def forward(
        self, ids: Tensor, features: Tensor, positions: Tensor, mask: Tensor, image_start: int, answer_rows: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Logits [n, answer_rows, rows], grounding logits [n, 40], attention scores [n, answer_rows, length]."""
        if self.image_projection is not None:
            features = self.image_projection(features)
        stop = image_start + features.shape[1]
        text = self.embed_tokens(ids)
        x = torch.cat([text[:, :image_start], features.to(text.dtype), text[:, stop:]], dim=1)
        places = self.rotary_emb(x, positions)
        grounding = scores = None
        for index, layer in enumerate(self.layers):
            if index == self.shape.attention_layer:
                scores = self._scores(layer, x, places, mask, answer_rows)
            x = layer(x, attention_mask=mask, position_embeddings=places)
            if index == self.shape.grounding_layer:
                grounding = self.ground(x[:, image_start:stop]).squeeze(-1).float()
        logits = F.linear(self.norm(x[:, -answer_rows:]), self.embed_tokens.weight).float()
        assert grounding is not None and scores is not None
        return logits, grounding, scores

    def _scores(self, layer: Any, x: Tensor, places: tuple[Tensor, Tensor], mask: Tensor, rows: int) -> Tensor:
        """Attention scores of a layer's first head, for the last rows."""
        size, attention = self.shape.head_dim, layer.self_attn
        x = layer.input_layernorm(x)
        query, key = (
            rotate(F.linear(x, one.weight[:size], one.bias[:size]), *places)
            for one in (attention.q_proj, attention.k_proj)
        )
        scores = (query[:, -rows:] @ key.transpose(1, 2)).float() * size**-0.5
        return scores.masked_fill(~mask[:, 0, -rows:], -1e9)
