"""Reading what is readable of an mcap file that was cut off or damaged: record by record, without its index.

A recording that was killed has no summary, and its last chunk may be cut in two; everything up to the break is whole.
See https://mcap.dev/spec for the records.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import lz4.frame

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MAGIC = b"\x89MCAP0\r\n"
_HEADER, _FOOTER, _SCHEMA, _CHANNEL, _MESSAGE, _CHUNK = 0x01, 0x02, 0x03, 0x04, 0x05, 0x06
_RECORD = struct.Struct("<BQ")
_MESSAGE_HEAD = struct.Struct("<HIQQ")
_CHUNK_HEAD_BYTES = 28  # two times, the uncompressed size, a checksum
MAX_RECORD_BYTES = 1 << 30
MAX_CHUNK_BYTES = 1 << 30


@dataclass(frozen=True)
class Schema:
    """A message type and its definition; encoding: ros2msg or ros2idl."""

    name: str
    encoding: str
    text: str


@dataclass(frozen=True)
class Channel:
    """A topic, its schema's number, and how its messages are encoded (cdr)."""

    topic: str
    schema: int
    encoding: str


@dataclass
class Salvage:
    """What the file holds; `messages` may be called again and again, the fields are those of the last time.

    whole: the file ends as it should. good_bytes: up to the end of the last record that could be used.
    lost_chunks: chunks that could not be decompressed. in_part: the last chunk was cut, its beginning was used.
    """

    path: Path
    schemas: dict[int, Schema] = field(default_factory=dict)
    channels: dict[int, Channel] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    whole: bool = False
    in_part: bool = False
    lost_chunks: int = 0
    good_bytes: int = 0
    total_bytes: int = 0

    def messages(self) -> Iterator[tuple[Channel, int, bytes]]:
        """Yield (channel, log time in ns, CDR bytes) in the file's order. Raises ValueError when it is no mcap file."""
        self.counts, self.whole, self.in_part, self.lost_chunks = {}, False, False, 0
        self.total_bytes = self.path.stat().st_size
        with self.path.open("rb") as stream:
            if stream.read(len(MAGIC)) != MAGIC:
                raise ValueError("it does not begin like an mcap file")
            self.good_bytes = stream.tell()
            while (head := stream.read(_RECORD.size)) and len(head) == _RECORD.size:
                kind, size = _RECORD.unpack(head)
                if kind == _FOOTER:
                    self.whole, self.good_bytes = True, self.total_bytes
                    return
                if kind == 0 or size > MAX_RECORD_BYTES:
                    return  # not a record: what follows cannot be told apart
                wanted = kind in (_SCHEMA, _CHANNEL, _MESSAGE, _CHUNK)
                body = stream.read(size) if wanted else _skip(stream, size)
                if len(body) < size and kind != _CHUNK and wanted:
                    return
                if kind == _CHUNK:
                    cut = len(body) < size
                    yield from self._chunk(body, cut)
                    if cut:
                        self.good_bytes = stream.tell() if self.in_part else self.good_bytes
                        return
                elif wanted:
                    yield from self._record(kind, body)
                self.good_bytes = min(stream.tell(), self.total_bytes)

    def _chunk(self, body: bytes, cut: bool) -> Iterator[tuple[Channel, int, bytes]]:
        try:
            place = _CHUNK_HEAD_BYTES
            compression, place = _text(body, place)
            content = _inflate(body[place + 8 :], compression)
        except (struct.error, ValueError, RuntimeError, EOFError, zstd.ZstdError):
            self.lost_chunks += 1
            return
        place = 0
        while place + _RECORD.size <= len(content):
            kind, size = _RECORD.unpack_from(content, place)
            end = place + _RECORD.size + size
            if end > len(content):
                break
            yield from self._record(kind, content[place + _RECORD.size : end])
            place = end
        self.in_part |= cut and place > 0

    def _record(self, kind: int, body: bytes) -> Iterator[tuple[Channel, int, bytes]]:
        try:
            if kind == _SCHEMA:
                (number,) = struct.unpack_from("<H", body)
                name, place = _text(body, 2)
                encoding, place = _text(body, place)
                text, place = _text(body, place)
                self.schemas[number] = Schema(name, encoding, text)
            elif kind == _CHANNEL:
                number, schema = struct.unpack_from("<HH", body)
                topic, place = _text(body, 4)
                encoding, place = _text(body, place)
                self.channels[number] = Channel(topic, schema, encoding)
            elif kind == _MESSAGE:
                number, _, time_ns, _ = _MESSAGE_HEAD.unpack_from(body)
                if (channel := self.channels.get(number)) is not None:
                    self.counts[number] = self.counts.get(number, 0) + 1
                    yield channel, time_ns, body[_MESSAGE_HEAD.size :]
        except (struct.error, UnicodeDecodeError):
            return  # one damaged record; its length was right, so the next one can be found


def _skip(stream: BinaryIO, size: int) -> bytes:
    stream.seek(size, 1)
    return b""


def _text(body: bytes, place: int) -> tuple[str, int]:
    (size,) = struct.unpack_from("<I", body, place)
    end = place + 4 + size
    if end > len(body):
        raise ValueError("a text is cut off")
    return body[place + 4 : end].decode(), end


def _inflate(data: bytes, compression: str) -> bytes:
    """Decompress as much as there is: both formats are streams, a cut one gives its beginning."""
    if compression == "":
        return data
    if compression == "zstd":
        return zstd.ZstdDecompressor().decompress(data, MAX_CHUNK_BYTES)
    if compression == "lz4":
        return bytes(lz4.frame.LZ4FrameDecompressor().decompress(data, MAX_CHUNK_BYTES))
    raise ValueError(f"compression {compression!r} is not known")
