# SPDX-License-Identifier: Apache-2.0
"""A session on llama.cpp, an answer's chain and tree as sequences of one context, and the runner of such sessions.

Each leaf of the tree has a sequence from the prompt's first token to the leaf; sequences share the cells of common
prefixes. One sequence always holds the committed tokens; without a tree it is the only one.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specdec.draft import ROOT
from specdec.models.attention.segment import Segment
from specdec.models.gguf.binding import LlamaModel
from specdec.models.gguf.decoder import Branch, DecodeRows, LlamaDecoder
from specdec.models.plans import Extension
from specdec.models.prompt import EncodedPrompt
from specdec.models.runner import WholeRunner
from specdec.models.session import WholeSession


@dataclass
class GgufSegment(Segment):
    """Rows of one session (see `decoder.DecodeRows`). tips: the tree node at the end of each branch."""

    positions: NDArray[np.int32] | None = None
    branches: tuple[Branch, ...] = ()
    leaves: tuple[tuple[int, ...], ...] | None = None
    last_only: bool = False
    tips: tuple[int, ...] = ()
    sequences: tuple[int, ...] = ()


class GgufSession(WholeSession):
    """One session on a GgufRunner. Not thread-safe, but different sessions may be used on different threads."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self._decoder = model.runner.decoder
        self._tips: dict[int, int] = {}
        self._staged: GgufSegment | None = None
        self._decoder.sessions.add(self)
        weakref.finalize(self, self._decoder.leave, self._tips)

    @property
    def branches_left(self) -> int:
        """How many more branches the tree may have; sessions of one model share the context's sequences."""
        left: int = self._decoder.left_for(len(self._tips))
        return left

    @property
    def most_branches(self) -> int:
        """As ModelSession.most_branches."""
        most: int = self._decoder.sizes.spare
        return most

    @property
    def kv_bytes(self) -> int:
        """KV cache bytes of the session's tokens."""
        return self._length * self.runner.kv_bytes_a_token

    def start(self, encoded: EncodedPrompt, kept: int = 0) -> None:
        """As ModelSession.start."""
        self._check_room(encoded.ids.shape[0])
        super().start(encoded, kept)

    def evict(self) -> None:
        """Drop everything and return the sequences."""
        super().evict()
        for sequence in self._tips:
            self._decoder.give(sequence)
        self._tips.clear()

    def rollback(self, n_tokens_kept: int) -> None:
        """Drop everything after the first `n_tokens_kept` tokens, and any token tree."""
        changes = n_tokens_kept != self._length or len(self.tree)
        super().rollback(n_tokens_kept)
        if changes and self._tips:
            first, *others = self._tips
            for sequence in others:
                self._decoder.give(sequence)
            self._decoder.cut(first, self._position(n_tokens_kept))
            self._leave_only({first: ROOT})

    def in_order(self, nodes: Sequence[int]) -> int:
        """As ModelSession.in_order. Freed cells of dropped nodes are reused first and may lie before cells of later
        tokens. Summing over cells in another order changes the rounding.
        """
        if not self._decoder.sizes.exact:
            return len(nodes)
        return next((depth for depth, node in enumerate(nodes) if node != depth), len(nodes))

    def keep_path(self, nodes: Sequence[int], below: Sequence[int] = ()) -> None:
        """As ModelSession.keep_path."""
        tree, length = self.tree, self._length
        super().keep_path(nodes, below)
        end, moved = (nodes[-1] if nodes else ROOT), {node: new for new, node in enumerate(below)}
        kept: dict[int, int] = {}
        for sequence, tip in self._tips.items():
            path = tree.path(tip)
            if path[: len(nodes)] != list(nodes):
                continue
            depth, new_tip = len(nodes), ROOT
            while depth < len(path) and path[depth] in moved:
                new_tip = moved[path[depth]]
                depth += 1
            if new_tip in kept.values():
                continue
            if depth < len(path):
                self._decoder.cut(sequence, self._position(length + depth))
            kept[sequence] = new_tip
        assert kept, f"no sequence goes along node {end}"
        if len(kept) > 1:
            kept = {sequence: tip for sequence, tip in kept.items() if tip != ROOT}
        for sequence in self._tips:
            if sequence not in kept:
                self._decoder.give(sequence)
        self._leave_only(kept)

    def room_for(self, extension: Extension) -> GgufSegment:
        """As ModelSession.room_for."""
        self._check_room(self._length + len(self.tree) + extension.rows)
        if not self._tips:
            self._tips[self._decoder.take()] = ROOT
        segment = super().room_for(extension)
        assert isinstance(segment, GgufSegment)
        self._staged = segment
        return segment

    def _room_for_chain(self, extension: Extension) -> GgufSegment:
        rows, past, prompt = extension.rows, self._length, self._prompt_positions
        if extension.hidden is not None and prompt is not None and past < prompt.shape[1]:
            positions = prompt[:, past : past + rows].numpy().astype(np.int32)
        else:
            positions = np.arange(past + self._delta, past + self._delta + rows, dtype=np.int32)
        return GgufSegment(
            None, past, rows, None, (), positions, tuple(self._tips), None, extension.last_only
        )

    def hold(self, extension: Extension) -> None:
        """Record the tokens that a forward pass has added."""
        super().hold(extension)
        assert self._staged is not None
        if extension.parents is not None:
            self._tips.update(zip(self._staged.sequences, self._staged.tips, strict=True))
        self._staged = None

    def _room_for_tree(self, ids: Sequence[int], parents: Sequence[int]) -> GgufSegment:
        """A segment in which each new leaf continues a sequence or a copy of one."""
        held, depths = len(self.tree), self.tree.depths_with(parents)
        inner = set(parents)
        tips = tuple(node for node in range(held, held + len(ids)) if node not in inner)
        free = {tip: sequence for sequence, tip in self._tips.items()}
        leaves: list[list[int]] = [[] for _ in ids]
        branches: list[Branch] = []
        for number, tip in enumerate(tips):
            node = tip
            while node >= held:
                leaves[node - held].append(number)
                node = parents[node - held]
            going_on = free.pop(node, None)
            end = self._length + self._delta + (0 if node == ROOT else depths[node] + 1)
            branches.append((self._holder(node), end) if going_on is None else going_on)
        positions = np.array(depths[held:], dtype=np.int32) + (self._length + self._delta)
        past = self._length + held
        return GgufSegment(
            None,
            past,
            len(ids),
            None,
            tuple(depths),
            positions,
            tuple(branches),
            tuple(map(tuple, leaves)),
            tips=tips,
        )

    def _holder(self, node: int) -> int:
        """A sequence that contains a tree node."""
        if node != ROOT:
            for sequence, tip in self._tips.items():
                if tip == node or (tip > node and node in self.tree.path(tip)):
                    return sequence
        return next(iter(self._tips))

    def _leave_only(self, tips: dict[int, int]) -> None:
        """Replace the tips in place: a finaliser holds a reference to the dict."""
        self._tips.clear()
        self._tips.update(tips)

    def _position(self, index: int) -> int:
        """Rotary position of the token at an index of the committed tokens and the path after them."""
        prompt = self._prompt_positions
        if prompt is not None and index < prompt.shape[1]:
            return int(prompt[0, index])
        return index + self._delta


PICTURE_ROW = -1


class GgufRunner(WholeRunner):
    """Runs forward passes in one llama.cpp context, behind the interface of a DecoderRunner.

    Input rows are ids [rows, 1]. In a prompt with pictures they are float32 [rows, 1 + width]: an id, or -1 followed by
    the vision tower's embedding. Output rows are logits.
    """

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
