# SPDX-License-Identifier: Apache-2.0
"""Where training rows come from: the encoded corpus on disk, and texts the target has written itself.

A *row* is a fixed number of token ids with a position each. Half the rows have a gap in their positions, so that models
trained on short rows know long distances too (positional skip-wise training, arXiv 2309.10400).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from specdec.whole_files import replacing
from specnav.recipes.text.corpus import CorpusPart, Talk
from specnav.recipes.text.vocabulary import ASSISTANT, CONTEXT, END, USER

TALKS_SHARE = 0.4
GAP_SHARE = 0.5


@dataclass(frozen=True)
class Stream:
    """Texts one after the other. ids: int64 [n]; starts: int64, where each text begins."""

    ids: Tensor
    starts: Tensor

    def windows(self, length: int) -> Tensor:
        """The whole stream in rows, int64 [rows, length]; the rest is left out."""
        rows = len(self.ids) // length
        return self.ids[: rows * length].view(rows, length)


@dataclass(frozen=True)
class OwnTexts:
    """What a model has written. ids: int64 [n, length], END behind; prompts, lengths: int64 [n], where the answer
    begins and where the text ends (its own END included); greedy: bool [n], the others are sampled.
    """

    ids: Tensor
    prompts: Tensor
    lengths: Tensor
    greedy: Tensor

    def answer(self, row: int) -> Tensor:
        """One answer's ids."""
        return self.ids[row, self.prompts[row] : self.lengths[row]]

    def save(self, file: Path) -> None:
        """Write all at once."""
        _save_arrays(
            file, {name: getattr(self, name).numpy() for name in ("ids", "prompts", "lengths", "greedy")}
        )

    @classmethod
    def load(cls, file: Path) -> OwnTexts:
        """What `save` wrote."""
        with np.load(file) as found:
            return cls(*(torch.from_numpy(found[name]) for name in ("ids", "prompts", "lengths", "greedy")))


def talk_text(talk: Talk) -> str:
    """A talk as the chat template writes it."""
    return f"{USER}{talk.question}{ASSISTANT}{talk.answer}{END}"


def encode_part(tokenizer, part: CorpusPart) -> dict[str, np.ndarray]:
    """Both streams of a half of the corpus, as arrays of 16-bit ids."""
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
    """Write both halves at once."""
    halves = (("train", train), ("validation", validation))
    _save_arrays(file, {f"{half}_{name}": array for half, arrays in halves for name, array in arrays.items()})


def load_stream(file: Path, name: str) -> Stream:
    """One stream, such as "train_talks"."""
    with np.load(file) as found:
        return Stream(
            torch.from_numpy(found[name].astype(np.int64)), torch.from_numpy(found[f"{name}_starts"])
        )


def _save_arrays(file: Path, arrays: dict[str, np.ndarray]) -> None:
    with replacing(file) as partial, partial.open("wb") as stream:
        np.savez(stream, allow_pickle=False, **arrays)


class RowSource:
    """Random training rows of the corpus."""

    def __init__(self, file: Path, length: int) -> None:
        self.files = load_stream(file, "train_files")
        self.talks = load_stream(file, "train_talks")
        self.length = length
        # A row of talks starts with a question, as a real prompt does.
        self.openings = self.talks.starts[self.talks.starts <= len(self.talks.ids) - length]

    def draw(self, generator: torch.Generator, rows: int) -> Tensor:
        """ids int64 [rows, length]: TALKS_SHARE of them talks."""
        from_talks = torch.rand(rows, generator=generator) < TALKS_SHARE
        out = torch.empty(rows, self.length, dtype=torch.int64)
        for row in range(rows):
            if from_talks[row]:
                stream, at = self.talks, int(self.openings[_below(len(self.openings), generator)])
            else:
                stream, at = self.files, _below(len(self.files.ids) - self.length + 1, generator)
            out[row] = stream.ids[at : at + self.length]
        return out


def draw_positions(generator: torch.Generator, rows: int, length: int) -> Tensor:
    """Positions int64 [rows, length], with one gap in GAP_SHARE of the rows."""
    split = torch.randint(1, length, (rows, 1), generator=generator)
    gap = torch.randint(1, CONTEXT - length, (rows, 1), generator=generator)
    gap = gap * (torch.rand(rows, 1, generator=generator) < GAP_SHARE)
    places = torch.arange(length)[None]
    return places + gap * (places >= split)


def _below(limit: int, generator: torch.Generator) -> int:
    return int(torch.randint(limit, (1,), generator=generator))
