# SPDX-License-Identifier: Apache-2.0
"""Reading and writing structs as JSON files: atomically, and with one-line errors.

A reader never sees half a file: text goes to a temporary file in the same folder, is flushed to disk and renamed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from specdec.errors import DECODE_ERRORS
from specdec.settings_files import check_regular, read_file
from specdec.whole_files import pretty_json, write_whole
from specnav.results.errors import EvaluationError

T = TypeVar("T")
MOST_BYTES = 1 << 30


def write_bytes_atomic(path: Path, data: bytes) -> None:
    """Replace `path` with `data` in one step; the old content stays if anything fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, data)


def write_json(path: Path, value: msgspec.Struct) -> None:
    """Write a struct as indented JSON, atomically."""
    write_bytes_atomic(path, pretty_json(value))


def read_lines(path: Path, kind: type[T], folder: str, repair: str) -> list[T]:
    """Read a file with one struct per line; an incomplete last line, of a run that was killed, is dropped.

    Raises EvaluationError, which says to give the folder of `folder`, or `repair` where a line is wrong.
    """
    try:
        check_regular(path)
        lines = path.read_bytes().split(b"\n")[:-1]
    except OSError as error:
        raise EvaluationError(f"cannot read {path}: {error.strerror or error}; give the folder of {folder}") from error
    decoder, found = msgspec.json.Decoder(kind), []
    for number, line in enumerate(lines, start=1):
        try:
            found += [decoder.decode(line)] if line else []
        except DECODE_ERRORS as error:
            raise EvaluationError(f"{path} line {number}: {error}; {repair}") from error
    return found


def read_json(path: Path, kind: type[T]) -> T:
    """Read and check a struct; `EvaluationError` names the file and the field that is wrong."""
    try:
        data = read_file(path, MOST_BYTES, links=True)
    except OSError as error:
        raise EvaluationError(
            f"cannot read {path}: {error.strerror or error}; give the folder of a finished run"
        ) from error
    try:
        return msgspec.json.decode(data, type=kind)
    except DECODE_ERRORS as error:
        raise EvaluationError(
            f"{path} is not a valid {kind.__name__} file: {error}; run it again or repair it"
        ) from error
