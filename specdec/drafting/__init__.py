# SPDX-License-Identifier: Apache-2.0
"""Drafting: how the edge proposes tokens. Drafts are token trees; a chain is a tree of width 1.

Drafters, and torch with them, are imported at first use: code that only names a method needs neither.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from specdec.draft import ROOT, Draft, TokenTree, check_draft, select_nodes, usable_nodes

if TYPE_CHECKING:
    from specdec.drafting.chain import ChainDrafter
    from specdec.drafting.drafter import Drafter, DraftModel, Proposal
    from specdec.drafting.outcome_drafter import OutcomeDrafter
    from specdec.drafting.tree_drafter import TreeDrafter

__all__ = [
    "ROOT",
    "ChainDrafter",
    "Draft",
    "DraftModel",
    "Drafter",
    "OutcomeDrafter",
    "Proposal",
    "TokenTree",
    "TreeDrafter",
    "check_draft",
    "select_nodes",
    "usable_nodes",
]
_WITH_TORCH = {
    "ChainDrafter": "chain",
    "DraftModel": "drafter",
    "Drafter": "drafter",
    "OutcomeDrafter": "outcome_drafter",
    "Proposal": "drafter",
    "TreeDrafter": "tree_drafter",
}


def __getattr__(name: str) -> Any:
    if name not in _WITH_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WITH_TORCH[name]}"), name)
