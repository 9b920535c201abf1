"""The forward pass of a decoder (Llama, Qwen2, Qwen2-VL text), over the weights of a loaded Hugging Face
model.

Written out here instead of calling the library's own forward because speculative decoding needs what that
hides: a KV cache that rolls back for free, tree masks, rows of several sessions in one pass, and a look at
the hidden state after every layer (pacing, early exits, layer split). It must stay numerically the library's
model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdec.errors import ModelError

LayerObserver = Callable[[int, Tensor], None]
"""Called after each layer with (layer index, hidden [rows, hidden_size])."""


class Pace(Protocol):
    """Makes forwards take their time (see specdec.models.pacing)."""

    def begin(self, observer: LayerObserver | None = None) -> LayerObserver:
        """The observer of a forward that starts now; it calls `observer`."""
        ...


@dataclass
class Segment:
    """The rows of one session in a pass.

    cache: float [layers, 2, kv_heads, capacity, head_dim], written at slots past .. past + rows.
    mask: bool [rows, past + rows] (True = may look), or None where the plain causal mask is meant.
    """

    cache: Tensor
    past: int
    rows: int
    mask: Tensor | None = None


@dataclass(frozen=True)
class _Layer:
    norm_1: Tensor
    qkv: Callable[[Tensor], Tensor]
    out: Callable[[Tensor], Tensor]
    norm_2: Tensor
    gate_up: Callable[[Tensor], Tensor]
    down: Callable[[Tensor], Tensor]
    activation: Callable[[Tensor], Tensor]


class DecoderRunner:
    """Runs the decoder of `text_model` (embed_tokens, layers, norm, rotary_emb) with `lm_head` on top.

    pacer: when set, forwards take at least its time. passes: forwards so far, prefills included.
    """

    def __init__(self, text_model: Any, lm_head: Any, vocab_size: int) -> None:
        config = text_model.config
        self.hidden_size: int = config.hidden_size
        self.heads: int = config.num_attention_heads
        self.kv_heads: int = config.num_key_value_heads
        self.head_dim: int = getattr(config, "head_dim", None) or self.hidden_size // self.heads
        self.layer_count: int = config.num_hidden_layers
        self.context_limit: int = config.max_position_embeddings
        self.vocab_size = vocab_size
        self._eps: float = config.rms_norm_eps
        self._embedding: Tensor = text_model.embed_tokens.weight
        self._final_norm: Tensor = text_model.norm.weight
        self._rotary = text_model.rotary_emb
        self._layers = [_read_layer(layer) for layer in text_model.layers[: self.layer_count]]
        self._head = lm_head
        self._lm_head = _vocabulary_head(lm_head, vocab_size)
        self.device: torch.device = self._embedding.device
        self.dtype: torch.dtype = self._embedding.dtype
        self._tables: tuple[Tensor, Tensor] | None = None
        self.pacer: Pace | None = None
        self.passes = 0

    def new_cache(self, capacity: int, layers: int | None = None) -> Tensor:
        """An empty KV cache [layers, 2, kv_heads, capacity, head_dim], of all layers or so many."""
        shape = (self.layer_count if layers is None else layers, 2, self.kv_heads, capacity, self.head_dim)
        return torch.empty(shape, dtype=self.dtype, device=self.device)

    @property
    def kv_bytes_a_token(self) -> int:
        """What one token takes in a cache of all layers."""
        return self.layer_count * 2 * self.kv_heads * self.head_dim * self.dtype.itemsize

    def embed(self, ids: Tensor) -> Tensor:
        """ids int64 [rows] -> hidden [rows, hidden_size]."""
        return F.embedding(ids, self._embedding)

    def rotary_at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Rotary factors (cos, signed sin), each [rows, 1, head_dim].

        positions int64 [rows] (all axes equal, looked up) or [3, rows] (m-rope grid, computed).
        """
        if positions.dim() == 2:
            return self._compute_rotary(positions[:, None])
        cos, sin = self._table(int(positions.max()) + 1)
        return cos[positions], sin[positions]

    def rotary_range(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Rotary factors of consecutive positions, as views of the table."""
        cos, sin = self._table(stop)
        return cos[start:stop], sin[start:stop]

    def forward(
        self,
        hidden: Tensor,
        rotary: tuple[Tensor, Tensor],
        segments: Sequence[Segment],
        observer: LayerObserver | None = None,
        layers: range | None = None,
    ) -> Tensor:
        """One pass of all layers, or of some, over hidden [rows, hidden_size]; rows are the segments' rows one
        after another.

        Writes keys and values into the segments' caches (of just these layers) and returns the last hidden state,
        before the final norm.
        """
        self.passes += 1
        if self.pacer is not None:
            observer = self.pacer.begin(observer)
        segments = [self._fold_mask(segment) for segment in segments]
        first = 0 if layers is None else layers.start
        for index in layers or range(self.layer_count):
            layer = self._layers[index]
            normed = F.rms_norm(hidden, (self.hidden_size,), layer.norm_1, self._eps)
            attended = self._attend(index - first, layer.qkv(normed), rotary, segments)
            hidden = hidden + layer.out(attended)
            normed = F.rms_norm(hidden, (self.hidden_size,), layer.norm_2, self._eps)
            gate, up = layer.gate_up(normed).chunk(2, -1)
            hidden = hidden + layer.down(layer.activation(gate) * up)
            if observer is not None:
                observer(index, hidden)
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """Final norm and LM head: hidden [rows, hidden_size] -> float32 [rows, vocab_size], real vocabulary
        only.
        """
        normed = F.rms_norm(hidden, (self.hidden_size,), self._final_norm, self._eps)
        return self._lm_head(normed)[:, : self.vocab_size].float()

    def head_rows(self, ids: Tensor) -> tuple[Tensor, Tensor | None]:
        """The LM head's rows of some ids, the final norm's weight in them: weight [n, hidden_size], bias [n] or None.

        Of a row with a root mean square of 1 they give what `logits` gives. Raises ModelError for a quantised head.
        """
        if type(self._head) is not nn.Linear:
            raise ModelError(
                "rows of a quantised LM head cannot be picked: load the model with its head whole"
            )
        weight = self._head.weight.index_select(0, ids) * self._final_norm
        return weight, None if self._head.bias is None else self._head.bias.index_select(0, ids)

    def _attend(
        self, index: int, qkv: Tensor, rotary: tuple[Tensor, Tensor], segments: Sequence[Segment]
    ) -> Tensor:
        rows = qkv.shape[0]
        query_key_heads = self.heads + self.kv_heads
        split = query_key_heads * self.head_dim
        raw = qkv[:, :split].view(rows, query_key_heads, self.head_dim)
        cos, signed_sin = rotary
        rotated = torch.addcmul(raw * cos, raw.roll(self.head_dim // 2, -1), signed_sin)
        query = rotated[:, : self.heads]
        key = rotated[:, self.heads :].transpose(0, 1)
        value = qkv[:, split:].view(rows, self.kv_heads, self.head_dim).transpose(0, 1)
        if len(segments) == 1:
            return self._attend_segment(index, query, key, value, segments[0])
        outputs = []
        start = 0
        for segment in segments:
            stop = start + segment.rows
            outputs.append(
                self._attend_segment(
                    index, query[start:stop], key[:, start:stop], value[:, start:stop], segment
                )
            )
            start = stop
        return torch.cat(outputs)

    def _attend_segment(
        self, index: int, query: Tensor, key: Tensor, value: Tensor, segment: Segment
    ) -> Tensor:
        """query [rows, heads, dim], key/value [kv_heads, rows, dim] -> [rows, heads * dim]."""
        rows, past = segment.rows, segment.past
        total = past + rows
        keys = segment.cache[index, 0, :, :total]
        values = segment.cache[index, 1, :, :total]
        keys[:, past:] = key
        values[:, past:] = value
        groups = self.heads // self.kv_heads
        if past == 0 and segment.mask is None:
            attended = F.scaled_dot_product_attention(
                query.transpose(0, 1)[None], keys[None], values[None], is_causal=True, enable_gqa=groups > 1
            )
            return attended[0].transpose(0, 1).reshape(rows, -1)
        # Query heads that share a key head are folded into rows, so that keys and values need no copies.
        folded = query.view(rows, self.kv_heads, groups, self.head_dim).permute(1, 2, 0, 3)
        folded = folded.reshape(1, self.kv_heads, groups * rows, self.head_dim)
        attended = F.scaled_dot_product_attention(folded, keys[None], values[None], attn_mask=segment.mask)
        attended = attended.view(self.kv_heads, groups, rows, self.head_dim).permute(2, 0, 1, 3)
        return attended.reshape(rows, -1)

    def _fold_mask(self, segment: Segment) -> Segment:
        """The segment with its mask as all layers take it: added to scores, repeated for folded query heads."""
        if segment.mask is None:
            return segment
        added = torch.zeros(segment.mask.shape, dtype=self.dtype, device=self.device)
        added.masked_fill_(~segment.mask, float("-inf"))
        return replace(segment, mask=added.repeat(self.heads // self.kv_heads, 1))

    def _table(self, length: int) -> tuple[Tensor, Tensor]:
        if self._tables is None or self._tables[0].shape[0] < length:
            size = 256
            while size < length:
                size *= 2
            positions = torch.arange(size, device=self.device)
            self._tables = self._compute_rotary(positions.expand(3, 1, -1))
        return self._tables

    def _compute_rotary(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """positions [3, 1, rows]; models without m-rope take the first axis."""
        reference = self._embedding[:1]
        multi_axis = hasattr(self._rotary, "mrope_section")
        cos, sin = self._rotary(
            reference, positions.to(self.device) if multi_axis else positions[0].to(self.device)
        )
        cos, sin = cos[0], sin[0].clone()
        # rotate_half(x) * sin == roll(x) * sin with the first half of sin negated: one operation less a
        # layer.
        sin[:, : self.head_dim // 2].neg_()
        return cos[:, None].contiguous(), sin[:, None].contiguous()


def causal_mask(past: int, rows: int, device: torch.device) -> Tensor | None:
    """Mask [rows, past + rows] of a chain after `past` cached tokens; None where none is needed."""
    if rows == 1 or past == 0:
        return None
    return torch.ones(rows, past + rows, dtype=torch.bool, device=device).tril_(past)


def _read_layer(layer: Any) -> _Layer:
    attention, mlp = layer.self_attn, layer.mlp
    return _Layer(
        norm_1=layer.input_layernorm.weight,
        qkv=_fuse([attention.q_proj, attention.k_proj, attention.v_proj]),
        out=_linear(attention.o_proj),
        norm_2=layer.post_attention_layernorm.weight,
        gate_up=_fuse([mlp.gate_proj, mlp.up_proj]),
        down=_linear(mlp.down_proj),
        activation=F.silu if type(mlp.act_fn) is nn.SiLU else mlp.act_fn,
    )


def _linear(module: Any) -> Callable[[Tensor], Tensor]:
    """A linear layer without what a module's call costs; a quantised one as it is."""
    if type(module) is not nn.Linear:
        called: Callable[[Tensor], Tensor] = module
        return called
    weight, bias = module.weight, module.bias
    return lambda x: F.linear(x, weight, bias)


def _fuse(modules: list[Any]) -> Callable[[Tensor], Tensor]:
    """One product for several linear layers of the same input; quantised layers stay apart."""
    if any(type(module) is not nn.Linear for module in modules):
        return lambda x: torch.cat([module(x) for module in modules], dim=-1)
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
    return lambda x: F.linear(x, weight, bias)


def _vocabulary_head(lm_head: Any, vocab_size: int) -> Callable[[Tensor], Tensor]:
    if type(lm_head) is not nn.Linear:
        head: Callable[[Tensor], Tensor] = lm_head
        return head
    weight = lm_head.weight[:vocab_size]
    bias = lm_head.bias[:vocab_size] if lm_head.bias is not None else None
    return lambda x: F.linear(x, weight, bias)
