"""What a layer computes beside its attention, as functions of a layer's weights and rows: what may be compiled.

A pass is `enter`, attention, `pass_on`, attention, `pass_on` ... attention, `leave`. Every layer of a model goes
through the same functions, so that each is compiled once for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec.models.families import Layer

Projected = tuple[Tensor, Tensor, Tensor]
"""query [rows, heads, dim], key and value [kv_heads, rows, dim], rotated."""
Rotary = tuple[Tensor, Tensor]
"""(cos, signed sin), each [rows, 1, head_dim]."""


class Pieces(Protocol):
    """The functions of `PlainPieces`, compiled or not."""

    def begin(self, hidden: Tensor, rotaries: list[Rotary]) -> tuple[Tensor, list[Rotary]]:
        """A pass begins, with these rows and the factors of each kind of layers: as the functions take them."""
        ...

    def enter(self, layer: Layer, hidden: Tensor, cos: Tensor, signed_sin: Tensor) -> Projected:
        """What the layer's attention takes of hidden [rows, hidden_size]."""
        ...

    def leave(self, layer: Layer, hidden: Tensor, attended: Tensor) -> Tensor:
        """hidden behind the layer, from hidden before it and what its attention gave: [rows, heads * dim]."""
        ...

    def pass_on(
        self,
        layer: Layer,
        following: Layer,
        hidden: Tensor,
        attended: Tensor,
        cos: Tensor,
        signed_sin: Tensor,
    ) -> tuple[Tensor, Projected]:
        """`leave` one layer and `enter` the following."""
        ...


@dataclass(frozen=True)
class PlainPieces:
    """As torch carries it out, operation by operation; sizes as in a model's config."""

    heads: int
    kv_heads: int
    head_dim: int
    hidden_size: int
    eps: float

    def begin(self, hidden: Tensor, rotaries: list[Rotary]) -> tuple[Tensor, list[Rotary]]:
        """As they are."""
        return hidden, rotaries

    def enter(self, layer: Layer, hidden: Tensor, cos: Tensor, signed_sin: Tensor) -> Projected:
        """See Pieces."""
        qkv = layer.qkv(F.rms_norm(hidden, (self.hidden_size,), layer.norm_1, self.eps))
        rows, both = qkv.shape[0], self.heads + self.kv_heads
        split = both * self.head_dim
        raw = qkv[:, :split].view(rows, both, self.head_dim)
        if layer.qk_norm is not None:
            raw = F.rms_norm(raw, (self.head_dim,), None, self.eps) * layer.qk_norm
        rotated = torch.addcmul(raw * cos, raw.roll(self.head_dim // 2, -1), signed_sin)
        value = qkv[:, split:].view(rows, self.kv_heads, self.head_dim)
        return rotated[:, : self.heads], rotated[:, self.heads :].transpose(0, 1), value.transpose(0, 1)

    def leave(self, layer: Layer, hidden: Tensor, attended: Tensor) -> Tensor:
        """See Pieces."""
        size = (self.hidden_size,)
        attended = layer.out(attended)
        if layer.after_attention is not None:
            attended = F.rms_norm(attended, size, layer.after_attention, self.eps)
        hidden = hidden + attended
        gate, up = layer.gate_up(F.rms_norm(hidden, size, layer.norm_2, self.eps)).chunk(2, -1)
        gated = layer.down(layer.activation(gate) * up)
        if layer.after_mlp is not None:
            gated = F.rms_norm(gated, size, layer.after_mlp, self.eps)
        return hidden + gated

    def pass_on(
        self,
        layer: Layer,
        following: Layer,
        hidden: Tensor,
        attended: Tensor,
        cos: Tensor,
        signed_sin: Tensor,
    ) -> tuple[Tensor, Projected]:
        """See Pieces."""
        hidden = self.leave(layer, hidden, attended)
        return hidden, self.enter(following, hidden, cos, signed_sin)
