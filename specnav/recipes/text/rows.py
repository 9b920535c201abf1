# SPDX-License-Identifier: Apache-2.0
"""Sources of training rows: the encoded corpus on disk, and the target's own texts.

A *row* is a fixed number of token ids with their positions. Half the rows have a gap in their positions, so that models
trained on short rows also learn long distances (positional skip-wise training, arXiv 2309.10400).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from specdec.whole_files import replacing
from specnav.recipes.corpus import CorpusPart, Talk
from specnav.recipes.samples import ExitSample
from specnav.recipes.text.repeats import tokens_to_avoid
from specnav.recipes.text.vocabulary import ASSISTANT, CONTEXT, END, USER

TALKS_SHARE = 0.4
GAP_SHARE = 0.5


@dataclass(frozen=True)
class Stream:
    """Concatenated texts. ids: int64 [n]. starts: int64, where each text begins."""

    ids: Tensor
    starts: Tensor

    def windows(self, length: int) -> Tensor:
        """The stream as full rows, int64 [rows, length]; the remainder is dropped."""
        rows = len(self.ids) // length
        return self.ids[: rows * length].view(rows, length)


def talk_text(talk: Talk) -> str:
    """A talk in the format of the chat template."""
    return f"{USER}{talk.question}{ASSISTANT}{talk.answer}{END}"


def encode_questions(tokenizer, questions: Sequence[str], longest: int) -> list[list[int]]:
    """Prompt ids of each question in the chat template; prompts are truncated to `longest` tokens."""
    opening, closing = tokenizer.convert_tokens_to_ids([USER, ASSISTANT])
    encoded = tokenizer(list(questions), add_special_tokens=False)["input_ids"]
    return [[opening, *ids[: longest - 2], closing] for ids in encoded]


def encode_part(tokenizer, part: CorpusPart) -> dict[str, np.ndarray]:
    """Both streams of one half of the corpus, as arrays of 16-bit ids."""
    arrays = {}
    for name, texts in (
        ("files", [document + END for document in part.documents]),
        ("talks", [talk_text(talk) for talk in part.talks]),
    ):
        encoded = tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
        arrays[name] = np.concatenate([np.array(ids, np.uint16) for ids in encoded])
        arrays[f"{name}_starts"] = np.cumsum([0, *map(len, encoded[:-1])])
    return arrays


def save_encoded(file: Path, train: dict[str, np.ndarray], validation: dict[str, np.ndarray]) -> None:
    """Write both halves to a file, atomically."""
    halves = (("train", train), ("validation", validation))
    named = {f"{half}_{name}": array for half, arrays in halves for name, array in arrays.items()}
    with replacing(file) as partial, partial.open("wb") as stream:
        np.savez(stream, allow_pickle=False, **named)


def load_stream(file: Path, name: str) -> Stream:
    """Load one stream, such as "train_talks"."""
    with np.load(file) as found:
        return Stream(
            torch.from_numpy(found[name].astype(np.int64)), torch.from_numpy(found[f"{name}_starts"])
        )


class RowSource:
    """Random training rows of the corpus."""

    def __init__(self, file: Path, length: int) -> None:
        self.files = load_stream(file, "train_files")
        self.talks = load_stream(file, "train_talks")
        self.length = length
        # A row of talks starts with a question, as a real prompt does.
        self.openings = self.talks.starts[self.talks.starts <= len(self.talks.ids) - length]

    def draw(self, generator: torch.Generator, rows: int) -> Tensor:
        """Draw rows of ids, int64 [rows, length]; TALKS_SHARE of them are talks."""
        from_talks = torch.rand(rows, generator=generator) < TALKS_SHARE
        out = torch.empty(rows, self.length, dtype=torch.int64)
        for row in range(rows):
            if from_talks[row]:
                stream, at = self.talks, int(self.openings[_below(len(self.openings), generator)])
            else:
                stream, at = self.files, _below(len(self.files.ids) - self.length + 1, generator)
            out[row] = stream.ids[at : at + self.length]
        return out


def own_rows(
    texts: Sequence[ExitSample], length: int, end: int, taught: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Texts of the target as rows: ids int64, and their weights `learn` and `avoid` float32, all [n, length].

    taught: whether there is a teacher; if not, nothing is learnt, and the tokens that make a loop are avoided.
    """
    ids = torch.full((len(texts), length), end)
    learn, avoid = torch.zeros(ids.shape), torch.zeros(ids.shape)
    for row, text in enumerate(texts):
        kept = text.ids[:length]
        ids[row, : len(kept)] = torch.tensor(kept)
        if taught:
            learn[row, : len(kept)] = 1
        else:
            circles = tokens_to_avoid(np.array(kept[text.start :]))
            avoid[row, text.start : len(kept)] = torch.from_numpy(circles).float()
    return ids, learn, avoid


def draw_positions(generator: torch.Generator, rows: int, length: int) -> Tensor:
    """Positions int64 [rows, length], with one gap in GAP_SHARE of the rows."""
    split = torch.randint(1, length, (rows, 1), generator=generator)
    gap = torch.randint(1, CONTEXT - length, (rows, 1), generator=generator)
    gap = gap * (torch.rand(rows, 1, generator=generator) < GAP_SHARE)
    places = torch.arange(length)[None]
    return places + gap * (places >= split)


def _below(limit: int, generator: torch.Generator) -> int:
    return int(torch.randint(limit, (1,), generator=generator))
