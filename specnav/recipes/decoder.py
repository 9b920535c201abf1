# SPDX-License-Identifier: Apache-2.0
"""The language model in training form: Qwen2's decoder with m-rope on batches of equal length.

Parameter names are those of Qwen2-VL's language model. In addition to logits it returns the inputs of the auxiliary
losses: grounding logits of the image tokens after an early layer, and one head's attention. Both serve training only.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specnav.recipes import architecture as arch
from specnav.recipes.architecture import TrainedTextShape
from specnav.recipes.tower import rotate


def mrope_tables(positions: Tensor, head_dim: int) -> tuple[Tensor, Tensor]:
    """Positions int64 [3, n, length] -> cos, sin float32 [n, 1, length, head_dim]."""
    frequencies = 1.0 / (arch.ROPE_THETA ** (torch.arange(0, head_dim, 2).float() / head_dim))
    angles = positions[..., None].float() * frequencies.to(positions.device)
    parts = angles.split(arch.MROPE_SECTION, dim=-1)
    angles = torch.cat([part[axis] for axis, part in enumerate(parts)], dim=-1)
    angles = torch.cat([angles, angles], dim=-1)[:, None]
    return angles.cos(), angles.sin()


class RmsNorm(nn.Module):
    """Root-mean-square norm, computed in float32."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """The normed x, in x's type."""
        exact = x.float()
        exact = exact * torch.rsqrt(exact.pow(2).mean(-1, keepdim=True) + 1e-6)
        return (self.weight * exact).to(x.dtype)


class _SelfAttention(nn.Module):
    def __init__(self, shape: TrainedTextShape) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = shape.heads, shape.kv_heads, shape.head_dim
        self.q_proj = nn.Linear(shape.width, shape.heads * shape.head_dim)
        self.k_proj = nn.Linear(shape.width, shape.kv_heads * shape.head_dim)
        self.v_proj = nn.Linear(shape.width, shape.kv_heads * shape.head_dim)
        self.o_proj = nn.Linear(shape.heads * shape.head_dim, shape.width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor, probe: int) -> tuple[Tensor, Tensor | None]:
        """(output of the attention, scores of the probed head)."""
        n, length, _ = x.shape
        query = self.q_proj(x).view(n, length, self.heads, self.head_dim).transpose(1, 2)
        key = self.k_proj(x).view(n, length, self.kv_heads, self.head_dim).transpose(1, 2)
        value = self.v_proj(x).view(n, length, self.kv_heads, self.head_dim).transpose(1, 2)
        query, key = rotate(query, cos, sin), rotate(key, cos, sin)
        groups = self.heads // self.kv_heads
        out = F.scaled_dot_product_attention(
            query, key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1), attn_mask=mask
        )
        scores = None
        if probe:  # head 0, last `probe` queries
            scores = (query[:, 0, -probe:] @ key[:, 0].transpose(1, 2)).float() * self.head_dim**-0.5
            scores = scores.masked_fill(~mask[:, 0, -probe:], -1e9)
        return self.o_proj(out.transpose(1, 2).reshape(n, length, -1)), scores


class _GatedMlp(nn.Module):
    def __init__(self, shape: TrainedTextShape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.width, shape.inner, bias=False)
        self.up_proj = nn.Linear(shape.width, shape.inner, bias=False)
        self.down_proj = nn.Linear(shape.inner, shape.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class DecoderLayer(nn.Module):
    """Attention and a gated MLP, each with a norm before it and a residual connection."""

    def __init__(self, shape: TrainedTextShape) -> None:
        super().__init__()
        self.self_attn = _SelfAttention(shape)
        self.mlp = _GatedMlp(shape)
        self.input_layernorm = RmsNorm(shape.width)
        self.post_attention_layernorm = RmsNorm(shape.width)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor, probe: int) -> tuple[Tensor, Tensor | None]:
        """(hidden states after this layer, attention scores of the probed head)."""
        attended, scores = self.self_attn(self.input_layernorm(x), cos, sin, mask, probe)
        x = x + attended
        return x + self.mlp(self.post_attention_layernorm(x)), scores


class TrainableDecoder(nn.Module):
    """A Qwen2 decoder that reads cached image features.

    `image_projection` maps the common features to another width; export folds it into the merger.
    """

    def __init__(self, shape: TrainedTextShape, features: int) -> None:
        super().__init__()
        self.shape = shape
        self.embed_tokens = nn.Embedding(arch.EMBEDDING_ROWS, shape.width)
        self.layers = nn.ModuleList(DecoderLayer(shape) for _ in range(shape.layers))
        self.norm = RmsNorm(shape.width)
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
        cos, sin = mrope_tables(positions, self.shape.head_dim)
        cos, sin = cos.to(x.dtype), sin.to(x.dtype)
        grounding = scores = None
        for index, layer in enumerate(self.layers):
            x, found = layer(x, cos, sin, mask, answer_rows if index == self.shape.attention_layer else 0)
            scores = found if found is not None else scores
            if index == self.shape.grounding_layer:
                grounding = self.ground(x[:, image_start:stop]).squeeze(-1).float()
        logits = F.linear(self.norm(x[:, -answer_rows:]), self.embed_tokens.weight).float()
        assert grounding is not None and scores is not None
        return logits, grounding, scores
