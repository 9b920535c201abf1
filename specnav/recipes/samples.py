# SPDX-License-Identifier: Apache-2.0
"""A *sample*: the ids of a text the target will read, and from where on its exits learn from it.

Samples lie in the run folder as one JSON object a line, so that every process and every sitting sees the same ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from specdec.errors import DECODE_ERRORS, ModelError
from specdec.models import EncodedPrompt, LoadedModel, Prompt
from specdec.whole_files import write_whole
from specnav.recipes.errors import TrainingError
from specnav.recipes.folders import roomy

SHORTEST = 2


class ExitSample(msgspec.Struct, frozen=True):
    """ids: every image as ONE placeholder, all of them before `start`. start: the first id that an exit should
    predict. images: files. origin: where it comes from, for error messages.
    """

    ids: tuple[int, ...]
    start: int
    images: tuple[str, ...] = ()
    origin: str = ""

    def answered(self, answer: Sequence[int]) -> ExitSample:
        """A prompt with its answer: a text."""
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
        """The text as the model takes it, and the rows that predict what is learnt. Raises TrainingError."""
        try:
            encoded = model.encode(self.read())
        except ModelError as error:
            raise TrainingError(f"{self.origin}: {error}; correct or remove it") from error
        rows = encoded.ids.shape[0]
        grown = rows - len(self.ids)
        return encoded, range(max(self.start + grown - 1, 0), rows - 1)


def cut(sample: ExitSample, length: int) -> ExitSample | None:
    """The sample with at most `length` ids; None where too little to learn is left of it."""
    ids = sample.ids[:length]
    if len(ids) - max(sample.start, 1) < SHORTEST:
        return None
    return msgspec.structs.replace(sample, ids=ids)


def fitting(samples: Iterable[ExitSample], length: int) -> list[ExitSample]:
    """Those that something can be learnt from, cut to a row of `length` ids."""
    return [found for sample in samples if (found := cut(sample, length)) is not None]


def save_samples(file: Path, samples: Sequence[ExitSample]) -> None:
    """Write all at once."""
    with roomy(file):
        write_whole(file, b"".join(msgspec.json.encode(sample) + b"\n" for sample in samples))


def load_samples(file: Path) -> list[ExitSample]:
    """What `save_samples` wrote."""
    try:
        return [msgspec.json.decode(line, type=ExitSample) for line in file.read_bytes().splitlines()]
    except (OSError, *DECODE_ERRORS) as error:
        raise TrainingError(f"{file} cannot be read: delete it to make its samples again") from error
