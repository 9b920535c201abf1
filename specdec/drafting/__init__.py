"""Drafting: what the edge proposes. Drafts are trees of tokens (a chain is a tree of width 1)."""

from specdec.drafting.chain import ChainDrafter
from specdec.drafting.draft import ROOT, Draft, check_draft, select_nodes, usable_nodes
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
    "TreeDrafter",
    "check_draft",
    "select_nodes",
    "usable_nodes",
]
