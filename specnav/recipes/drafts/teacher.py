# SPDX-License-Identifier: Apache-2.0
"""The target's predictions for every learnt token: its likeliest tokens, computed once per text and cached.

A text is used many times, and the target's predictions never change. A few likeliest tokens have nearly all of the
probability (cached logits, as in arXiv 2503.16870). The loss treats all other tokens as one class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from specdec.store import SharedStore
from specdec.whole_files import replacing
from specnav.recipes.drafts.network import DraftNetwork, PaddedRows
from specnav.recipes.samples import ExitSample, fitting

TOP = 24
KEPT_BYTES = 1 << 30
TOGETHER = 8


@dataclass(frozen=True)
class Lesson:
    """Predictions for the n learnt tokens of a text. likely: int32 [n, top], the target's likeliest tokens first.

    chances: float16 [n, top], their log-probabilities.
    """

    likely: Tensor
    chances: Tensor

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        return self.likely.nbytes + self.chances.nbytes


class Teacher:
    """A target with a cache of its predictions; without a target, the tokens of the texts themselves are used."""

    def __init__(self, target: DraftNetwork | None, draft: DraftNetwork, length: int, top: int = TOP) -> None:
        """draft: the model to train. length: texts are truncated to it, as in `DraftNetwork.rows`."""
        self.target, self.draft, self.length = target, draft, length
        self.top = min(top, draft.vocabulary)
        self._kept = SharedStore(KEPT_BYTES)

    def learn_from(self, file: Path) -> None:
        """Load the predictions that `write_lessons` has saved."""
        for key, likely, chances in torch.load(file, weights_only=True):
            lesson = Lesson(likely, chances)
            self._kept.put(key, lesson, lesson.nbytes)

    def write_lessons(self, texts: Sequence[ExitSample], file: Path) -> None:
        """Save the target's predictions for texts, so that a resumed run need not compute them again."""
        cut = fitting(texts, self.length)
        kept = [(_key(text), one.likely, one.chances) for text, one in zip(cut, self.lessons(cut), strict=True)]
        with replacing(file) as partial:
            torch.save(kept, partial)

    def lessons(self, samples: Sequence[ExitSample]) -> list[Lesson]:
        """The lesson of each sample, in order."""
        if self.target is None:
            return [self._picked(sample) for sample in samples]
        found: dict[bytes, Lesson] = {}
        unknown: dict[bytes, ExitSample] = {}
        for sample in samples:
            key = _key(sample)
            if (known := self._kept.get(key)) is not None:
                found[key] = known
            else:
                unknown[key] = sample
        order = sorted(unknown, key=lambda key: len(unknown[key].ids))
        for at in range(0, len(order), TOGETHER):
            keys = order[at : at + TOGETHER]
            for key, lesson in zip(keys, self._taught([unknown[key] for key in keys]), strict=True):
                found[key] = lesson
                self._kept.put(key, lesson, lesson.nbytes)
        return [found[_key(sample)] for sample in samples]

    @torch.no_grad()
    def _taught(self, samples: Sequence[ExitSample]) -> list[Lesson]:
        assert self.target is not None
        longest = self.length if self.target.sees else max(min(len(sample.ids), self.length) for sample in samples)
        rows = self.target.rows(samples, longest)
        where = learnt_places(rows)
        logits = self.target.logits(rows.ids[:, :-1], rows.positions[..., :-1], rows.features, where=where)
        chances, likely = logits.log_softmax(-1).topk(self.top, -1)
        counts = rows.learn[:, 1:].bool().sum(-1).tolist()
        parts = zip(likely.int().cpu().split(counts), chances.half().cpu().split(counts), strict=True)
        # Copies, because a view would keep the whole tensor alive.
        return [Lesson(likely.clone(), chances.clone()) for likely, chances in parts]

    def _picked(self, sample: ExitSample) -> Lesson:
        """The text's own tokens, with probability 1."""
        rows = self.draft.rows([sample], self.length)
        likely = rows.ids[:, 1:].flatten()[learnt_places(rows)][:, None].int()
        return Lesson(likely, torch.zeros(likely.shape, dtype=torch.float16))


def learnt_places(rows: PaddedRows) -> Tensor:
    """int64 [n]: flat indices into the [rows, length - 1] positions of a batch at which a learnt token is predicted."""
    return rows.learn[:, 1:].flatten().nonzero()[:, 0]


def _key(sample: ExitSample) -> bytes:
    return repr((sample.ids, sample.start, sample.images)).encode()
