# SPDX-License-Identifier: Apache-2.0
"""Atomic file writes, and the layout of JSON files."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec


def check_replaceable(path: str | Path) -> None:
    """Raise PermissionError unless `path` is a regular file or free.

    Renaming a file to a device, pipe or socket would remove it; renaming to a folder fails, when all work is done.
    """
    place = Path(path)
    if place.exists() and not place.is_file():
        raise PermissionError(errno.EACCES, "not a regular file, so it is not replaced", str(place))


@contextmanager
def alone_in(folder: str | Path) -> Iterator[None]:
    """Wait for, and hold, the lock on a folder, so that what one process reads and writes back there is not overwritten
    by another. Nothing is held if the folder cannot be read, or on a file system without locks.
    """
    with ExitStack() as held:
        with suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            held.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


@contextmanager
def replacing(path: str | Path, *, private: bool = False, fresh: bool = False) -> Iterator[Path]:
    """Yield an empty temporary file beside `path`, and rename it to `path` when the block ends without an error.

    After an error `path` is unchanged and the temporary file is gone. After the block, content and name are synced to
    disk. private: only the owner has access. fresh: raise FileExistsError if `path` exists. The folder must exist.
    Raises OSError, also if `path` is a folder, device, pipe or socket.
    """
    place = Path(path)
    check_replaceable(place)
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
    """Replace a file's content in one step; see `replacing`. Raises OSError, which names a file."""
    try:
        with replacing(path, private=private, fresh=fresh) as partial:
            partial.write_bytes(data)
    except OSError as error:
        if error.errno and not error.filename:  # a full disk is told without a name
            error.filename = str(path)
        raise


def pretty_json(value: Any) -> bytes:
    """A value as indented JSON with a final newline."""
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"


def _to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
