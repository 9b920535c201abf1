# SPDX-License-Identifier: Apache-2.0
"""Measures τ of drafts for a target, by question file, without a link.

`python -m specnav.recipes.drafts.measure TARGET DRAFT...`

The target's greedy answers are generated once and kept in --answers, so that all drafts are compared on the same texts.
DRAFT is a folder; "ngram", which looks up earlier continuations; or "both:FOLDER", the better of both in each round.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from specdec.downloads import shipped
from specdec.drafting import DraftModel
from specdec.drafting.lookup.drafter import BetterDrafter, LookupDrafter
from specdec.drafting.lookup.suffixes import SuffixMemory
from specdec.models import Prompt
from specdec.models.drafts import load_draft
from specdec.options import GenerationOptions
from specnav.errors import user_errors
from specnav.recipes.corpus import library
from specnav.recipes.drafts.data.sources import question_prompts
from specnav.recipes.drafts.figures import DraftFigures, draft_figures, tokens_a_round
from specnav.recipes.drafts.network import DraftNetwork
from specnav.recipes.samples import ExitSample, load_samples, read_questions, save_samples

HELD_BACK = "held-back"
"""Used instead of a file: questions about the library's held-back files, on which nothing was trained."""
HELD_BACK_QUESTIONS = 80
NGRAM, BOTH = "ngram", "both:"


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(prog="specnav.recipes.drafts.measure", description=__doc__)
    parser.add_argument("target", type=shipped)
    parser.add_argument("drafts", nargs="+")
    parser.add_argument("--questions", nargs="+", default=[HELD_BACK], metavar="FILE|held-back")
    parser.add_argument("--answers", type=Path, default=Path("runs/draft-answers"))
    parser.add_argument("--gamma", type=int, default=4)
    parser.add_argument("--max-new-tokens", type=int, default=64)
    parser.add_argument("--longest", type=int, default=1024, help="leave longer prompts out")
    asked = parser.parse_args()
    with user_errors():
        answers = {Path(name).stem: _answers(asked, name) for name in asked.questions}
        print(f"τ at γ = {asked.gamma} (agreement), greedy, answers of up to {asked.max_new_tokens} tokens")
        print("| questions | answers | " + " | ".join(map(str, asked.drafts)) + " | a perfect draft |")
        print("|---" * (len(asked.drafts) + 3) + "|")
        for name, texts in answers.items():
            found = [measured(draft, texts, asked.gamma) for draft in asked.drafts]
            cells = " | ".join(f"{one.tau:.2f} ({one.agreement:.1%})" for one in found)
            print(f"| {name} | {len(texts)} | {cells} | {perfect(texts, asked.gamma):.2f} |", flush=True)


def measured(draft: str, texts: list[ExitSample], gamma: int) -> DraftFigures:
    """Figures of a draft, named as on the command line."""
    if draft != NGRAM and not draft.startswith(BOTH):
        return draft_figures(DraftNetwork(shipped(draft)), texts, gamma)
    if draft == NGRAM:
        return replayed(texts, gamma, lambda memory: LookupDrafter(memory))
    model = load_draft(draft.removeprefix(BOTH))
    return replayed(texts, gamma, lambda memory: BetterDrafter(DraftModel(model, GenerationOptions()), memory))


def replayed(
    texts: Sequence[ExitSample], gamma: int, make: Callable[[SuffixMemory], LookupDrafter | BetterDrafter]
) -> DraftFigures:
    """Simulate a drafter round by round on known answers; its lookup memory is kept between answers.

    The agreement of the result is the share of draft tokens that were accepted.
    """
    memory = SuffixMemory()
    gained = offered = accepted = tokens = rounds = 0
    for text in texts:
        drafter = make(memory)
        drafter.prefill(Prompt(text.ids[: text.start]))
        answer = text.ids[text.start :]
        at = 0
        while at < len(answer):
            said = drafter.chain(answer[:at], gamma).draft.ids
            right = next((i for i, token in enumerate(said) if answer[at + i : at + i + 1] != (token,)), len(said))
            offered, accepted, rounds = offered + len(said), accepted + right, rounds + 1
            step = min(right + 1, len(answer) - at)
            gained, at = gained + step, at + step
        memory.follow(answer)
        tokens += len(answer)
    return DraftFigures(len(texts), tokens, gained / max(rounds, 1), accepted / max(offered, 1))


def _answers(asked: argparse.Namespace, name: str) -> list[ExitSample]:
    """The target's answers to one file, generated or read from the cache."""
    file = asked.answers / f"{Path(asked.target).name}-{Path(name).stem}-{asked.max_new_tokens}.jsonl"
    if not file.exists():
        target = DraftNetwork(asked.target)
        prompts = question_prompts(target.loaded, _questions(name), Path(name).stem)
        kept = [prompt for prompt in prompts if len(prompt.ids) <= asked.longest]
        file.parent.mkdir(parents=True, exist_ok=True)
        save_samples(file, target.answer(kept, asked.max_new_tokens))
    return load_samples(file)


def _questions(name: str) -> list[str]:
    if name != HELD_BACK:
        return read_questions(Path(name))
    talks = library().validation.talks
    every = max(len(talks) // HELD_BACK_QUESTIONS, 1)
    return [talk.question for talk in talks[::every]][:HELD_BACK_QUESTIONS]


def perfect(texts: list[ExitSample], gamma: int) -> float:
    """τ of a draft that always agrees; it is below γ + 1 because answers end."""
    gained = [n for text in texts for n in tokens_a_round([True] * (len(text.ids) - text.start), gamma)]
    return sum(gained) / max(len(gained), 1)


if __name__ == "__main__":
    main()
