# SPDX-License-Identifier: Apache-2.0
"""`specnav convert gguf`: plans, writes a temporary file, reads it back, and only then gives it its name."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from specdec.settings import REQUIRED, setting
from specdec.whole_files import check_replaceable, replacing
from specnav.errors import UsageError
from specnav.terminal import plain_table, progress_bar, say

_ROOM = 16 * 2**20
"""Space for metadata in addition to the tensors: a large vocabulary, twice."""
COMPANIONS = ("nav_prompt.json",)
"""Files of a folder that a GGUF file does not contain: the prompt format that the model was trained on."""


@dataclass(frozen=True)
class ConvertConfig:
    """Settings of `specnav convert gguf`."""

    folder: Path = setting(
        REQUIRED, "Hugging Face folder with its safetensors.", metavar="FOLDER", positional=True
    )
    type: str = setting(
        "q8_0", "Type of most numbers: f32, f16, bf16, q8_0, q5_1, q5_0, q4_1 or q4_0.", metavar="TYPE"
    )
    out: Path | None = setting(None, "The file to write.", metavar="FILE", shown="NAME-TYPE.gguf in the folder itself")


def run_convert(config: ConvertConfig) -> int:
    """Convert a folder; returns 0. Raises UsageError or ModelError if no correct file could be made."""
    from specnav.convert.kinds import kind_named

    kind = kind_named(config.type)
    if not config.folder.is_dir():
        raise UsageError(f"model folder {config.folder} does not exist: give a Hugging Face folder")
    out = config.out or config.folder / f"{config.folder.resolve().name}-{kind.name}.gguf"
    if out.suffix != ".gguf":
        raise UsageError(f"{out} is not the name of a GGUF file: end it with .gguf")
    if not out.parent.is_dir():
        raise UsageError(f"folder {out.parent} does not exist: make it first")
    check_replaceable(out)
    console = Console(stderr=True)
    contents = _plan(config.folder, out, kind)
    for content in contents.values():
        for note in content.notes:
            say(console, note)
    made = _make(contents, console)
    for name in COMPANIONS:
        if (config.folder / name).is_file() and out.parent.resolve() != config.folder.resolve():
            shutil.copy(config.folder / name, out.parent / name)
    for path, compared in made.items():
        say(console, f"{path}: {path.stat().st_size / 1e6:.2f} MB, every number read back:")
        console.print(_table(compared))
    return 0


def _plan(folder: Path, out: Path, kind: Any) -> dict[Path, Any]:
    """The files to write, with their content."""
    from specdec.models.loading import read_config
    from specnav.convert.source import Source
    from specnav.convert.text import ARCHES, DecoderSource, text_content
    from specnav.convert.vision import TOWERS, tower_content
    from specnav.convert.vocabulary import read_vocabulary

    config = read_config(str(folder))
    if config.model_type not in ARCHES:
        raise UsageError(
            f"{folder} is of type {config.model_type!r}, which cannot be converted: only {', '.join(ARCHES)} can"
        )
    if getattr(config, "quantization_config", None) is not None:
        raise UsageError(f"{folder} is quantised already: convert the checkpoint that it was made from")
    source, text = Source(folder), config.get_text_config()
    tied = bool(getattr(config, "tie_word_embeddings", getattr(text, "tie_word_embeddings", False)))
    decoder = DecoderSource(config.model_type, text, tied, folder.resolve().name)
    vocabulary = read_vocabulary(folder, text.vocab_size, config)
    contents = {out: text_content(decoder, source, vocabulary, kind)}
    if config.model_type in TOWERS:
        contents[out.with_name(f"mmproj-{out.name}")] = tower_content(folder, config, source, kind)
    return contents


def _make(contents: dict[Path, Any], console: Console) -> dict[Path, list[Any]]:
    """Write and check all files; none gets its name before all are correct."""
    from specnav.convert.checking import check
    from specnav.convert.writing import write

    _check_room(contents)
    steps = sum(2 * len(content.tensors) for content in contents.values())
    partial: dict[Path, Path] = {}
    found: dict[Path, list[Any]] = {}
    try:
        with ExitStack() as scratches, progress_bar(console, "tensors") as bar:
            work = bar.add_task("", total=steps)
            for path, content in contents.items():
                partial[path] = scratches.enter_context(replacing(path))
                bar.update(work, description=f"writing {path.name}")
                write(content, partial[path], lambda: bar.advance(work))
                bar.update(work, description=f"reading {path.name} back")
                found[path] = check(content, partial[path], lambda: bar.advance(work))
    except OSError as error:
        where = next(iter(contents)).parent
        raise UsageError(
            f"cannot write into {where} ({error.strerror or error}): is it full, or read-only?"
        ) from error
    return found


def _check_room(contents: dict[Path, Any]) -> None:
    """Raise UsageError if the disk has too little space for the files."""
    where = next(iter(contents)).parent
    needed = sum(content.size for content in contents.values()) + _ROOM
    free = shutil.disk_usage(where).free
    if needed > free:
        raise UsageError(
            f"{where} has {free / 1e6:.0f} MB free and {needed / 1e6:.0f} are needed: free some, or --out elsewhere"
        )


def _table(compared: list[Any]) -> Table:
    found = plain_table(("type", "tensors", "numbers", "MB", "off at most", "off, rms"), {"type"})
    for one in compared:
        off = ("exact", "exact") if one.worst == 0 else (f"{100 * one.worst:.2g} %", f"{100 * one.rms:.2g} %")
        found.add_row(one.kind.name, str(one.tensors), f"{one.numbers:,}", f"{one.size / 1e6:.2f}", *off)
    return found
