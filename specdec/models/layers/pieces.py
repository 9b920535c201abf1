# SPDX-License-Identifier: Apache-2.0
"""A decoder layer: its weights, and its computations outside attention as compilable functions of weights and rows.

A pass is `enter`, attention, `pass_on`, attention, `pass_on` ... attention, `leave`. All layers of a model use the same
functions, so that each is compiled once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Product = Callable[[Tensor], Tensor]
"""A linear layer: [rows, in] -> [rows, out]."""


class Linear:
    """A linear layer without the overhead of a module call. weight [out, in], bias [out] or None."""

    __slots__ = ("bias", "weight")

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight = weight
        self.bias = bias

    def __call__(self, rows: Tensor) -> Tensor:
        """[rows, in] -> [rows, out]."""
        return F.linear(rows, self.weight, self.bias)


@dataclass(frozen=True)
class Layer:
    """One decoder layer for the runner.

    qk_norm: [heads + kv_heads, head_dim], norm weights of each head's query and key; None: no norm. after_attention,
    after_mlp: norm weights of the outputs of attention and MLP; None: no norm. window: how many tokens a row sees,
    itself included; 0: all. rope: index of its rotary table.
    """

    norm_1: Tensor
    qkv: Product
    qk_norm: Tensor | None
    out: Product
    after_attention: Tensor | None
    norm_2: Tensor
    gate_up: Product
    down: Product
    after_mlp: Tensor | None
    activation: Product
    window: int = 0
    rope: int = 0


def is_plain(module: Any) -> bool:
    """Whether a linear layer only multiplies by its weight. Quantised layers may have the same class, but with their
    own `forward`, hooks, or number types that cannot be multiplied directly.
    """
    if (
        type(module) is not nn.Linear
        or "forward" in vars(module)
        or module._forward_hooks
        or module._forward_pre_hooks
    ):
        return False
    weight = module._parameters.get("weight")
    if weight is None or hasattr(weight, "__tensor_flatten__"):  # torchao: wraps other tensors, whatever its dtype
        return False
    return weight.dtype in (torch.float32, torch.float16, torch.bfloat16)


def as_called(module: Any) -> Product:
    """A layer's own call, with the library's input shape [1, rows, in].

    Some layers quantise each token separately and rely on that shape. Without it, a row would be rounded by the largest
    value of all rows and so depend on the other rows of the pass.
    """

    def product(x: Tensor) -> Tensor:
        found: Tensor = module(x[None])[0]
        return found

    return product


def linear(module: Any) -> Product:
    """A linear layer without the overhead of a module call; a quantised layer is called as it is."""
    if not is_plain(module):
        return as_called(module)
    return Linear(module.weight, module.bias)


def fuse(modules: list[Any]) -> Product:
    """One product for several linear layers with the same input; quantised layers are not fused."""
    if not all(is_plain(module) for module in modules):
        called = [as_called(module) for module in modules]
        return lambda x: torch.cat([product(x) for product in called], dim=-1)
    weight = torch.cat([module.weight for module in modules])
    bias = None
    if modules[0].bias is not None:
        bias = torch.cat([module.bias for module in modules])
    start = 0
    for module in modules:  # the originals become views: no second copy of the weights stays in memory
        stop = start + module.weight.shape[0]
        module.weight = nn.Parameter(weight[start:stop], requires_grad=False)
        if bias is not None:
            module.bias = nn.Parameter(bias[start:stop], requires_grad=False)
        start = stop
    return Linear(weight, bias)


Projected = tuple[Tensor, Tensor, Tensor]
"""query [rows, heads, dim], key and value [kv_heads, rows, dim], rotated."""
Rotary = tuple[Tensor, Tensor]
"""(cos, signed sin), each [rows, 1, head_dim]."""


@dataclass(frozen=True)
class PlainPieces:
    """Plain torch operations. The fields are sizes from a model's config."""

    heads: int
    kv_heads: int
    head_dim: int
    hidden_size: int
    eps: float

    def begin(self, hidden: Tensor, rotaries: list[Rotary]) -> tuple[Tensor, list[Rotary]]:
        """Prepare rows, and the rotary factors of each kind of layer, for a pass: here both stay as they are."""
        return hidden, rotaries

    def enter(self, layer: Layer, hidden: Tensor, cos: Tensor, signed_sin: Tensor) -> Projected:
        """The inputs of the layer's attention, from hidden [rows, hidden_size]."""
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
        """hidden after the layer, from hidden before it and the attention output [rows, heads * dim]."""
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
        """`leave` one layer and `enter` the following."""
        hidden = self.leave(layer, hidden, attended)
        return hidden, self.enter(following, hidden, cos, signed_sin)
