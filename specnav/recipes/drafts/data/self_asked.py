# SPDX-License-Identifier: Apache-2.0
"""Lets an instruct model invent requests: after its chat template up to the user's text, it continues as the user
(Magpie, arXiv 2406.08464).
"""

from __future__ import annotations

from specdec.errors import ModelError
from specdec.models import LoadedModel, chat_prompt
from specnav.recipes.drafts.network import DraftNetwork, Progress
from specnav.recipes.errors import TrainingError
from specnav.recipes.samples import ExitSample

PROBE = "Zq7"
"""A text that no chat template has; it marks where the user's text begins."""
MIN_P = 0.05
SPARE = 1.2
"""Requests generated per needed one, because some are empty, truncated or duplicates."""
SHORTEST = 8


def self_asked(target: DraftNetwork, count: int, longest: int, seed: int, progress: Progress) -> list[str]:
    """At most `count` different requests of at most `longest` tokens, sampled at temperature 1.

    Raises TrainingError for a target without a chat template.
    """
    prompt = _before_the_user(target.loaded)
    prompts = [ExitSample(prompt, len(prompt), (), "made up")] * round(count * SPARE)
    said = target.answer(prompts, longest, 1.0, seed, progress, MIN_P)
    ends = target.loaded.eos_token_ids
    found: dict[str, str] = {}
    for text in said:
        if text.ids[-1] in ends:
            words = target.loaded.tokenizer.decode(text.ids[text.start : -1], skip_special_tokens=True).strip()
            if len(words) >= SHORTEST:
                found.setdefault(" ".join(words.lower().split()), words)
    return list(found.values())[:count]


def _before_the_user(model: LoadedModel) -> tuple[int, ...]:
    tokenizer = model.tokenizer
    try:
        rendered = tokenizer.decode(chat_prompt(model, PROBE).ids, skip_special_tokens=False)
    except ModelError as error:
        raise TrainingError(f"{model.path}: {error}") from error
    before, probe, _ = rendered.partition(PROBE)
    ids = tuple(tokenizer(before, add_special_tokens=False)["input_ids"])
    if not getattr(tokenizer, "chat_template", None) or not probe or not ids:
        raise TrainingError(
            f"{model.path} has no chat template with a place for the user's text: leave --self-asked out"
        )
    return ids
