# SPDX-License-Identifier: Apache-2.0
"""The modules of a model, named like the library's.

Decoder layers only hold weights; `specdec.models.runner` computes with them. Rotary factors and the vision tower are
computed here, with the library's operations in the library's order, so that results are bit-identical.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdec.models.direct.shapes import Shape, TextShape, VisionShape

_LAYER_NORM_EPS = 1e-6


class Network(nn.Module):
    """A complete model: `model` and `lm_head`, with the Shape as its `config`."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.config = shape
        self.model: nn.Module = DecoderWeights(shape.text) if shape.vision is None else SeeingModel(shape)
        self.lm_head = nn.Linear(shape.text.hidden_size, shape.text.vocab_size, bias=False)

    def get_image_features(self, pixel_values: Tensor, image_grid_thw: Tensor) -> ImageFeatures:
        """pixel_values [patches, features], image_grid_thw int64 [images, 3] -> embeddings in `pooler_output`."""
        assert isinstance(self.model, SeeingModel)
        return ImageFeatures((self.model.visual(pixel_values, image_grid_thw),))


class ImageFeatures(NamedTuple):
    """Embeddings [tokens, hidden_size] of all pictures, concatenated."""

    pooler_output: tuple[Tensor]


class SeeingModel(nn.Module):
    """A decoder with a vision tower."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        assert shape.vision is not None
        self.visual = VisionTower(shape.vision)
        self.language_model = DecoderWeights(shape.text)


class DecoderWeights(nn.Module):
    """The weights of a decoder, and its rotary factors."""

    def __init__(self, shape: TextShape) -> None:
        super().__init__()
        self.config = shape
        self.embed_tokens = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.layers = nn.ModuleList(_Layer(shape) for _ in range(shape.num_hidden_layers))
        self.norm = _RmsNorm(shape.hidden_size)
        self.rotary_emb: Rotary = Rotary(shape) if shape.mrope_section is None else GridRotary(shape)


class _Layer(nn.Module):
    def __init__(self, shape: TextShape) -> None:
        super().__init__()
        self.input_layernorm = _RmsNorm(shape.hidden_size)
        self.self_attn = _Attention(shape)
        self.post_attention_layernorm = _RmsNorm(shape.hidden_size)
        self.mlp = _Mlp(shape)


class _RmsNorm(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size))


class _Attention(nn.Module):
    def __init__(self, shape: TextShape) -> None:
        super().__init__()
        queries, keys = shape.num_attention_heads * shape.head_dim, shape.num_key_value_heads * shape.head_dim
        self.q_proj = nn.Linear(shape.hidden_size, queries, bias=shape.qkv_bias)
        self.k_proj = nn.Linear(shape.hidden_size, keys, bias=shape.qkv_bias)
        self.v_proj = nn.Linear(shape.hidden_size, keys, bias=shape.qkv_bias)
        self.o_proj = nn.Linear(queries, shape.hidden_size, bias=False)


class _Mlp(nn.Module):
    def __init__(self, shape: TextShape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.up_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.down_proj = nn.Linear(shape.intermediate_size, shape.hidden_size, bias=False)
        self.act_fn = nn.SiLU()


class Rotary:
    """Rotary factors of positions with one axis."""

    def __init__(self, shape: TextShape) -> None:
        self._frequencies = _frequencies(shape.rope_theta, shape.head_dim)

    def __call__(self, like: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """positions int64 [batch, rows] -> (cos, sin), each [batch, rows, head_dim], of the type of `like`."""
        angles = positions[..., None].float() * self._frequencies
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


class GridRotary(Rotary):
    """Rotary factors of positions with three axes (time, height, width), each for its section of the frequencies."""

    def __init__(self, shape: TextShape) -> None:
        super().__init__(shape)
        assert shape.mrope_section is not None
        self.mrope_section = list(shape.mrope_section)

    def __call__(self, like: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """positions int64 [3, batch, rows] -> (cos, sin), each [batch, rows, head_dim], of the type of `like`."""
        angles = positions[..., None].float() * self._frequencies
        return self._mix(angles.cos()).to(like.dtype), self._mix(angles.sin()).to(like.dtype)

    def _mix(self, factors: Tensor) -> Tensor:
        sections = torch.split(factors, self.mrope_section, dim=-1)
        mixed = torch.cat([section[axis % 3] for axis, section in enumerate(sections)], dim=-1)
        return torch.cat((mixed, mixed), dim=-1)


class TowerOperations:
    """The operations of a tower between its matrix products, in plain torch."""

    def turn(self, qkv: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """qkv [rows, 3, heads, dim], cos, sin float32 [rows, 1, dim] -> rotated query and key [rows, heads, dim]."""
        return _turn(qkv[:, 0], cos, sin), _turn(qkv[:, 1], cos, sin)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Full attention; each argument is [1, heads, rows, dim]."""
        return F.scaled_dot_product_attention(query, key, value, scale=scale)

    def add_norm(
        self, hidden: Tensor, linear: nn.Linear, rows: Tensor, norm: nn.LayerNorm
    ) -> tuple[Tensor, Tensor]:
        """Returns (hidden + linear(rows), its norm); may overwrite `hidden`."""
        hidden = hidden + linear(rows)
        return hidden, norm(hidden)

    def quick_gelu(self, linear: nn.Linear, rows: Tensor) -> Tensor:
        """x * sigmoid(1.702 x) of x = linear(rows)."""
        wide = linear(rows)
        bent: Tensor = wide * torch.sigmoid(1.702 * wide)
        return bent


class VisionTower(nn.Module):
    """The vision tower: patches of pictures -> embeddings for the decoder. operations: replaceable."""

    def __init__(self, shape: VisionShape) -> None:
        super().__init__()
        self.operations = TowerOperations()
        self._shape = shape
        self.patch_embed = _PatchEmbed(shape)
        self.blocks = nn.ModuleList(_VisionBlock(shape) for _ in range(shape.depth))
        self.merger = _Merger(shape)
        # Half of a head rotates with a patch's row, half with its column.
        self._frequencies = _frequencies(shape.rope_theta, shape.embed_dim // shape.num_heads // 2)

    def forward(self, pixels: Tensor, grids: Tensor) -> Tensor:
        """pixels [patches, features], grids int64 [images, 3] -> [tokens, hidden_size] of all pictures, concatenated.
        """
        sizes = [(int(t), int(h), int(w)) for t, h, w in grids.tolist()]
        return self.through(pixels, frame_lengths(sizes), *self.rotary(sizes))

    def through(self, pixels: Tensor, lengths: list[int], cos: Tensor, sin: Tensor) -> Tensor:
        """As `forward`. lengths: patches per frame; attention stays within a frame. cos, sin: from `rotary`."""
        hidden = self.patch_embed(pixels)
        norms: list[Any] = [*(block.norm1 for block in self.blocks), self.merger.ln_q]
        normed: Tensor = norms[0](hidden)
        for block, following in zip(self.blocks, norms[1:], strict=True):
            hidden, normed = block(hidden, normed, following, lengths, cos, sin, self.operations)
        merged: Tensor = self.merger(normed)
        return merged

    def rotary(self, sizes: Sequence[tuple[int, int, int]]) -> tuple[Tensor, Tensor]:
        """Rotary factors (cos, sin) float32 [patches, 1, head_dim] of pictures, on the CPU."""
        return self._rotary(torch.cat([self._places(*size) for size in sizes]))

    def _places(self, t: int, h: int, w: int) -> Tensor:
        """Row and column int64 [t * h * w, 2] of every patch, in the order in which patches are merged."""
        merge = self._shape.spatial_merge_size
        blocks = (h // merge, merge, w // merge, merge)
        axes = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        flat = [axis.reshape(blocks).transpose(1, 2).flatten() for axis in axes]
        return torch.stack(flat, dim=-1).repeat(t, 1)

    def _rotary(self, places: Tensor) -> tuple[Tensor, Tensor]:
        angles = places[..., None].float() * self._frequencies
        cos, sin = (
            torch.cat([factors[:, 0], factors[:, 1]], dim=-1) for factors in (angles.cos(), angles.sin())
        )
        return torch.cat([cos, cos], dim=-1)[:, None], torch.cat([sin, sin], dim=-1)[:, None]


class _PatchEmbed(nn.Module):
    def __init__(self, shape: VisionShape) -> None:
        super().__init__()
        kernel = (shape.temporal_patch_size, shape.patch_size, shape.patch_size)
        self._patch = (-1, shape.in_channels, *kernel)
        self.proj = nn.Conv3d(shape.in_channels, shape.embed_dim, kernel, stride=kernel, bias=False)

    def forward(self, pixels: Tensor) -> Tensor:
        if pixels.device.type != "cpu":  # the same product; in half precision a GPU convolution is far slower
            return F.linear(pixels.to(self.proj.weight.dtype), self.proj.weight.flatten(1))
        embedded: Tensor = self.proj(pixels.view(self._patch)).view(-1, self.proj.out_channels)
        return embedded


class _VisionBlock(nn.Module):
    def __init__(self, shape: VisionShape) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(shape.embed_dim, eps=_LAYER_NORM_EPS)
        self.norm2 = nn.LayerNorm(shape.embed_dim, eps=_LAYER_NORM_EPS)
        self.attn = _VisionAttention(shape)
        self.mlp = _VisionMlp(shape)

    def forward(
        self,
        hidden: Tensor,
        normed: Tensor,
        following: nn.LayerNorm,
        lengths: list[int],
        cos: Tensor,
        sin: Tensor,
        operations: TowerOperations,
    ) -> tuple[Tensor, Tensor]:
        """normed: `norm1` of hidden. Returns the output and its `following` norm."""
        attended = self.attn(normed, lengths, cos, sin, operations)
        hidden, normed = operations.add_norm(hidden, self.attn.proj, attended, self.norm2)
        return operations.add_norm(
            hidden, self.mlp.fc2, operations.quick_gelu(self.mlp.fc1, normed), following
        )


class _VisionAttention(nn.Module):
    def __init__(self, shape: VisionShape) -> None:
        super().__init__()
        self._heads = shape.num_heads
        self._scale = (shape.embed_dim // shape.num_heads) ** -0.5
        self.qkv = nn.Linear(shape.embed_dim, 3 * shape.embed_dim)
        self.proj = nn.Linear(shape.embed_dim, shape.embed_dim)

    def forward(
        self, hidden: Tensor, lengths: list[int], cos: Tensor, sin: Tensor, operations: TowerOperations
    ) -> Tensor:
        """Returns the input of `proj`."""
        rows = hidden.shape[0]
        qkv = self.qkv(hidden).view(rows, 3, self._heads, -1)
        parts = (*operations.turn(qkv, cos, sin), qkv[:, 2])
        frames = zip(
            *(torch.split(part.transpose(0, 1)[None], lengths, dim=2) for part in parts), strict=True
        )
        attended = [
            operations.attend(q, k, v, self._scale).transpose(1, 2).contiguous() for q, k, v in frames
        ]
        joined = attended[0] if len(attended) == 1 else torch.cat(attended, dim=1)
        return joined.reshape(rows, -1)


class _VisionMlp(nn.Module):
    def __init__(self, shape: VisionShape) -> None:
        super().__init__()
        self.fc1 = nn.Linear(shape.embed_dim, shape.mlp_width)
        self.fc2 = nn.Linear(shape.mlp_width, shape.embed_dim)


class _Merger(nn.Module):
    def __init__(self, shape: VisionShape) -> None:
        super().__init__()
        self._width = shape.embed_dim * shape.spatial_merge_size**2
        self.ln_q = nn.LayerNorm(shape.embed_dim, eps=_LAYER_NORM_EPS)
        self.mlp = nn.Sequential(
            nn.Linear(self._width, self._width), nn.GELU(), nn.Linear(self._width, shape.hidden_size)
        )

    def forward(self, normed: Tensor) -> Tensor:
        """normed: `ln_q` of the patches."""
        merged: Tensor = self.mlp(normed.view(-1, self._width))
        return merged


def _turn(rows: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = rows.shape[-1] // 2
    rotated = torch.cat((-rows[..., half:], rows[..., :half]), dim=-1)
    return ((rows * cos) + (rotated * sin)).to(rows.dtype)


def frame_lengths(sizes: Sequence[tuple[int, int, int]]) -> list[int]:
    """Patches per frame of pictures with grids (t, h, w); attention stays within a frame."""
    return [h * w for t, h, w in sizes for _ in range(t)]


def _frequencies(base: float, size: int) -> Tensor:
    """Rotary frequencies; on the CPU even while modules are created on the meta device."""
    exponents = torch.arange(0, size, 2, dtype=torch.float, device="cpu") / size
    return 1.0 / (base**exponents)
