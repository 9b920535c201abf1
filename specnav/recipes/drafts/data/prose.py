# SPDX-License-Identifier: Apache-2.0
"""Makes requests about texts of others: paragraphs and functions of the installed Python packages.

A small target answers ordinary English in words far from its training data. A draft learns to predict such answers only
from many different requests, not from a few templates.
"""

from __future__ import annotations

import hashlib
import random
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from specnav.recipes.corpus import (
    TEST_FOLDERS,
    Talk,
    paragraphs,
    read_source,
    source_prose,
    source_talks,
)
from specnav.recipes.drafts.network import Progress

FILES_A_PACKAGE = 250
"""Most files used of one package; a few packages have most of the files, and more would only repeat their style."""
LONGEST_FILE = 400_000
CODE_SHARE = 1 / 3
FORMS = (
    "{}", "{}", "{}", "Summarise the following text: {}", "Explain this: {}", "What does this mean? {}",
    "Rewrite this sentence so that it is easier to read: {}", "Is the following true? {}",
)  # fmt: skip
TOGETHER = (1, 1, 2, 3, 6)
"""Numbers of paragraphs in a request, to draw from."""


@dataclass(frozen=True)
class DocumentationText:
    """Texts of packages. prose: English paragraphs, one line each. talks: questions and answers about functions."""

    prose: tuple[str, ...]
    talks: tuple[Talk, ...]


def read_packages(
    most: int, *roots: Path, progress: Progress = lambda done, total: None
) -> DocumentationText:
    """Docstrings, descriptions and functions of the packages below `roots`; may be empty.

    The default is the interpreter's package folders. Of each root at most `most` files are read, chosen only by their
    names: all files of many packages take minutes.
    """
    roots = roots or tuple({Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")})
    prose: dict[str, None] = {}
    talks: list[Talk] = []
    for root in sorted(roots):
        files = sorted(_sources(root), key=_lot)[:most]
        for number, file in enumerate(files, 1):
            progress(number, len(files))
            source = read_source(root / file)
            if source is not None and len(source) <= LONGEST_FILE:
                prose.update(dict.fromkeys(source_prose(source)))
                talks += source_talks(source, file.as_posix())
        for told in sorted(root.glob("*.dist-info/METADATA")):
            prose.update(dict.fromkeys(paragraphs(told.read_text(encoding="utf-8", errors="ignore"))))
    return DocumentationText(tuple(prose), tuple(talks))


def request(reading: DocumentationText, rng: random.Random) -> str:
    """One request about `reading`, which must not be empty; determined by the state of `rng`."""
    if not reading.talks or (reading.prose and rng.random() >= CODE_SHARE):
        count = min(rng.choice(TOGETHER), len(reading.prose))
        return rng.choice(FORMS).format(" ".join(rng.sample(reading.prose, count)))
    talk = rng.choice(reading.talks)
    return talk.question if rng.random() < 0.5 else opening(talk, rng)


def opening(talk: Talk, rng: random.Random) -> str:
    """The first lines of a code answer."""
    lines = talk.answer.split("\n")
    return "\n".join(lines[: rng.randint(1, max(min(len(lines) - 1, 8), 1))]) + "\n"


def _sources(root: Path) -> list[Path]:
    """Source files below a folder of packages, as relative paths, at most FILES_A_PACKAGE per package."""
    found: dict[str, list[Path]] = {}
    for file in root.glob("*/**/*.py"):
        path = file.relative_to(root)
        if not TEST_FOLDERS & set(path.parts[1:-1]):
            found.setdefault(path.parts[0], []).append(path)
    return [path for name in sorted(found) for path in sorted(found[name], key=_lot)[:FILES_A_PACKAGE]]


def _lot(path: Path) -> bytes:
    return hashlib.sha256(path.as_posix().encode()).digest()
