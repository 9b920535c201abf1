"""What a draft learns in a batch: the loss, texts that share a row, and what the target says to each."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from PIL import Image
from shrunken import build

from specdec.models import chat_prompt
from tests.training.words import WORDS, said_by
from training.drafts.data.sources import question_prompts
from training.drafts.network import Network
from training.drafts.packing import pack
from training.drafts.task import DistilSpec, DistilTask
from training.drafts.teacher import Teacher
from training.errors import TrainingError
from training.exits.samples import Sample, save_samples
from training.optimiser import MuonAdamW


@pytest.fixture
def task(model_root: Path, tmp_path: Path) -> DistilTask:
    """The text pair's draft, about to learn from its target."""
    target = Network(str(model_root / "text-target"))
    prompts = question_prompts(target.loaded, WORDS, "words")
    files = {name: tmp_path / f"{name}.jsonl" for name in ("texts", "given", "prompts", "held")}
    save_samples(files["texts"], said_by(target))
    save_samples(files["given"], [])
    save_samples(files["prompts"], prompts)
    save_samples(files["held"], target.answer(prompts, 12))
    spec = DistilSpec(
        str(model_root / "text-target"), str(model_root / "text-draft"), files["texts"], files["given"],
        files["prompts"], files["held"], 48, 12, 0.5, 0.25, 0.0, 0.5, 4,
    )  # fmt: skip
    return DistilTask(spec, "cpu")


def test_learning_brings_the_draft_nearer_to_the_target(task: DistilTask) -> None:
    optimiser, losses, agrees = MuonAdamW(task.model), [], []
    batch = task.batch(torch.Generator().manual_seed(0), 6)
    for _ in range(30):
        loss, said = task.loss(*batch)
        task.model.zero_grad()
        loss.backward()
        optimiser.step(3e-3)
        losses.append(float(loss.detach()))
        agrees.append(float(said["agrees"]))
    assert losses[-1] < 0.7 * losses[0] and agrees[-1] > agrees[0]


def test_a_draft_that_is_the_target_has_nothing_to_learn(task: DistilTask, model_root: Path) -> None:
    task.draft = Network(str(model_root / "text-target"))
    loss, said = task.loss(*task.batch(torch.Generator().manual_seed(0), 4))
    assert float(said["apart"]) == pytest.approx(0.0, abs=1e-5) and float(said["agrees"]) == pytest.approx(1.0)
    assert task.at_checkpoint()["agreement"] == 1.0
    assert float(loss.detach()) > 0.0  # the likeliest token is not certain


def test_the_loss_is_the_mixture_it_is_said_to_be(task: DistilTask) -> None:
    """Against whole distributions worked out text by text; what the lump leaves out is nothing where all is known."""
    assert task.target is not None
    task.teacher = Teacher(task.target, task.draft, task.spec.length, task.target.vocabulary)
    torch.manual_seed(0)
    spoken = iter([*task.texts, *task.texts][: 2 * len(task.texts)])
    heard: list[Sample] = []
    task._one = lambda generator: heard.append(next(spoken)) or heard[-1]  # type: ignore[method-assign,func-returns-value]
    batch = task.batch(torch.Generator().manual_seed(3), 3)
    loss, _ = task.loss(*batch)
    wanted, count = 0.0, 0
    for text in heard[:-1]:  # the last one found no room
        p, q = (of.logits(*_alone(text))[0].detach().softmax(-1) for of in (task.target, task.draft))
        for place in range(text.start - 1, len(text.ids) - 1):
            a, b = p[place], q[place]
            kl, reverse = float((a * (a / b).log()).sum()), float((b * (b / a).log()).sum())
            wanted += 0.5 * (0.75 * kl + 0.25 * reverse) - 0.5 * float(b[a.argmax()].log())
            count += 1
    assert count > 20 and float(loss.detach()) == pytest.approx(wanted / count, rel=2e-3)


def _alone(text: Sample) -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.tensor(text.ids)[None]
    return ids, torch.arange(ids.shape[1])[None]


@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
def test_texts_in_one_row_do_not_see_each_other(model_root: Path, kernel: str) -> None:
    network = Network(str(model_root / "text-target"))
    network.module.set_attn_implementation(kernel)
    texts = said_by(network)
    turn = iter(texts * 3)
    packed = pack(lambda: next(turn), 2, 120)
    assert len(packed.samples) > 2  # at least one row holds more than one
    found = network.logits(packed.ids, packed.positions, None, packed.sees, packed.where)
    alone = torch.cat([network.logits(*_alone(text))[0][text.start - 1 : -1] for text in packed.samples])
    torch.testing.assert_close(found, alone, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["llama", "mistral", "qwen3", "gemma3_text"])
def test_logits_are_the_models_own_whatever_stands_behind_its_head(kind: str, tmp_path: Path) -> None:
    network = Network(str(build(kind, tmp_path / kind)))
    ids = torch.arange(2, 12)[None]
    own = network.module(input_ids=ids).logits[..., : network.vocabulary]
    where = torch.tensor([1, 4, 9])
    positions = torch.arange(10)[None]
    torch.testing.assert_close(network.logits(ids, positions), own, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(network.logits(ids, positions, where=where), own[0][where], rtol=1e-4, atol=1e-4)
    assert network.packs(8) == (kind != "gemma3_text")
    if getattr(network.module.config, "sliding_window", None):
        assert not network.packs(network.module.config.sliding_window + 1)


def test_the_teacher_is_asked_once_about_a_text_and_says_what_the_target_says(model_root: Path) -> None:
    target = Network(str(model_root / "text-target"))
    texts = said_by(target)
    teacher = Teacher(target, target, 48, top=5)
    lessons = teacher.lessons(texts)
    for text, lesson in zip(texts, lessons, strict=True):
        rows = target.logits(*_alone(text))[0][text.start - 1 : -1].log_softmax(-1)
        chances, likely = rows.topk(5, -1)
        assert torch.equal(lesson.likely[:, 0].long(), likely[:, 0])
        torch.testing.assert_close(lesson.chances.float(), chances, rtol=0, atol=5e-3)
    teacher.target.logits = None  # type: ignore[union-attr,assignment]
    assert all(a is b for a, b in zip(lessons, teacher.lessons(texts), strict=True))


@pytest.mark.parametrize("length", [30, 60, 120])
def test_without_a_target_its_picks_stand_where_the_draft_foretells_them(
    model_root: Path, tmp_path: Path, length: int
) -> None:
    """Also where pictures, which count as one id in a text, push its end out of the row."""
    draft = Network(str(model_root / "vision-draft"))
    Image.new("RGB", (84, 56), (40, 90, 200)).save(tmp_path / "seen.png")
    asked = chat_prompt(draft.loaded, WORDS[0], [(tmp_path / "seen.png").read_bytes()])
    said = Sample((*asked.ids, 5, 6, 7, 8, 9), len(asked.ids), (str(tmp_path / "seen.png"),), "picture")
    rows = draft.rows([said], length)
    (lesson,) = Teacher(None, draft, length).lessons([said])
    assert lesson.likely[:, 0].tolist() == rows.ids[0, rows.learn[0].bool()].tolist()
    assert lesson.likely[:, 0].tolist() == [5, 6, 7, 8, 9][: len(lesson.likely)] and not lesson.chances.any()


def test_half_the_rows_are_what_the_draft_says_now(task: DistilTask) -> None:
    task.batch(torch.Generator().manual_seed(0), 4)
    assert task._said and {text.origin for text in task._said} <= {f"words, question {n}" for n in range(1, 7)}
    again = task.draft.answer([Sample(text.ids[: text.start], text.start) for text in task._said[:2]], 12, 0.0)
    assert all(text.ids[: text.start] == said.ids[: said.start] for text, said in zip(again, task._said, strict=False))


def test_answers_of_a_single_token_teach_nothing_and_that_is_told(task: DistilTask, tmp_path: Path) -> None:
    save_samples(tmp_path / "short.jsonl", [Sample((5, 6, 7), 2)])
    with pytest.raises(TrainingError, match="long enough to learn from"):
        DistilTask(dataclasses.replace(task.spec, texts=tmp_path / "short.jsonl"), "cpu")
