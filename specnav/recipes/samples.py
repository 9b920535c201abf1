# SPDX-License-Identifier: Apache-2.0
"""A *sample*: the ids of a text for the target, and the first id to learn.

Samples are kept in the run folder, one JSON object per line, so that every process and every resumed run uses the same
ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from specdec.errors import DECODE_ERRORS, ModelError
from specdec.models import EncodedPrompt, LoadedModel, Prompt
from specdec.whole_files import write_whole
from specnav.bench.data.questions import load_questions
from specnav.recipes.errors import TrainingError
from specnav.recipes.folders import roomy
from specnav.results.errors import EvaluationError

SHORTEST = 2


class ExitSample(msgspec.Struct, frozen=True):
    """One sample. ids: with ONE placeholder per image, all before `start`. start: the first id to predict.

    images: files. origin: the source, for error messages.
    """

    ids: tuple[int, ...]
    start: int
    images: tuple[str, ...] = ()
    origin: str = ""

    def answered(self, answer: Sequence[int]) -> ExitSample:
        """A text: this prompt with its answer."""
        return ExitSample((*self.ids, *answer), len(self.ids), self.images, self.origin)

    def read(self) -> Prompt:
        """The text with its pictures. Raises TrainingError."""
        try:
            return Prompt(self.ids, tuple(Path(file).read_bytes() for file in self.images))
        except OSError as error:
            raise TrainingError(
                f"{self.origin}: picture {error.filename} cannot be read ({error.strerror or error})"
            ) from error

    def encode(self, model: LoadedModel) -> tuple[EncodedPrompt, range]:
        """(the encoded text, the rows that predict learnt ids). Raises TrainingError."""
        try:
            encoded = model.encode(self.read())
        except ModelError as error:
            raise TrainingError(f"{self.origin}: {error}; correct or remove it") from error
        rows = encoded.ids.shape[0]
        grown = rows - len(self.ids)
        return encoded, range(max(self.start + grown - 1, 0), rows - 1)


def cut(sample: ExitSample, length: int) -> ExitSample | None:
    """The sample truncated to `length` ids; None if too little to learn is left."""
    ids = sample.ids[:length]
    if len(ids) - max(sample.start, 1) < SHORTEST:
        return None
    return msgspec.structs.replace(sample, ids=ids)


def fitting(samples: Iterable[ExitSample], length: int) -> list[ExitSample]:
    """The samples truncated to `length` ids, without those that have too little left to learn."""
    return [found for sample in samples if (found := cut(sample, length)) is not None]


def save_samples(file: Path, samples: Sequence[ExitSample]) -> None:
    """Write all samples to a file, atomically."""
    with roomy(file):
        write_whole(file, b"".join(msgspec.json.encode(sample) + b"\n" for sample in samples))


def load_samples(file: Path) -> list[ExitSample]:
    """Read the samples that `save_samples` wrote. Raises TrainingError."""
    try:
        return [msgspec.json.decode(line, type=ExitSample) for line in file.read_bytes().splitlines()]
    except (OSError, *DECODE_ERRORS) as error:
        raise TrainingError(f"{file} cannot be read: delete it to make its samples again") from error


def read_questions(file: Path) -> list[str]:
    """First turns of a question file (see `specnav.bench.data.questions`). Raises TrainingError."""
    try:
        return [question.turns[0] for question in load_questions([file])]
    except EvaluationError as error:
        raise TrainingError(str(error)) from error
