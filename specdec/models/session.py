"""A model session: the KV cache of one sequence on a loaded model, its positions, and how it moves back and
forth.

Several sessions live on one loaded model without touching each other: every position a pass needs is computed
from the session's own numbers. A session holds a committed chain of tokens and, for a while, a tree of
speculative ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from specdec.draft import ROOT, TokenTree
from specdec.errors import ModelError
from specdec.models.attention.segment import Segment
from specdec.models.plans import Extension, KnownPrefix, Plan, extend_many, planned
from specdec.models.prompt import EncodedPrompt
from specdec.models.runner import DecoderRunner, LayerObserver
from specdec.sampling.choice import AnyGrammar, Soon
from specdec.sampling.disturbed import Disturbance

_GROWTH = 128
NO_LIMIT = 1 << 30


class SessionModel(Protocol):
    """What a session needs of the model that it runs on; a LoadedModel has it."""

    runner: DecoderRunner
    vocab_size: int
    eos_token_ids: frozenset[int]
    disturbance: Disturbance | None

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        ...

    def embed_prompt(self, encoded: EncodedPrompt) -> Tensor:
        """Embeddings [n, hidden_size] of a prompt, image features in place of their placeholders."""
        ...

    def grammar_soon(self, text: str) -> Soon[AnyGrammar]:
        """A grammar compiled for the model's vocabulary, or a future of it."""
        ...


class ModelSession:
    """One sequence on a loaded model. Not thread-safe; made by `LoadedModel.new_session()`.

    tree: the speculative tokens behind the committed ones; for others to read only. layers: those it holds keys and
    values of; None: all of the model's. most_tokens: what it is expected to hold at most; the cache is made larger only
    where it must be. at_once: make the cache as large as that from the beginning, so that it need not be copied when it
    grows.
    """

    takes_embeddings = True

    def __init__(self, model: SessionModel, layers: range | None = None) -> None:
        """layers: those whose keys and values the session holds; all of them unless it is a part of a split."""
        self.model = model
        self.runner: DecoderRunner = model.runner
        self.layers = layers
        self._cache: Tensor | None = None
        self._length = 0
        self._delta = 0
        self._prompt_positions: Tensor | None = None
        self.most_tokens = model.runner.context_limit
        self.at_once = False
        self.tree = TokenTree()
        self._tree_sight = torch.empty(0, 0, dtype=torch.bool)

    @property
    def branches_left(self) -> int:
        """How many more branches its tree may have."""
        return NO_LIMIT

    @property
    def length(self) -> int:
        """Committed tokens in the cache, image placeholders counted one by one."""
        return self._length

    @planned
    def prefill(
        self,
        encoded: EncodedPrompt,
        observer: LayerObserver | None = None,
        hidden: Tensor | None = None,
        prefix: KnownPrefix | None = None,
        kept: int = 0,
    ) -> Plan[Tensor]:
        """Start the sequence with a prompt; returns the logits float32 [vocab_size] after its last token.

        Whatever the session held before is forgotten. Raises ModelError when the prompt exceeds the context.

        hidden: the prompt's embeddings [n, hidden_size], where they are there already. kept: the session holds so many
        of the prompt's first tokens already, short of its last.

        prefix: keys and values that need not be worked out; an observer would not see those rows.
        """
        self.start(encoded, kept)
        if hidden is None:
            hidden = self.prompt_input(encoded)
        if prefix is not None:
            assert self._cache is not None
            self._length = prefix.fill(self._cache)
        left = hidden[self._length :]
        logits: Tensor = yield Extension(self, hidden=left, last_only=True, observer=observer)
        if prefix is not None:
            assert self._cache is not None
            prefix.learn(self._cache)
        return logits[0]

    def start(self, encoded: EncodedPrompt, kept: int = 0) -> None:
        """Forget everything behind the first `kept` tokens; a prompt that begins with them comes next.

        Raises ModelError where the session holds fewer.
        """
        self.rollback(kept)
        self._delta = encoded.delta
        self._prompt_positions = encoded.positions
        self._reserve(encoded.ids.shape[0])

    def evict(self) -> None:
        """Forget everything and give the cache back."""
        self._length = 0
        self._clear_tree()
        self._cache = None

    @property
    def kv_bytes(self) -> int:
        """What the cache takes."""
        return 0 if self._cache is None else self._cache.numel() * self._cache.element_size()

    def prompt_input(self, encoded: EncodedPrompt) -> Tensor:
        """What goes into the session's layers for a prompt: [n, hidden_size]."""
        return self.model.embed_prompt(encoded)

    def extension(
        self,
        ids: Sequence[int],
        parents: Sequence[int] | None = None,
        last_only: bool = False,
        observer: LayerObserver | None = None,
    ) -> Extension:
        """What has to go into a forward to append these ids."""
        tree = None if parents is None else tuple(parents)
        return Extension(self, tuple(ids), tree, last_only, observer=observer)

    def extend(
        self, ids: Sequence[int], *, last_only: bool = False, observer: LayerObserver | None = None
    ) -> Tensor:
        """Append a chain; returns logits float32 [len(ids), vocab_size], or [1, vocab_size] if last_only."""
        return extend_many([self.extension(ids, None, last_only, observer)])[0]

    def extend_tree(
        self, ids: Sequence[int], parents: Sequence[int], observer: LayerObserver | None = None
    ) -> Tensor:
        """Append nodes to the session's speculative tree; returns logits [len(ids), vocab_size].

        parents[i] is the tree index of node i's parent (nodes count from the first extend_tree call on), or
        -1 for the last committed token; a parent must come before its child (TRAPS 7). End with keep_path or
        rollback.
        """
        return extend_many([self.extension(ids, parents, observer=observer)])[0]

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
            self._move_up(kept)
        self._length += len(nodes)
        self.tree = tree.select(below, end)
        self._tree_sight = self._tree_sight[list(below)][:, list(below)]

    def _move_up(self, kept: Sequence[int]) -> None:
        """Let the rows of these tree nodes follow the committed tokens in the cache."""
        assert self._cache is not None
        source = torch.tensor([self._length + node for node in kept], device=self._cache.device)
        self._cache[:, :, :, self._length : self._length + len(kept)] = self._cache.index_select(3, source)

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
        limit = self.runner.context_limit
        if needed > limit:
            raise ModelError(
                f"{needed} tokens exceed the context of {limit}: shorten the prompt or the answer"
            )
        capacity = 0 if self._cache is None else self._cache.shape[3]
        if needed <= capacity:
            return
        layers = None if self.layers is None else len(self.layers)
        if self.at_once and not capacity:
            roomy = self.most_tokens + _GROWTH  # and branches
        else:
            roomy = min(max(2 * capacity, needed + _GROWTH), self.most_tokens)
        grown = self.runner.new_cache(min(limit, max(needed, roomy)), layers)
        if self._cache is not None and self._length + len(self.tree):
            held = self._length + len(self.tree)
            grown[:, :, :, :held] = self._cache[:, :, :, :held]
        self._cache = grown

    def room_for(self, extension: Extension) -> Segment:
        """Where an extension's rows go; nothing but room in the cache changes.

        Raises ModelError where the session cannot be extended so.
        """
        if extension.parents is not None:
            return self._room_for_tree(extension.ids, extension.parents)
        if len(self.tree):
            raise ModelError(
                "the session holds a speculative tree: keep a path or roll back before extending"
            )
        past, rows = self._length, extension.rows
        self._reserve(past + rows + extension.more)
        assert self._cache is not None
        prompt = self._prompt_positions
        if extension.hidden is not None and prompt is not None and past < prompt.shape[1]:
            return Segment(self._cache, past, rows, positions=prompt[:, past : past + rows].to(self.runner.device))
        first = past + self._delta
        return Segment(self._cache, past, rows, positions=range(first, first + rows))

    def _room_for_tree(self, ids: Sequence[int], parents: Sequence[int]) -> Segment:
        if len(parents) != len(ids):
            raise ModelError("a tree needs one parent index per node")
        held = len(self.tree)
        for node, parent in enumerate(parents, start=held):
            if not ROOT <= parent < node:
                raise ModelError(f"tree node {node} has parent {parent}: a parent must come first")
        past = self._length + held
        self._reserve(past + len(parents))
        assert self._cache is not None
        depths = list(self.tree.depths)
        for parent in parents:
            depths.append(0 if parent == ROOT else depths[parent] + 1)
        sight = grow_sight(self._tree_sight, parents)
        at = tuple(self._length + self._delta + depth for depth in depths[held:])
        return Segment(self._cache, past, len(parents), sight[held:], tuple(depths), at)

    def hold(self, extension: Extension) -> None:
        """Count in what a forward has written into the cache."""
        if extension.parents is None:
            self._length += extension.rows + extension.more
            return
        for token, parent in zip(extension.ids, extension.parents, strict=True):
            self.tree.append(token, parent)
        self._tree_sight = grow_sight(self._tree_sight, extension.parents)


def grow_sight(sight: Tensor, parents: Sequence[int]) -> Tensor:
    """Which tree nodes see which: bool [n, n], True for a node's ancestors and itself -> the same with more nodes.

    parents: tree indices of the new nodes' parents, -1 for the root; a parent comes before its child.
    """
    held = sight.shape[0]
    grown = np.zeros(
        (held + len(parents), held + len(parents)), dtype=np.bool_
    )  # quicker, row by row, than a tensor
    grown[:held, :held] = sight.numpy()
    for node, parent in enumerate(parents, start=held):
        if parent >= 0:
            grown[node] = grown[parent]
        grown[node, node] = True
    return torch.from_numpy(grown)
