"""Drafting: what the edge proposes. Drafts are trees of tokens (a chain is a tree of width 1)."""

from specdec.drafting.draft import ROOT, Draft, check_draft, shorten
from specdec.drafting.drafter import Drafter

__all__ = ["ROOT", "Draft", "Drafter", "check_draft", "shorten"]
