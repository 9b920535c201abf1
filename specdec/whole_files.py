# SPDX-License-Identifier: Apache-2.0
"""Writing files that a reader finds whole or not at all, and what JSON files look like."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec


@contextmanager
def replacing(path: str | Path, *, private: bool = False, fresh: bool = False) -> Iterator[Path]:
    """Give an empty file beside `path` to write, and put it in the place of `path` when the block ends well.

    After an error `path` is as it was, and nothing is left beside it. When the block has ended, the content and the
    name are on the disk. private: only the owner may have access. fresh: raise FileExistsError where `path` is there
    already. The folder must exist. Raises OSError.
    """
    place = Path(path)
    partial = place.with_name(f".{place.name}.{secrets.token_hex(8)}.part")
    os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666))
    try:
        yield partial
        _to_disk(partial)
        if fresh:
            os.link(partial, place)
        else:
            os.replace(partial, place)
    finally:
        with suppress(FileNotFoundError):
            partial.unlink()
    _to_disk(place.parent)


def write_whole(path: str | Path, data: bytes, *, private: bool = False, fresh: bool = False) -> None:
    """Replace a file's content in one step; see `replacing`. Raises OSError."""
    with replacing(path, private=private, fresh=fresh) as partial:
        partial.write_bytes(data)


def pretty_json(value: Any) -> bytes:
    """A value as a JSON file holds it."""
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"


def _to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
