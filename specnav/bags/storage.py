# SPDX-License-Identifier: Apache-2.0
"""What both kinds of storage files share: terms, limits, and the merging of messages into one sequence.

Terms: a *storage* is one file of a bag (a split). A *run* is a part of a storage that can be sorted in memory.
A *skipped* message was recorded but cannot be used. No size or count in a file is trusted: how much it unpacks to, and
how many messages it may hold, is bounded by its own size.
"""

from __future__ import annotations

import heapq
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import lz4.frame

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
EXPANSION, SPARE_BYTES, SPARE_MESSAGES = 1000, 64 << 20, 1000
"""A file may unpack to EXPANSION times its size plus SPARE_BYTES; a message takes at least one byte of the file."""
MOST_OFFERS = 100
MOST_REASONS = 20  # reasons listed for one file
WINDOW_BYTES = 256 << 20  # messages held in memory for sorting
_BROKEN_DATA = (zstd.ZstdError, RuntimeError, EOFError, ValueError)
_DDS_NAME = re.compile(r"(\w+)::msg::dds_::(\w+)_", re.ASCII)


class BrokenFile(Exception):
    """Nothing in a file can be read; the message has the reason."""


class TooLarge(Exception):
    """A bound derived from a file's size would be exceeded."""


@dataclass(frozen=True)
class BagTopic:
    """A topic of a bag. definition: of its type, in ros2msg or ros2idl; "" if the bag holds none."""

    name: str
    kind: str
    count: int
    definition: str = ""
    encoding: str = ""

    def __str__(self) -> str:
        return f"{self.name} ({self.kind}, {self.count} message{'' if self.count == 1 else 's'})"


@dataclass(frozen=True)
class BagMessage:
    """One message: its topic, recording time (ns) and CDR bytes."""

    topic: str
    time_ns: int
    data: bytes


@dataclass(frozen=True)
class Skipped:
    """Messages of a file that cannot be used, and why. count: None if the file does not report it."""

    file: str
    count: int | None
    reason: str

    def __str__(self) -> str:
        if self.count is None:
            return f"{self.file}: {self.reason}"
        return f"{self.file}: {self.count} message{'' if self.count == 1 else 's'} skipped: {self.reason}"


@dataclass(frozen=True)
class MessageRun:
    """A part of a storage. begin_ns: its earliest possible message; size: bytes of memory it takes when loaded."""

    begin_ns: int
    size: int
    load: Callable[[], Iterator[BagMessage]]


class Storage(Protocol):
    """An opened file: what it holds, and its messages in runs."""

    name: str
    tally: FileTally

    def runs(self, wanted: Mapping[str, str]) -> Iterable[MessageRun]:
        """Runs with messages of the wanted topics. wanted: types by topic name."""
        ...


@dataclass
class FileTally:
    """What a file holds. counts: usable messages by topic and type. skipped: others by reason, None: unknown number.

    seconds: those in which anything was recorded. offered: publishers' QoS profiles by topic, as YAML texts.
    digest: equal for files with the same messages in any order.
    """

    counts: dict[tuple[str, str], int] = field(default_factory=dict)
    definitions: dict[str, tuple[str, str]] = field(default_factory=dict)
    skipped: dict[str, int | None] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    seconds: set[int] = field(default_factory=set)
    offered: dict[str, list[str]] = field(default_factory=dict)
    digest: int = 0
    distro: str = ""

    @property
    def used(self) -> int:
        """Number of usable messages."""
        return sum(self.counts.values())

    def add(self, topic: str, kind: str, time_ns: int, data: bytes) -> None:
        """Count a usable message."""
        self.counts[topic, kind] = self.counts.get((topic, kind), 0) + 1
        self.seconds.add(time_ns // 1_000_000_000)
        self.digest = (self.digest + hash((topic, time_ns, len(data), zlib.crc32(data)))) & 0xFFFFFFFFFFFFFFFF

    def offer(self, topic: str, profiles: str) -> None:
        """Add a QoS profile that publishers of a topic offered."""
        known = self.offered.setdefault(topic, [])
        if profiles and profiles not in known and len(known) < MOST_OFFERS:
            known.append(profiles)

    def skip(self, reason: str, count: int | None = 1) -> None:
        """Count messages that cannot be used."""
        if count == 0:
            return
        if reason not in self.skipped and len(self.skipped) >= MOST_REASONS:
            reason = "for further reasons"
        before = self.skipped.get(reason, 0)
        self.skipped[reason] = None if count is None or before is None else before + count

    def compare(self, said: int | None, reason: str) -> None:
        """Compare with the message count that an index states; the difference counts as skipped.

        reason: for the difference, if no known reason has an unknown number.
        """
        missing = (said or 0) - self.used - sum(count or 0 for count in self.skipped.values())
        if missing > 0:
            unknown = [known for known, count in self.skipped.items() if count is None]
            self.skipped[unknown[0] if unknown else reason] = missing


@dataclass
class Budget:
    """How much a file may still unpack to."""

    unpacked: int
    messages: int

    @classmethod
    def from_file_bytes(cls, file_bytes: int) -> Budget:
        """The bounds for a file of this size."""
        return cls(EXPANSION * file_bytes + SPARE_BYTES, file_bytes + SPARE_MESSAGES)

    def take(self, size: int, messages: int = 0) -> None:
        """Use up a part of it. Raises TooLarge."""
        if size > self.unpacked or messages > self.messages:
            raise TooLarge
        self.unpacked -= size
        self.messages -= messages


def not_cdr(encoding: str) -> str:
    """Why messages of another encoding cannot be used."""
    return f"they are encoded as {encoding[:40]!r}, not as CDR"


def type_name(kind: str) -> str:
    """A type as package/msg/Name; some tools write package/Name or the DDS name."""
    if found := _DDS_NAME.fullmatch(kind):
        return f"{found[1]}/msg/{found[2]}"
    package, sign, name = kind.partition("/")
    return f"{package}/msg/{name}" if sign and "/" not in name else kind


def unpack(data: bytes, compression: str, most: int) -> tuple[bytes, bool]:
    """(content, whole) of compressed data; truncated data yields its beginning. Raises TooLarge, ValueError."""
    if compression in ("", "none"):
        return data, True
    if compression not in ("zstd", "lz4"):
        raise ValueError(f"unknown compression {compression!r}")
    made = bytearray()
    try:
        while data:
            one = zstd.ZstdDecompressor() if compression == "zstd" else lz4.frame.LZ4FrameDecompressor()
            made += one.decompress(data, most - len(made) + 1)
            if len(made) > most:
                raise TooLarge
            if not one.eof:
                return bytes(made), False
            data = one.unused_data or b""
    except _BROKEN_DATA as error:
        raise ValueError("it cannot be decompressed") from error
    return bytes(made), True


def plain_message(data: bytes, budget: Budget) -> bytes:
    """A message's CDR bytes. rosbag2 can compress single messages, and only metadata.yaml would tell.

    CDR begins with a zero byte, so it cannot be mistaken for zstd. Raises TooLarge, ValueError.
    """
    if not data.startswith(ZSTD_MAGIC):
        return data
    content, whole = unpack(data, "zstd", budget.unpacked)
    if not whole:
        raise ValueError("it is cut off")
    budget.take(len(content))
    return content


def in_order(runs: Sequence[MessageRun], window: int = WINDOW_BYTES) -> Iterator[BagMessage]:
    """Messages of all runs in order of time.

    About `window` bytes are held at most. Where runs overlap by more, times may step back, but no message is lost.
    """
    waiting = sorted(runs, key=lambda run: run.begin_ns, reverse=True)
    heads: list[tuple[int, int, BagMessage, Iterator[BagMessage], int]] = []
    held = number = 0
    while waiting or heads:
        while waiting and (not heads or (waiting[-1].begin_ns <= heads[0][0] and held < window)):
            run = waiting.pop()
            messages = run.load()
            if (first := next(messages, None)) is not None:
                number += 1
                held += run.size
                heapq.heappush(heads, (first.time_ns, number, first, messages, run.size))
        if not heads:
            return
        _, order, message, messages, size = heads[0]
        yield message
        if (following := next(messages, None)) is not None:
            heapq.heapreplace(heads, (following.time_ns, order, following, messages, size))
        else:
            heapq.heappop(heads)
            held -= size
