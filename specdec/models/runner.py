# SPDX-License-Identifier: Apache-2.0
"""The forward pass of a decoder of any of `specdec.models.families`, over the weights of a loaded Hugging Face model.

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
from torch import Tensor

from specdec.errors import ModelError, first_line
from specdec.models.attention import invariant
from specdec.models.attention.choice import Attention, attention_for
from specdec.models.attention.segment import Segment
from specdec.models.families import Family
from specdec.models.layers.compiled import CompiledPieces
from specdec.models.layers.pieces import Layer, Pieces, PlainPieces, Projected, is_plain
from specdec.models.static import StaticForward, make_static

LayerObserver = Callable[[int, Tensor], None]
"""Called after each layer with (layer index, hidden [rows, hidden_size])."""


class ForwardPace(Protocol):
    """Makes forwards take their time (see specdec.models.timing.pacing)."""

    def minimum_at(self, rows: int) -> float:
        """Milliseconds that a forward of this many rows takes at least."""
        ...

    def begin(
        self, rows: int, observer: LayerObserver | None = None, layers: int | None = None
    ) -> LayerObserver:
        """The observer of a forward of this many rows, through this many layers, that starts now; it calls
        `observer`.
        """
        ...


class Joint(Protocol):
    """Does forwards for the threads that want one at the same moment (see specdec.drafting.joint).

    began_s: when the one that runs began; None where none does.
    """

    began_s: float | None

    def extend(self, extension: Any) -> Tensor:
        """One session's part of a forward that others may share; returns its logits."""
        ...


@dataclass(frozen=True)
class ForwardOptions:
    """How forwards are computed. deterministic: a row's logits are the same whatever rows share its pass
    (specdec.models.attention.invariant). compiled: layers are compiled by torch (specdec.models.layers.compiled).
    recorded: on a GPU, forwards are recorded (specdec.models.static). Both take a while at the start.
    """

    deterministic: bool = False
    compiled: bool = False
    recorded: bool = True


class DecoderRunner:
    """Runs the decoder of `text_model` (embed_tokens, layers, norm, rotary_emb) with `lm_head` on top.

    attention: how rows look at keys and values; another way may be put in its place. pacer: when set, forwards take at
    least its time. joint: when set, it does the forwards that sessions ask for one by one. passes: forwards so far,
    prefills included. sees_layers: whether there are layers to observe, split and put trees through.
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
        self.ropes = family.ropes
        self._deepstack = family.deepstack
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
        if family.scaled_embeddings:  # rounded as the library rounds it
            self._embedding_scale = torch.tensor(self.hidden_size**0.5, dtype=self.dtype, device=self.device)
        self.attention: Attention = attention_for(
            self.heads // self.kv_heads, self.head_dim, self.dtype, self.device, scale, how.deterministic
        )
        plain = PlainPieces(self.heads, self.kv_heads, self.head_dim, self.hidden_size, self.eps)
        self._pieces: Pieces = CompiledPieces(plain, self.layers, self.device) if how.compiled else plain
        self._tables: tuple[Tensor, Tensor] | None = None
        self.pacer: ForwardPace | None = None
        self.joint: Joint | None = None
        self.passes = 0
        is_static = how.recorded and not how.deterministic
        self.static: StaticForward | None = make_static(self, scale) if is_static else None

    def new_cache(self, capacity: int, layers: int | None = None) -> Tensor:
        """An empty KV cache [layers, 2, kv_heads, capacity, head_dim], of all layers or so many."""
        shape = (self.layer_count if layers is None else layers, 2, self.kv_heads, capacity, self.head_dim)
        make = torch.zeros if self.device.type == "cpu" and self.static is not None else torch.empty
        return make(shape, dtype=self.dtype, device=self.device)  # the reference operations read unused slots

    @property
    def kv_bytes_a_token(self) -> int:
        """What one token takes in a cache of all layers."""
        return self.layer_count * 2 * self.kv_heads * self.head_dim * self.dtype.itemsize

    def embed(self, ids: Tensor) -> Tensor:
        """ids int64 [rows] -> hidden [rows, hidden_size]."""
        hidden = F.embedding(ids, self._embedding)
        return hidden if self._embedding_scale is None else hidden * self._embedding_scale

    def rotary_at(self, positions: Tensor, highest: int | None = None) -> tuple[Tensor, Tensor]:
        """Rotary factors (cos, signed sin), each [rows, 1, head_dim], of all kinds of layers side by side.

        positions int64 [rows] (all axes equal, looked up) or [3, rows] (m-rope grid, computed). highest: the largest of
        them, where that is known without asking the device.
        """
        if positions.dim() == 2:
            return self._compute_rotary(positions[:, None])
        cos, sin = self._table((int(positions.max()) if highest is None else highest) + 1)
        return cos[positions], sin[positions]

    def rotary(self, segments: Sequence[Segment]) -> tuple[Tensor, Tensor]:
        """Rotary factors of the rows of some segments, one after another."""
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
        """One pass of all layers, or of some, over hidden [rows, hidden_size]; rows are the segments' rows one
        after another. What is wider is added behind the first layers (Qwen3-VL's deepstack): [rows, hidden_size *
        (1 + layers it is for)].

        Writes keys and values into the segments' caches (of just these layers) and returns the last hidden state,
        before the final norm. Raises ModelError for a split within the layers that something is added behind.
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
                    f"pictures go into the first {len(added)} layers: split the model behind them"
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
        """Final norm and LM head: hidden [rows, hidden_size] -> float32 [rows, vocab_size], real vocabulary
        only.
        """
        return self.finish(self.head(hidden))

    def head(self, hidden: Tensor) -> Tensor:
        """Final norm and the LM head's product: hidden [rows, hidden_size] -> what `finish` takes."""
        if self._lm_head_is_exact:
            hidden = hidden.float()
        return self._lm_head(F.rms_norm(hidden, (self.hidden_size,), self._final_norm.to(hidden.dtype), self.eps))

    def finish(self, raw: Tensor, copy: bool = False) -> Tensor:
        """What `head` gives -> logits. copy: never share its memory."""
        logits = raw[:, : self.vocab_size].to(torch.float32, copy=copy)
        return logits if self._cap is None else self._cap * torch.tanh(logits / self._cap)

    def head_rows(self, ids: Tensor) -> tuple[Tensor, Tensor | None]:
        """The LM head's rows of some ids, the final norm's weight in them: weight [n, hidden_size], bias [n] or None.

        Of a row with a root mean square of 1 they give what `logits` gives. Raises ModelError for a quantised head and
        for capped logits.
        """
        if self._cap is not None:
            raise ModelError("early exits do not support a model that caps its logits: run it without them")
        if not is_plain(self._head):
            raise ModelError(
                "rows of a quantised LM head cannot be picked: load the model with its head whole"
            )
        weight = self._head.weight.index_select(0, ids) * self._final_norm
        return weight, None if self._head.bias is None else self._head.bias.index_select(0, ids)

    def _attend(
        self, index: int, projected: Projected, segments: Sequence[Segment], sights: Sequence[Any]
    ) -> Tensor:
        """Each segment's rows by themselves: [rows, heads * dim]."""
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
        """A pass of one row and one of a few, so that what is compiled is compiled; ModelError where it cannot be."""
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
        """The factors of each kind of layers."""
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
        # rotate_half(x) * sin == roll(x) * sin with the first half of sin negated: one operation less a layer.
        half = self.head_dim // 2
        sin = [torch.cat([-sin[0][:, :half], sin[0][:, half:]], -1) for _, sin in found]
        return torch.cat(cos, -1)[:, None].contiguous(), torch.cat(sin, -1)[:, None].contiguous()


class WholeRunner:
    """Has the interface of a DecoderRunner where something else computes whole forwards: rows are ids [rows, 1] before
    one and logits [rows, vocab] behind it. There are no layers to look at: no exits, splits and observers.

    what: runs the forwards, for errors. Sizes as of a DecoderRunner; kv_itemsize: bytes of a number in the cache.
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
        """What one token takes in a cache of all layers."""
        return int(self.layer_count * 2 * self.kv_heads * self.head_dim * self.kv_itemsize)

    def embed(self, ids: Tensor) -> Tensor:
        """ids int64 [rows] -> [rows, 1]: they are looked up elsewhere."""
        return ids[:, None]

    def rotary(self, segments: Sequence[Segment]) -> None:
        """Nothing: positions are worked in elsewhere."""

    def forward(
        self,
        hidden: Tensor,
        rotary: None,
        segments: Sequence[Any],
        observer: LayerObserver | None = None,
        layers: range | None = None,
    ) -> Tensor:
        """The rows of all segments, one after another -> logits [rows, vocab]. Nothing can observe the layers.

        Raises ModelError where there is no room; the sessions hold what they held.
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
        """As `forward`, in parts that are logits of rows one after another; a subclass has it."""
        raise NotImplementedError

    def logits(self, hidden: Tensor) -> Tensor:
        """float32 [rows, vocab_size], real vocabulary only."""
        return hidden[:, : self.vocab_size].float()

    def head_rows(self, ids: Tensor) -> tuple[Tensor, Tensor | None]:
        """Refused: what stands before the LM head is not seen here."""
        raise ModelError(f"a model that runs on {self.what} has no exits")


def _in_blocks(layer: Layer) -> Layer:
    qkv, out, gate_up, down = map(invariant.in_blocks, (layer.qkv, layer.out, layer.gate_up, layer.down))
    return replace(layer, qkv=qkv, out=out, gate_up=gate_up, down=down)


def _vocabulary_head(lm_head: Any, vocab_size: int) -> tuple[Callable[[Tensor], Tensor], bool]:
    """The head's product with rows [n, hidden_size], and whether it takes and gives float32.

    In half precision logits rounded to 8 or 11 bits would be equal where tokens are not: so they are worked out in
    float32. On a CPU from a copy of the weights; elsewhere the product of halves has a float32 result.
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
