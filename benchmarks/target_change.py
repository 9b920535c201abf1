# SPDX-License-Identifier: Apache-2.0
"""A target that is replaced by a fine-tuned one while an edge runs: tau before, after, and as the draft learns.

    python -m benchmarks.target_change --questions FILE.jsonl ... [--pair text|smollm2] [--keep DIR]

The pair's target is fine-tuned with a LoRA (rank 8 in every linear layer) on the functions of the package `specdec`,
each requested by the first line of its docstring. This process is the edge; the verifier is another process, on
loopback. After 16 answers it is killed in the middle of one, and a verifier with the fine-tuned target is started in
its place. The edge continues, and keeps a log of verdicts. After each number of answers in `--answers`, a third process
trains the draft on that log (`specnav train draft --verdict-log`) beside the edge, which switches to the new draft
between two answers. tau is that of greedy chains (`sd`) at gamma 4. Forwards of the target are paced, which does not
change tau. Every fifth question is held out: it is only used to measure tau, without a link. Every answer is compared
with that of its target alone. `--keep DIR` keeps the fine-tuned target and both targets' own answers, so that a second
run, for example with another draft, can reuse them.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
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
from specdec.whole_files import write_whole
from specnav.paths import ROOT
from specnav.published.pairs import pair_named
from specnav.supervise.children import LOOPBACK, endpoint_of, verifier_spec
from specnav.supervise.processes import Child, ChildSpec, Supervisor

CODE = ROOT / "specdec"
GAMMA = 4
HELD_OUT = 5
BEFORE, WINDOW = 16, 32
"""Number of answers from the first target; a row of the table has about as many from the second."""
VERIFY_MS = 60.0
PATIENCE_S = 600.0
RANK, LORA_LR, LORA_BATCH, MOST_IDS = 8, 1e-3, 4, 128
Answers = list[tuple[Prompt, list[int]]]


@dataclass(frozen=True)
class Size:
    """Settings for the size of a pair. tokens: length of an answer. questions: number from each file. answers: numbers
    of answers of the new target after which the draft learns. half: train in bfloat16. learning: flags of `specnav
    train draft`.
    """

    tokens: int
    questions: int
    answers: str
    half: bool
    learning: tuple[str, ...]


SIZES = {
    "text": Size(48, 80, "16,64,160", False, ("--minutes", "1", "--lr", "5e-4")),
    # This many updates take a minute on a core with AMX. The head over 49,152 tokens would take longer than the layers.
    "smollm2": Size(32, 30, "16,64", True, (
        "--steps", "150", "--lr", "1e-3", "--batch", "5", "--length", "256", "--new-tokens", "32", "--tokens", "4096",
    )),
}  # fmt: skip


class Lora(nn.Module):
    """A linear layer with a low-rank term, which is zero at first."""

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


def fine_tune(target: str, steps: int, half: bool, folder: Path) -> float:
    """Fine-tune a target and save it; returns its last training loss. half: train in bfloat16."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.manual_seed(0)
    network = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32).requires_grad_(False)
    tokenizer = AutoTokenizer.from_pretrained(target)
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
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            loss = network(input_ids=ids, labels=labels).loss
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    for parent, own, lora in added:
        setattr(parent, own, lora.merged())
    building = folder.with_name(f"{folder.name} (building)")
    shutil.rmtree(building, ignore_errors=True)
    shutil.copytree(target, building, ignore=shutil.ignore_patterns("*.safetensors", "*.gguf"))
    network.save_pretrained(building)
    building.rename(folder)
    return loss.item()


def functions(file: Path) -> list[tuple[str, str]]:
    """(first line of the docstring, source) of a file's functions."""
    source = file.read_text(encoding="utf-8")
    made = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    told = [(ast.get_docstring(node), ast.get_source_segment(source, node)) for node in made]
    return [(doc.splitlines()[0], text) for doc, text in told if doc and text]


def batch_of(tokenizer: Any, rows: Sequence[tuple[str, str]]) -> tuple[Tensor, Tensor]:
    """Ids and labels, int64 [rows, longest]; only the answers have labels."""
    made = []
    for question, text in rows:
        prompt = list(chat_prompt(tokenizer, question).ids)
        answer = [*tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id]
        made.append(((prompt + answer)[:MOST_IDS], ([-100] * len(prompt) + answer)[:MOST_IDS]))
    longest = max(len(ids) for ids, _ in made)
    ids = torch.tensor([[*ids, *[0] * (longest - len(ids))] for ids, _ in made])
    labels = torch.tensor([[*labels, *[-100] * (longest - len(labels))] for _, labels in made])
    return ids, labels


@dataclass(frozen=True)
class Alone:
    """A target without a link; its answers are kept in a folder, one file each."""

    model: LoadedModel
    tokens: int
    folder: Path

    def says(self, prompt: Prompt) -> list[int]:
        """Its answer to a prompt."""
        about = repr((self.model.weights_digest, self.tokens, prompt.ids)).encode()
        file = self.folder / f"{hashlib.sha256(about).hexdigest()[:32]}.json"
        if not file.exists():
            answer = generate_local(self.model, prompt, GenerationOptions(self.tokens))
            write_whole(file, json.dumps(answer).encode())
        return list(json.loads(file.read_bytes()))

    def to_each(self, prompts: Sequence[Prompt]) -> Answers:
        """Its answers to several."""
        return [(prompt, self.says(prompt)) for prompt in prompts]


def rounds_of(draft: LoadedModel, prompt: Prompt, answer: Sequence[int], tokens: int) -> list[tuple[int, int]]:
    """The rounds in which `sd` would give this answer: tokens drafted and accepted. An answer shorter than `tokens`
    ends with an EOS.
    """
    drafter = ChainDrafter(DraftModel(draft, GenerationOptions(tokens)))
    drafter.prefill(prompt)
    answer = answer if len(answer) == tokens else [*answer, min(draft.eos_token_ids)]
    rounds, base = [], 1  # the prompt's own row gives the first token
    while base < len(answer):
        drafted = drafter.chain(answer[:base], min(GAMMA, len(answer) - base)).draft.ids
        pairs = list(zip(drafted, answer[base:], strict=False))
        accepted = next((place for place, (own, said) in enumerate(pairs) if own != said), len(pairs))
        rounds.append((len(drafted), accepted))
        base += accepted + 1
    return rounds


def tau(draft: LoadedModel, answers: Answers, tokens: int) -> float:
    """Mean tokens per round without a link, the target's own token included."""
    return mean_tau([one for prompt, answer in answers for one in rounds_of(draft, prompt, answer, tokens)])


def mean_tau(rounds: Sequence[tuple[int, int]]) -> float:
    """tau of these rounds, each given by its tokens drafted and accepted."""
    return 1.0 + sum(accepted for _, accepted in rounds) / len(rounds)


@dataclass(frozen=True)
class Answered:
    """One answer over the link. draft: the draft that the edge used."""

    prompt: Prompt
    ids: list[int]
    rounds: list[tuple[int, int]]
    draft: str


@dataclass
class RunningEdge:
    """An edge that keeps running while its verifier's target changes and its draft learns.

    drafts: all drafts by name, the current one included. answered: answers of the second target. learner: the process
    that trains, if one is running.
    """

    size: Size
    folder: Path
    supervisor: Supervisor
    decoder: EdgeDecoder
    drafts: dict[str, LoadedModel]
    drafting: str = "shipped"
    answered: list[Answered] = field(default_factory=list)
    learner: Child | None = None

    def ask(self, prompt: Prompt) -> Answered:
        """One answer. Raises TargetChanged."""
        ids = [token for chunk in self.decoder.generate(prompt, self._options) for token in chunk]
        rounds = [(one.drafted, one.accepted) for one in self.decoder.stats.rounds]
        return Answered(prompt, ids, rounds, self.drafting)

    def change_target(self, prompt: Prompt, first: Child, second: ChildSpec) -> tuple[list[int], float, float]:
        """Kill the verifier in the middle of an answer and start the other one. Returns the part of the answer that was
        given, and the seconds from the kill until the other verifier was ready and until the edge had noticed.
        """
        ids: list[int] = []
        killed_s = 0.0
        try:
            for chunk in self.decoder.generate(prompt, self._options):
                ids += chunk
                if not killed_s and len(ids) >= self.size.tokens // 4:
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

    @property
    def _options(self) -> GenerationOptions:
        return GenerationOptions(self.size.tokens)

    def go_on(self, prompts: Sequence[Prompt], learn_after: Sequence[int]) -> None:
        """Answer these questions, train the draft after each of the given numbers of answers, and stop one window of
        answers after the last trained draft. Waits for a training process only if the questions would run out.
        """
        waiting, took_over = list(learn_after), 0
        for prompt in prompts:
            self.answered.append(self.ask(prompt))
            count = len(self.answered)
            if self.learner is not None and len(prompts) - count <= WINDOW + len(waiting) + 1:
                self.learner.process.wait()
            if self.learner is not None and self.learner.process.poll() is not None:
                self._take_over(self.learner)
                took_over = count
            if waiting and self.learner is None and count >= waiting[0]:
                waiting.pop(0)
                self._learn(count)
            if not waiting and self.learner is None and count >= took_over + WINDOW:
                return
        raise AssertionError("the questions ran out before the draft was trained: give more of them")

    def _learn(self, count: int) -> None:
        out = self.folder / f"learnt from {count}"
        start = self.drafts["shipped"].path
        argv = [sys.executable, "-m", "specnav.cli", "train", "draft", "--draft", start, "--out", out]
        argv += ["--verdict-log", self.folder / "log", "--held-out", max(2, count // 16)]
        argv += [*self.size.learning, "--no-compile"]
        self.learner = self.supervisor.start(ChildSpec(out.name, [str(word) for word in argv], cwd=ROOT))

    def _take_over(self, learner: Child) -> None:
        """Switch to the draft that was trained."""
        assert learner.process.returncode == 0, learner.log.read_text()
        self.drafting, self.learner = learner.name, None
        self.drafts[self.drafting] = load_draft(self.folder / self.drafting)
        self.decoder.swap_draft(self.drafts[self.drafting])
        self.supervisor.stop(self.drafting)

    def table(self) -> list[str]:
        """tau by answers since the change, next to that of the shipped draft on the same answers."""
        lines = ["| answers | draft | tau over the edge | the shipped draft's |", "|---|---|---|---|"]
        done = 0
        for name, group in itertools.groupby(self.answered, lambda one: one.draft):
            same = list(group)
            rows = max(1, round(len(same) / WINDOW))
            for row in range(rows):
                part = same[row * len(same) // rows : (row + 1) * len(same) // rows]
                own = mean_tau([one for answer in part for one in answer.rounds])
                shipped = tau(self.drafts["shipped"], [(one.prompt, one.ids) for one in part], self.size.tokens)
                lines.append(f"| {done + 1} to {done + len(part)} | {name} | {own:.2f} | {shipped:.2f} |")
                done += len(part)
        return lines


def main() -> int:
    """Fine-tune, answer, change the target, train the draft, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", nargs="+", type=Path, required=True, help="JSON lines with `turns`")
    parser.add_argument("--pair", choices=list(SIZES), default="text")
    parser.add_argument("--draft", help="folder of a draft to use instead of the pair's")
    parser.add_argument("--limit", type=int, help="questions from each file; the default depends on the pair")
    parser.add_argument("--answers", help="answers of the new target after which the draft learns, like 16,64")
    parser.add_argument("--lora-steps", type=int, default=80)
    parser.add_argument("--keep", type=Path, help="folder for results that a second run can reuse")
    given = parser.parse_args()
    torch.set_num_threads(1)
    pair, size = pair_named(given.pair), SIZES[given.pair]
    limit, learn_after = given.limit or size.questions, (given.answers or size.answers).split(",")
    files = [file.read_text(encoding="utf-8").splitlines()[:limit] for file in given.questions]
    asked = [json.loads(line)["turns"][0] for row in zip(*files, strict=False) for line in row]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        kept = (given.keep or folder).resolve()
        (said := kept / "said").mkdir(parents=True, exist_ok=True)
        tuned = kept / f"{given.pair}, {given.lora_steps} steps"
        if not tuned.is_dir():
            loss = fine_tune(pair.target, given.lora_steps, size.half, tuned)
            print(f"LoRA of {given.lora_steps} steps: loss {loss:.2f}", flush=True)
        draft = load_draft(Path(given.draft).resolve() if given.draft else pair.draft)
        old, new = (Alone(load_model(target), size.tokens, said) for target in (pair.target, tuned))
        prompts = [chat_prompt(old.model, text) for text in asked]
        prompts = [prompt for prompt in prompts if len(prompt.ids) < draft.context_limit - size.tokens]
        measured = [prompt for place, prompt in enumerate(prompts) if place % HELD_OUT == 0]
        traffic = [prompt for place, prompt in enumerate(prompts) if place % HELD_OUT]

        supervisor = stack.enter_context(Supervisor(folder))
        config = ServerConfig(pair.target, bind=f"{LOOPBACK}:0", verify_ms=VERIFY_MS)
        first = supervisor.start(verifier_spec(config, {}))
        address = endpoint_of(supervisor.wait_ready(first, PATIENCE_S))
        second = verifier_spec(replace(config, model=str(tuned), bind=address), {})
        log = VerdictLog(folder / "log", "prompts", part_s=1.0)
        stack.callback(log.close)
        link = stack.enter_context(connect(address))
        decoder = EdgeDecoder(link, draft, "sd", GAMMA, resume_timeout_s=PATIENCE_S, verdict_log=log)
        edge = RunningEdge(size, folder, supervisor, decoder, {"shipped": draft})
        earlier = [edge.ask(prompt) for prompt in traffic[:BEFORE]]
        broken, ready_s, noticed_s = edge.change_target(traffic[BEFORE], first, replace(second, name="second"))
        print(f"the second verifier was ready {ready_s:.1f} s after the kill; the edge noticed after {noticed_s:.1f} s")
        first_rounds = [one for answer in earlier for one in answer.rounds]
        print(f"tau before the change: {mean_tau(first_rounds):.2f}, of {len(earlier)} answers", flush=True)
        edge.go_on(traffic[BEFORE:], [int(number) for number in learn_after])
        print("\n".join(edge.table()), flush=True)

        begun = old.says(traffic[BEFORE])
        kind = "as" if broken == begun[: len(broken)] else "NOT as"
        print(f"broken off after {len(broken)} of {len(begun)} tokens, {kind} the first target says", flush=True)
        told = [(target, one) for target, answers in ((old, earlier), (new, edge.answered)) for one in answers]
        exact = sum(target.says(one.prompt) == one.ids for target, one in told)
        print(f"{exact} of {len(told)} answers are their target's own, {len(earlier)} of them the first one's")
        before, after = old.to_each(measured), new.to_each(measured)
        same = sum(one == other for one, other in zip(before, after, strict=True))
        print(f"{same} of {len(measured)} held-out answers are the same from both targets; without a link:")
        print("| draft | tau, new target | tau, old target |\n|---|---|---|")
        for name, model in edge.drafts.items():
            figures = (tau(model, answers, size.tokens) for answers in (after, before))
            print("|", name, *(f"| {figure:.2f}" for figure in figures), "|", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
