"""What a draft learns in a batch: the loss, texts that share a row, and what the target says to each."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from PIL import Image

from specdec.models import chat_prompt
from specnav.recipes.drafts.network import DraftNetwork
from specnav.recipes.drafts.packing import pack, within_texts
from specnav.recipes.drafts.task import GREEDY_ROUNDS, RENEWED_EVERY, DistilTask
from specnav.recipes.drafts.teacher import Teacher
from specnav.recipes.errors import TrainingError
from specnav.recipes.loop import LoopSettings, _run
from specnav.recipes.optimiser import MuonAdamW
from specnav.recipes.samples import ExitSample, save_samples
from tests.helpers.shrunken import build
from tests.training.words import WORDS, distil_spec, said_by

pytestmark = pytest.mark.slow


@pytest.fixture
def task(model_root: Path, tmp_path: Path) -> DistilTask:
    """The text pair's draft, about to learn from its target."""
    target, draft = model_root / "text-target", model_root / "text-draft"
    return DistilTask(distil_spec(tmp_path, target, str(draft), 0.5, 0.25, 0.25), "cpu")


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
    task.draft = DraftNetwork(str(model_root / "text-target"))
    loss, said = task.loss(*task.batch(torch.Generator().manual_seed(0), 4))
    assert float(said["apart"]) == pytest.approx(0.0, abs=1e-5) and float(said["agrees"]) == pytest.approx(1.0)
    assert task.at_checkpoint()["agreement"] == 1.0
    assert float(loss.detach()) > 0.0  # the likeliest token is not certain


@pytest.mark.parametrize("top", [1_000_000, 3])
def test_the_loss_is_the_mixture_it_is_said_to_be(task: DistilTask, top: int) -> None:
    """Against distributions worked out text by text: whole ones, or the likeliest tokens and a lump of all others."""
    assert task.target is not None
    task.teacher = Teacher(task.target, task.draft, task.config.length, top)
    with torch.no_grad():
        task.draft.module.model.norm.weight.mul_(4)  # surer of itself: both directions of the divergence differ
    spoken = iter([*task.texts, *task.texts])
    heard: list[ExitSample] = []
    task._one = lambda generator: heard.append(next(spoken)) or heard[-1]  # type: ignore[method-assign,func-returns-value]
    loss, said = task.loss(*task.batch(torch.Generator().manual_seed(3), 3))
    sums, count = torch.zeros(3), 0
    for text in heard[:-1]:  # the last one found no room
        rows = [of.logits(*_alone(text))[0].detach().softmax(-1) for of in (task.target, task.draft)]
        for a, b in zip(*(of[text.start - 1 : -1] for of in rows), strict=True):
            picked = a.argsort(descending=True)[:top]
            p, q = (torch.cat([of[picked], (1 - of[picked].sum()).clamp(min=1e-6)[None]]) for of in (a, b))
            sums += torch.stack([(p * (p / q).log()).sum(), (q * (q / p).log()).sum(), -b[a.argmax()].log()])
            count += 1
    forward, reverse, hard = (sums / count).tolist()
    assert count > 20 and abs(forward - reverse) > 0.05 * forward
    assert float(said["apart"]) == pytest.approx(forward, rel=3e-3)
    assert float(loss.detach()) == pytest.approx(0.5 * (0.75 * forward + 0.25 * reverse) + 0.5 * hard, rel=3e-3)


def _alone(text: ExitSample) -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.tensor(text.ids)[None]
    return ids, torch.arange(ids.shape[1])[None]


@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
def test_texts_in_one_row_do_not_see_each_other(model_root: Path, kernel: str) -> None:
    network = DraftNetwork(str(model_root / "text-target"))
    network.module.set_attn_implementation(kernel)
    texts = said_by(network)
    turn = iter(texts * 3)
    samples, packed = pack(lambda: next(turn), 2, 120)
    where = packed.learn.flatten().nonzero()[:, 0]
    assert len(samples) > 2  # at least one row holds more than one
    found = network.logits(packed.ids.long(), packed.positions.long(), None, within_texts(packed.text), where)
    alone = torch.cat([network.logits(*_alone(text))[0][text.start - 1 : -1] for text in samples])
    torch.testing.assert_close(found, alone, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["llama", "mistral", "qwen3", "gemma3_text"])
def test_logits_are_the_models_own_whatever_stands_behind_its_head(kind: str, tmp_path: Path) -> None:
    network = DraftNetwork(str(build(kind, tmp_path / kind)))
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
    target = DraftNetwork(str(model_root / "text-target"))
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


@pytest.mark.parametrize("left", [0, 2, 5])
def test_without_a_target_its_picks_stand_where_the_draft_foretells_them(
    model_root: Path, tmp_path: Path, left: int
) -> None:
    """Also where pictures, which count as one id in a text, push its end out of the row."""
    draft = DraftNetwork(str(model_root / "vision-draft"))
    Image.new("RGB", (84, 56), (40, 90, 200)).save(tmp_path / "seen.png")
    asked = chat_prompt(draft.loaded, WORDS[0], [(tmp_path / "seen.png").read_bytes()])
    said = ExitSample((*asked.ids, 5, 6, 7, 8, 9), len(asked.ids), (str(tmp_path / "seen.png"),), "picture")
    whole = draft.encode(said).ids.shape[0]
    assert whole > len(said.ids)
    (lesson,) = Teacher(None, draft, whole - left).lessons([said])
    assert lesson.likely[:, 0].tolist() == [5, 6, 7, 8, 9][: 5 - left] and not lesson.chances.any()


def test_processes_learn_from_texts_of_their_own(task: DistilTask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    parts = []
    for rank in range(2):
        monkeypatch.setattr(torch.distributed, "get_rank", lambda rank=rank: rank)
        parts.append([text.ids for text in DistilTask(task.spec, "cpu").texts])
    assert all(parts) and sorted(parts[0] + parts[1]) == sorted(text.ids for text in task.texts)


def test_a_run_that_goes_on_speaks_as_if_it_had_not_been_stopped(task: DistilTask, tmp_path: Path) -> None:
    settings = LoopSettings("draft", tmp_path, 1, 2, 1e-3, 0, compile=False)
    _run(task, settings, 0, 1, "cpu", Mock())
    other = DistilTask(task.spec, "cpu")
    told: list[int] = []
    other.goes_on = told.append  # type: ignore[method-assign]
    _run(other, dataclasses.replace(settings, steps=2), 0, 1, "cpu", Mock())
    assert told == [1]
    said = []
    for before in (0, (GREEDY_ROUNDS - 1) * RENEWED_EVERY):
        task.goes_on(before)
        task.batch(torch.Generator().manual_seed(0), 2)
        said.append([text.ids for text in task._said])
    prompts = [ExitSample(ids[: task._said[at].start], task._said[at].start) for at, ids in enumerate(said[1])]
    assert [text.ids for text in task.draft.answer(prompts, 12)] == said[1] != said[0]


def test_half_the_rows_are_what_the_draft_says_now(task: DistilTask) -> None:
    task.batch(torch.Generator().manual_seed(0), 4)
    assert task._said and {text.origin for text in task._said} <= {f"words, question {n}" for n in range(1, 7)}
    again = task.draft.answer([ExitSample(text.ids[: text.start], text.start) for text in task._said[:2]], 12, 0.0)
    assert all(text.ids[: text.start] == said.ids[: said.start] for text, said in zip(again, task._said, strict=False))


def test_answers_of_a_single_token_teach_nothing_and_that_is_told(task: DistilTask) -> None:
    save_samples(task.config.samples("texts"), [ExitSample((5, 6, 7), 2)])
    with pytest.raises(TrainingError, match="long enough to learn from"):
        DistilTask(task.spec, "cpu")
