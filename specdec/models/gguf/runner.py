# SPDX-License-Identifier: Apache-2.0
"""The forward of a GGUF file behind the interface of a DecoderRunner.

Rows before a forward are ids [rows, 1]; those of a prompt with pictures float32 [rows, 1 + width]: an id, or -1 and
what the vision tower makes of a part of a picture. Behind it they are logits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specdec.errors import ModelError
from specdec.models.attention.segment import Segment
from specdec.models.gguf.binding import LlamaModel
from specdec.models.gguf.decoder import DecodeRows, LlamaDecoder
from specdec.models.gguf.session import GgufSegment
from specdec.models.runner import ForwardPace, Joint, LayerObserver, wait_out

PICTURE_ROW = -1


class GgufRunner:
    """As DecoderRunner, without layers to look at: no exits, splits and observers, which are the target's."""

    sees_layers = False
    keeps_prompts = True
    keeps_cache = True
    static = None
    device = torch.device("cpu")
    dtype = torch.float32

    def __init__(self, model: LlamaModel, decoder: LlamaDecoder, vocab_size: int, kv_itemsize: float) -> None:
        """vocab_size: real tokens. kv_itemsize: bytes of a number in the cache."""
        self.decoder = decoder
        self.vocab_size = vocab_size
        self.hidden_size = model.width
        self.layer_count = model.layers
        self.heads = model.heads
        self.kv_heads = model.kv_heads
        self.head_dim = model.head_dim
        self.context_limit = min(decoder.longest, model.made_for)
        self._kv_itemsize = kv_itemsize
        self.pacer: ForwardPace | None = None
        self.joint: Joint | None = None
        self.passes = 0

    @property
    def kv_bytes_a_token(self) -> int:
        """What one token takes in a cache of all layers."""
        return int(self.layer_count * 2 * self.kv_heads * self.head_dim * self._kv_itemsize)

    def embed(self, ids: Tensor) -> Tensor:
        """ids int64 [rows] -> [rows, 1]: llama.cpp looks them up."""
        return ids[:, None]

    def rotary(self, segments: Sequence[Segment]) -> None:
        """Nothing: llama.cpp rotates."""

    def forward(
        self,
        hidden: Tensor,
        rotary: None,
        segments: Sequence[GgufSegment],
        observer: LayerObserver | None = None,
        layers: range | None = None,
    ) -> Tensor:
        """The rows of all segments in one call of llama.cpp, as far as they fit: -> logits float32 [rows, vocab].

        Raises ModelError where the context is full; the sessions hold what they held.
        """
        self.passes += 1
        paced = self.pacer.begin(hidden.shape[0]) if self.pacer is not None else None
        many, start = [], 0
        for segment in segments:
            stop = start + segment.rows
            many.append(_rows_of(segment, hidden[start:stop]))
            start = stop
        found = []
        for segment, rows, logits in zip(segments, many, self.decoder.decode(many), strict=True):
            segment.sequences = tuple(rows.sequences)
            one = torch.from_numpy(logits)
            found.append(one.expand(segment.rows, -1) if rows.last_only else one)
        whole = found[0] if len(found) == 1 else torch.cat(found)
        wait_out(paced, self.layer_count, whole)
        return whole

    def logits(self, hidden: Tensor) -> Tensor:
        """float32 [rows, vocab_size], real vocabulary only."""
        return hidden[:, : self.vocab_size]

    def head_rows(self, ids: Tensor) -> Any:
        """Refused: what stands before the LM head is not seen here."""
        raise ModelError("a model on llama.cpp has no exits: only drafts run on it")


def _rows_of(segment: GgufSegment, hidden: Tensor) -> DecodeRows:
    assert segment.positions is not None
    ids = hidden[:, 0].numpy().astype(np.int32)
    vectors = None
    if hidden.shape[1] > 1 and bool((ids == PICTURE_ROW).any()):
        vectors = hidden[:, 1:].numpy()
    return DecodeRows(ids, segment.positions, segment.branches, segment.leaves, vectors, segment.last_only)
