# SPDX-License-Identifier: Apache-2.0
"""Makes prompts from the frames of a robot's bags: the questions to the target, with the instruction at that time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from spec_vlm_nav.camera.images import Frame, PictureOptions
from spec_vlm_nav.common.errors import NavigationError
from spec_vlm_nav.language.actions import ACTION_SENTENCES
from spec_vlm_nav.language.prompting import PromptSpec
from spec_vlm_nav.model.asking import QuestionWriter
from spec_vlm_nav.model.decider import DecisionJob
from specdec.models import LoadedModel
from specnav.bags.contents import choose_image_topic, pictures, read_contents
from specnav.bags.source import open_bag
from specnav.bags.types import NEWEST, Types
from specnav.recipes.drafts.network import Progress
from specnav.recipes.errors import TrainingError
from specnav.recipes.samples import ExitSample
from specnav.results.errors import EvaluationError

_VOCABULARY = {sentence: action.short for sentence, action in ACTION_SENTENCES.items()}


def bag_prompts(
    bags: Sequence[Path], instruction: str, model: LoadedModel, folder: Path, progress: Progress, notes: list[str]
) -> list[ExitSample]:
    """A prompt for every frame with an instruction. The pictures, as shown to the model, are written into `folder`.

    instruction: for bags without instructions; "": use those of the bags. notes: receives remarks on what was left out.
    Raises TrainingError for a file that is not a bag, or a bag without frames or (unless given) instructions.
    """
    if not model.is_multimodal:
        raise TrainingError(f"{model.path} accepts no pictures: bags need a model that does")
    found: list[ExitSample] = []
    for number, path in enumerate(bags):
        try:
            found += _of_bag(path, instruction, model, folder / f"bag-{number}", progress, notes)
        except EvaluationError as error:
            raise TrainingError(str(error)) from error
    return found


def _of_bag(
    path: Path, instruction: str, model: LoadedModel, folder: Path, progress: Progress, notes: list[str]
) -> list[ExitSample]:
    bag = open_bag(path)
    types = Types({}, bag.distro or NEWEST)
    image = choose_image_topic(bag, None, "give a bag with one of them")
    contents = read_contents(bag, types, image, _VOCABULARY)
    notes += [bag.summary, *bag.warnings, *contents.notes]
    asked = {
        frame.number: words
        for frame in contents.frames
        if (words := instruction or contents.instruction_at(frame)[1])
    }
    if not asked:
        raise TrainingError(f"{path} holds no frame with an instruction: give one with --instruction")
    folder.mkdir(parents=True, exist_ok=True)
    asker = QuestionWriter(PromptSpec.from_model_folder(model.path), model.tokenizer)
    prompts = []
    for number, picture in pictures(bag, types, image, asked):
        if picture is None:
            continue
        job = DecisionJob(number, asked[number], Frame(picture, (0, 0), 0.0), (), ())
        try:
            prompt, jpeg = asker.prompt(job, PictureOptions())
        except NavigationError:
            continue  # no decision could have used this frame either
        if len(prompt.images) == 1:
            file = folder / f"{number:06d}.jpg"
            file.write_bytes(jpeg)
            prompts.append(ExitSample(prompt.ids, len(prompt.ids), (str(file.resolve()),), f"{path}, frame {number}"))
        progress(len(prompts), len(asked))
    notes.append(f"{path.name}: {len(contents.frames)} frames, {len(asked)} with an instruction, {len(prompts)} used")
    return prompts
