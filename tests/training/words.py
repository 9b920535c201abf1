"""A few questions, and what a model says to them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from specnav.recipes.drafts.config import TrainDraftConfig
from specnav.recipes.drafts.data.sources import question_prompts
from specnav.recipes.drafts.network import DraftNetwork
from specnav.recipes.drafts.task import DistilSpec
from specnav.recipes.samples import ExitSample, save_samples

WORDS = ["one two three", "four five six", "seven eight nine", "ten eleven twelve", "what is this", "say it again"]


def said_by(network: DraftNetwork, count: int = 6, seed: int = 1) -> list[ExitSample]:
    """Sampled answers of twelve tokens."""
    return network.answer(question_prompts(network.loaded, WORDS[:count], "words"), 12, 1.0, seed)


@cache
def samples_of(target: str) -> dict[str, list[ExitSample]]:
    """What a target says, by what it is for."""
    network = DraftNetwork(target)
    prompts = question_prompts(network.loaded, WORDS, "words")
    return {"texts": said_by(network), "given": [], "prompts": prompts, "held-out": network.answer(prompts, 12)}


def distil_spec(
    folder: Path, target: Path, draft: str, on_policy: float, given_share: float, reverse: float
) -> DistilSpec:
    """What a draft is to learn from a target's few answers, whose files lie in `folder`."""
    config = TrainDraftConfig(
        draft, folder / "out", folder, str(target), length=48, new_tokens=12, on_policy=on_policy,
        given_share=given_share, reverse=reverse, hard=0.5, gamma=4,
    )  # fmt: skip
    for name, samples in samples_of(str(target)).items():
        save_samples(config.samples(name), samples)
    return DistilSpec(config, draft)
