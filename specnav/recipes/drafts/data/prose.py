# SPDX-License-Identifier: Apache-2.0
"""Requests about what others have written: paragraphs and functions of the Python packages that are installed here.

A small target answers ordinary English in words far from those it was trained on. Only many different requests teach a
draft to foretell such answers; a few templates, filled in, do not.
"""

from __future__ import annotations

import hashlib
import random
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from specnav.recipes.text.corpus import (
    TEST_FOLDERS,
    Talk,
    paragraphs,
    read_source,
    source_prose,
    source_talks,
)

FILES_A_PACKAGE = 250
"""A few packages hold most of the files: more of them would only repeat their ways of speaking."""
LONGEST_FILE = 400_000
CODE_SHARE = 1 / 3
FORMS = (
    "{}", "{}", "{}", "Summarise the following text: {}", "Explain this: {}", "What does this mean? {}",
    "Rewrite this sentence so that it is easier to read: {}", "Is the following true? {}",
)  # fmt: skip
TOGETHER = (1, 1, 2, 3, 6)
"""How many paragraphs a request may hold."""


@dataclass(frozen=True)
class DocumentationText:
    """prose: paragraphs of English, each on one line; talks: questions and answers made from functions."""

    prose: tuple[str, ...]
    talks: tuple[Talk, ...]


def read_packages(*roots: Path) -> DocumentationText:
    """Docstrings, descriptions and functions of the packages below `roots`, by default where this interpreter keeps
    them. Files are chosen by their names alone; there may be nothing.
    """
    roots = roots or tuple({Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")})
    prose: dict[str, None] = {}
    talks: list[Talk] = []
    for root in sorted(roots):
        for file in _sources(root):
            source = read_source(root / file)
            if source is not None and len(source) <= LONGEST_FILE:
                prose.update(dict.fromkeys(source_prose(source)))
                talks += source_talks(source, file.as_posix())
        for told in sorted(root.glob("*.dist-info/METADATA")):
            prose.update(dict.fromkeys(paragraphs(told.read_text(encoding="utf-8", errors="ignore"))))
    return DocumentationText(tuple(prose), tuple(talks))


def request(reading: DocumentationText, rng: random.Random) -> str:
    """One request about `reading`, which holds something; the same for the same state of `rng`."""
    if not reading.talks or (reading.prose and rng.random() >= CODE_SHARE):
        count = min(rng.choice(TOGETHER), len(reading.prose))
        return rng.choice(FORMS).format(" ".join(rng.sample(reading.prose, count)))
    talk = rng.choice(reading.talks)
    return talk.question if rng.random() < 0.5 else opening(talk, rng)


def opening(talk: Talk, rng: random.Random) -> str:
    """The first lines of an answer that is code."""
    lines = talk.answer.split("\n")
    return "\n".join(lines[: rng.randint(1, max(min(len(lines) - 1, 8), 1))]) + "\n"


def _sources(root: Path) -> list[Path]:
    """Sources below a folder of packages, as paths relative to it, not more than FILES_A_PACKAGE of one package."""
    found: dict[str, list[Path]] = {}
    for file in root.glob("*/**/*.py"):
        path = file.relative_to(root)
        if not TEST_FOLDERS & set(path.parts[1:-1]):
            found.setdefault(path.parts[0], []).append(path)
    return [path for name in sorted(found) for path in sorted(found[name], key=_lot)[:FILES_A_PACKAGE]]


def _lot(path: Path) -> bytes:
    return hashlib.sha256(path.as_posix().encode()).digest()
