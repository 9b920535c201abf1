"""Drafting: what the edge proposes. Drafts are trees of tokens (a chain is a tree of width 1)."""

from specdec.drafting.draft import ROOT, Draft, check_draft, select_nodes, usable_nodes
from specdec.drafting.drafter import Drafter

__all__ = ["ROOT", "Draft", "Drafter", "check_draft", "select_nodes", "usable_nodes"]
