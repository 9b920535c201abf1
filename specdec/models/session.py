# SPDX-License-Identifier: Apache-2.0
"""A model session: the KV cache and positions of one sequence on a loaded model, with extension and rollback. A cursor
keeps a session in step with an answer.

Several sessions on one model are independent, because every position is computed from the session's own state. A
session holds a committed chain of tokens and, temporarily, a tree of speculative ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from specdec.draft import ROOT, TokenTree, common_length
from specdec.errors import ModelError
from specdec.models.attention.segment import Segment
from specdec.models.plans import Extension, KnownPrefix, Plan, Prepared, extend_many, planned, settled
from specdec.models.prompt import EncodedPrompt
from specdec.models.runner import DecoderRunner, LayerObserver
from specdec.models.static import MOST_IN_A_RUN, ChainRun
from specdec.options import GenerationOptions
from specdec.sampling.choice import Adjuster, AnyGrammar, Soon
from specdec.sampling.choices import Choices
from specdec.sampling.disturbed import Disturbance

_GROWTH = 128
NO_LIMIT = 1 << 30


class SessionModel(Protocol):
    """The part of a model that a session needs; implemented by LoadedModel."""

    runner: DecoderRunner
    vocab_size: int
    eos_token_ids: frozenset[int]
    disturbance: Disturbance | None

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        ...

    def embed_prompt(self, encoded: EncodedPrompt) -> Tensor:
        """Embeddings [n, hidden_size] of a prompt, with image features in place of placeholders."""
        ...

    def grammar_soon(self, text: str) -> Soon[AnyGrammar]:
        """Compile a grammar for the model's vocabulary; may return a future."""
        ...


class ModelSession:
    """One sequence on a loaded model. Not thread-safe. Created by `LoadedModel.new_session()`.

    Attributes:
        tree: The speculative tokens after the committed ones; read-only for callers.
        layers: The layers whose keys and values it holds; None: all layers.
        most_tokens: Expected largest number of tokens; the cache grows beyond it only if necessary.
        at_once: Allocate the cache for `most_tokens` from the beginning, so that it is never copied to grow.
    """

    takes_embeddings = True

    def __init__(self, model: SessionModel, layers: range | None = None) -> None:
        """layers: the layers whose keys and values the session holds; None: all (no layer split)."""
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
        """How many more branches the tree may have."""
        return NO_LIMIT

    @property
    def most_branches(self) -> int:
        """How many branches a tree may have regardless of other sessions."""
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
        """Start the sequence with a prompt, replacing whatever the session held.

        Args:
            encoded: The prompt.
            observer: Called after each layer; does not see rows that `prefix` supplies.
            hidden: The prompt's embeddings [n, hidden_size], if computed already.
            prefix: Source of cached keys and values.
            kept: How many of the prompt's first tokens the session holds already, at most all but the last.

        Returns:
            Logits float32 [vocab_size] after the prompt's last token.

        Raises:
            ModelError: The prompt exceeds the context.
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
        """Keep only the first `kept` tokens, and prepare for a prompt that begins with them.

        Raises ModelError if the session holds fewer.
        """
        self.rollback(kept)
        self._delta = encoded.delta
        self._prompt_positions = encoded.positions
        self._reserve(encoded.ids.shape[0])

    def evict(self) -> None:
        """Drop everything and free the cache."""
        self._length = 0
        self._clear_tree()
        self._cache = None

    @property
    def kv_bytes(self) -> int:
        """Bytes of the cache."""
        return 0 if self._cache is None else self._cache.numel() * self._cache.element_size()

    def prompt_input(self, encoded: EncodedPrompt) -> Tensor:
        """The input of the session's layers for a prompt: [n, hidden_size]."""
        return self.model.embed_prompt(encoded)

    def extension(
        self,
        ids: Sequence[int],
        parents: Sequence[int] | None = None,
        last_only: bool = False,
        observer: LayerObserver | None = None,
    ) -> Extension:
        """The Extension that appends these ids."""
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

        parents[i] is the tree index of node i's parent, or -1 for the last committed token; tree indices count from the
        first extend_tree call on. A parent must come before its child. Finish the tree with keep_path or rollback.
        """
        return extend_many([self.extension(ids, parents, observer=observer)])[0]

    @torch.inference_mode()
    def keep_path(self, nodes: Sequence[int], below: Sequence[int] = ()) -> None:
        """Commit the tree nodes `nodes` (a path from the root, in order) and drop the rest of the tree.

        below: descendants of the path's end to keep as the tree, renumbered 0, 1, ... in this order. The parent of each
        must be the path's end or precede it. Raises ModelError for other nodes.
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
                    f"tree node {node} is not below the path, or its parent comes after it"
                )
            seen.add(node)
        kept = [*nodes, *below]
        if kept != list(range(len(kept))):
            self._move_up(kept)
        self._length += len(nodes)
        self.tree = tree.select(below, end)
        self._tree_sight = self._tree_sight[list(below)][:, list(below)]

    def in_order(self, nodes: Sequence[int]) -> int:
        """How many nodes of this path may be kept, for caches in which later rows must lie after earlier ones."""
        return len(nodes)

    def _move_up(self, kept: Sequence[int]) -> None:
        """Move the rows of these tree nodes directly after the committed tokens in the cache."""
        assert self._cache is not None
        source = torch.tensor([self._length + node for node in kept], device=self._cache.device)
        self._cache[:, :, :, self._length : self._length + len(kept)] = self._cache.index_select(3, source)

    def rollback(self, n_tokens_kept: int) -> None:
        """Drop everything after the first `n_tokens_kept` committed tokens, and any token tree."""
        if not 0 <= n_tokens_kept <= self._length:
            raise ModelError(f"cannot roll back to {n_tokens_kept} tokens: the session holds {self._length}")
        self._length = n_tokens_kept
        self._clear_tree()

    def _clear_tree(self) -> None:
        self.tree = TokenTree()
        self._tree_sight = torch.empty(0, 0, dtype=torch.bool)

    def _check_room(self, needed: int) -> None:
        limit = self.runner.context_limit
        if needed > limit:
            raise ModelError(
                f"{needed} tokens exceed the context of {limit}: shorten the prompt or the answer"
            )

    def _reserve(self, needed: int) -> None:
        """Make room for `needed` tokens; the cache grows by doubling, beyond `most_tokens` only as far as needed."""
        self._check_room(needed)
        capacity = 0 if self._cache is None else self._cache.shape[3]
        if needed <= capacity:
            return
        layers = None if self.layers is None else len(self.layers)
        if self.at_once and not capacity:
            roomy = self.most_tokens + _GROWTH  # with room for branches
        else:
            roomy = min(max(2 * capacity, needed + _GROWTH), self.most_tokens)
        grown = self.runner.new_cache(min(self.runner.context_limit, max(needed, roomy)), layers)
        if self._cache is not None and self._length + len(self.tree):
            held = self._length + len(self.tree)
            grown[:, :, :, :held] = self._cache[:, :, :, :held]
        self._cache = grown

    def room_for(self, extension: Extension) -> Segment:
        """Reserve room for an extension; returns where its rows go. The session's tokens do not change.

        Raises ModelError if the session cannot be extended in this way.
        """
        parents, held = extension.parents, len(self.tree)
        if parents is None and held:
            raise ModelError(
                "the session holds a speculative tree: keep a path or roll back before extending"
            )
        if parents is not None and len(parents) != len(extension.ids):
            raise ModelError("a tree needs one parent index per node")
        for node, parent in enumerate(parents or (), start=held):
            if not ROOT <= parent < node:
                raise ModelError(f"tree node {node} has parent {parent}: a parent must come first")
        self._reserve(self._length + held + extension.rows + extension.more)
        return (
            self._room_for_chain(extension) if parents is None else self._room_for_tree(extension.ids, parents)
        )

    def _room_for_chain(self, extension: Extension) -> Segment:
        past, rows = self._length, extension.rows
        assert self._cache is not None
        prompt = self._prompt_positions
        if extension.hidden is not None and prompt is not None and past < prompt.shape[1]:
            return Segment(self._cache, past, rows, positions=prompt[:, past : past + rows].to(self.runner.device))
        first = past + self._delta
        return Segment(self._cache, past, rows, positions=range(first, first + rows))

    def _room_for_tree(self, ids: Sequence[int], parents: Sequence[int]) -> Segment:
        assert self._cache is not None
        held, depths = len(self.tree), self.tree.depths_with(parents)
        sight = grow_sight(self._tree_sight, parents)
        at = tuple(self._length + self._delta + depth for depth in depths[held:])
        return Segment(self._cache, self._length + held, len(parents), sight[held:], tuple(depths), at)

    def hold(self, extension: Extension) -> None:
        """Record the tokens that a forward pass has added to the cache."""
        if extension.parents is None:
            self._length += extension.rows + extension.more
            return
        for token, parent in zip(extension.ids, extension.parents, strict=True):
            self.tree.append(token, parent)
        self._tree_sight = grow_sight(self._tree_sight, extension.parents)


def grow_sight(sight: Tensor, parents: Sequence[int]) -> Tensor:
    """Extend a tree mask by new nodes. sight: bool [n, n], True for each node's ancestors and itself.

    parents: tree indices of the new nodes' parents, -1 for the root; a parent comes before its child.
    """
    held = sight.shape[0]
    grown = np.zeros(
        (held + len(parents), held + len(parents)), dtype=np.bool_
    )  # faster than a tensor for row-wise access
    grown[:held, :held] = sight.numpy()
    for node, parent in enumerate(parents, start=held):
        if parent >= 0:
            grown[node] = grown[parent]
        grown[node, node] = True
    return torch.from_numpy(grown)


class WholeSession(ModelSession):
    """A session on a WholeRunner, whose engine holds the keys and values."""

    def _reserve(self, needed: int) -> None:
        self._check_room(needed)

    def _move_up(self, kept: Sequence[int]) -> None:
        """Does nothing: the engine crops its cache to the next sequence."""


class SessionCursor:
    """Keeps one model session in step with an answer that grows and is sometimes rolled back.

    It compares the tokens that were fed with the present answer, rolls back to the common prefix, and feeds the rest,
    so that nothing is fed twice or left out. Edge and cloud both use it, so both sides adjust logits by the preceding
    tokens in the same way (specdec.sampling.choice). Answer positions count from 0 at the first token after the prompt.
    """

    def __init__(self, session: ModelSession, options: GenerationOptions | None = None) -> None:
        """options: adjustments of the logits; None: none."""
        self.session = session
        self._options = options or GenerationOptions()
        self._adjuster: Adjuster | None = None
        self._prompt_length = 0
        self._prompt_row: Tensor | None = None
        self._fed: list[int] = []
        self._tree_offset = 0

    @property
    def fed(self) -> int:
        """How many answer tokens the session's cache holds."""
        return len(self._fed)

    @property
    def evicted(self) -> bool:
        """Whether the cache was freed, so that the prompt must be fed again first."""
        return self._prompt_row is None

    def evict(self) -> None:
        """Free the cache."""
        self.session.evict()
        self._prompt_row = None
        self._fed = []
        self._tree_offset = 0

    @property
    def prompt_length(self) -> int:
        """Length of the prompt as expanded for this model."""
        return self._prompt_length

    @planned
    def prefill(self, prepared: Prepared, observer: LayerObserver | None = None) -> Plan[Tensor]:
        """Feed the prompt; returns logits [vocab] of answer position 0.

        Raises ModelError for an unusable prompt or logit bias, OptionsError for an unusable grammar.
        """
        model = self.session.model
        encoded = prepared.encoded
        grammar: AnyGrammar | None = None
        if self._options.grammar:
            grammar = yield from settled(model.grammar_soon(self._options.grammar))
        self._adjuster = Adjuster(
            self._options,
            encoded.ids.tolist(),
            model.eos_token_ids,
            model.vocab_size,
            model.device,
            grammar,
            model.disturbance,
        )
        self._prompt_row = yield from self.session.prefill.plan(
            encoded, observer, prepared.hidden, prepared.prefix, prepared.kept
        )
        self._prompt_length = self.session.length
        self._fed = []
        self._tree_offset = 0
        rows = yield from self.rows.plan(())
        return rows[0]

    @planned
    def forced(self, answer: Sequence[int], most: int) -> Plan[list[int]]:
        """See `Adjuster.forced`."""
        assert self._adjuster is not None, "prefill first"
        return (yield from settled(self._adjuster.forced(answer, most)))

    @planned
    def choices(self, answer: Sequence[int], most: int) -> Plan[Choices]:
        """See `Adjuster.choices`; none if the engine needs several forward passes for a tree."""
        assert self._adjuster is not None, "prefill first"
        most = most if self.session.runner.sees_layers else 0
        return (yield from settled(self._adjuster.choices(answer, most)))

    @planned
    def rows(
        self, answer: Sequence[int], draft: Sequence[int] = (), observer: LayerObserver | None = None
    ) -> Plan[Tensor]:
        """Logits [len(draft) + 1, vocab] of the answer positions len(answer) .. len(answer) + len(draft).

        Feeds the part of answer + draft that the cache lacks in one pass. Row i follows answer + draft[:i].
        """
        assert self._adjuster is not None, "prefill first"
        asked = self._adjuster.ask_chain(answer, draft)
        rows = yield from self._plan_rows_of_model(answer, draft, observer)
        return self._adjuster.chain(rows, answer, draft, (yield from settled(asked)))

    def _plan_rows_of_model(
        self, answer: Sequence[int], draft: Sequence[int], observer: LayerObserver | None
    ) -> Plan[Tensor]:
        assert self._prompt_row is not None
        sequence = [*answer, *draft]
        start = self._sync(sequence, len(answer))
        wanted = len(draft) + 1
        pending = sequence[start:]
        if not pending:  # only at the very start of an answer: the prompt's own last row
            return self._prompt_row[None]
        last_only = wanted == 1
        logits: Tensor = yield self.session.extension(pending, None, last_only, observer)
        self._fed.extend(pending)
        if last_only:
            return logits
        if len(answer) == 0:
            return torch.cat([self._prompt_row[None], logits])
        return logits if logits.shape[0] == wanted else logits[-wanted:]

    @property
    def runs(self) -> bool:
        """Whether `run` may be used: logits are not adjusted, and tokens can be fed without being read by the host."""
        asked = self._adjuster is not None and self._adjuster.active
        return not asked and self.session.takes_embeddings and self.session.runner.sees_layers

    @planned
    def run(
        self,
        answer: Sequence[int],
        count: int,
        pick: Callable[[Tensor, int], Tensor],
        banned: Sequence[int] | None = None,
        chances: bool = False,
    ) -> Plan[tuple[list[int], list[float]]]:
        """Predict `count` tokens after an answer, one by one, and read them once at the end.

        Args:
            answer: The answer so far.
            count: How many tokens.
            pick: Picks from logits [1, vocab] at an answer position; returns the id int64 [1] on the device. It must
                not read from the device, which would stall it.
            banned: Ids that `pick` never returns, if it is otherwise the session's Chooser; the run may then be a
                single launch. None: `pick` is something else.
            chances: Also return the model's probability of each token, if the run is a single launch.

        Returns:
            (ids, chances). chances is empty unless requested and the run was a single launch; otherwise `pick` has seen
            every row.
        """
        session = self.session
        static = session.runner.static
        if static is not None and banned is not None and 1 < count <= MOST_IN_A_RUN and answer:
            start = self._sync(list(answer), len(answer))
            run = ChainRun(count, self._options, len(answer), tuple(banned), chances)
            found: Tensor = yield Extension(session, tuple(answer[start:]), run=run)
            if found.dim() == 1:
                both = found.tolist()
                ids = [int(token) for token in both[:count]]
                self._fed.extend([*answer[start:], *ids[:-1]])
                return ids, both[count:]
            self._fed.extend(answer[start:])
            row = found[-1:]
        else:
            row = yield from self._plan_rows_of_model(answer, (), None)
        picked = [pick(row, len(answer))]
        try:
            while len(picked) < count:
                row = yield Extension(session, (0,), last_only=True, device_ids=picked[-1])
                picked.append(pick(row, len(answer) + len(picked)))
            ids = torch.cat(picked).tolist()
            self._fed.extend(ids[:-1])
        finally:  # after an error, drop tokens whose ids were never read
            session.rollback(self._prompt_length + len(self._fed))
        return ids, []

    @planned
    def tree_rows(
        self,
        answer: Sequence[int],
        ids: Sequence[int],
        parents: Sequence[int],
        observer: LayerObserver | None = None,
    ) -> Plan[Tensor]:
        """Logits [len(ids) + 1, vocab] after the answer alone and after every node of a tree that follows it, in one
        pass.

        parents: node indices, -1 for children of the answer's end. The tree stays in the cache: if a later answer
        follows one of its paths, that path is not fed again.
        """
        assert self._prompt_row is not None and self._adjuster is not None, "prefill first"
        pending = list(answer[self._sync(list(answer), len(answer)) :])
        offset = len(pending)
        all_ids = [*pending, *ids]
        all_parents = [*range(-1, offset - 1), *(parent + offset for parent in parents)]
        if not all_ids:
            masks = yield from settled(self._adjuster.ask_chain(answer))
            return self._adjuster.chain(self._prompt_row[None], answer, (), masks)
        asked = self._adjuster.ask_nodes(answer, ids, parents, len(ids) + 1)
        logits: Tensor = yield self.session.extension(all_ids, all_parents, observer=observer)
        self._tree_offset = offset
        if offset == 1:
            after_answer = logits
        else:
            after_answer = logits[offset - 1 :] if pending else torch.cat([self._prompt_row[None], logits])
        return self._adjuster.nodes(after_answer, answer, ids, parents, (yield from settled(asked)))

    @planned
    def grow_tree(self, ids: Sequence[int], parents: Sequence[int]) -> Plan[Tensor]:
        """Logits [len(ids), vocab] after more nodes of the last tree_rows call's tree; numbering continues from it."""
        assert self._adjuster is not None, "prefill first"
        shifted = [parent + self._tree_offset for parent in parents]
        logits: Tensor = yield self.session.extension(ids, shifted)
        tree = self.session.tree
        asked = self._adjuster.ask_nodes(self._fed, tree.ids, tree.parents, len(ids))
        return self._adjuster.nodes(logits, self._fed, tree.ids, tree.parents, (yield from settled(asked)))

    def reroot(self, answer: Sequence[int]) -> dict[int, int] | None:
        """Move the root of the tree to the end of `answer`, if the answer follows one of its paths. Descendants stay.

        Returns the new number of each remaining node by its old number for grow_tree. If the answer leaves the tree,
        returns None and changes nothing.
        """
        path = self._path_along(answer)
        if path is None or len(self._fed) + len(path) != len(answer):
            return None
        kept = self.session.tree.below(path[-1] if path else ROOT)
        moved = {node - self._tree_offset: number for number, node in enumerate(kept)}
        self._keep(path, kept)
        return moved

    def _path_along(self, sequence: Sequence[int]) -> list[int] | None:
        """The tree nodes on the sequence's path, as far as it follows the tree; None if it deviates before the tree."""
        fed = len(self._fed)
        if list(sequence[:fed]) != self._fed:
            return None
        return self.session.tree.along(sequence[fed:])

    def settle(self, sequence: Sequence[int]) -> None:
        """Commit the tree path that the sequence follows, and drop the rest. Requests for rows do this, too."""
        if len(self.session.tree):
            path = self._path_along(sequence) or []
            self._keep(path[: self.session.in_order(path)])

    def _keep(self, path: Sequence[int], below: Sequence[int] = ()) -> None:
        """Commit a path of the tree; `below` stays as the tree."""
        ids = self.session.tree.ids
        self._fed.extend(ids[node] for node in path)
        self.session.keep_path(path, below)
        self._tree_offset = 0

    def _sync(self, sequence: list[int], answer_length: int) -> int:
        """Roll back to the common prefix, but before the last answer token; returns the prefix length."""
        self.settle(sequence)
        common = common_length(self._fed, sequence)
        # The logits after the last answer token are needed, so that token must be fed now, even if it was fed before.
        common = min(common, max(answer_length - 1, 0))
        if common < len(self._fed):
            self.session.rollback(self._prompt_length + common)
            del self._fed[common:]
        return common
