"""A few questions, and what a model says to them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

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
    return {"texts": said_by(network), "given": [], "prompts": prompts, "held": network.answer(prompts, 12)}


def distil_spec(
    folder: Path, target: Path, draft: str, on_policy: float, given_share: float, reverse: float
) -> DistilSpec:
    """What a draft is to learn from a target's few answers, whose files lie in `folder`."""
    samples = samples_of(str(target))
    files = {name: folder / f"{name}.jsonl" for name in samples}
    for name, file in files.items():
        save_samples(file, samples[name])
    return DistilSpec(
        str(target), draft, files["texts"], files["given"], files["prompts"], files["held"],
        48, 12, on_policy, given_share, reverse, 0.5, 4,
    )  # fmt: skip
