"""What a draft is never to see reaches it in no frame and in no question."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("navsim.world")

from navsim.kinds import COLOURS, KINDS
from spec_vlm_nav.language.prompting import PromptSpec
from specdec.models import loading
from specnav.recipes import frames, unseen
from specnav.recipes.errors import TrainingError
from specnav.recipes.frames import random_room
from specnav.recipes.speaker import ModelSpeaker
from specnav.recipes.text_stage import FrameTextTask
from specnav.recipes.unseen import FirstDraft, LeftOut, episodes, lesson, train_first_draft

LEFT_OUT = LeftOut(("plant", "lamp"), ("purple", "pink"))
FRAMES = 28


def shown(label: np.ndarray) -> set[str]:
    """Names of all that stands in the rooms of these labels."""
    things = label["objects"][label["objects"]["kind"] >= 0]
    return {f"{list(COLOURS)[thing['colour']]} {KINDS[thing['kind']].name}" for thing in things}


@pytest.fixture
def config(tmp_path: Path) -> FirstDraft:
    return FirstDraft(tmp_path / "target", tmp_path / "draft", tmp_path / "work", LEFT_OUT, frames=FRAMES)


@pytest.fixture
def seeing(model_root: Path, tmp_path: Path) -> Path:
    """A model that takes pictures, with a prompt's preset."""
    folder = tmp_path / "seeing"
    shutil.copytree(model_root / "vision-target", folder)
    PromptSpec.preset("tiny_nav").save(folder)
    return folder


@pytest.fixture
def short_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    for room in (frames, unseen):
        monkeypatch.setattr(room, "SHARD_FRAMES", FRAMES)


@pytest.mark.slow
def test_no_room_holds_what_is_left_out_and_all_else_is_there() -> None:
    rng = random.Random(5)
    names = {f"{o.colour} {o.kind}" for i in range(300) for o in random_room(rng, i, LEFT_OUT.pairs).objects}
    assert not any(LEFT_OUT.hides(name) for name in names)
    assert names == {f"{colour} {kind}" for kind, colour in LEFT_OUT.pairs}


@pytest.mark.slow
def test_no_frame_and_no_question_that_the_draft_learns_from_has_it(
    config: FirstDraft, short_shards: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    (config.work / "frames").mkdir(parents=True)

    def here(data: frames.FrameData, seed: int, workers: int, progress: object, pairs: frames.Pairs) -> None:
        frames.renderer(data, seed, pairs)(0)
        raise InterruptedError  # enough: what comes next needs a target

    monkeypatch.setattr(unseen, "make_frames", here)
    with pytest.raises(InterruptedError):
        train_first_draft(config, lambda *_: None)
    names = shown(np.load(config.work / "frames" / "labels-0000.npy"))
    assert len(names) > 8 and not any(LEFT_OUT.hides(name) for name in names)

    np.save(config.work / "features.npy", np.zeros((2 * FRAMES, 40, 192), np.float16))
    book = FrameTextTask(replace(lesson(config), teacher=None), "cpu").book
    rng = random.Random(3)
    asked = [book.draw(rng) for _ in range(600)]
    assert sum(question.thing < 0 for question in asked) > 100
    assert not any(LEFT_OUT.hides(question.name) for question in asked)


@pytest.mark.slow
def test_the_robot_is_sent_to_what_the_draft_never_saw_and_to_what_it_did() -> None:
    hidden, known = (list(episodes(LEFT_OUT, wanted, 500_000, 8)) for wanted in (True, False))
    assert all(LEFT_OUT.hides(one.target_name) for one in hidden)
    assert not any(LEFT_OUT.hides(one.target_name) for one in known)


@pytest.mark.parametrize(
    ("kinds", "colours", "message"),
    [
        (("sofa",), (), "no kind is called 'sofa'"),
        ((), ("brown",), "no colour is called 'brown'"),
        ((), tuple(COLOURS)[2:], "too few pairs are left"),
    ],
)
def test_what_cannot_be_left_out_is_refused_in_one_line(kinds, colours, message: str) -> None:
    with pytest.raises(TrainingError, match=message) as caught:
        LeftOut(kinds, colours)
    assert "\n" not in str(caught.value)


def test_frames_that_fill_no_shard_are_refused(config: FirstDraft) -> None:
    with pytest.raises(TrainingError, match="multiple of 1000"):
        train_first_draft(config, lambda *_: None)


@pytest.mark.parametrize(("there", "device"), [(True, "cuda"), (False, "cpu")])
def test_the_target_answers_on_a_gpu_where_there_is_one(
    seeing: Path, there: bool, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen: list[str] = []

    def placed(name: str, config: object, place: torch.device, *_: object) -> None:
        chosen.append(place.type)
        raise InterruptedError  # enough: no test has a GPU to load it on

    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    monkeypatch.setattr(loading, "_load_library_model", placed)
    with pytest.raises(InterruptedError):
        ModelSpeaker(seeing)
    assert chosen == [device]
