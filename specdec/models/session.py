"""A model session: the KV cache of one sequence on a loaded model, its positions, and how it moves back and
forth.

Several sessions live on one loaded model without touching each other: every position a pass needs is computed
from the session's own numbers. A session holds a committed chain of tokens and, for a while, a tree of
speculative ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from specdec.drafting.token_tree import ROOT, TokenTree
from specdec.errors import ModelError
from specdec.models.prompt import EncodedPrompt
from specdec.models.runner import DecoderRunner, LayerObserver, Segment, causal_mask

_GROWTH = 128


class SessionModel(Protocol):
    """What a session needs of the model that it runs on; a LoadedModel has it."""

    runner: DecoderRunner
    vocab_size: int
    eos_token_ids: frozenset[int]

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        ...

    def embed_prompt(self, encoded: EncodedPrompt) -> Tensor:
        """Embeddings [n, hidden_size] of a prompt, image features in place of their placeholders."""
        ...


class ModelSession:
    """One sequence on a loaded model. Not thread-safe; made by `LoadedModel.new_session()`.

    tree: the speculative tokens behind the committed ones; for others to read only.
    """

    def __init__(self, model: SessionModel, layers: range | None = None) -> None:
        """layers: those whose keys and values the session holds; all of them unless it is a part of a split."""
        self.model = model
        self._runner: DecoderRunner = model.runner
        self._layers = layers
        self._cache: Tensor | None = None
        self._length = 0
        self._delta = 0
        self.tree = TokenTree()
        self._tree_sight = torch.empty(0, 0, dtype=torch.bool)

    @property
    def length(self) -> int:
        """Committed tokens in the cache, image placeholders counted one by one."""
        return self._length

    @torch.inference_mode()
    def prefill(self, encoded: EncodedPrompt, observer: LayerObserver | None = None) -> Tensor:
        """Start the sequence with a prompt; returns the logits float32 [vocab_size] after its last token.

        Whatever the session held before is forgotten. Raises ModelError when the prompt exceeds the context.
        """
        hidden = self._prefill_hidden(encoded, self.model.embed_prompt(encoded), observer)
        return self._runner.logits(hidden[-1:])[0]

    def _prefill_hidden(
        self, encoded: EncodedPrompt, hidden: Tensor, observer: LayerObserver | None = None
    ) -> Tensor:
        """Start the sequence with what goes into the session's layers for a prompt; returns what comes out of them,
        [n, hidden_size] both.
        """
        rows = encoded.ids.shape[0]
        self._length = 0
        self._clear_tree()
        self._delta = encoded.delta
        self._reserve(rows)
        assert self._cache is not None
        if encoded.positions is None:
            rotary = self._runner.rotary_range(0, rows)
        else:
            rotary = self._runner.rotary_at(encoded.positions.to(self._runner.device))
        hidden = self._runner.forward(hidden, rotary, [Segment(self._cache, 0, rows)], observer, self._layers)
        self._length = rows
        return hidden

    def _extend_hidden(self, hidden: Tensor, observer: LayerObserver | None = None) -> Tensor:
        """Append a chain by what goes into the session's layers for it; returns what comes out of them."""
        segment, rotary = self._chain_segment(hidden.shape[0])
        return self._runner.forward(hidden, rotary, [segment], observer, self._layers)

    def extend(
        self, ids: Sequence[int], *, last_only: bool = False, observer: LayerObserver | None = None
    ) -> Tensor:
        """Append a chain; returns logits float32 [len(ids), vocab_size], or [1, vocab_size] if last_only."""
        return extend_many([Extension(self, tuple(ids), last_only=last_only)], observer)[0]

    def extend_tree(
        self, ids: Sequence[int], parents: Sequence[int], observer: LayerObserver | None = None
    ) -> Tensor:
        """Append nodes to the session's speculative tree; returns logits [len(ids), vocab_size].

        parents[i] is the tree index of node i's parent (nodes count from the first extend_tree call on), or
        -1 for the last committed token; a parent must come before its child (TRAPS 7). End with keep_path or
        rollback.
        """
        return extend_many([Extension(self, tuple(ids), parents=tuple(parents))], observer)[0]

    @torch.inference_mode()
    def keep_path(self, nodes: Sequence[int], below: Sequence[int] = ()) -> None:
        """Commit the tree nodes `nodes` (a path from the root, in order) and forget the rest of the tree.

        below: nodes behind the end of that path that stay as the tree, renumbered 0, 1, ... in this order; each one's
        parent is that end or stands before it. Raises ModelError for nodes that are none of this.
        """
        tree, end = self.tree, ROOT
        for node in nodes:
            if not 0 <= node < len(tree) or tree.parents[node] != end:
                raise ModelError(
                    f"tree nodes {list(nodes)} are not a path from the root: keep a path in order"
                )
            end = node
        seen = {end}
        for node in below:
            if not 0 <= node < len(tree) or tree.parents[node] not in seen:
                raise ModelError(
                    f"tree node {node} does not go on behind the path or its parent comes after it"
                )
            seen.add(node)
        kept = [*nodes, *below]
        if kept != list(range(len(kept))):
            assert self._cache is not None
            source = torch.tensor([self._length + node for node in kept], device=self._cache.device)
            self._cache[:, :, :, self._length : self._length + len(kept)] = self._cache.index_select(
                3, source
            )
        self._length += len(nodes)
        self.tree = tree.select(below, end)
        self._tree_sight = self._tree_sight[list(below)][:, list(below)]

    def rollback(self, n_tokens_kept: int) -> None:
        """Forget everything after the first `n_tokens_kept` committed tokens, and any speculative tree."""
        if not 0 <= n_tokens_kept <= self._length:
            raise ModelError(f"cannot roll back to {n_tokens_kept} tokens: the session holds {self._length}")
        self._length = n_tokens_kept
        self._clear_tree()

    def _clear_tree(self) -> None:
        self.tree = TokenTree()
        self._tree_sight = torch.empty(0, 0, dtype=torch.bool)

    def _reserve(self, needed: int) -> None:
        """Make room for `needed` tokens; the cache grows by doubling up to the context limit."""
        limit = self._runner.context_limit
        if needed > limit:
            raise ModelError(
                f"{needed} tokens exceed the context of {limit}: shorten the prompt or the answer"
            )
        capacity = 0 if self._cache is None else self._cache.shape[3]
        if needed <= capacity:
            return
        layers = None if self._layers is None else len(self._layers)
        grown = self._runner.new_cache(min(limit, max(2 * capacity, needed + _GROWTH)), layers)
        if self._cache is not None and self._length + len(self.tree):
            held = self._length + len(self.tree)
            grown[:, :, :, :held] = self._cache[:, :, :, :held]
        self._cache = grown

    def _chain_segment(self, rows: int) -> tuple[Segment, tuple[Tensor, Tensor]]:
        if len(self.tree):
            raise ModelError(
                "the session holds a speculative tree: keep a path or roll back before extending"
            )
        past = self._length
        self._reserve(past + rows)
        assert self._cache is not None
        start = past + self._delta
        rotary = self._runner.rotary_range(start, start + rows)
        self._length = past + rows
        return Segment(self._cache, past, rows, causal_mask(past, rows, self._runner.device)), rotary

    def _tree_segment(
        self, ids: Sequence[int], parents: Sequence[int]
    ) -> tuple[Segment, tuple[Tensor, Tensor]]:
        held = len(self.tree)
        past = self._length + held
        self._reserve(past + len(parents))
        assert self._cache is not None
        for token, parent in zip(ids, parents, strict=True):
            if not ROOT <= parent < len(self.tree):
                raise ModelError(f"tree node {len(self.tree)} has parent {parent}: a parent must come first")
            self.tree.append(token, parent)
        self._tree_sight = grow_sight(self._tree_sight, parents)
        behind = torch.ones(len(parents), self._length, dtype=torch.bool)
        mask = torch.cat([behind, self._tree_sight[held:]], dim=1).to(self._runner.device)
        positions = (
            torch.tensor(self.tree.depths[held:], device=self._runner.device) + self._length + self._delta
        )
        return Segment(self._cache, past, len(parents), mask), self._runner.rotary_at(positions)


@dataclass(frozen=True)
class Extension:
    """What one session appends in a shared pass: a chain (parents None) or tree nodes."""

    session: ModelSession
    ids: tuple[int, ...]
    parents: tuple[int, ...] | None = None
    last_only: bool = False


@torch.inference_mode()
def extend_many(extensions: Sequence[Extension], observer: LayerObserver | None = None) -> list[Tensor]:
    """Extend several sessions of ONE loaded model in one pass; returns each one's logits, in order.

    Rows of different sessions share the matrix products and attend only to their own caches.
    """
    runner = extensions[0].session._runner
    segments: list[Segment] = []
    rotaries: list[tuple[Tensor, Tensor]] = []
    ids: list[int] = []
    for extension in extensions:
        session = extension.session
        if session._runner is not runner:
            raise ModelError("sessions of different models cannot share a forward: group them by model")
        if not extension.ids:
            raise ModelError("nothing to extend by: give at least one token")
        for token in extension.ids:
            if not 0 <= token < runner.vocab_size:
                raise ModelError(f"token id {token} is outside the vocabulary of {runner.vocab_size}")
        if extension.parents is None:
            segment, rotary = session._chain_segment(len(extension.ids))
        else:
            if len(extension.parents) != len(extension.ids):
                raise ModelError("a tree needs one parent index per node")
            segment, rotary = session._tree_segment(extension.ids, extension.parents)
        segments.append(segment)
        rotaries.append(rotary)
        ids.extend(extension.ids)
    if len(segments) == 1:
        rotary = rotaries[0]
    else:
        rotary = (torch.cat([cos for cos, _ in rotaries]), torch.cat([sin for _, sin in rotaries]))
    hidden = runner.embed(torch.tensor(ids, device=runner.device))
    hidden = runner.forward(hidden, rotary, segments, observer)
    results: list[Tensor] = []
    start = 0
    kept: list[Tensor] = []
    for extension, segment in zip(extensions, segments, strict=True):
        stop = start + segment.rows
        kept.append(hidden[stop - 1 : stop] if extension.last_only else hidden[start:stop])
        start = stop
    logits = runner.logits(kept[0] if len(kept) == 1 else torch.cat(kept))
    start = 0
    for rows in kept:
        results.append(logits[start : start + rows.shape[0]])
        start += rows.shape[0]
    return results


def grow_sight(sight: Tensor, parents: Sequence[int]) -> Tensor:
    """Which tree nodes see which: bool [n, n], True for a node's ancestors and itself -> the same with more nodes.

    parents: tree indices of the new nodes' parents, -1 for the root; a parent comes before its child.
    """
    held = sight.shape[0]
    grown = torch.zeros(held + len(parents), held + len(parents), dtype=torch.bool)
    grown[:held, :held] = sight
    for node, parent in enumerate(parents, start=held):
        if parent >= 0:
            grown[node] = grown[parent]
        grown[node, node] = True
    return grown
