# SPDX-License-Identifier: Apache-2.0
"""Loads benchmark questions: the JSON-lines form common to speculative-decoding benchmarks, plain text, or a dataset.

A *question* has one or more user *turns*; the model answers each before the next is asked. Nothing here decodes.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from specdec.errors import DECODE_ERRORS
from specdec.settings_files import read_text
from specnav.results.errors import EvaluationError, one_line

HUB_PREFIX = "hf:"
MAX_FILE_BYTES = 256 * 2**20
MAX_HUB_QUESTIONS = 1000
JSON_LINES = (".jsonl", ".ndjson", ".json")
"""Suffixes (in any case) of files with one JSON object per line; other files are plain text."""
LINE_FORM = 'a line is {"question_id": 1, "category": "math", "turns": ["..."]}'
TEXT_COLUMNS = ("turns", "question", "prompt", "instruction", "text")


@dataclass(frozen=True)
class Question:
    """One question, identified by (source, question_id). source: the file's stem or the dataset's name."""

    source: str
    question_id: str
    turns: tuple[str, ...]

    @property
    def digest(self) -> str:
        """Of the texts: a file may give another text the same id."""
        return hashlib.sha256("\0".join(self.turns).encode()).hexdigest()[:16]


class _Line(msgspec.Struct):
    """One line of a question file. category, reference: checked, not used.

    Published files have one reference per turn: a text (empty if there is none), or a list of all correct texts
    (Spec-Bench's questions on retrieved documents).
    """

    question_id: int | str
    turns: list[str]
    category: str | None = None
    reference: list[str | list[str]] | str | None = None


def load_questions(sources: Sequence[str | Path], limit: int | None = None) -> list[Question]:
    """Interleave the questions of all sources (first of each, then second of each, ...), at most `limit` of them.

    A source is a `.jsonl` file (`question_id`, `turns`, optional `category` and `reference`; see JSON_LINES), any
    other text file (one question per line), or `hf:ORG/NAME[@CONFIG][:SPLIT[:COLUMN]]`, which needs the `datasets`
    package and a reachable hub. Raises EvaluationError, which for a file names the line.
    """
    names = [str(source) for source in sources]
    for name in names:
        if names.count(name) > 1:
            raise EvaluationError(f"question file {name} is given twice; give each once")
    lists = [_load(name, limit) for name in names]
    labels = [questions[0].source for questions in lists]
    if len(set(labels)) < len(labels):  # two files with one name: their folders distinguish them
        lists = [
            [replace(question, source=name) for question in questions]
            for name, questions in zip(names, lists, strict=True)
        ]
    mixed = [q for row in itertools.zip_longest(*lists) for q in row if q is not None]
    return mixed[:limit]


def _load(name: str, limit: int | None) -> list[Question]:
    if name.startswith(HUB_PREFIX):
        return _from_hub(name, min(limit or MAX_HUB_QUESTIONS, MAX_HUB_QUESTIONS))
    path = Path(name)
    lines = _read_lines(path)
    if path.suffix.lower() in JSON_LINES:
        questions = parse_jsonl(lines, path.stem, str(path))
    else:
        questions = parse_plain(lines, path.stem, str(path))
    if not questions:
        raise EvaluationError(f"{path} holds no question; give a file with one question a line")
    return questions


def _read_lines(path: Path) -> list[str]:
    try:
        text = read_text(path, MAX_FILE_BYTES)
        return text.split("\n")  # U+2028 and the like do not end a line of JSON
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise EvaluationError(f"{path} line {line}: not UTF-8 text; save the file as UTF-8") from error
    except OSError as error:
        why = error.strerror or error
        raise EvaluationError(f"cannot read questions {path}: {why}; give a .jsonl or text file") from error


def parse_jsonl(lines: Iterable[str], source: str, place: str) -> list[Question]:
    """Questions of JSON lines; blank lines are skipped. Raises EvaluationError naming `place` and the line."""
    questions: list[Question] = []
    seen: dict[str, int] = {}
    for number, text in enumerate(lines, start=1):
        if not text.strip():
            continue
        line = _parse_line(text, f"{place} line {number}")
        identity = str(line.question_id)
        if not line.turns or not all(turn.strip() for turn in line.turns):
            raise EvaluationError(
                f"{place} line {number}: turns must hold at least one text, none of them empty"
            )
        if identity in seen:
            raise EvaluationError(
                f"{place} line {number}: question_id {identity} is already used on line {seen[identity]}; "
                "ids must differ"
            )
        seen[identity] = number
        questions.append(Question(source, identity, tuple(line.turns)))
    return questions


def _parse_line(text: str, place: str) -> _Line:
    try:
        return msgspec.json.decode(text, type=_Line)
    except DECODE_ERRORS as error:
        raise EvaluationError(f"{place}: {error}; {LINE_FORM}") from error


def parse_plain(lines: Iterable[str], source: str, place: str) -> list[Question]:
    """One question per line, identified by its line number; blank lines are skipped.

    Raises EvaluationError, naming `place`, if the lines look like a `.jsonl` file.
    """
    questions = []
    for number, text in enumerate(lines, start=1):
        if not (stripped := text.strip()):
            continue
        if stripped.startswith("{") and '"turns"' in stripped:
            raise EvaluationError(
                f"{place} line {number}: a JSON object, not plain text; name the file .jsonl"
            )
        questions.append(Question(source, str(number), (stripped,)))
    return questions


def _from_hub(name: str, limit: int) -> list[Question]:
    """Load `hf:ORG/NAME[@CONFIG][:SPLIT[:COLUMN]]`, streamed so that only `limit` rows are fetched."""
    try:
        import datasets
    except ImportError as error:
        raise EvaluationError(
            f"{name} needs the datasets package: pip install datasets, or give a file"
        ) from error
    dataset, _, rest = name[len(HUB_PREFIX) :].partition(":")
    dataset, _, variant = dataset.partition("@")
    split, _, column = rest.partition(":")
    try:
        rows = datasets.load_dataset(dataset, variant or None, split=split or "test", streaming=True)
        taken = list(itertools.islice(rows, limit))
    except Exception as error:  # datasets raises almost any type here; the cause stays attached
        raise EvaluationError(
            f"dataset {name} cannot be read ({one_line(error)[:200]}); check its name and split, "
            "or give a file where no hub is reachable"
        ) from error
    return questions_of_rows(taken, dataset, column)


def questions_of_rows(rows: Sequence[Mapping[str, Any]], source: str, column: str = "") -> list[Question]:
    """Questions from a dataset's rows: from `column`, or the first of TEXT_COLUMNS that exists."""
    if not rows:
        raise EvaluationError(f"dataset {source} has no rows; choose another split")
    chosen = column or next((name for name in TEXT_COLUMNS if name in rows[0]), "")
    if chosen not in rows[0]:
        raise EvaluationError(
            f"dataset {source} has no column {chosen or ' or '.join(TEXT_COLUMNS)}; it has "
            f"{', '.join(map(str, rows[0]))}: name one, like hf:ORG/NAME:test:COLUMN"
        )
    questions = []
    for number, row in enumerate(rows):
        value = row[chosen]
        texts = value if isinstance(value, (list, tuple)) else [value]
        turns = tuple("" if text is None else str(text) for text in texts)
        if turns and all(turn.strip() for turn in turns):
            questions.append(Question(source, str(number), turns))
    if not questions:
        raise EvaluationError(
            f"column {chosen} of dataset {source} holds no text: name another, like hf:ORG/NAME:test:COLUMN"
        )
    return questions
