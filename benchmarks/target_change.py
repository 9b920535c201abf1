# SPDX-License-Identifier: Apache-2.0
"""A target that is fine-tuned under its draft: tau before, directly after, and as the draft learns from what was said.

    python -m benchmarks.target_change --questions FILE.jsonl ... [--answers 24,96,192] [--minutes 2]

The text target is fine-tuned here with a LoRA (rank 8 in every linear layer) on the functions of the package
`specdec`, asked for by the first lines of their docstrings. Every fifth question is measured on only. The others are
answered by the new target and logged, as `--verdict-log` does with prompts. After this many answers the shipped draft
learns from the log alone (`specnav train draft --verdict-log`). tau is that of chains (`sd`) at gamma 4, greedy,
counted from the answers of either target; no link and no clock takes part. Everything made lies in a temporary folder.
"""

from __future__ import annotations

import argparse
import ast
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from specdec.drafting import ChainDrafter, DraftModel
from specdec.models import LoadedModel, Prompt, chat_prompt, load_draft, load_model
from specdec.models.local import generate_local
from specdec.options import GenerationOptions
from specdec.verdict_log import LoggedAnswer, VerdictLog
from specnav.recipes.drafts.data.sources import Sources
from specnav.recipes.drafts.train import TrainDraftConfig, train_draft

TARGET, DRAFT = Path("default_models/text-target"), Path("default_models/text-draft")
CODE = Path("specdec")
GAMMA, TOKENS = 4, 48
HELD_OUT = 5
RANK, LORA_LR, LORA_BATCH, MOST_IDS = 8, 1e-3, 4, 128
Answers = list[tuple[Prompt, list[int]]]


class Lora(nn.Module):
    """A linear layer with a low-rank term, which begins as nothing."""

    def __init__(self, inner: nn.Linear) -> None:
        super().__init__()
        self.inner = inner.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(RANK, inner.in_features) / inner.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(inner.out_features, RANK))

    def forward(self, hidden: Tensor) -> Tensor:
        """hidden [..., in_features] -> [..., out_features]."""
        return self.inner(hidden) + hidden @ self.down.T @ self.up.T  # type: ignore[no-any-return]

    def merged(self) -> nn.Linear:
        """The layer with the term in its weights."""
        self.inner.weight.data += self.up.data @ self.down.data
        return self.inner


def fine_tune(steps: int, folder: Path) -> float:
    """Save a fine-tuned target; returns its last loss on what it learnt."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.manual_seed(0)
    network = AutoModelForCausalLM.from_pretrained(TARGET, dtype=torch.float32).requires_grad_(False)
    tokenizer = AutoTokenizer.from_pretrained(TARGET)
    layers = [(name, one) for name, one in network.model.named_modules() if isinstance(one, nn.Linear)]
    added = []
    for name, layer in layers:
        parent, _, own = name.rpartition(".")
        added.append((network.model.get_submodule(parent), own, Lora(layer)))
        setattr(*added[-1])
    learnt = [one for _, _, lora in added for one in (lora.down, lora.up)]
    optimiser = torch.optim.AdamW(learnt, LORA_LR)
    lessons = [lesson for file in sorted(CODE.rglob("*.py")) for lesson in functions(file)]
    loss = torch.tensor(0.0)
    for step in range(steps):
        rows = [lessons[(step * LORA_BATCH + place) * 7 % len(lessons)] for place in range(LORA_BATCH)]
        ids, labels = batch_of(tokenizer, rows)
        loss = network(input_ids=ids, labels=labels).loss
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    for parent, own, lora in added:
        setattr(parent, own, lora.merged())
    shutil.copytree(TARGET, folder)
    network.save_pretrained(folder)
    return loss.item()


def functions(file: Path) -> list[tuple[str, str]]:
    """(first line of the docstring, source) of a file's functions."""
    source = file.read_text(encoding="utf-8")
    made = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    told = [(ast.get_docstring(node), ast.get_source_segment(source, node)) for node in made]
    return [(doc.splitlines()[0], text) for doc, text in told if doc and text]


def batch_of(tokenizer: Any, rows: Sequence[tuple[str, str]]) -> tuple[Tensor, Tensor]:
    """Ids and labels int64 [rows, longest]: only the answers are learnt."""
    made = []
    for question, text in rows:
        prompt = list(chat_prompt(tokenizer, question).ids)
        answer = [*tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id]
        made.append(((prompt + answer)[:MOST_IDS], ([-100] * len(prompt) + answer)[:MOST_IDS]))
    longest = max(len(ids) for ids, _ in made)
    ids = torch.tensor([[*ids, *[0] * (longest - len(ids))] for ids, _ in made])
    labels = torch.tensor([[*labels, *[-100] * (longest - len(labels))] for _, labels in made])
    return ids, labels


def answers_of(model: LoadedModel, prompts: Sequence[Prompt]) -> Answers:
    """What a target says to each, an EOS at its end where it came."""
    found: Answers = []
    for prompt in prompts:
        said = generate_local(model, prompt, GenerationOptions(TOKENS))
        found.append((prompt, said if len(said) == TOKENS else [*said, min(model.eos_token_ids)]))
    return found


def rounds_of(draft: LoadedModel, prompt: Prompt, answer: Sequence[int]) -> list[tuple[int, int]]:
    """The rounds of `sd` behind this answer: tokens drafted and accepted."""
    drafter = ChainDrafter(DraftModel(draft, GenerationOptions(TOKENS)))
    drafter.prefill(prompt)
    rounds, base = [], 1  # the prompt's own row says the first token
    while base < len(answer):
        drafted = drafter.chain(answer[:base], min(GAMMA, len(answer) - base)).draft.ids
        pairs = list(zip(drafted, answer[base:], strict=False))
        accepted = next((place for place, (own, said) in enumerate(pairs) if own != said), len(pairs))
        rounds.append((len(drafted), accepted))
        base += accepted + 1
    return rounds


def tau(draft: LoadedModel, answers: Answers) -> float:
    """Tokens a round, the target's own included."""
    rounds = [one for prompt, answer in answers for one in rounds_of(draft, prompt, answer)]
    return 1.0 + sum(accepted for _, accepted in rounds) / len(rounds)


def main() -> int:
    """Make the target, log its answers, teach the draft, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", nargs="+", type=Path, required=True, help="JSON lines with `turns`")
    parser.add_argument("--limit", type=int, default=40, help="questions of each file")
    parser.add_argument("--answers", default="24,96,192", help="after how many the draft learns, by commas")
    parser.add_argument("--minutes", type=float, default=2.0, help="of training, each time")
    parser.add_argument("--lora-steps", type=int, default=80)
    given = parser.parse_args()
    torch.set_num_threads(1)
    files = [file.read_text(encoding="utf-8").splitlines()[: given.limit] for file in given.questions]
    asked = [json.loads(line)["turns"][0] for row in zip(*files, strict=False) for line in row]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        loss = fine_tune(given.lora_steps, folder / "target")
        old, new, draft = load_model(TARGET), load_model(folder / "target"), load_draft(DRAFT)
        prompts = [chat_prompt(old, text) for text in asked]
        room = draft.context_limit - TOKENS
        prompts = [prompt for prompt in prompts if len(prompt.ids) < room]
        measured = [prompt for place, prompt in enumerate(prompts) if place % HELD_OUT == 0]
        before, after = answers_of(old, measured), answers_of(new, measured)
        same = sum(one == other for one, other in zip(before, after, strict=True))
        begins = len({tuple(answer[:12]) for _, answer in after})
        print(f"LoRA of {given.lora_steps} steps, loss {loss:.2f}: {same} of {len(measured)} answers as before")
        print(f"{begins} different beginnings of 12 tokens, e.g. {old.tokenizer.decode(after[0][1])!r}")
        print("| draft | tau, new target | tau, old target |\n|---|---|---|")
        print(f"| shipped | {tau(draft, after):.2f} | {tau(draft, before):.2f} |", flush=True)
        traffic = [prompt for place, prompt in enumerate(prompts) if place % HELD_OUT]
        said = answers_of(new, traffic)
        for count in (int(number) for number in given.answers.split(",")):
            log = VerdictLog(folder / f"log-{count}", "prompts")
            for prompt, answer in said[:count]:
                rounds = tuple(rounds_of(draft, prompt, answer))
                logged = LoggedAnswer(old.vocabulary_fingerprint, tuple(answer), rounds, 0.0, tuple(prompt.ids))
                log.add(logged)
            log.close()
            out = folder / f"draft-{count}"
            train_draft(
                TrainDraftConfig(
                    "", str(DRAFT), out, folder / f"run-{count}", sources=Sources(verdicts=(log.folder,)),
                    held_out=max(2, count // 16), minutes=given.minutes, lr=5e-4, compile=False,
                )
            )  # fmt: skip
            taught = load_draft(out)
            row = f"| after {min(count, len(said))} answers | {tau(taught, after):.2f} | {tau(taught, before):.2f} |"
            print(row, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
