# SPDX-License-Identifier: Apache-2.0
"""Writes an mcap file that appears complete or not at all.

Messages are written to a folder `NAME.partial` next to the file, in chunks that are closed every few seconds, so that a
killed recording can still be read there. The file itself appears in one step when the recording is finished.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from rosbags.interfaces import Connection
from rosbags.rosbag2 import StoragePlugin, Writer, WriterError
from rosbags.rosbag2.enums import CompressionFormat, CompressionMode
from rosbags.rosbag2.storage_mcap import McapWriter

from specdec.whole_files import check_replaceable
from specnav.bags.qos import latched_profile
from specnav.bags.types import Types
from specnav.results.errors import EvaluationError

FLUSH_S = 2.0


class McapFile:
    """A recording in progress, as a context manager. An error leaves an existing file untouched."""

    def __init__(
        self, path: Path, types: Types, replace: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """replace: overwrite an existing file once this one is finished. Raises EvaluationError."""
        self.path, self._types, self._clock = path, types, clock
        check_name(path, replace)
        self.partial = _free_name(path)
        # The writer creates a folder, and in it a file with the folder's name.
        self._bag = self.partial / path.stem
        self.counts: dict[str, int] = {}
        self._connections: dict[str, Connection] = {}
        self._flushed_at = clock()
        self._writer = Writer(self._bag, version=9, storage_plugin=StoragePlugin.MCAP)
        self._writer.set_compression(CompressionMode.STORAGE, CompressionFormat.ZSTD)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._writer.open()
        except (OSError, WriterError) as error:
            raise EvaluationError(
                f"cannot write {path}: {getattr(error, 'strerror', None) or error}"
            ) from error

    def __enter__(self) -> McapFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.finish()
        else:
            self.discard()

    def add_topic(self, name: str, kind: str, latched: int = 0) -> None:
        """Begin a topic; repeating it does nothing. Raises EvaluationError for an unknown type.

        latched: number of last messages that its publishers keep for late subscribers; 0: not latched.
        """
        if name in self._connections:
            return
        if kind not in self._types.store.types:
            raise EvaluationError(f"{name} cannot be recorded: its type {kind} is not known here")
        profiles = [latched_profile(latched)] if latched else []
        self._connections[name] = self._writer.add_connection(
            name, kind, typestore=self._types.store, offered_qos_profiles=profiles
        )
        self.counts[name] = 0

    def write(self, name: str, time_ns: int, data: bytes | memoryview) -> None:
        """Write a message's bytes (CDR) to a topic that was added."""
        self._writer.write(self._connections[name], time_ns, data)
        self.counts[name] += 1
        if self._clock() - self._flushed_at >= FLUSH_S:
            self.flush()

    def flush(self) -> None:
        """Flush to disk; only the index is missing then."""
        storage = self._writer.storage
        if isinstance(storage, McapWriter):
            if storage.chunk.msgs:
                storage.close_chunk()
            storage.bio.flush()
        self._flushed_at = self._clock()

    def finish(self) -> Path:
        """Close the file and move it to its place; returns its path."""
        self._writer.close()
        written = self._bag / self.path.name
        with written.open("rb") as stream:
            os.fsync(stream.fileno())
        os.replace(written, self.path)
        shutil.rmtree(self.partial, ignore_errors=True)
        return self.path

    def keep_partial(self) -> None:
        """Stop writing, and keep the folder `partial`."""
        with contextlib.suppress(Exception):
            self.flush()
        with contextlib.suppress(Exception):
            self._writer.abort()

    def discard(self) -> None:
        """Abort and delete the recording."""
        with contextlib.suppress(Exception):
            self._writer.abort()
        shutil.rmtree(self.partial, ignore_errors=True)


def check_name(path: Path, replace: bool = False) -> None:
    """Raise EvaluationError for a name that a recording cannot have."""
    if path.suffix != ".mcap":
        raise EvaluationError(f"{path} does not end in .mcap; give a name like walk.mcap")
    if path.exists() and not replace:
        raise EvaluationError(f"{path} exists already; give another name, or --force to replace it")
    try:
        check_replaceable(path)
    except PermissionError as error:
        raise EvaluationError(f"{path} is {error.strerror}; give another name") from error


def _free_name(path: Path) -> Path:
    """A folder name next to the file that no other recording, running or killed, uses."""
    for number in range(1000):
        found = path.with_name(f"{path.stem}.partial" + (f"-{number}" if number else ""))
        if not found.exists():
            return found
    raise EvaluationError(f"{path.parent} is full of unfinished recordings of {path.name}; remove them")
