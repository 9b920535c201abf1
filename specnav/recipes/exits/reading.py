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

    Raises TrainingError, with the line number, for invalid entries and missing pictures.
    """
    try:
        content = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TrainingError(
            f"data file {file} cannot be read ({error}): give a JSON or JSONL file"
        ) from error
    records = _array(file, content) if content.lstrip().startswith("[") else _lines(file, content)
    found = [
        conversation
        for line, record in records
        if (conversation := _conversation(f"{file}, line {line}", record, file.parent)) is not None
    ]
    if not found:
        raise TrainingError(f"{file} has no conversation with an answer, and no text")
    return found


def _lines(file: Path, content: str) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(content.split("\n"), start=1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except ValueError as error:
                raise TrainingError(
                    f"{file}, line {number}: not JSON ({error}); correct or remove it"
                ) from error


def _array(file: Path, content: str) -> Iterator[tuple[int, Any]]:
    """Yield (line number, element) for the elements of an array."""
    decoder = json.JSONDecoder()
    at, line, counted = content.index("[") + 1, 1, 0
    while True:
        while at < len(content) and content[at] in " \t\r\n,":
            at += 1
        line += content.count("\n", counted, at)
        counted = at
        if content[at : at + 1] == "]":
            return
        try:
            record, at = decoder.raw_decode(content, at)
        except ValueError as error:
            where = getattr(error, "lineno", line)
            raise TrainingError(f"{file}, line {where}: not JSON ({error}); correct or remove it") from error
        yield line, record


def _conversation(origin: str, record: Any, folder: Path) -> Conversation | None:
    if isinstance(record, dict) and isinstance(record.get("text"), str):
        return Conversation(origin, text=record["text"]) if record["text"].strip() else None
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
            return role.lower(), words.replace(PICTURE, "").strip()
    raise TrainingError(f"{origin}: a message must be an object with from and value, or role and content")


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
