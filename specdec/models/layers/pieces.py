# SPDX-License-Identifier: Apache-2.0
"""A decoder layer: its weights, and what it computes beside its attention, as functions of weights and rows that may be
compiled.

A pass is `enter`, attention, `pass_on`, attention, `pass_on` ... attention, `leave`. Every layer of a model goes
through the same functions, so that each is compiled once for all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Product = Callable[[Tensor], Tensor]
"""A linear layer: [rows, in] -> [rows, out]."""


class Linear:
    """A linear layer without what a module's call costs. weight [out, in], bias [out] or None."""

    __slots__ = ("bias", "weight")

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight = weight
        self.bias = bias

    def __call__(self, rows: Tensor) -> Tensor:
        """[rows, in] -> [rows, out]."""
        return F.linear(rows, self.weight, self.bias)


@dataclass(frozen=True)
class Layer:
    """One decoder layer, as the runner runs it.

    qk_norm: [heads + kv_heads, head_dim], weights of the norm over each head's query and key; None: they are not
    normalised. after_attention, after_mlp: weights of norms of what attention and MLP give, None where that is added as
    it is. window: how many tokens up to itself a row sees; 0: all. rope: which of the rotary tables it takes.
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
    """Whether a linear layer is its weight's product and no more. Quantised ones may be of the same class, with a
    forward of their own, hooks, or numbers that nothing can be multiplied by.
    """
    if (
        type(module) is not nn.Linear
        or "forward" in vars(module)
        or module._forward_hooks
        or module._forward_pre_hooks
    ):
        return False
    weight = module._parameters.get("weight")
    if weight is None or hasattr(weight, "__tensor_flatten__"):  # torchao's: made of other tensors, whatever it says
        return False
    return weight.dtype in (torch.float32, torch.float16, torch.bfloat16)


def as_called(module: Any) -> Product:
    """A layer's own call, with rows as the library's models bring them: [1, rows, in].

    Some layers round each token by itself, and count tokens by that shape: without it a row would be rounded by the
    largest value of all rows, and depend on those that share its pass.
    """

    def product(x: Tensor) -> Tensor:
        found: Tensor = module(x[None])[0]
        return found

    return product


def linear(module: Any) -> Product:
    """A linear layer without what a module's call costs; a quantised one as it is."""
    if not is_plain(module):
        return as_called(module)
    return Linear(module.weight, module.bias)


def fuse(modules: list[Any]) -> Product:
    """One product for several linear layers of the same input; quantised layers stay apart."""
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
