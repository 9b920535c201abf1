"""The draft: what leaves of a token tree in one round (in a chain every node follows the one before)."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from functools import cached_property

from specdec.errors import ProtocolError
from specdec.token_tree import ROOT, TokenTree


@dataclass(frozen=True)
class TreeSize:
    """budget: nodes a draft may have. depth: draft forwards, and the longest path. grown: it is grown as if of so many
    nodes, the best of which are kept; 0: as many as the budget.
    """

    budget: int
    depth: int
    grown: int = 0

    @property
    def beam(self) -> int:
        """How many nodes of a level are expanded, and how many children each may get."""
        return max(2, -(-(self.grown or self.budget) // self.depth))


@dataclass(frozen=True)
class Draft:
    """Draft tokens and what they assume.

    base: length of the verified answer the draft continues.
    ids: one token id a node, parents before children.
    parents: one node index (or ROOT) a node; None for a chain.
    """

    base: int
    ids: tuple[int, ...]
    parents: tuple[int, ...] | None = None

    @property
    def is_chain(self) -> bool:
        """True where no node has siblings and every node follows its predecessor."""
        return self.parents is None

    @cached_property
    def tree(self) -> TokenTree:
        """The same as a token tree, below the end of the answer; not to be changed. Takes a sound draft."""
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


def usable_nodes(draft: Draft, max_depth: int, stop_ids: Set[int]) -> list[int]:
    """Indices of the nodes at depths below max_depth that are neither one of `stop_ids` nor below one."""
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
    """The draft of only `nodes` (ascending, every parent among them), numbered anew."""
    if len(nodes) == len(draft.ids):
        return draft
    if draft.parents is None:
        return Draft(draft.base, tuple(draft.ids[node] for node in nodes))
    kept = draft.tree.select(nodes)
    return Draft(draft.base, tuple(kept.ids), tuple(kept.parents))
