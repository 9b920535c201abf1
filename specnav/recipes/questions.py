# SPDX-License-Identifier: Apache-2.0
"""Questions and answers about labelled frames: their distribution, and their encoding as rows of token ids.

Names in questions come only from training pairs, visible or not. If held-out pairs were asked for as absent, a model
would learn never to see them.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from spec_vlm_nav.language.actions import ActionKind
from specnav.recipes import architecture as arch
from specnav.recipes.frames import MAX_OBJECTS, SEEN_PIXELS, UNSEEN_PIXELS, view_of
from specnav.recipes.oracle import VisibleObject, answer_seen, answer_unseen, decide, instruct

PREFIX = 14  # columns before the image: turn, instruction, start of vision
ANSWER = 34  # tokens of the longest answer, end of turn included
SUFFIX_TEXT = "<|vision_end|><|im_end|>\n<|im_start|>assistant\n"
POSITIVES = 0.58
STOP_WEIGHT, BLOCKED_WEIGHT, SHORT_WEIGHT = 3.0, 3.0, 2.0
KEY_WEIGHT = 3.0
KEY_WORDS = (
    *(" do", " see", " left", " right", " ahead", " clear", " blocked", " The", " I", " turn", " move"),
    *"0123456789",
)


@dataclass(frozen=True)
class FrameQuestion:
    """One question: the frame (index into the cache), the name asked for, and the object (-1: not seen)."""

    frame: int
    name: str
    thing: int


class QuestionEncoder:
    """Encodes questions as rows of ids, in the prompt format of `specdec` and the robot's prompt spec."""

    def __init__(self, tokenizer) -> None:
        self.tokenizer = tokenizer
        ids = tokenizer.convert_tokens_to_ids
        self.eos, self.pad, self.image = ids("<|im_end|>"), ids("<|endoftext|>"), ids("<|image_pad|>")
        self.prefix = self.encode("<|im_start|>user\nTask:")
        self.suffix = [self.image] * arch.IMAGE_TOKENS + self.encode(SUFFIX_TEXT)
        self.vision_start = ids("<|vision_start|>")
        weights = torch.ones(arch.EMBEDDING_ROWS)
        for word in KEY_WORDS:
            (token,) = self.encode(word)
            weights[token] = KEY_WEIGHT
        self.weights = weights
        self.length = PREFIX + len(self.suffix) + ANSWER - 1

    @lru_cache(maxsize=100_000)  # noqa: B019  (one encoder lives as long as its process)
    def _cached(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def encode(self, text: str) -> list[int]:
        """Ids of a text."""
        return list(self._cached(text))

    def row(self, instruction: str, answer: str) -> tuple[list[int], int, list[int]]:
        """(input ids [length], padding columns at the left, wanted ids [ANSWER] with -1 after the end)."""
        start = [*self.prefix, *self.encode(" " + instruction), self.vision_start]
        said = [*self.encode(answer), self.eos]
        if len(start) > PREFIX or len(said) > ANSWER:
            raise ValueError(f"too long for a row: {instruction!r} / {answer!r}")
        pad = PREFIX - len(start)
        fill = ANSWER - len(said)
        row = [self.pad] * pad + start + self.suffix + said[:-1] + [self.pad] * fill
        return row, pad, said + [-1] * fill


def image_positions(pads: Tensor, length: int) -> Tensor:
    """m-rope positions int64 [3, n, length] of rows with `pads` columns of padding (which get position 0)."""
    n = pads.shape[0]
    columns = torch.arange(length, device=pads.device)
    text = (columns[None] - pads[:, None]).clamp(min=0)
    start = PREFIX - pads[:, None]
    stop = PREFIX + arch.IMAGE_TOKENS
    after = columns[None] - stop + start + max(arch.CELLS_H, arch.CELLS_W)
    plain = torch.where(columns[None] >= stop, after, text)
    cell = torch.arange(arch.IMAGE_TOKENS, device=pads.device)
    grid = torch.stack([torch.zeros_like(cell), cell // arch.CELLS_W, cell % arch.CELLS_W])
    inside = grid[:, None] + start[None]
    return torch.cat(
        [plain[:, :PREFIX].expand(3, n, -1), inside, plain[:, stop:].expand(3, n, -1)], dim=2
    )


def attention_mask(pads: Tensor, length: int) -> Tensor:
    """Mask bool [n, 1, length, length]: causal, padding hidden (padding rows see themselves)."""
    columns = torch.arange(length, device=pads.device)
    causal = columns[None, :] <= columns[:, None]
    real = columns[None, None, :] >= pads[:, None, None]
    own = columns[None, :] == columns[:, None]
    return ((causal[None] & real) | own[None])[:, None]


class QuestionBook:
    """Draws questions about a set of labels (FRAME records).

    kinds, colours: names by index. pairs: allowed (kind, colour) names.
    """

    def __init__(self, labels: np.ndarray, kinds: list[str], colours: list[str], pairs: set[tuple[str, str]]) -> None:
        self.labels = labels
        self.kinds, self.colours = kinds, colours
        self.pairs = sorted(pairs)
        self._allowed = set(pairs)
        things = labels["objects"]
        seen = (things["kind"] >= 0) & (things["pixels"] >= SEEN_PIXELS)
        self.seen = np.argwhere(seen)  # rows (frame, object)
        weights = np.array([_weight(view_of(labels[f], t)) for f, t in self.seen])
        self._cumulative = np.cumsum(weights / weights.sum())

    def name(self, frame: int, thing: int) -> str:
        """Name of an object of a frame."""
        record = self.labels["objects"][frame, thing]
        return f"{self.colours[record['colour']]} {self.kinds[record['kind']]}"

    def draw(self, rng: random.Random) -> FrameQuestion:
        """Draw one question; its frame is not mirrored."""
        frame, thing = self.seen[min(int(np.searchsorted(self._cumulative, rng.random())), len(self.seen) - 1)]
        if rng.random() < POSITIVES:
            return FrameQuestion(int(frame), self.name(frame, thing), int(thing))
        for _ in range(20):
            name = self._unseen_name(rng, int(frame), int(thing))
            if name is not None:
                return FrameQuestion(int(frame), name, -1)
            frame = rng.randrange(len(self.labels))
        return FrameQuestion(int(self.seen[0][0]), self.name(*self.seen[0]), int(self.seen[0][1]))

    def _unseen_name(self, rng: random.Random, frame: int, thing: int) -> str | None:
        """A name that this frame does not show: similar to the object, an object out of sight, or any name."""
        things = self.labels["objects"][frame]
        form = rng.random()
        if form < 0.7 and things["kind"][thing] >= 0:
            kind, colour = self.kinds[things["kind"][thing]], self.colours[things["colour"][thing]]
            pair = (rng.choice(self.kinds), colour) if form < 0.35 else (kind, rng.choice(self.colours))
        elif form < 0.85:
            other = things[rng.randrange(MAX_OBJECTS)]
            if other["kind"] < 0:
                return None
            pair = self.kinds[other["kind"]], self.colours[other["colour"]]
        else:
            pair = rng.choice(self.pairs)
        if pair not in self._allowed:
            return None
        shown = things[(things["kind"] >= 0) & (things["pixels"] >= UNSEEN_PIXELS)]
        if any((self.kinds[record["kind"]], self.colours[record["colour"]]) == pair for record in shown):
            return None
        return f"{pair[1]} {pair[0]}"

    def answer(self, question: FrameQuestion, mirrored: bool) -> str:
        """The oracle's answer."""
        if question.thing < 0:
            return answer_unseen(question.name, float(self.labels["ahead_free"][question.frame]))
        view = view_of(self.labels[question.frame], question.thing)
        if mirrored:
            view = VisibleObject(-view.bearing, view.distance, view.ahead_free, view.blocked, -view.way)
        return answer_seen(question.name, view)

    def target_patches(self, question: FrameQuestion) -> np.ndarray:
        """bool [160]: patches (merge order, not mirrored) that show the object asked for."""
        if question.thing < 0:
            return np.zeros(arch.GRID_H * arch.GRID_W, bool)
        return self.labels["owner"][question.frame] == question.thing


def _weight(view: VisibleObject) -> float:
    action, blocked = decide(view)
    if action.kind is ActionKind.STOP:
        return STOP_WEIGHT
    if blocked:
        return BLOCKED_WEIGHT
    return SHORT_WEIGHT if action.kind is ActionKind.FORWARD and action.amount < 75 else 1.0


def draw_rows(
    book: QuestionBook, encoder: QuestionEncoder, rng: random.Random, size: int, flip: np.ndarray
) -> tuple[list[FrameQuestion], np.ndarray, Tensor, Tensor, Tensor, Tensor]:
    """(questions, mirrored [n], ids [n, length], pads [n], wanted [n, ANSWER], cells float [n, 40])."""
    questions, mirrored, ids, pads, wanted, cells = [], [], [], [], [], []
    for _ in range(size):
        question = book.draw(rng)
        mirror = rng.random() < 0.5
        row, pad, said = encoder.row(instruct(question.name, rng), book.answer(question, mirror))
        patches = book.target_patches(question)
        if mirror:
            patches = patches[flip]
        questions.append(question)
        mirrored.append(mirror)
        ids.append(row)
        pads.append(pad)
        wanted.append(said)
        cells.append(patches.reshape(arch.IMAGE_TOKENS, -1).any(1))
    return (
        questions,
        np.array(mirrored),
        torch.tensor(ids),
        torch.tensor(pads),
        torch.tensor(wanted),
        torch.from_numpy(np.stack(cells)).float(),
    )
