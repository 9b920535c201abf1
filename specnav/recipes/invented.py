# SPDX-License-Identifier: Apache-2.0
"""Default data: the target's own answers to generated questions about Python or about rooms.

Exits must predict the target's own texts, so these are the best training data.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from specdec.models import Extension, LoadedModel, chat_prompt, extend_many
from specdec.models.session import ModelSession
from specdec.options import GenerationOptions
from specdec.sampling import Chooser
from specnav.recipes.samples import ExitSample

TOGETHER = 16
SAMPLED_SHARE, TEMPERATURE = 0.25, 0.8
ANSWER_TOKENS = 128
LONGEST_PROMPT = 256
POSES_A_ROOM = 14
Progress = Callable[[int, int], None]


def questions_about_python(
    model: LoadedModel, count: int, held_back: int, seed: int
) -> tuple[list[ExitSample], list[ExitSample]]:
    """(training prompts, prompts about held-back files), from this interpreter's own library."""
    from specnav.recipes.corpus import invent_questions, library

    corpus = library()
    halves: list[list[ExitSample]] = []
    for name, part, wanted in (("train", corpus.train, count), ("validation", corpus.validation, held_back)):
        questions = invent_questions(part, wanted, random.Random(f"exits/{seed}/{name}"))
        asked = (chat_prompt(model, question).ids for question in questions)
        halves.append([ExitSample(ids, len(ids), (), "library") for ids in asked if len(ids) <= LONGEST_PROMPT])
    return halves[0], halves[1]


def questions_about_rooms(
    model: LoadedModel, count: int, folder: Path, seed: int, progress: Progress = lambda done, total: None
) -> list[ExitSample]:
    """Instructions with camera frames of the simulator's training rooms; the pictures are written into `folder`.

    Every room is new, so any part of the prompts may be held back.
    """
    from navsim.kinds import TRAIN_PAIRS
    from navsim.world import World
    from spec_vlm_nav.language.prompting import PromptSpec, build_prompt
    from specnav.recipes.frames import camera_jpeg, random_poses, random_room
    from specnav.recipes.oracle import instruct

    spec = PromptSpec.from_model_folder(model.path)
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(f"exits/{seed}/rooms")
    asked: list[ExitSample] = []
    with World() as world:
        while len(asked) < count:
            room = random_room(rng, len(asked))
            world.load(room)
            for pose in random_poses(rng, room, min(POSES_A_ROOM, count - len(asked))):
                picture = camera_jpeg(world.render(pose), rng.randint(80, 95))
                file = folder / f"{len(asked):06d}.jpg"
                file.write_bytes(picture)
                thing = rng.choice(room.objects)
                kind, colour = (thing.kind, thing.colour) if rng.random() < 0.7 else rng.choice(TRAIN_PAIRS)
                ids = build_prompt(spec, model.tokenizer, instruct(f"{colour} {kind}", rng), [picture]).ids
                asked.append(ExitSample(ids, len(ids), (str(file.resolve()),), f"room {len(asked) + 1}"))
            progress(len(asked), count)
    return asked


def own_answers(
    model: LoadedModel, asked: Sequence[ExitSample], seed: int, progress: Progress = lambda done, total: None
) -> list[ExitSample]:
    """The target's answers as samples, decoded in batches; SAMPLED_SHARE of them are sampled, the others greedy."""
    samples: list[ExitSample] = []
    every = round(1 / SAMPLED_SHARE)
    for at in range(0, len(asked), TOGETHER):
        part = asked[at : at + TOGETHER]
        choosers = [
            Chooser(
                GenerationOptions(ANSWER_TOKENS, TEMPERATURE if (at + i) % every == 0 else 0.0, seed + at + i)
            )
            for i in range(len(part))
        ]
        answers = _answers(model, part, choosers)
        samples += [prompt.answered(answer) for prompt, answer in zip(part, answers, strict=True)]
        progress(len(samples), len(asked))
    return samples


@torch.inference_mode()
def _answers(
    model: LoadedModel, prompts: Sequence[ExitSample], choosers: Sequence[Chooser]
) -> list[list[int]]:
    """Answers of one group, including the end-of-sequence token if it was generated."""
    answers: list[list[int]] = [[] for _ in prompts]
    sessions: list[ModelSession] = []
    for index, prompt in enumerate(prompts):
        session = model.new_session()
        row = session.prefill(model.encode(prompt.read()))
        answers[index] += choosers[index].choose(row[None], 0)
        sessions.append(session)
    while running := [i for i, answer in enumerate(answers) if _goes_on(model, sessions[i], answer)]:
        rows = extend_many([Extension(sessions[i], (answers[i][-1],)) for i in running])
        for i, row in zip(running, rows, strict=True):
            answers[i] += choosers[i].choose(row, len(answers[i]))
    return answers


def _goes_on(model: LoadedModel, session: ModelSession, answer: list[int]) -> bool:
    full = len(answer) >= ANSWER_TOKENS or session.length + 1 >= model.context_limit
    return not full and answer[-1] not in model.eos_token_ids
