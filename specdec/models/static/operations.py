# SPDX-License-Identifier: Apache-2.0
"""The operations of a layer other than its matrix products, over a batch whose lengths are data.

`TorchOperations` is the reference: plain torch on any device, with shapes that depend only on buckets and cache
capacities. It attends over whole caches with masks, which is slow. `kernels.TritonOperations` reads only filled slots.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec.models.attention.segment import fold, unfold
from specdec.models.layers.pieces import Layer, Linear
from specdec.models.static.batch import MAX_NODES, Batch, BatchRow, Tile

MOST_FUSED = 2
"""Most rows of a pass with fused products."""


class Inputs:
    """The device buffers of one bucket: `numbers` int64 [LINES, bucket] and `mask` uint8 [bucket, MAX_NODES].

    batch: the batch loaded last.
    """

    def __init__(self, bucket: int, lines: int, device: torch.device) -> None:
        self.numbers = torch.zeros(lines, bucket, dtype=torch.int64, device=device)
        self.mask = torch.zeros(bucket, MAX_NODES, dtype=torch.uint8, device=device)
        self.batch: Batch | None = None

    def load(self, batch: Batch) -> None:
        """Copy a batch to the device: one transfer, and another one if it has trees."""
        self.numbers.copy_(torch.from_numpy(batch.numbers))
        if batch.mask is not None:
            self.mask.copy_(torch.from_numpy(batch.mask))
        self.batch = batch


def can_fuse(layer: Layer) -> bool:
    """Whether a layer has only plain products, SiLU of a product without bias, and the two usual norms, as the fused
    operations require.
    """
    products = (layer.qkv, layer.out, layer.gate_up, layer.down)
    return (
        all(isinstance(product, Linear) for product in products)
        and layer.after_attention is None
        and layer.after_mlp is None
        and layer.activation is F.silu
        and layer.gate_up.bias is None  # type: ignore[attr-defined]
    )


class TorchOperations:
    """Operations between two matrix products. They must not wait for the device, and no shape may depend on a length.

    The last three are products fused with the norm before them or with the operation after them.
    """

    def __init__(self, heads: int, kv_heads: int, head_dim: int, eps: float, scale: float | None) -> None:
        self._heads = heads
        self._kv_heads = kv_heads
        self._head_dim = head_dim
        self._eps = eps
        self._scale = scale

    def add_norm(
        self, hidden: Tensor, added: Tensor | None, weight: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        """hidden and added [rows, n] -> (their sum, its RMS norm times weight [n]). added: None counts as 0."""
        if added is not None:
            hidden = hidden + added
        return hidden, F.rms_norm(hidden, (hidden.shape[-1],), weight, eps)

    def attend(self, layer: Layer, index: int, qkv: Tensor, table: tuple[Tensor, Tensor], inputs: Inputs) -> Tensor:
        """Rotate queries and keys, write keys and values into the caches, attend.

        Args:
            layer: the layer.
            index: the layer's index in the caches.
            qkv: [rows, (heads + 2 * kv_heads) * head_dim].
            table: (cos, signed sin), each [positions, head_dim], of the layer's kind of rotary embedding.
            inputs: the loaded batch.

        Returns:
            [rows, heads * head_dim].
        """
        assert inputs.batch is not None
        numbers, rows = inputs.numbers, qkv.shape[0]
        both = self._heads + self._kv_heads
        raw = qkv[:, : both * self._head_dim].view(rows, both, self._head_dim)
        if layer.qk_norm is not None:
            raw = F.rms_norm(raw, (self._head_dim,), None, self._eps) * layer.qk_norm
        cos, sin = (part[numbers[BatchRow.ROPE]][:, None] for part in table)
        rotated = torch.addcmul(raw * cos, raw.roll(self._head_dim // 2, -1), sin)
        value = qkv[:, both * self._head_dim :].view(rows, self._kv_heads, self._head_dim)
        attended = torch.zeros(rows, self._heads * self._head_dim, dtype=qkv.dtype, device=qkv.device)
        tiles = []
        for tile, cache in enumerate(inputs.batch.caches):  # write first: a session's rows may be in several tiles
            first, count = inputs.batch.numbers[[Tile.FIRST, Tile.COUNT], tile].tolist()
            own = slice(first, first + count)
            slots = numbers[BatchRow.SLOT, own]
            cache[index, 0].index_copy_(1, slots, rotated[own, self._heads :].transpose(0, 1))
            cache[index, 1].index_copy_(1, slots, value[own].transpose(0, 1))
            tiles.append(own)
        for tile, (own, cache) in enumerate(zip(tiles, inputs.batch.caches, strict=True)):
            seen = self._sees(numbers, inputs.mask[own], own, tile, cache.shape[3], layer.window)
            query = fold(rotated[own, : self._heads], self._kv_heads)
            found = F.scaled_dot_product_attention(
                query[None], cache[index, 0][None], cache[index, 1][None],
                attn_mask=seen.repeat(self._heads // self._kv_heads, 1), scale=self._scale,
            )  # fmt: skip
            attended[own] = unfold(found[0], own.stop - own.start)
        return attended

    def _sees(self, numbers: Tensor, mask: Tensor, own: slice, tile: int, capacity: int, window: int) -> Tensor:
        """The mask of a tile's rows over a cache's slots: bool [rows, capacity]."""
        slot = torch.arange(capacity, device=numbers.device)[None]
        committed, nodes = numbers[Tile.COMMITTED, tile], numbers[Tile.NODES, tile]
        node = slot - committed
        known = mask.gather(1, node.clamp(0, MAX_NODES - 1).expand(mask.shape[0], -1)).bool()
        in_tree = (node < 0) | (known & (node < nodes))
        seen = torch.where(nodes > 0, in_tree, slot <= numbers[BatchRow.SLOT, own][:, None])
        if window:
            seen = seen & ((node >= 0) & (nodes > 0) | (slot > numbers[BatchRow.POSITION, own][:, None] - window))
        return seen

    def gate(self, layer: Layer, gate_up: Tensor) -> Tensor:
        """[rows, 2 * n] -> activation(first half) * second half."""
        gate, up = gate_up.chunk(2, -1)
        return layer.activation(gate) * up

    def norm_product(self, hidden: Tensor, norm: Tensor, product: Linear) -> Tensor:
        """RMS norm of hidden [rows, k] times norm [k], times the weight: [rows, n]. At most MOST_FUSED rows."""
        return product(F.rms_norm(hidden, (hidden.shape[-1],), norm, self._eps))

    def norm_gate(self, hidden: Tensor, norm: Tensor, product: Linear) -> Tensor:
        """As `norm_product` with a weight of 2n rows, then silu(first half) * second half: [rows, n]."""
        gate, up = self.norm_product(hidden, norm, product).chunk(2, -1)
        return F.silu(gate) * up

    def add_product(self, hidden: Tensor, given: Tensor, product: Linear) -> Tensor:
        """hidden [rows, n] + given [rows, k] times the weight."""
        return hidden + product(given)
