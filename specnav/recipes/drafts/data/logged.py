# SPDX-License-Identifier: Apache-2.0
"""Makes training texts from verdict logs: the target's own tokens, after as much of the prompt as was logged."""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from pathlib import Path

from specdec.models import LoadedModel
from specdec.models.loaded import speaks
from specdec.verdict_log import VerdictLogError, read_verdicts
from specnav.recipes.errors import TrainingError
from specnav.recipes.samples import ExitSample, cut

_log = logging.getLogger(__name__)


def logged_texts(folders: Sequence[Path], model: LoadedModel, run: Path, length: int) -> list[ExitSample]:
    """Every distinct answer in the logs of the newest target. Pictures are written into the run folder.

    An answer without a logged prompt stands alone, and all but its first token are learnt. Raises TrainingError for an
    invalid log, a log with another vocabulary, or if nothing is left.
    """
    texts: list[ExitSample] = []
    for folder in folders:
        try:
            logged = list(read_verdicts(folder))
            newest = next((said.target for said in reversed(logged) if said.target), b"")
            former = sum(said.target not in (b"", newest) for said in logged)
            if former:
                _log.warning("%s: %d answers of a former target are left out", folder, former)
            for number, said in enumerate(logged, 1):
                if said.target not in (b"", newest):
                    continue
                if not speaks(model, said.vocabulary):
                    raise TrainingError(
                        f"{folder} was logged with another vocabulary than that of {model.path}: "
                        "give the log of a target of the same family, or another draft"
                    )
                images = tuple(_kept(image, run / "pictures") for image in said.images)
                if said.prompt and len(said.images) != said.prompt.count(model.image_pad_id or -1):
                    continue  # its pictures were not logged, so the answer teaches nothing
                ids = (*said.prompt, *said.answer)
                text = ExitSample(ids, len(said.prompt) or 1, images, f"{folder}, answer {number}")
                if cut(text, length) is not None and max(ids) < model.vocab_size:
                    texts.append(text)
        except VerdictLogError as error:
            raise TrainingError(str(error)) from error
    unique = list({(text.ids, text.images): text for text in texts}.values())
    if len(unique) < 2:
        raise TrainingError(
            "the verdict logs hold too few usable answers: log more, with --verdict-log-contents prompts or pictures"
        )
    return unique


def split(texts: Sequence[ExitSample], held_out: int, seed: int) -> tuple[list[ExitSample], list[ExitSample]]:
    """(texts to learn from, texts only for measuring, at most a quarter)."""
    mixed = list(texts)
    random.Random(f"drafts/{seed}/logged").shuffle(mixed)
    kept = min(held_out, max(len(mixed) // 4, 1))
    return mixed[kept:], mixed[:kept]


def _kept(image: bytes, folder: Path) -> str:
    from specdec.link.pictures import digest_of

    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{digest_of(image).hex()}.jpg"
    if not file.exists():
        file.write_bytes(image)
    return str(file.resolve())
