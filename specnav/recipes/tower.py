# SPDX-License-Identifier: Apache-2.0
"""The vision tower in training form: Qwen2-VL's tower on batches of equally sized frames.

Its parameter names are those of Qwen2-VL's tower, so that weights are exported by name
(`architecture.export_weights`). The heads that teach it the positions of objects exist only in training.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specnav.recipes import architecture as arch
from specnav.recipes.architecture import TrainedVisionShape


def patch_order() -> Tensor:
    """Indices int64 [160] of the row-major patches in Qwen2-VL's order, where an image token's four patches follow
    one another.
    """
    grid = torch.arange(arch.GRID_H * arch.GRID_W).view(arch.CELLS_H, arch.MERGE, arch.CELLS_W, arch.MERGE)
    return grid.permute(0, 2, 1, 3).reshape(-1)


def patchify(frames: Tensor) -> Tensor:
    """Frames uint8 [n, 140, 224, 3] -> normalised patches float32 [n, 160, 588] (channel, row, column), merge order."""
    n = frames.shape[0]
    pixels = (frames.float() / 255 - torch.tensor(arch.PIXEL_MEAN)) / torch.tensor(arch.PIXEL_STD)
    pixels = pixels.view(n, arch.CELLS_H, arch.MERGE, arch.PATCH, arch.CELLS_W, arch.MERGE, arch.PATCH, 3)
    return pixels.permute(0, 1, 4, 2, 5, 7, 3, 6).reshape(n, arch.GRID_H * arch.GRID_W, -1)


def vision_rotary(head_dim: int) -> tuple[Tensor, Tensor]:
    """cos and sin float32 [160, head_dim] of the axial rotary embedding, in merge order."""
    order = patch_order()
    half = head_dim // 2
    frequencies = 1.0 / (arch.VISION_ROPE_THETA ** (torch.arange(0, half, 2).float() / half))
    rows, columns = order // arch.GRID_W, order % arch.GRID_W
    angles = torch.cat([rows[:, None] * frequencies, columns[:, None] * frequencies], dim=-1)
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of x [..., head_dim]."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


class _TowerAttention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        n, rows, width = x.shape
        query, key, value = self.qkv(x).view(n, rows, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        cos, sin = cos.to(x.dtype), sin.to(x.dtype)
        out = F.scaled_dot_product_attention(rotate(query, cos, sin), rotate(key, cos, sin), value)
        return self.proj(out.transpose(1, 2).reshape(n, rows, width))


class _Block(nn.Module):
    def __init__(self, shape: TrainedVisionShape) -> None:
        from transformers.models.qwen2_vl.modeling_qwen2_vl import VisionMlp

        super().__init__()
        self.norm1 = nn.LayerNorm(shape.width, eps=1e-6)
        self.norm2 = nn.LayerNorm(shape.width, eps=1e-6)
        self.attn = _TowerAttention(shape.width, shape.heads)
        self.mlp = VisionMlp(shape.width, 4 * shape.width, "quick_gelu")

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x), cos, sin)
        return x + self.mlp(self.norm2(x))


class TrainableTower(nn.Module):
    """Patches float [n, 160, 588] -> image tokens float [n, 40, out]."""

    def __init__(self, shape: TrainedVisionShape) -> None:
        from transformers.models.qwen2_vl.modeling_qwen2_vl import PatchMerger

        super().__init__()
        self.patch_embed = nn.Linear(3 * arch.PATCH**2, shape.width, bias=False)
        self.blocks = nn.ModuleList(_Block(shape) for _ in range(shape.depth))
        self.merger = PatchMerger(shape.out, shape.width, arch.MERGE)
        cos, sin = vision_rotary(shape.width // shape.heads)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, patches: Tensor) -> Tensor:
        """Image tokens of normalised patches in merge order."""
        x = self.patch_embed(patches)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return self.merger(x).unflatten(0, (x.shape[0], -1))
