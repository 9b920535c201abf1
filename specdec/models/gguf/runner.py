# SPDX-License-Identifier: Apache-2.0
"""The forward pass of a GGUF file behind the interface of a DecoderRunner.

Input rows are ids [rows, 1]. In a prompt with pictures they are float32 [rows, 1 + width]: an id, or -1 followed by the
vision tower's embedding. Output rows are logits.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from specdec.models.gguf.binding import LlamaModel
from specdec.models.gguf.decoder import DecodeRows, LlamaDecoder
from specdec.models.gguf.session import GgufSegment
from specdec.models.runner import WholeRunner

PICTURE_ROW = -1


class GgufRunner(WholeRunner):
    """Runs forward passes in one llama.cpp context."""

    what = "llama.cpp"
    device = torch.device("cpu")
    dtype = torch.float32

    def __init__(self, model: LlamaModel, decoder: LlamaDecoder, vocab_size: int, kv_itemsize: float) -> None:
        """vocab_size: tokens without padding. kv_itemsize: bytes per number in the KV cache."""
        super().__init__()
        self.decoder = decoder
        self.vocab_size = vocab_size
        self.hidden_size = model.width
        self.layer_count = model.layers
        self.heads = model.heads
        self.kv_heads = model.kv_heads
        self.head_dim = model.head_dim
        self.context_limit = min(decoder.longest, model.made_for)
        self.kv_itemsize = kv_itemsize

    def compute(self, hidden: Tensor, segments: Sequence[GgufSegment]) -> list[Tensor]:
        """Compute the rows of all segments, in one llama.cpp call if they fit. Raises NoRoom, a ModelError, if the
        context is full.
        """
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
        return found


def _rows_of(segment: GgufSegment, hidden: Tensor) -> DecodeRows:
    assert segment.positions is not None
    ids = hidden[:, 0].numpy().astype(np.int32)
    vectors = None
    if hidden.shape[1] > 1 and bool((ids == PICTURE_ROW).any()):
        vectors = hidden[:, 1:].numpy()
    return DecodeRows(ids, segment.positions, segment.branches, segment.leaves, vectors, segment.last_only)
