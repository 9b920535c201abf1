# SPDX-License-Identifier: Apache-2.0
"""A target that is fine-tuned under its draft, over a running edge: tau before, after, and as the draft learns.

    python -m benchmarks.target_change --questions FILE.jsonl ... [--answers 16,64,160] [--minutes 1]

The text target is fine-tuned with a LoRA (rank 8 in every linear layer) on the functions of the package `specdec`,
asked for by the first lines of their docstrings. This process is the edge; the verifier is another, on loopback. After
16 answers it is killed in the middle of one, and one with the fine-tuned target is started in its place. The edge goes
on, and keeps a log of verdicts. After each of `--answers` a third process learns from that log (`specnav train draft
--verdict-log`), beside the edge, which takes the new draft over between two answers. tau is that of chains (`sd`) at
gamma 4, greedy. Forwards of the target are paced, which changes no tau. Every fifth question is only measured on,
without a link. Every answer is compared with that of its target alone.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cloud_verifier.config import ServerConfig
from specdec.drafting import ChainDrafter, DraftModel
from specdec.edge.decoder import EdgeDecoder, connect
from specdec.errors import TargetChanged
from specdec.models import LoadedModel, Prompt, chat_prompt, load_draft, load_model
from specdec.models.local import generate_local
from specdec.options import GenerationOptions
from specdec.verdict_log import VerdictLog
from specnav.paths import DEFAULT_TEXT_DRAFT, DEFAULT_TEXT_TARGET, ROOT
from specnav.supervise.children import LOOPBACK, endpoint_of, verifier_spec
from specnav.supervise.processes import Child, ChildSpec, Supervisor

TARGET, DRAFT = DEFAULT_TEXT_TARGET, DEFAULT_TEXT_DRAFT
CODE = ROOT / "specdec"
GAMMA, TOKENS = 4, 48
HELD_OUT = 5
BEFORE, WINDOW = 16, 32
"""Answers of the first target; about so many of the second make a row of the table."""
VERIFY_MS = 60.0
PATIENCE_S = 120.0
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
    """What a target says to each."""
    return [(prompt, generate_local(model, prompt, GenerationOptions(TOKENS))) for prompt in prompts]


def rounds_of(draft: LoadedModel, prompt: Prompt, answer: Sequence[int]) -> list[tuple[int, int]]:
    """The rounds of `sd` behind this answer: tokens drafted and accepted. An answer that is short ends with an EOS."""
    drafter = ChainDrafter(DraftModel(draft, GenerationOptions(TOKENS)))
    drafter.prefill(prompt)
    answer = answer if len(answer) == TOKENS else [*answer, min(draft.eos_token_ids)]
    rounds, base = [], 1  # the prompt's own row says the first token
    while base < len(answer):
        drafted = drafter.chain(answer[:base], min(GAMMA, len(answer) - base)).draft.ids
        pairs = list(zip(drafted, answer[base:], strict=False))
        accepted = next((place for place, (own, said) in enumerate(pairs) if own != said), len(pairs))
        rounds.append((len(drafted), accepted))
        base += accepted + 1
    return rounds


def tau(draft: LoadedModel, answers: Answers) -> float:
    """Tokens a round, the target's own included; without a link."""
    return mean_tau([one for prompt, answer in answers for one in rounds_of(draft, prompt, answer)])


def mean_tau(rounds: Sequence[tuple[int, int]]) -> float:
    """rounds: tokens drafted and accepted."""
    return 1.0 + sum(accepted for _, accepted in rounds) / len(rounds)


@dataclass(frozen=True)
class Answered:
    """One answer over the link. draft: what the edge drafted with."""

    prompt: Prompt
    ids: list[int]
    rounds: list[tuple[int, int]]
    draft: str


@dataclass
class RunningEdge:
    """An edge that goes on while its verifier's target changes and its draft learns.

    drafts: by their names, the one that drafts among them. answered: of the second target. learner: while one learns.
    """

    folder: Path
    supervisor: Supervisor
    decoder: EdgeDecoder
    drafts: dict[str, LoadedModel]
    drafting: str = "shipped"
    answered: list[Answered] = field(default_factory=list)
    learner: Child | None = None

    def ask(self, prompt: Prompt) -> Answered:
        """One answer. Raises TargetChanged."""
        ids = [token for chunk in self.decoder.generate(prompt, GenerationOptions(TOKENS)) for token in chunk]
        rounds = [(one.drafted, one.accepted) for one in self.decoder.stats.rounds]
        return Answered(prompt, ids, rounds, self.drafting)

    def change_target(self, prompt: Prompt, first: Child, second: ChildSpec) -> tuple[list[int], float, float]:
        """Kill the verifier in the middle of an answer and start the other one. Returns what was given of the answer,
        and the seconds from the kill until the other verifier was ready, and until the edge had noticed.
        """
        ids: list[int] = []
        killed_s = 0.0
        try:
            for chunk in self.decoder.generate(prompt, GenerationOptions(TOKENS)):
                ids += chunk
                if not killed_s and len(ids) >= TOKENS // 4:
                    killed_s = time.time()
                    first.process.send_signal(signal.SIGKILL)
                    self.supervisor.stop(first.name)
                    child = self.supervisor.start(second)
        except TargetChanged as error:
            noticed_s = time.time()
            print(f"edge: {error}", flush=True)
        else:
            raise AssertionError("the answer went on over the change")
        ready = json.loads(self.supervisor.wait_ready(child, PATIENCE_S))
        return ids, ready["time"] - killed_s, noticed_s - killed_s

    def go_on(self, prompts: Sequence[Prompt], learn_after: Sequence[int], minutes: float) -> None:
        """Answer these, learn after so many answers, and end a window of answers behind the last draft that learnt."""
        waiting, took_over = list(learn_after), 0
        for prompt in prompts:
            self.answered.append(self.ask(prompt))
            count = len(self.answered)
            if self.learner is not None and self.learner.process.poll() is not None:
                self._take_over(self.learner)
                took_over = count
            if waiting and self.learner is None and count >= waiting[0]:
                waiting.pop(0)
                self._learn(count, minutes)
            if not waiting and self.learner is None and count >= took_over + WINDOW:
                return
        raise AssertionError("the questions ended before the draft had learnt: give more of them")

    def _learn(self, count: int, minutes: float) -> None:
        out = self.folder / f"learnt from {count}"
        argv = [sys.executable, "-m", "specnav.cli", "train", "draft", "--draft", DRAFT, "--out", out]
        argv += ["--verdict-log", self.folder / "log", "--held-out", max(2, count // 16)]
        argv += ["--minutes", minutes, "--lr", 5e-4, "--no-compile"]
        self.learner = self.supervisor.start(ChildSpec(out.name, [str(word) for word in argv], cwd=ROOT))

    def _take_over(self, learner: Child) -> None:
        """Draft with what was learnt."""
        assert learner.process.returncode == 0, learner.log.read_text()
        self.drafting, self.learner = learner.name, None
        self.drafts[self.drafting] = load_draft(self.folder / self.drafting)
        self.decoder.swap_draft(self.drafts[self.drafting])
        self.supervisor.stop(self.drafting)

    def table(self) -> list[str]:
        """tau by answers since the change, beside what the shipped draft would have had in the same answers."""
        lines = ["| answers | draft | tau over the edge | the shipped draft's |", "|---|---|---|---|"]
        done = 0
        for name, group in itertools.groupby(self.answered, lambda one: one.draft):
            same = list(group)
            rows = max(1, round(len(same) / WINDOW))
            for row in range(rows):
                part = same[row * len(same) // rows : (row + 1) * len(same) // rows]
                own = mean_tau([one for answer in part for one in answer.rounds])
                shipped = tau(self.drafts["shipped"], [(one.prompt, one.ids) for one in part])
                lines.append(f"| {done + 1} to {done + len(part)} | {name} | {own:.2f} | {shipped:.2f} |")
                done += len(part)
        return lines


def main() -> int:
    """Fine-tune, answer, change the target, learn, print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", nargs="+", type=Path, required=True, help="JSON lines with `turns`")
    parser.add_argument("--limit", type=int, default=80, help="questions of each file")
    parser.add_argument("--answers", default="16,64,160", help="of the new target: the draft learns after these")
    parser.add_argument("--minutes", type=float, default=1.0, help="of training, each time")
    parser.add_argument("--lora-steps", type=int, default=80)
    given = parser.parse_args()
    torch.set_num_threads(1)
    files = [file.read_text(encoding="utf-8").splitlines()[: given.limit] for file in given.questions]
    asked = [json.loads(line)["turns"][0] for row in zip(*files, strict=False) for line in row]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        loss = fine_tune(given.lora_steps, folder / "target")
        old, new, draft = load_model(TARGET), load_model(folder / "target"), load_draft(DRAFT)
        prompts = [chat_prompt(old, text) for text in asked]
        prompts = [prompt for prompt in prompts if len(prompt.ids) < draft.context_limit - TOKENS]
        measured = [prompt for place, prompt in enumerate(prompts) if place % HELD_OUT == 0]
        traffic = [prompt for place, prompt in enumerate(prompts) if place % HELD_OUT]
        before, after = answers_of(old, measured), answers_of(new, measured)
        same = sum(one == other for one, other in zip(before, after, strict=True))
        print(f"LoRA of {given.lora_steps} steps, loss {loss:.2f}: {same} of {len(measured)} held-out answers stay")

        supervisor = stack.enter_context(Supervisor(folder))
        config = ServerConfig(str(TARGET), bind=f"{LOOPBACK}:0", verify_ms=VERIFY_MS)
        first = supervisor.start(verifier_spec(config, {}))
        address = endpoint_of(supervisor.wait_ready(first, PATIENCE_S))
        second = verifier_spec(replace(config, model=str(folder / "target"), bind=address), {})
        log = VerdictLog(folder / "log", "prompts", part_s=1.0)
        stack.callback(log.close)
        link = stack.enter_context(connect(address))
        decoder = EdgeDecoder(link, draft, "sd", GAMMA, resume_timeout_s=PATIENCE_S, verdict_log=log)
        edge = RunningEdge(folder, supervisor, decoder, {"shipped": draft})
        earlier = [edge.ask(prompt) for prompt in traffic[:BEFORE]]
        broken, ready_s, noticed_s = edge.change_target(traffic[BEFORE], first, replace(second, name="second"))
        edge.go_on(traffic[BEFORE:], [int(number) for number in given.answers.split(",")], given.minutes)

        alone = [generate_local(model, one.prompt, GenerationOptions(TOKENS)) for model, said in
                 ((old, earlier), (new, edge.answered)) for one in said]  # fmt: skip
        exact = sum(one.ids == ids for one, ids in zip([*earlier, *edge.answered], alone, strict=True))
        begun = generate_local(old, traffic[BEFORE], GenerationOptions(TOKENS))
        print(f"{exact} of {len(alone)} answers are their target's own, {len(earlier)} of them the first one's")
        kept = "as" if broken == begun[: len(broken)] else "NOT as"
        print(f"broken off after {len(broken)} of {len(begun)} tokens, {kept} the first target says")
        print(f"the second verifier was ready {ready_s:.1f} s after the kill; the edge knew after {noticed_s:.1f} s")
        print(f"tau before the change: {mean_tau([one for said in earlier for one in said.rounds]):.2f}")
        print("\n".join(edge.table()))
        print(f"{len(measured)} held-out answers, without a link:")
        print("| draft | tau, new target | tau, old target |\n|---|---|---|")
        for name, model in edge.drafts.items():
            print(f"| {name} | {tau(model, after):.2f} | {tau(model, before):.2f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
