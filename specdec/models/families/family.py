"""What the families of decoders differ in, and how their modules are read into layers that a runner runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_SILU = ("SiLU", "SiLUActivation")
"""Names of the modules that are SiLU: torch's, and the library's own."""
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


@dataclass(frozen=True)
class Family:
    """Decoders whose modules are named and joined alike. What is not said here is as in Llama.

    model_type: as in config.json. loader: the library's class that loads it. vision: whether it takes pictures as
    Qwen2-VL does. norm_offset: what a norm's weight is short of. before_mlp, after_attention, after_mlp: names of a
    layer's norms. scaled_embeddings: times the root of the width. window: by (text config, layer), 0: none. ropes: the
    kinds of layers that have rotary tables of their own, by the names in `layer_types`. deepstack: the vision tower
    gives rows for the first layers, too. missing: what of a text config cannot be run here, "" for nothing.
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
        """The weight that a norm multiplies by."""
        weight: Tensor = module.weight
        return weight + self.norm_offset if self.norm_offset else weight

    def read_layer(self, layer: Any, config: Any, index: int) -> Layer:
        """Layer `index` of the library's (or our own) modules. Joined products share the modules' memory."""
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
            rope=self.ropes.index(config.layer_types[index]) if self.ropes else 0,
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
    """The window of layers that are called sliding; 0 for the others."""
    types = getattr(config, "layer_types", None)
    sliding = types is not None and types[layer] == "sliding_attention"
    return config.sliding_window or 0 if sliding else 0


def unknown_layer_types(config: Any) -> str:
    """What of a config's layer types is neither full nor sliding attention."""
    others = set(getattr(config, "layer_types", None) or ()) - {"full_attention", "sliding_attention"}
    return f"layers of type {min(others)!r}" if others else ""


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
