# SPDX-License-Identifier: Apache-2.0
"""Writing an mcap file that is there whole or not at all.

Messages go to a folder `NAME.partial` beside the file, in chunks that are closed every few seconds, so that a killed
recording can still be read there; the file itself appears in one step when the recording is finished.
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

from specnav.bags.qos import latched_profile
from specnav.bags.types import Types
from specnav.results.errors import EvaluationError

FLUSH_S = 2.0


class McapFile:
    """A recording in progress; use it as a context manager. An error leaves what was there before untouched."""

    def __init__(
        self, path: Path, types: Types, replace: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """replace: a file that is there already gives way when this one is finished. Raises EvaluationError."""
        self.path, self._types, self._clock = path, types, clock
        check_name(path, replace)
        self.partial = _free_name(path)
        # The writer makes a folder, and in it a file of the folder's name.
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
        """Begin a topic; once more is nothing. Raises EvaluationError for a type that is not known.

        latched: this many last messages its publishers keep for those who subscribe later; 0: they keep none.
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
        """Keep a message's bytes (CDR) of a topic that was begun."""
        self._writer.write(self._connections[name], time_ns, data)
        self.counts[name] += 1
        if self._clock() - self._flushed_at >= FLUSH_S:
            self.flush()

    def flush(self) -> None:
        """Hand what was kept to the disk: all but the index is there then."""
        storage = self._writer.storage
        if isinstance(storage, McapWriter):
            if storage.chunk.msgs:
                storage.close_chunk()
            storage.bio.flush()
        self._flushed_at = self._clock()

    def finish(self) -> Path:
        """Close the file and put it in its place; returns its path."""
        self._writer.close()
        written = self._bag / self.path.name
        with written.open("rb") as stream:
            os.fsync(stream.fileno())
        os.replace(written, self.path)
        shutil.rmtree(self.partial, ignore_errors=True)
        return self.path

    def keep_partial(self) -> None:
        """Stop writing, and leave what there is in the folder `partial`."""
        with contextlib.suppress(Exception):
            self.flush()
        with contextlib.suppress(Exception):
            self._writer.abort()

    def discard(self) -> None:
        """Forget the recording."""
        with contextlib.suppress(Exception):
            self._writer.abort()
        shutil.rmtree(self.partial, ignore_errors=True)


def check_name(path: Path, replace: bool = False) -> None:
    """Raise EvaluationError for a name that a recording cannot have."""
    if path.suffix != ".mcap":
        raise EvaluationError(f"{path} does not end in .mcap; give a name like walk.mcap")
    if path.exists() and not replace:
        raise EvaluationError(f"{path} is there already; give another name, or --force to replace it")


def _free_name(path: Path) -> Path:
    """A folder beside the file that no other recording, under way or killed, uses."""
    for number in range(1000):
        found = path.with_name(f"{path.stem}.partial" + (f"-{number}" if number else ""))
        if not found.exists():
            return found
    raise EvaluationError(f"{path.parent} is full of unfinished recordings of {path.name}; remove them")
