# SPDX-License-Identifier: Apache-2.0
"""A log of the target's answers, as training data for a draft model. An edge or a verifier may keep one.

Off by default. For each answer it holds the target's tokens and how many draft tokens were accepted. Prompts and
pictures are logged only on request. The size is bounded: the oldest part file is deleted first. A part file
(`verdicts-NNNNNN.msgpack`) is written atomically, so a reader never sees half of one. A killed process loses at most
the last part.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from specdec.errors import DECODE_ERRORS, SpecdecError
from specdec.settings_files import check_regular
from specdec.whole_files import write_whole

CONTENTS = ("tokens", "prompts", "pictures")
PART_BYTES = 1 << 20
MOST_BYTES = 64 << 20
PART_S = 60.0
_WAITING = 256
_HEAD_BYTES = 5
"""Most bytes of a part besides its answers."""
_PATTERN = "verdicts-*.msgpack"
_log = logging.getLogger(__name__)


class VerdictLogError(SpecdecError):
    """A log that cannot be written or read; the message says what to do."""


class LoggedAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """One answer, as far as the target has verified it.

    Attributes:
        vocabulary: Fingerprint of the vocabulary (see LoadedModel).
        answer: Token ids, EOS included if the answer reached it.
        rounds: Per verdict, how many tokens were drafted and how many accepted.
        temperature: 0 for greedy decoding.
        prompt: Token ids, one per picture; empty unless requested.
        images: The encoded pictures; empty unless requested.
        target: Digest of the target's weights (specdec.models.digest); empty if unknown.
    """

    vocabulary: bytes
    answer: tuple[int, ...]
    rounds: tuple[tuple[int, int], ...] = ()
    temperature: float = 0.0
    prompt: tuple[int, ...] = ()
    images: tuple[bytes, ...] = ()
    target: bytes = b""


class VerdictLog:
    """Writes the log in a background thread, so that decoding never waits for the disk.

    dropped: answers that were lost because the disk was too slow or full.
    """

    def __init__(
        self,
        folder: str | Path,
        contents: str = "tokens",
        most_bytes: int = MOST_BYTES,
        part_bytes: int = PART_BYTES,
        part_s: float = PART_S,
    ) -> None:
        """part_bytes, part_s: a part is written once it has this size, or its first answer this age. Raises
        VerdictLogError if the folder cannot be created or written.
        """
        if contents not in CONTENTS:
            raise VerdictLogError(
                f"verdict log contents {contents!r} are unknown: choose {', '.join(CONTENTS)}"
            )
        if most_bytes < part_bytes or part_bytes < 1:
            raise VerdictLogError(
                f"a verdict log of {most_bytes} bytes is too small: give at least {part_bytes}"
            )
        self.folder = Path(folder)
        self.contents = contents
        self.dropped = 0
        self._most, self._part, self._part_s = most_bytes, part_bytes, part_s
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if not os.access(self.folder, os.W_OK):
                raise PermissionError("no permission to write there")
        except OSError as error:
            raise VerdictLogError(
                f"verdict log {self.folder} cannot be written ({error.strerror or error}): give another folder"
            ) from error
        self._number = max((_number(file) for file in self.folder.glob(_PATTERN)), default=0)
        self._queue: queue.Queue[LoggedAnswer | None] = queue.Queue(_WAITING)
        self._thread = threading.Thread(target=self._work, name="verdict-log", daemon=True)
        self._thread.start()

    def add(self, said: LoggedAnswer) -> None:
        """Log an answer; fields that `contents` does not include are dropped. Thread-safe."""
        if not said.answer:
            return
        if self.contents == "tokens":
            said = msgspec.structs.replace(said, prompt=(), images=())
        elif self.contents == "prompts":
            said = msgspec.structs.replace(said, images=())
        try:
            self._queue.put_nowait(said)
        except queue.Full:
            self.dropped += 1

    def close(self) -> None:
        """Write the remaining answers and stop the thread."""
        self._queue.put(None)
        self._thread.join()

    def _work(self) -> None:
        kept: list[bytes] = []
        size, due_s = 0, 0.0
        while True:
            try:
                said = self._queue.get(timeout=max(0.0, due_s - time.monotonic()) if kept else None)
            except queue.Empty:
                kept, size = self._written(kept), 0
                continue
            if said is not None:
                one = msgspec.msgpack.encode(said)
                if size + len(one) + _HEAD_BYTES > self._most:  # together they would exceed the bound
                    kept, size = self._written(kept), 0
                due_s = due_s if kept else time.monotonic() + self._part_s
                kept.append(one)
                size += len(one)
            if said is None or size >= self._part or time.monotonic() >= due_s:
                kept, size = self._written(kept), 0
            if said is None:
                return

    def _written(self, kept: list[bytes]) -> list[bytes]:
        """Write a part, after making room for it; returns the new, empty buffer."""
        if not kept:
            return kept
        try:
            content = msgspec.msgpack.encode([msgspec.Raw(one) for one in kept])
            if len(content) > self._most:
                raise OSError(f"an answer of {len(content)} bytes, and it may hold {self._most}")
            self._make_room(len(content))
            self._write_next(content)
        except OSError as error:
            self.dropped += len(kept)
            _log.warning("verdict log %s cannot be written (%s): its answers are lost", self.folder, error)
        return []

    def _write_next(self, content: bytes) -> None:
        """Write a part under the next number that no other process has taken: several may log into one folder."""
        while True:
            self._number += 1
            with suppress(FileExistsError):
                return write_whole(self.folder / f"verdicts-{self._number:06d}.msgpack", content, fresh=True)

    def _make_room(self, wanted: int) -> None:
        sizes: list[tuple[Path, int]] = []
        for file in sorted(self.folder.glob(_PATTERN), key=_number):
            with suppress(FileNotFoundError):  # another process has made room
                sizes.append((file, file.stat().st_size))
        total = sum(size for _, size in sizes)
        for file, size in sizes:
            if total + wanted <= self._most:
                return
            total -= size
            file.unlink(missing_ok=True)


def read_verdicts(folder: str | Path) -> Iterator[LoggedAnswer]:
    """All logged answers, oldest first. A part that a writer deletes meanwhile is passed over.

    Raises VerdictLogError if there is no log or a part is damaged.
    """
    files = sorted(Path(folder).glob(_PATTERN), key=_number)
    if not files:
        raise VerdictLogError(f"{folder} must be a folder that --verdict-log has written")
    for file in files:
        try:
            check_regular(file)
            yield from msgspec.msgpack.decode(file.read_bytes(), type=list[LoggedAnswer])
        except FileNotFoundError:
            continue
        except (OSError, *DECODE_ERRORS) as error:
            raise VerdictLogError(f"{file} cannot be read ({error}): remove it") from error


def _number(file: Path) -> int:
    tail = file.stem.rpartition("-")[2]
    return int(tail) if tail.isdecimal() else 0
