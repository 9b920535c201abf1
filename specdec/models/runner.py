# SPDX-License-Identifier: Apache-2.0
"""The forward pass for all `specdec.models.families`, over the weights of a loaded Hugging Face model.

Speculative decoding needs features that the library's forward pass hides: a KV cache with free rollback, tree masks,
rows of several sessions in one pass, and access to hidden states after every layer (pacing, early exits, layer split).
Results must stay numerically those of the library's model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec.errors import ModelError, first_line
from specdec.models.attention import invariant
from specdec.models.attention.choice import Attention, attention_for
from specdec.models.attention.segment import Segment
from specdec.models.families import Family
from specdec.models.layers.compiled import CompiledPieces
from specdec.models.layers.pieces import Layer, PlainPieces, Projected, is_plain
from specdec.models.static import StaticForward, make_static

LayerObserver = Callable[[int, Tensor], None]
"""Called after each layer with (layer index, hidden [rows, hidden_size])."""


class ForwardPace(Protocol):
    """Enforces a minimum duration of forward passes (see specdec.models.timing.pacing)."""

    def minimum_at(self, rows: int) -> float:
        """Least duration of a forward pass over n rows, in milliseconds."""
        ...

    def begin(
        self, rows: int, observer: LayerObserver | None = None, layers: int | None = None
    ) -> LayerObserver:
        """Start pacing a forward pass over this many rows and layers; returns its observer, which calls `observer`."""
        ...


class Joint(Protocol):
    """Batches concurrent forward passes of several threads (see specdec.drafting.joint).

    began_s: start of the running pass; None if none runs.
    """

    began_s: float | None

    def extend(self, extension: Any) -> Tensor:
        """Run one session's extension, possibly batched with others; returns its logits."""
        ...


@dataclass(frozen=True)
class ForwardOptions:
    """How forward passes are computed.

    Attributes:
        deterministic: A row's logits do not depend on the other rows of its pass (specdec.models.attention.invariant).
        compiled: Layers are compiled by torch (specdec.models.layers.compiled), which takes a while at the start.
        recorded: On a GPU, passes are recorded (specdec.models.static), which takes a while at the start.
    """

    deterministic: bool = False
    compiled: bool = False
    recorded: bool = True


class DecoderRunner:
    """Runs the decoder `text_model` (embed_tokens, layers, norm, rotary_emb) with `lm_head`.

    Attributes:
        attention: The attention implementation; replaceable.
        pacer: If set, enforces a minimum duration of passes.
        joint: If set, batches passes that sessions request one by one.
        passes: Passes so far, prefills included.
        sees_layers: Whether single layers are accessible, for observers, splits and trees.
    """

    sees_layers = True
    keeps_prompts = True
    keeps_cache = True

    def __init__(
        self, text_model: Any, lm_head: Any, vocab_size: int, family: Family, how: ForwardOptions
    ) -> None:
        config = text_model.config
        self.hidden_size: int = config.hidden_size
        self.heads: int = config.num_attention_heads
        self.kv_heads: int = config.num_key_value_heads
        self.head_dim: int = getattr(config, "head_dim", None) or self.hidden_size // self.heads
        self.layer_count: int = config.num_hidden_layers
        self.context_limit: int = config.max_position_embeddings
        self.vocab_size = vocab_size
        self.eps: float = config.rms_norm_eps
        self._embedding: Tensor = text_model.embed_tokens.weight
        self._final_norm: Tensor = family.norm(text_model.norm)
        self._rotary = text_model.rotary_emb
        self.ropes = family.ropes_of(config)
        layers = text_model.layers[: self.layer_count]
        self.layers: list[Layer] = [family.read_layer(layer, config, i) for i, layer in enumerate(layers)]
        if how.deterministic:
            self.layers = [_in_blocks(layer) for layer in self.layers]
        self.windows = {layer.window for layer in self.layers}
        scalar = getattr(config, "query_pre_attn_scalar", None)
        scale = None if scalar is None else scalar**-0.5
        self._cap: float | None = getattr(config, "final_logit_softcapping", None)
        self._head = lm_head
        self._lm_head, self._lm_head_is_exact = _vocabulary_head(lm_head, vocab_size)
        if how.deterministic:
            self._lm_head = invariant.in_blocks(self._lm_head)
        self.device: torch.device = self._embedding.device
        self.dtype: torch.dtype = self._embedding.dtype
        self._embedding_scale: Tensor | None = None
        if family.scaled_embeddings:  # rounded as in the library
            self._embedding_scale = torch.tensor(self.hidden_size**0.5, dtype=self.dtype, device=self.device)
        self.attention: Attention = attention_for(
            self.heads // self.kv_heads, self.head_dim, self.dtype, self.device, scale, how.deterministic
        )
        plain = PlainPieces(self.heads, self.kv_heads, self.head_dim, self.hidden_size, self.eps)
        self._pieces: PlainPieces | CompiledPieces = plain
        if how.compiled:
            self._pieces = CompiledPieces(plain, self.layers, self.device)
        self._tables: tuple[Tensor, Tensor] | None = None
        self.pacer: ForwardPace | None = None
        self.joint: Joint | None = None
        self.passes = 0
        is_static = how.recorded and not how.deterministic
        self.static: StaticForward | None = make_static(self, scale) if is_static else None

    def new_cache(self, capacity: int, layers: int | None = None) -> Tensor:
        """An empty KV cache [layers, 2, kv_heads, capacity, head_dim]. layers: how many; None: all."""
        shape = (self.layer_count if layers is None else layers, 2, self.kv_heads, capacity, self.head_dim)
        make = torch.zeros if self.device.type == "cpu" and self.static is not None else torch.empty
        return make(shape, dtype=self.dtype, device=self.device)  # the reference operations read unused slots

    @property
    def kv_bytes_a_token(self) -> int:
        """KV cache bytes per token, over all layers."""
        return self.layer_count * 2 * self.kv_heads * self.head_dim * self.dtype.itemsize

    def embed(self, ids: Tensor) -> Tensor:
        """ids int64 [rows] -> hidden [rows, hidden_size]."""
        hidden = F.embedding(ids, self._embedding)
        return hidden if self._embedding_scale is None else hidden * self._embedding_scale

    def rotary_at(self, positions: Tensor, highest: int | None = None) -> tuple[Tensor, Tensor]:
        """Rotary factors (cos, signed sin), each [rows, 1, head_dim], for all kinds of layers side by side.

        positions: int64 [rows] (all axes equal; looked up) or [3, rows] (m-rope grid; computed). highest: the largest
        position, if it is known without reading from the device.
        """
        if positions.dim() == 2:
            return self._compute_rotary(positions[:, None])
        cos, sin = self._table((int(positions.max()) if highest is None else highest) + 1)
        return cos[positions], sin[positions]

    def rotary(self, segments: Sequence[Segment]) -> tuple[Tensor, Tensor]:
        """Rotary factors of the rows of all segments, concatenated."""
        found = [self._rotary_of(segment.positions) for segment in segments]
        if len(found) == 1:
            return found[0]
        return torch.cat([cos for cos, _ in found]), torch.cat([sin for _, sin in found])

    def _rotary_of(self, positions: Sequence[int] | Tensor) -> tuple[Tensor, Tensor]:
        if isinstance(positions, Tensor):
            return self.rotary_at(positions)
        if isinstance(positions, range):
            return self.rotary_range(positions.start, positions.stop)
        return self.rotary_at(torch.tensor(positions, device=self.device), max(positions))

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
        """Run hidden states through all layers, or through some, and write keys and values into the segments' caches.

        Args:
            hidden: [rows, hidden_size], the rows of all segments concatenated. With deepstack (Qwen3-VL) it is
                [rows, hidden_size * (1 + n)]; the n further parts are added after the first n layers.
            rotary: Rotary factors of the rows.
            segments: Where the rows belong. Their caches hold only these layers.
            observer: Called after each layer.
            layers: Which layers; None: all.

        Returns:
            The hidden state after the last layer, before the final norm.

        Raises:
            ModelError: `layers` ends within the layers that need deepstack inputs.
        """
        self.passes += 1
        if self.pacer is not None:
            observer = self.pacer.begin(hidden.shape[0], observer, len(layers or range(self.layer_count)))
        first = 0 if layers is None else layers.start
        added: tuple[Tensor, ...] = ()
        if hidden.shape[1] > self.hidden_size:
            hidden, *rest = torch.split(hidden, self.hidden_size, 1)
            added = tuple(rest)
            if layers is not None and layers.stop < len(added):
                raise ModelError(
                    f"pictures are added in the first {len(added)} layers: split the model after them"
                )
        sights = {
            window: [self.attention.sight(segment, window) for segment in segments]
            for window in self.windows
        }
        span, pieces = layers or range(self.layer_count), self._pieces
        hidden, rotaries = pieces.begin(hidden, self._by_rope(rotary))
        layer = self.layers[span.start]
        projected = pieces.enter(layer, hidden, *rotaries[layer.rope])
        for index in span:
            attended = self._attend(index - first, projected, segments, sights[layer.window])
            following = self.layers[index + 1] if index + 1 < span.stop else None
            if following is None or index < len(added):
                hidden = pieces.leave(layer, hidden, attended)
                if index < len(added):
                    hidden = hidden + added[index]
                if following is not None:
                    projected = pieces.enter(following, hidden, *rotaries[following.rope])
            else:
                hidden, projected = pieces.pass_on(
                    layer, following, hidden, attended, *rotaries[following.rope]
                )
            if observer is not None:
                observer(index, hidden)
            layer = following or layer
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """Final norm and LM head: hidden [rows, hidden_size] -> float32 [rows, vocab_size], without padding tokens."""
        return self.finish(self.head(hidden))

    def head(self, hidden: Tensor) -> Tensor:
        """Final norm and the LM head's product: hidden [rows, hidden_size] -> the input of `finish`."""
        if self._lm_head_is_exact:
            hidden = hidden.float()
        return self._lm_head(F.rms_norm(hidden, (self.hidden_size,), self._final_norm.to(hidden.dtype), self.eps))

    def finish(self, raw: Tensor, copy: bool = False) -> Tensor:
        """The output of `head` -> logits. copy: never share memory with `raw`."""
        logits = raw[:, : self.vocab_size].to(torch.float32, copy=copy)
        return logits if self._cap is None else self._cap * torch.tanh(logits / self._cap)

    def head_rows(self, ids: Tensor) -> tuple[Tensor, Tensor | None]:
        """The LM head's rows of some ids, with the final norm folded in: weight [n, hidden_size], bias [n] or None.

        Applied to a row with a root mean square of 1, they give the row's logits. Raises ModelError for a quantised
        head and for capped logits.
        """
        if self._cap is not None:
            raise ModelError("early exits do not support a model that caps its logits: run it without them")
        if not is_plain(self._head):
            raise ModelError(
                "rows of a quantised LM head cannot be selected: load the model with an unquantised head"
            )
        weight = self._head.weight.index_select(0, ids) * self._final_norm
        return weight, None if self._head.bias is None else self._head.bias.index_select(0, ids)

    def _attend(
        self, index: int, projected: Projected, segments: Sequence[Segment], sights: Sequence[Any]
    ) -> Tensor:
        """Attention of each segment's rows over its own cache: [rows, heads * dim]."""
        query, key, value = projected
        if len(segments) == 1:
            return self._attend_segment(index, query, key, value, segments[0], sights[0])
        outputs = []
        start = 0
        for segment, sight in zip(segments, sights, strict=True):
            stop = start + segment.rows
            outputs.append(
                self._attend_segment(
                    index, query[start:stop], key[:, start:stop], value[:, start:stop], segment, sight
                )
            )
            start = stop
        return torch.cat(outputs)

    @torch.inference_mode()
    def try_out(self) -> None:
        """Run a pass of one row and one of three rows, to trigger compilation. Raises ModelError if that fails."""
        cache = self.new_cache(4)
        try:
            for past, rows in ((0, 1), (1, 3)):
                hidden = self.embed(torch.arange(rows, device=self.device))
                segment = Segment(cache, past, rows, positions=range(past, past + rows))
                self.forward(hidden, self.rotary([segment]), [segment])
        except Exception as error:  # compilers fail in many ways; the cause stays attached
            raise ModelError(f"compiling failed ({first_line(error)}): do not compile") from error
        self.passes = 0

    def _attend_segment(
        self, index: int, query: Tensor, key: Tensor, value: Tensor, segment: Segment, sight: Any
    ) -> Tensor:
        """query [rows, heads, dim], key/value [kv_heads, rows, dim] -> [rows, heads * dim]."""
        past, total = segment.past, segment.total
        segment.cache[index, 0, :, past:total] = key
        segment.cache[index, 1, :, past:total] = value
        keys, values = segment.cache[index, 0, :, :total], segment.cache[index, 1, :, :total]
        return self.attention.attend(query, keys, values, sight)

    def _by_rope(self, rotary: tuple[Tensor, Tensor]) -> list[tuple[Tensor, Tensor]]:
        """The rotary factors of each kind of layer."""
        if len(self.ropes) < 2:
            return [rotary]
        cos, sin = (torch.split(part, self.head_dim, -1) for part in rotary)
        return list(zip(cos, sin, strict=True))

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
        where = (positions if multi_axis else positions[0]).to(self.device)
        kinds = self.ropes or (None,)
        found = [self._rotary(reference, where, *(() if kind is None else (kind,))) for kind in kinds]
        cos = [cos[0] for cos, _ in found]
        # rotate_half(x) * sin == roll(x) * sin with the first half of sin negated: one operation less per layer.
        half = self.head_dim // 2
        sin = [torch.cat([-sin[0][:, :half], sin[0][:, half:]], -1) for _, sin in found]
        return torch.cat(cos, -1)[:, None].contiguous(), torch.cat(sin, -1)[:, None].contiguous()


class WholeRunner:
    """The interface of a DecoderRunner for engines that compute whole forward passes. Input rows are ids [rows, 1],
    output rows are logits [rows, vocab]. Layers are not accessible: no exits, splits or observers.

    what: name of the engine, for errors. Sizes as in DecoderRunner. kv_itemsize: bytes per number in the KV cache.
    """

    sees_layers = False
    keeps_prompts = True
    keeps_cache = True
    static = None
    what: str
    vocab_size: int
    layer_count: int
    kv_heads: int
    head_dim: int
    kv_itemsize: float

    def __init__(self) -> None:
        self.pacer: ForwardPace | None = None
        self.joint: Joint | None = None
        self.passes = 0

    @property
    def kv_bytes_a_token(self) -> int:
        """KV cache bytes per token, over all layers."""
        return int(self.layer_count * 2 * self.kv_heads * self.head_dim * self.kv_itemsize)

    def embed(self, ids: Tensor) -> Tensor:
        """ids int64 [rows] -> [rows, 1]: the engine embeds them."""
        return ids[:, None]

    def rotary(self, segments: Sequence[Segment]) -> None:
        """None: the engine handles positions."""

    def forward(
        self,
        hidden: Tensor,
        rotary: None,
        segments: Sequence[Any],
        observer: LayerObserver | None = None,
        layers: range | None = None,
    ) -> Tensor:
        """The rows of all segments, concatenated -> logits [rows, vocab]. `observer` and `layers` are ignored.

        Raises ModelError if there is no room; the sessions are then unchanged.
        """
        self.passes += 1
        paced = self.pacer.begin(hidden.shape[0]) if self.pacer is not None else None
        found = self.compute(hidden, segments)
        logits = found[0] if len(found) == 1 else torch.cat(found)
        if paced is not None:
            for layer in range(self.layer_count):
                paced(layer, logits)
        return logits

    def compute(self, hidden: Tensor, segments: Sequence[Any]) -> list[Tensor]:
        """As `forward`, as a list of logits in row order; implemented by subclasses."""
        raise NotImplementedError

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits float32 [rows, vocab_size], without padding tokens."""
        return hidden[:, : self.vocab_size].float()

    def head_rows(self, ids: Tensor) -> tuple[Tensor, Tensor | None]:
        """Raises ModelError: the input of the LM head is not accessible."""
        raise ModelError(f"a model that runs on {self.what} has no exits")


def _in_blocks(layer: Layer) -> Layer:
    qkv, out, gate_up, down = map(invariant.in_blocks, (layer.qkv, layer.out, layer.gate_up, layer.down))
    return replace(layer, qkv=qkv, out=out, gate_up=gate_up, down=down)


def _vocabulary_head(lm_head: Any, vocab_size: int) -> tuple[Callable[[Tensor], Tensor], bool]:
    """The head's product for rows [n, hidden_size], and whether it takes and returns float32.

    In half precision, logits rounded to 8 or 11 bits would tie for different tokens, so they are computed in float32.
    On a CPU a float32 copy of the weights is used; elsewhere the half-precision product has a float32 result.
    """
    if not is_plain(lm_head):
        head: Callable[[Tensor], Tensor] = lm_head
        return head, False
    weight = lm_head.weight[:vocab_size]
    bias = lm_head.bias[:vocab_size] if lm_head.bias is not None else None
    if weight.dtype == torch.float32:
        return (lambda x: F.linear(x, weight, bias)), True
    if weight.device.type == "cpu":
        whole, shift = weight.float(), None if bias is None else bias.float()
        return (lambda x: F.linear(x, whole, shift)), True
    if bias is None and _multiplies_into_float32(weight):
        return (lambda x: torch.mm(x.to(weight.dtype), weight.t(), out_dtype=torch.float32)), True
    return (lambda x: F.linear(x, weight, bias)), False


def _multiplies_into_float32(weight: Tensor) -> bool:
    try:
        torch.mm(weight[:1], weight[:1].t(), out_dtype=torch.float32)
    except (RuntimeError, TypeError, NotImplementedError):
        return False
    return True
