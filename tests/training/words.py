"""A few questions, and what a model says to them."""

from __future__ import annotations

from specnav.recipes.drafts.data.sources import question_prompts
from specnav.recipes.drafts.network import DraftNetwork
from specnav.recipes.samples import ExitSample

WORDS = ["one two three", "four five six", "seven eight nine", "ten eleven twelve", "what is this", "say it again"]


def said_by(network: DraftNetwork, count: int = 6, seed: int = 1) -> list[ExitSample]:
    """Sampled answers of twelve tokens."""
    return network.answer(question_prompts(network.loaded, WORDS[:count], "words"), 12, 1.0, seed)
