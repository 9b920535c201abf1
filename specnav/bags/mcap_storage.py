# SPDX-License-Identifier: Apache-2.0
"""Reads mcap files record by record, whether whole, truncated or damaged.

The file's index is used only to get past damage, so that no offset or count in it can make reading endless. The records
are described at https://mcap.dev/spec.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import BinaryIO

from specnav.bags.storage import (
    BagMessage,
    BrokenFile,
    Budget,
    FileTally,
    MessageRun,
    TooLarge,
    not_cdr,
    plain_message,
    type_name,
    unpack,
)

MAGIC = b"\x89MCAP0\r\n"
FOOTER, SCHEMA, CHANNEL, MESSAGE, CHUNK = 0x02, 0x03, 0x04, 0x05, 0x06
MESSAGE_INDEX, CHUNK_INDEX, STATISTICS, DATA_END = 0x07, 0x08, 0x0B, 0x0F
_RECORD = struct.Struct("<BQ")
_MESSAGE_HEAD = struct.Struct("<HIQQ")
_CHUNK_HEAD = struct.Struct("<QQQI")
_PRIVATE = 0x80  # records of this kind and above are private to other programs
_FOOTER_BYTES = _RECORD.size + 20 + len(MAGIC)
_SMALL_BYTES = 64 << 20  # longest record that is read, besides messages and chunks
_PLAIN_RUN_BYTES = 1 << 20
_BLOCK_BYTES = 1 << 20
# The compression field in a chunk's header; the record begins 37 bytes before it.
_CHUNK_MARK = re.compile(rb"\x04\x00\x00\x00zstd|\x03\x00\x00\x00lz4")
_MARK_OFFSET = _RECORD.size + _CHUNK_HEAD.size

UNDECODABLE = "they are in chunks that cannot be decompressed"
WRONG_CHECKSUM = "they are in chunks whose checksum is wrong"
TOO_LARGE = "they are more, or unpack to more, than a file of this size may hold"
NO_CHANNEL = "the file does not define their topics"
NO_TYPE = "the file does not define the types of their topics"
STRANGE = "some chunks contain damaged records"
BROKEN_MESSAGE = "they are cut off or cannot be decompressed"


@dataclass(frozen=True)
class _Channel:
    topic: str
    schema: int
    encoding: str


@dataclass(frozen=True)
class _Unit:
    """A chunk, or consecutive messages: bytes `begin` to `end` of the file."""

    begin: int
    end: int
    is_chunk: bool
    first_ns: int
    size: int
    channels: frozenset[int]


@dataclass
class _Content:
    """Messages of a part of the file, in file order: channel, time, bytes. broken: records that are not messages. cut:
    the file ends within this part, which is reported once for the whole file. strange: it holds invalid records.
    """

    messages: list[tuple[int, int, bytes]] = field(default_factory=list)
    size: int = 0
    broken: int = 0
    cut: bool = False
    strange: bool = False
    checksum_wrong: bool = False


@dataclass
class _Lost:
    """A chunk that cannot be read. count: number of its messages, if the index records after it tell."""

    reason: str
    end: int
    count: int | None = None

    def count_index(self, begin: int, end: int) -> None:
        """Add the message count of one channel's message index: 16 bytes per message."""
        if begin == self.end and end - begin >= _RECORD.size + 6:
            self.count = (self.count or 0) + (end - begin - _RECORD.size - 6) // 16
            self.end = end


class McapStorage:
    """An mcap file, scanned completely when it is opened. Raises BrokenFile, OSError."""

    def __init__(self, path: Path, name: str = "") -> None:
        """name: the original name, if it was unpacked from another file."""
        self.path, self.name, self.tally = path, name or path.name, FileTally()
        self._schemas: dict[int, tuple[str, str, str]] = {}  # name, encoding, definition
        self._channels: dict[int, _Channel] = {}
        self._units: list[_Unit] = []
        self._size = path.stat().st_size
        self._chunk_places: list[int] = []
        self._damaged: list[int] = []  # bytes that were skipped
        self._said: int | None = None
        with path.open("rb") as stream:
            begins = stream.read(len(MAGIC))
            if begins != MAGIC:
                raise BrokenFile(f"it does not start like an mcap file{'' if begins else ' (it is empty)'}")
            self._read_summary(stream)
            stream.seek(len(MAGIC))
            self._look(stream)

    def runs(self, wanted: Mapping[str, str]) -> Iterable[MessageRun]:
        """Chunks, and parts of the file outside chunks, that hold wanted messages."""
        chosen = frozenset(
            number for number in self._channels if wanted.get(self._channels[number].topic) == self._kind(number)
        )
        return [
            MessageRun(unit.first_ns, unit.size, partial(self._load, unit, chosen))
            for unit in self._units
            if unit.channels & chosen
        ]

    def _load(self, unit: _Unit, chosen: frozenset[int]) -> Iterator[BagMessage]:
        budget = Budget.from_file_bytes(self._size)
        with self.path.open("rb") as stream:
            content = self._content(stream, unit.begin, unit.end, unit.is_chunk, budget)
        found = []
        for number, time_ns, data in content.messages:
            if number in chosen and self._reason(number) is None:
                try:
                    plain = plain_message(data, budget)
                except (ValueError, TooLarge):
                    continue  # it was counted as skipped when the file was opened
                found.append(BagMessage(self._channels[number].topic, time_ns, plain))
        return iter(sorted(found, key=lambda message: message.time_ns))

    def _look(self, stream: BinaryIO) -> None:
        """Scan the whole file once: collect what it holds and what cannot be used."""
        budget = Budget.from_file_bytes(self._size)
        plain_from: int | None = None  # start of the current run of messages outside chunks
        lost: list[_Lost] = []
        good, complete = len(MAGIC), False
        previous = 0

        def take(begin: int, end: int, is_chunk: bool) -> None:
            if (reason := self._take(stream, begin, end, is_chunk, budget)) is not None:
                lost.append(_Lost(reason, end))

        for kind, begin, end, whole in self._records(stream):
            if plain_from is not None and (kind != MESSAGE or end - plain_from > _PLAIN_RUN_BYTES):
                take(plain_from, begin, is_chunk=False)
                plain_from = None
            if kind == MESSAGE and whole:
                plain_from = begin if plain_from is None else plain_from
            elif kind == CHUNK:
                take(begin, end, is_chunk=True)
            elif kind == MESSAGE_INDEX and lost:
                lost[-1].count_index(begin, end)
            elif kind == STATISTICS and whole and self._said is None and end - begin >= _RECORD.size + 8:
                (self._said,) = struct.unpack("<Q", _read(stream, begin + _RECORD.size, begin + _RECORD.size + 8))
            elif kind in (SCHEMA, CHANNEL) and whole and end - begin <= _SMALL_BYTES:
                self._define(kind, _read(stream, begin + _RECORD.size, end))
            complete |= kind in (DATA_END, FOOTER)
            good = end if whole or (self._units and self._units[-1].end == end) else begin
            previous = kind
        if plain_from is not None:
            take(plain_from, good, is_chunk=False)
        if self._damaged:
            places = f"{len(self._damaged)} place{'s' if len(self._damaged) > 1 else ''}"
            self.tally.skip(f"{sum(self._damaged)} bytes in {places} are damaged", None)
        for one in lost:
            self.tally.skip(one.reason, one.count)
        if not complete:
            inside = "within a chunk" if good == self._size and previous == CHUNK else "it has no index"
            share = 100 * good / self._size
            self.tally.skip(f"cut off: {inside}; {self.tally.used} messages read, {share:.1f} % of the file", None)
        if self._said is not None and self._said <= self._size:
            self.tally.compare(self._said, "they are included in the file's own count")

    def _records(self, stream: BinaryIO) -> Iterator[tuple[int, int, int, bool]]:
        """Yield (kind, begin, end, whole) of the records up to the footer, skipping damage."""
        place = len(MAGIC)
        while place + _RECORD.size <= self._size:
            stream.seek(place)
            kind, size = _RECORD.unpack(stream.read(_RECORD.size))
            end = place + _RECORD.size + size
            cut = end > self._size
            if kind == 0 or cut:
                following = self._after(stream, place)
                if following is not None:
                    self._damaged.append(following - place)
                    place = following
                    continue
                if kind == 0:
                    return
            yield kind, place, min(end, self._size), not cut
            if kind == FOOTER or cut:
                return
            place = end

    def _after(self, stream: BinaryIO, place: int) -> int | None:
        """Where the next chunk begins after damage: from the index, otherwise by searching for a chunk header."""
        while self._chunk_places:
            if self._chunk_places[-1] > place and self._is_chunk(stream, self._chunk_places[-1]):
                return self._chunk_places[-1]
            self._chunk_places.pop()
        return self._find_chunk(stream, place)

    def _find_chunk(self, stream: BinaryIO, place: int) -> int | None:
        base, tail = place + 1, b""
        stream.seek(base)
        while block := stream.read(_BLOCK_BYTES):
            data = tail + block
            for found in _CHUNK_MARK.finditer(data):
                begin = base - len(tail) + found.start() - _MARK_OFFSET
                here = stream.tell()
                if begin > place and self._is_chunk(stream, begin):
                    return begin
                stream.seek(here)
            base += len(block)
            tail = data[-_MARK_OFFSET:]
        return None

    def _is_chunk(self, stream: BinaryIO, place: int) -> bool:
        """Whether a whole chunk record begins here: its sizes must be consistent."""
        if place + _MARK_OFFSET + 12 > self._size:
            return False
        stream.seek(place)
        kind, size = _RECORD.unpack(stream.read(_RECORD.size))
        if kind != CHUNK or place + _RECORD.size + size > self._size:
            return False
        stream.seek(_CHUNK_HEAD.size, 1)
        (name_bytes,) = struct.unpack("<I", stream.read(4))
        if name_bytes > 8:
            return False
        stream.seek(name_bytes, 1)
        length = stream.read(8)
        return len(length) == 8 and size == _CHUNK_HEAD.size + 12 + name_bytes + struct.unpack("<Q", length)[0]

    def _take(self, stream: BinaryIO, begin: int, end: int, is_chunk: bool, budget: Budget) -> str | None:
        """Count what a part of the file holds. Returns the reason if it is lost and its messages cannot be
        counted.
        """
        try:
            content = self._content(stream, begin, end, is_chunk, budget)
        except TooLarge:
            return TOO_LARGE
        except (ValueError, struct.error):
            return UNDECODABLE
        if content.broken:
            self.tally.skip(BROKEN_MESSAGE, content.broken)
        if content.strange:
            self.tally.skip(STRANGE, None)
        if content.checksum_wrong:
            self.tally.skip(WRONG_CHECKSUM, len(content.messages))
            return None
        first_ns = min((time_ns for _, time_ns, _ in content.messages), default=0)
        channels = set()
        for number, time_ns, data in content.messages:
            if (reason := self._reason(number)) is not None:
                self.tally.skip(reason)
                continue
            try:
                plain = plain_message(data, budget)
            except (ValueError, TooLarge):
                self.tally.skip(BROKEN_MESSAGE)
                continue
            channels.add(number)
            self.tally.add(self._channels[number].topic, self._kind(number), time_ns, plain)
        if channels:
            self._units.append(_Unit(begin, end, is_chunk, first_ns, content.size, frozenset(channels)))
        return None

    def _content(self, stream: BinaryIO, begin: int, end: int, is_chunk: bool, budget: Budget) -> _Content:
        """The messages of a part of the file. Raises TooLarge, and ValueError or struct.error for a damaged chunk."""
        data = _read(stream, begin, end)
        content = _Content()
        if is_chunk:
            data = _open_chunk(data, budget, content)
        budget.take(len(data))
        content.size = len(data)
        place = 0
        while place + _RECORD.size <= len(data):
            kind, size = _RECORD.unpack_from(data, place)
            body = place + _RECORD.size
            place = body + size
            if kind == MESSAGE and (place > len(data) or size < _MESSAGE_HEAD.size):
                content.broken += not content.cut
            elif kind == MESSAGE:
                budget.take(0, 1)
                number, _, time_ns, _ = _MESSAGE_HEAD.unpack_from(data, body)
                content.messages.append((number, time_ns, data[body + _MESSAGE_HEAD.size : place]))
            elif kind in (SCHEMA, CHANNEL) and not content.checksum_wrong:
                self._define(kind, data[body:place])
            elif kind < _PRIVATE and not (content.cut and place > len(data)):
                content.strange = True
        content.strange |= place != len(data) and not content.cut
        return content

    def _define(self, kind: int, body: bytes) -> None:
        try:
            if kind == SCHEMA:
                (number,) = struct.unpack_from("<H", body)
                name, place = _text(body, 2)
                encoding, place = _text(body, place)
                definition, place = _text(body, place)
                # Definitions are repeated and one may be damaged, so the first one is used everywhere.
                self._schemas.setdefault(number, (type_name(name), encoding, definition))
                self.tally.definitions.setdefault(type_name(name), (definition, encoding))
            else:
                number, schema = struct.unpack_from("<HH", body)
                topic, place = _text(body, 4)
                encoding, place = _text(body, place)
                self._channels.setdefault(number, _Channel(topic, schema, encoding))
                self.tally.offer(topic, _map(body, place).get("offered_qos_profiles", ""))
        except (struct.error, ValueError):
            return  # the missing definition is reported with its messages

    def _kind(self, number: int) -> str:
        found = self._schemas.get(self._channels[number].schema)
        return found[0] if found is not None else ""

    def _reason(self, number: int) -> str | None:
        """Why messages of a channel cannot be used; None if they can."""
        if (channel := self._channels.get(number)) is None:
            return NO_CHANNEL
        if channel.encoding != "cdr":
            return not_cdr(channel.encoding)
        return None if channel.schema in self._schemas else NO_TYPE

    def _read_summary(self, stream: BinaryIO) -> None:
        """Read the topics and chunk offsets that are repeated at the end of a complete file."""
        if self._size < len(MAGIC) + _FOOTER_BYTES:
            return
        stream.seek(self._size - _FOOTER_BYTES)
        footer = stream.read()
        if not footer.endswith(MAGIC) or _RECORD.unpack_from(footer) != (FOOTER, 20):
            return
        (place,) = struct.unpack_from("<Q", footer, _RECORD.size)
        end = self._size - _FOOTER_BYTES
        places = []
        while len(MAGIC) <= place and place + _RECORD.size <= end:
            stream.seek(place)
            kind, size = _RECORD.unpack(stream.read(_RECORD.size))
            if place + _RECORD.size + size > end or kind in (MESSAGE, CHUNK):
                break
            body = stream.read(size) if size <= _SMALL_BYTES else b""
            if kind in (SCHEMA, CHANNEL):
                self._define(kind, body)
            elif kind == CHUNK_INDEX and len(body) >= 24:
                places.append(struct.unpack_from("<Q", body, 16)[0])
            elif kind == STATISTICS and len(body) >= 8:
                self._said = struct.unpack_from("<Q", body)[0]
            place += _RECORD.size + size
        self._chunk_places = sorted(set(places), reverse=True)


def _map(body: bytes, place: int) -> dict[str, str]:
    """A map of strings. Raises ValueError, struct.error."""
    (length,) = struct.unpack_from("<I", body, place)
    place, end, found = place + 4, place + 4 + length, {}
    while place < min(end, len(body)):
        key, place = _text(body, place)
        found[key], place = _text(body, place)
    return found


def _open_chunk(record: bytes, budget: Budget, content: _Content) -> bytes:
    """The content of a chunk record, as far as it was written. Raises TooLarge, ValueError, struct.error."""
    _, _, declared, checksum = _CHUNK_HEAD.unpack_from(record, _RECORD.size)
    compression, place = _text(record, _MARK_OFFSET)
    (length,) = struct.unpack_from("<Q", record, place)
    packed = record[place + 8 : place + 8 + length]
    content.cut = len(packed) < length
    if declared > budget.unpacked:
        raise TooLarge
    data, whole = unpack(packed, compression, declared)
    if not content.cut and not (whole and len(data) == declared):
        raise ValueError("its content has the wrong length")
    content.checksum_wrong = bool(checksum) and not content.cut and zlib.crc32(data) != checksum
    return data


def _read(stream: BinaryIO, begin: int, end: int) -> bytes:
    stream.seek(begin)
    return stream.read(end - begin)


def _text(body: bytes, place: int) -> tuple[str, int]:
    (size,) = struct.unpack_from("<I", body, place)
    end = place + 4 + size
    if end > len(body):
        raise ValueError("a text is cut off")
    return body[place + 4 : end].decode(), end
