# SPDX-License-Identifier: Apache-2.0
"""Reads conversations from data files: ShareGPT conversations, SpaceLLaVA questions about pictures, plain texts.

A file is a JSON array or has one JSON object per line. An object has "text", or "conversations" (from, value), or
"messages" (role, content). "image" or "images" give file names relative to the data file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specnav.recipes.errors import TrainingError

ASKS = frozenset({"human", "user"})
ANSWERS = frozenset({"gpt", "assistant", "chatgpt", "bing", "bard", "model"})
SYSTEM = frozenset({"system"})
PICTURE = "<image>"


@dataclass(frozen=True)
class Conversation:
    """One conversation. turns: (question, answer) pairs. images: their pictures. text: plain text instead of turns."""

    origin: str
    turns: tuple[tuple[str, str], ...] = ()
    images: tuple[Path, ...] = ()
    system: str = ""
    text: str = ""


def read_conversations(file: Path) -> list[Conversation]:
    """All conversations of a data file; those without an answer are left out.

    Raises TrainingError, with the line or the number of the entry, for invalid entries and missing pictures.
    """
    try:
        content = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise TrainingError(
            f"data file {file} cannot be read ({error}): give a JSON or JSONL file"
        ) from error
    found = [
        conversation
        for origin, record in _records(file, content)
        if (conversation := _conversation(origin, record, file.parent)) is not None
    ]
    if not found:
        raise TrainingError(f"{file} has no conversation with an answer, and no text")
    return found


def _records(file: Path, content: str) -> Iterator[tuple[str, Any]]:
    """Yield (origin, record) of an array's elements, or of the lines of a file without an array."""
    if content.lstrip().startswith("["):
        for number, record in enumerate(_parsed(file, 1, content), start=1):
            yield f"{file}, entry {number}", record
        return
    for number, line in enumerate(content.split("\n"), start=1):
        if line.strip():
            yield f"{file}, line {number}", _parsed(file, number, line)


def _parsed(file: Path, line: int, text: str) -> Any:
    """JSON that begins on a line of a file."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        where = line - 1 + getattr(error, "lineno", 1)
        raise TrainingError(f"{file}, line {where}: not JSON ({error}); correct or remove it") from error


def _conversation(origin: str, record: Any, folder: Path) -> Conversation | None:
    if isinstance(record, dict) and isinstance(record.get("text"), str):
        return Conversation(origin, text=_text(origin, record["text"])) if record["text"].strip() else None
    said = record.get("conversations", record.get("messages")) if isinstance(record, dict) else None
    if not isinstance(said, list):
        raise TrainingError(f'{origin}: not an object with "text", "conversations" or "messages"')
    system, turns, question = "", [], ""
    for piece in said:
        role, words = _spoken(origin, piece)
        if role in SYSTEM:
            system = words
        elif role in ASKS:
            question = f"{question}\n{words}".strip()
        elif role not in ANSWERS:
            raise TrainingError(
                f"{origin}: unknown speaker {role!r}; known are human, gpt, user, assistant, system"
            )
        elif question and words:
            turns.append((question, words))
            question = ""
        elif turns and words:  # an answer in two messages
            turns[-1] = (turns[-1][0], f"{turns[-1][1]}\n{words}")
    if not turns:
        return None
    return Conversation(origin, tuple(turns), _images(origin, record, folder), system)


def _spoken(origin: str, piece: Any) -> tuple[str, str]:
    """(role, text) of one message."""
    if isinstance(piece, dict):
        role, words = piece.get("from", piece.get("role")), piece.get("value", piece.get("content"))
        if isinstance(words, list):
            words = "\n".join(
                str(part["text"]) for part in words if isinstance(part, dict) and part.get("text")
            )
        if isinstance(role, str) and isinstance(words, str):
            return role.lower(), _text(origin, words).replace(PICTURE, "").strip()
    raise TrainingError(f"{origin}: a message must be an object with from and value, or role and content")


def _text(origin: str, words: str) -> str:
    """The words, unless they have half of a surrogate pair, which is no character."""
    try:
        words.encode()
    except UnicodeEncodeError as error:
        raise TrainingError(f"{origin}: {error}; correct or remove it") from error
    return words


def _images(origin: str, record: dict, folder: Path) -> tuple[Path, ...]:
    named = record.get("image", record.get("images")) or []
    names = [named] if isinstance(named, str) else named
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise TrainingError(f"{origin}: images must be file names")
    files = tuple(folder / name for name in names)
    for file in files:
        if not file.is_file():
            raise TrainingError(f"{origin}: picture {file} does not exist")
    return files
