# SPDX-License-Identifier: Apache-2.0
"""Sources of prompts and texts: question files, plain text, bags of a robot, or data that this project generates.

Some prompts are held out: the draft never learns from them, and the acceptance curve is measured on them.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from specdec.errors import ModelError
from specdec.models import LoadedModel, chat_prompt
from specdec.models.prompt import chat_prompts, plain_prompt
from specnav.recipes.drafts.config import TrainDraftConfig
from specnav.recipes.drafts.data.assistant import assistant_request
from specnav.recipes.drafts.data.logged import logged_texts, split
from specnav.recipes.drafts.data.ordinary import ordinary_request
from specnav.recipes.drafts.data.prose import opening, read_packages, request
from specnav.recipes.drafts.network import Progress
from specnav.recipes.errors import TrainingError
from specnav.recipes.samples import ExitSample, read_questions

TEXT_SUFFIXES = frozenset(
    {".txt", ".md", ".rst", ".py", ".c", ".h", ".cpp", ".java", ".js", ".ts", ".rs", ".go"}
)
ORDINARY_SHARE, OPENING_SHARE, PROSE_SHARE = 0.25, 0.08, 0.45
"""Shares of the default text prompts: ordinary requests, beginnings of code, and texts of installed packages. The other
prompts are about Python's library.
"""
SHORTEST_TEXT = 16


@dataclass(frozen=True)
class Gathered:
    """The gathered data.

    prompts: to be answered. held_out: prompts only for measuring. texts: to learn from as they are. said, kept: logged
    answers of the target, to learn from and only for measuring. notes: remarks for the user.
    """

    prompts: list[ExitSample]
    held_out: list[ExitSample]
    texts: list[ExitSample]
    said: list[ExitSample] = field(default_factory=list)
    kept: list[ExitSample] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def gather(
    config: TrainDraftConfig,
    model: LoadedModel,
    progress: Progress,
    articles: Sequence[str] = (),
    self_asked: Sequence[str] = (),
) -> Gathered:
    """Gather prompts and texts for a model. Raises TrainingError for unreadable data, or if too little is left.

    articles: texts to summarise in composed requests to an assistant. self_asked: requests made up by the target, which
    replace as many composed ones.
    """
    sources, folder, held_out, length = config.sources, config.run, config.held_out, config.length
    longest = length - config.new_tokens  # of a prompt, with pictures counted in full
    rng = random.Random(f"drafts/{config.seed}")
    notes: list[str] = []
    prompts: list[ExitSample] = []
    logged = logged_texts(sources.verdicts, model, folder, length) if sources.verdicts else []
    for file in sources.questions:
        prompts += question_prompts(model, read_questions(file), file.name)
    texts = [text for place in sources.texts for text in read_texts(model, place, length)]
    prompts += [opening for text in texts if (opening := _opening(text, longest)) is not None]
    if sources.bags:
        from specnav.recipes.drafts.data.bags import bag_prompts

        frames = folder / "frames"
        prompts += bag_prompts(sources.bags, sources.instruction, model, frames, progress, notes)
    measured: list[ExitSample] = []
    for file in sources.held_out:
        measured += question_prompts(model, read_questions(file), file.name)
    if sources.assistant:
        composed = max(config.prompts + held_out - len(self_asked), 0)
        made_up = [*self_asked, *(assistant_request(rng, articles)[1] for _ in range(composed))]
        rng.shuffle(made_up)
        asked = question_prompts(model, made_up, "composed")
        prompts, measured = prompts + asked[held_out:], measured or asked[:held_out]
    elif not sources.named:
        prompts, made = default_prompts(model, config.prompts, held_out, folder, config.seed, progress)
        measured = measured or made
        texts = [] if model.is_multimodal else library_texts(model, length)
    prompts, measured = _fitting(model, prompts, longest), _fitting(model, measured, longest)
    if logged:
        said, kept = split(logged, held_out, config.seed)
        return Gathered(_without(prompts, measured), measured, texts, said, kept, notes)
    if not measured:
        rng.shuffle(prompts)
        count = min(held_out, max(len(prompts) // 4, 1))
        measured, prompts = prompts[:count], prompts[count:]
    prompts = _without(prompts, measured)
    if not prompts or not measured:
        raise TrainingError(
            f"too few prompts of at most {longest} tokens are left: give more questions, texts or bags, "
            "or a larger --length"
        )
    return Gathered(prompts, measured, texts, notes=notes)


def _without(prompts: Sequence[ExitSample], measured: Sequence[ExitSample]) -> list[ExitSample]:
    """The prompts that are not held out."""
    known = {prompt.ids for prompt in measured if not prompt.images}
    return [prompt for prompt in prompts if prompt.ids not in known]


def question_prompts(model: LoadedModel, questions: Sequence[str], origin: str) -> list[ExitSample]:
    """Questions as prompts for the model."""
    try:
        prompts = chat_prompts(model, questions)
    except ModelError:  # one by one, to name the wrong one
        prompts = []
        for number, question in enumerate(questions, 1):
            try:
                prompts.append(chat_prompt(model, question))
            except ModelError as error:
                raise TrainingError(f"{origin}, question {number}: {error}") from error
    return [
        ExitSample(prompt.ids, len(prompt.ids), (), f"{origin}, question {number}")
        for number, prompt in enumerate(prompts, 1)
    ]


def text_files(place: Path) -> list[Path]:
    """A plain text file, or all of them below a folder."""
    found = (file for file in place.rglob("*") if file.suffix in TEXT_SUFFIXES)
    return [place] if place.is_file() else sorted(file for file in found if file.is_file())


def read_texts(model: LoadedModel, place: Path, length: int) -> list[ExitSample]:
    """The texts of `text_files` in pieces of at most `length` ids. Raises TrainingError."""
    files = text_files(place)
    if not files:
        known = ", ".join(sorted(TEXT_SUFFIXES))
        raise TrainingError(f"{place} is neither a text file nor a folder with text files: give texts ({known})")
    pieces = []
    for file in files:
        try:
            ids = plain_prompt(model, file.read_text(encoding="utf-8")).ids
        except (OSError, UnicodeDecodeError) as error:
            raise TrainingError(f"{file} cannot be read as UTF-8 text: convert it or leave it out") from error
        except ModelError:
            continue  # an empty file
        for at in range(0, len(ids), length):
            piece = ids[at : at + length]
            if len(piece) >= SHORTEST_TEXT:
                pieces.append(ExitSample(tuple(piece), 1, (), f"{file}, token {at}"))
    if not pieces:
        raise TrainingError(
            f"{place} holds too little text to learn from: give at least {SHORTEST_TEXT} tokens"
        )
    return pieces


def default_prompts(
    model: LoadedModel, count: int, held_out: int, folder: Path, seed: int, progress: Progress
) -> tuple[list[ExitSample], list[ExitSample]]:
    """(prompts to learn from, prompts held out) of the default data.

    For a model with pictures they are about rooms. For others they are about Python's library, beginnings of code,
    ordinary requests, and texts of installed packages.
    """
    from specnav.recipes.invented import questions_about_python, questions_about_rooms

    if model.is_multimodal:
        asked = questions_about_rooms(model, count + held_out, folder / "frames", seed, progress)
        return asked[held_out:], asked[:held_out]
    prose = round(count * PROSE_SHARE)
    reading = read_packages(prose, progress=progress)  # about as many files as requests are made of them
    prose = prose if reading.prose or reading.talks else 0
    ordinary, openings = round(count * ORDINARY_SHARE), round(count * OPENING_SHARE)
    learnt, kept = questions_about_python(model, count - ordinary - openings - prose, held_out, seed)
    rng = random.Random(f"drafts/{seed}/ordinary")
    questions = [ordinary_request(rng) for _ in range(ordinary)] + code_openings(openings, rng)
    questions += [request(reading, rng) for _ in range(prose)]
    return learnt + question_prompts(model, questions, "composed"), kept


def code_openings(count: int, rng: random.Random) -> list[str]:
    """First lines of functions in the library's training files."""
    from specnav.recipes.corpus import library

    talks = [talk for talk in library().train.talks if talk.answer.count("\n") > 1]
    return [opening(rng.choice(talks), rng) for _ in range(count)]


def library_texts(model: LoadedModel, length: int) -> list[ExitSample]:
    """Questions and answers about functions in the library's training files."""
    from specnav.recipes.corpus import library

    texts, end = [], min(model.eos_token_ids, default=None)
    for talk in library().train.talks:
        asked = chat_prompt(model, talk.question).ids
        said = model.tokenizer(talk.answer, add_special_tokens=False)["input_ids"]
        ids = (*asked, *said) if end is None else (*asked, *said, end)
        if len(asked) < length // 2 and max(ids) < model.vocab_size:
            texts.append(ExitSample(tuple(ids[:length]), len(asked), (), "library"))
    return texts


def _fitting(model: LoadedModel, prompts: Sequence[ExitSample], longest: int) -> list[ExitSample]:
    """Prompts of at most `longest` ids, with pictures counted as image tokens. Raises TrainingError if none fits."""
    kept = [prompt for prompt in prompts if len(prompt.ids) <= longest]
    seen = [(prompt, _length(model, prompt)) for prompt in kept]
    if seen and all(count > longest for _, count in seen):
        least = min(count for _, count in seen)
        raise TrainingError(
            f"the shortest prompt has {least} tokens with its picture, but only {longest} fit: give a larger "
            "--length, or fewer --new-tokens"
        )
    return [prompt for prompt, count in seen if count <= longest]


def _length(model: LoadedModel, prompt: ExitSample) -> int:
    if not prompt.images:
        return len(prompt.ids)
    try:
        return model.prompt_length(prompt.read())
    except ModelError as error:
        raise TrainingError(f"{prompt.origin}: {error}; correct or remove it") from error


def _opening(text: ExitSample, longest: int) -> ExitSample | None:
    """The first half of a text, for the models to continue."""
    kept = min(len(text.ids) // 2, longest)
    return ExitSample(text.ids[:kept], kept, (), text.origin) if kept >= SHORTEST_TEXT // 2 else None
