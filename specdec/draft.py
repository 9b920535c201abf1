# SPDX-License-Identifier: Apache-2.0
"""Token trees, and drafts: the part of a tree that is sent in one round. A chain is a tree of width 1.

Every token of a tree follows another token or the root. Drafters, the judge and KV caches all use token trees. Whoever
needs more per node (a score, a position in a cache) keeps it in a list of its own, indexed by node number. Nothing here
depends on a model.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from operator import mul

from specdec.errors import ProtocolError

ROOT = -1
"""Parent of the nodes that follow the root directly."""


class TokenTree:
    """A tree of tokens. Nodes are numbered in the order they are added, so a parent precedes its children.

    ids: token id of each node. parents: parent of each node, or ROOT. depths: depth of each node, 0 for children of the
    root. If two children of one parent hold the same token, look-ups return the first.
    """

    __slots__ = ("_children", "depths", "ids", "parents")

    def __init__(self, ids: Sequence[int] = (), parents: Sequence[int] = ()) -> None:
        """Raises ValueError if `ids` and `parents` differ in length, IndexError if a parent comes after its child."""
        self.ids: list[int] = []
        self.parents: list[int] = []
        self.depths: list[int] = []
        self._children: dict[tuple[int, int], int] = {}
        for token, parent in zip(ids, parents, strict=True):
            self.append(token, parent)

    def __len__(self) -> int:
        return len(self.ids)

    def append(self, token: int, parent: int) -> int:
        """Add a child of `parent`; returns its node number."""
        node = len(self.ids)
        self.depths.append(0 if parent == ROOT else self.depths[parent] + 1)
        self.ids.append(token)
        self.parents.append(parent)
        self._children.setdefault((parent, token), node)
        return node

    def depths_with(self, parents: Sequence[int]) -> list[int]:
        """The depths of all nodes, followed by those of further nodes with these parents."""
        depths = list(self.depths)
        for parent in parents:
            depths.append(0 if parent == ROOT else depths[parent] + 1)
        return depths

    def child(self, node: int, token: int) -> int | None:
        """The child of `node` (or ROOT) that holds `token`; None if there is none."""
        return self._children.get((node, token))

    def path(self, node: int) -> list[int]:
        """The nodes from the root to `node`, inclusive; empty for ROOT."""
        path: list[int] = []
        while node != ROOT:
            path.append(node)
            node = self.parents[node]
        return path[::-1]

    def along(self, tokens: Sequence[int]) -> list[int]:
        """The nodes on the path that `tokens` describe from the root, as far as the tree has them."""
        path: list[int] = []
        node: int | None = ROOT
        for token in tokens:
            assert node is not None
            node = self.child(node, token)
            if node is None:
                break
            path.append(node)
        return path

    def below(self, top: int) -> list[int]:
        """All descendants of `top`, parents first; all nodes for ROOT."""
        inside = {top}
        found: list[int] = []
        for node, parent in enumerate(self.parents):
            if parent in inside:
                inside.add(node)
                found.append(node)
        return found

    def select(self, nodes: Sequence[int], root: int = ROOT) -> TokenTree:
        """The tree of only `nodes`, renumbered in this order, with `root` as the new root.

        Raises KeyError unless the parent of each node is `root` or precedes it in `nodes`.
        """
        numbers = {root: ROOT}
        tree = TokenTree()
        for node in nodes:
            numbers[node] = tree.append(self.ids[node], numbers[self.parents[node]])
        return tree

    def prune(self, scores: Sequence[float], budget: int, room: int) -> list[int]:
        """The best `budget` nodes at depths below `room`, ascending. scores: one per node, higher is better.

        No node may score better than its parent. The parents of the selected nodes are then selected too.
        """
        order = sorted(
            (node for node, depth in enumerate(self.depths) if depth < room),
            key=lambda node: (-scores[node], self.depths[node]),
        )
        # A parent has a lower number than its children, so ascending order puts parents first.
        return sorted(order[:budget])


@dataclass(frozen=True)
class TreeSize:
    """budget: most nodes of a draft. depth: draft forward passes, and the longest path. grown: nodes to grow the tree
    for before the best `budget` are kept; 0: as many as the budget.
    """

    budget: int
    depth: int
    grown: int = 0

    @property
    def beam(self) -> int:
        """How many nodes of a level are expanded, and the most children of each."""
        return max(2, -(-(self.grown or self.budget) // self.depth))


@dataclass(frozen=True)
class Draft:
    """Draft tokens and the answer that they continue.

    base: length of the verified answer that the draft continues.
    ids: token id of each node, parents before children.
    parents: parent (node index or ROOT) of each node; None for a chain.
    """

    base: int
    ids: tuple[int, ...]
    parents: tuple[int, ...] | None = None

    @property
    def is_chain(self) -> bool:
        """True if no node has siblings and every node follows its predecessor."""
        return self.parents is None

    @cached_property
    def tree(self) -> TokenTree:
        """The draft as a token tree whose root is the end of the answer. Read-only. The draft must be valid."""
        parents = range(ROOT, len(self.ids) - 1) if self.parents is None else self.parents
        return TokenTree(self.ids, parents)

    def depths(self) -> Sequence[int]:
        """Depth of every node: 0 for children of the root."""
        return range(len(self.ids)) if self.parents is None else self.tree.depths


def check_draft(draft: Draft, vocab_size: int) -> None:
    """Raise ProtocolError unless ids are in the vocabulary and every parent comes before its child."""
    if any(not 0 <= token < vocab_size for token in draft.ids):
        raise ProtocolError(f"a draft token is outside the vocabulary of {vocab_size}")
    if draft.parents is None:
        return
    if len(draft.parents) != len(draft.ids):
        raise ProtocolError(f"a draft of {len(draft.ids)} tokens has {len(draft.parents)} parents")
    for node, parent in enumerate(draft.parents):
        if not ROOT <= parent < node:
            raise ProtocolError(f"draft node {node} has parent {parent}: a parent comes before its child")


def check_history(history: Sequence[int], limit: int, eos_ids: Set[int]) -> None:
    """Raise ProtocolError unless an answer of at most `limit` tokens can continue after `history`."""
    if len(history) >= limit:
        raise ProtocolError(f"the history of {len(history)} tokens leaves no room in an answer of {limit}")
    if any(token in eos_ids for token in history):
        raise ProtocolError("the history holds an end-of-sequence token: that answer is complete")


def usable_nodes(draft: Draft, max_depth: int, stop_ids: Set[int]) -> list[int]:
    """Indices of the nodes at depths below max_depth whose path holds none of `stop_ids`."""
    if draft.parents is None:
        kept = min(len(draft.ids), max(max_depth, 0))
        for index in range(kept):
            if draft.ids[index] in stop_ids:
                return list(range(index))
        return list(range(kept))
    nodes: list[int] = []
    usable = {ROOT}
    for node, depth in enumerate(draft.depths()):
        if depth < max_depth and draft.parents[node] in usable and draft.ids[node] not in stop_ids:
            usable.add(node)
            nodes.append(node)
    return nodes


def select_nodes(draft: Draft, nodes: Sequence[int]) -> Draft:
    """The draft of only `nodes` (ascending, every parent among them), renumbered."""
    if len(nodes) == len(draft.ids):
        return draft
    if draft.parents is None:
        return Draft(draft.base, tuple(draft.ids[node] for node in nodes))
    kept = draft.tree.select(nodes)
    return Draft(draft.base, tuple(kept.ids), tuple(kept.parents))


def common_length(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of the common prefix of two id sequences."""
    most = min(len(one), len(other))
    if one[:most] == other[:most]:  # the usual case, and faster than comparing id by id
        return most
    return next((at for at in range(most) if one[at] != other[at]), most)


def promise_of(chances: Sequence[float]) -> float:
    """Expected number of accepted tokens of a chain. chances: of each token, given that all before it are accepted."""
    return float(sum(accumulate(chances, mul)))
