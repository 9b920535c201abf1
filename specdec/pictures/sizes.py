# SPDX-License-Identifier: Apache-2.0
"""The size of a picture from its header alone, and the tokens it takes; no pixels are decoded here.

A camera held upright stores a picture on its side and notes that in the header (EXIF orientation). Sizes here are those
of the upright picture, as with the library's `load_image`.

The size of a picture before it is cut into patches follows Qwen2-VL's rule.
"""

from __future__ import annotations

import math
import re
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from specdec.errors import ModelError

FORMATS = ("JPEG", "PNG", "WEBP", "BMP")
"""Supported picture formats, by PIL's names; others are not tried."""

_ON_THEIR_SIDE = frozenset({5, 6, 7, 8})
"""Orientations that swap width and height."""
_APP1 = 0xE1
_XMP_IN_JPEG = b"http://ns.adobe.com/xap/1.0/\0"
_XMP_IN_PNG = b"XML:com.adobe.xmp"
_EXIF_IN_PNG = b"Raw profile type exif"
_XMP_ORIENTATION = re.compile(rb'tiff:Orientation(="|>)([0-9])')
_TIFF = {b"II*\0": "<", b"II\0*": "<", b"MM\0*": ">", b"MM*\0": ">"}
"""Byte order by the first bytes of EXIF."""
_ORIENTATION = 0x0112
_WHOLE_NUMBERS = {1: "B", 3: "H", 4: "I"}
"""Layout by type of an EXIF entry."""
_MOST_NOTES = 1 << 18
"""Most bytes of EXIF or XMP to read. Whoever asks for a size may serve others meanwhile: it must take milliseconds."""
_MOST_CHUNKS = 1 << 12
"""Most chunks of a PNG to read. Its EXIF may come after the picture, which is often in pieces of 8 KiB."""
_STEEPEST = 200
_MOST_SEGMENTS = 512
"""Most parts of a file before its picture. Normal files have a few dozen; millions of empty ones would take seconds."""


_MOST_SCANS = 32
_MOST_DRAWN = 200_000_000
"""Most pixels of all scans of a JPEG together, if it has more than _MOST_SCANS scans. Encoders write about ten."""


@dataclass(frozen=True)
class PictureRules:
    """How a model resizes pictures. factor: width and height of one token in pixels. least, most: bounds on a picture's
    pixels after resizing.
    """

    factor: int
    least: int
    most: int

    def tokens(self, width: int, height: int) -> int:
        """How many tokens a picture takes. Raises ModelError if it cannot be resized."""
        try:
            for _ in range(2):  # resized once when opened and once more by the processor
                height, width = smart_resize(height, width, self.factor, self.least, self.most)
        except ValueError as error:
            raise ModelError(f"the image cannot be resized: {error}") from error
        return (height // self.factor) * (width // self.factor)


def picture_size(data: bytes) -> tuple[int, int]:
    """(width, height) in pixels of an encoded picture when upright, from its header.

    Raises ModelError as `stored_size`.
    """
    width, height = stored_size(data)
    return (height, width) if orientation_of(data) in _ON_THEIR_SIDE else (width, height)


def stored_size(data: bytes) -> tuple[int, int]:
    """(width, height) in pixels of an encoded picture as stored, from its header.

    Raises ModelError for an unsupported format, a header that is cut off before the size, or a picture without pixels.
    """
    size = None
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        size = _size_of_png(data)
    elif data.startswith(b"\xff\xd8\xff"):
        size = _size_of_jpeg(data)
    elif data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        size = _size_of_webp(data)
    elif data.startswith(b"BM"):
        size = _size_of_bmp(data)
    if size is None or min(size) < 1:
        raise ModelError(f"the image cannot be decoded ({len(data)} bytes): send a JPEG or PNG")
    return size


def total_pixels(images: Sequence[bytes]) -> int:
    """Pixels of all pictures together. Raises ModelError as `picture_size`."""
    return sum(width * height for width, height in map(picture_size, images))


def orientation_of(data: bytes) -> int:
    """The EXIF orientation of a stored picture, 1 to 8; 1 if it is upright or has none."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        notes = _notes_of_png(data)
    elif data.startswith(b"\xff\xd8\xff"):
        notes = _notes_of_jpeg(data)
    elif data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        notes = _notes_of_webp(data)
    else:
        return 1
    exif, xmp = notes
    found = _exif_orientation(exif)
    if found is None and (said := _XMP_ORIENTATION.search(xmp)):
        found = int(said[2])
    return found if found is not None and 1 <= found <= 8 else 1


def _exif_orientation(exif: bytes) -> int | None:
    """The orientation in the first directory of a block of EXIF; None if it is missing or the block is broken."""
    exif = exif.removeprefix(b"Exif\0\0")[:_MOST_NOTES]
    order = _TIFF.get(exif[:4])
    if order is None:
        return None
    found = None
    try:
        (at,) = struct.unpack_from(f"{order}I", exif, 4)
        (entries,) = struct.unpack_from(f"{order}H", exif, at)
    except struct.error:
        return None
    directory = exif[at + 2 : at + 2 + 12 * entries]
    for tag, kind, values, value in struct.iter_unpack(
        f"{order}HHI4s", directory[: len(directory) // 12 * 12]
    ):
        if tag == _ORIENTATION and values == 1 and kind in _WHOLE_NUMBERS:
            (found,) = struct.unpack_from(order + _WHOLE_NUMBERS[kind], value)
    return found


def _notes_of_jpeg(data: bytes) -> tuple[bytes, bytes]:
    """EXIF and XMP blocks; empty if missing."""
    exif = xmp = b""
    for marker, at, end in _segments_of_jpeg(data):
        if marker != _APP1:
            continue
        if data.startswith(b"Exif\0\0", at, end) and len(exif) < _MOST_NOTES:
            exif += data[at + 6 if exif else at : end]
        elif data.startswith(_XMP_IN_JPEG, at, end):
            xmp = data[at + len(_XMP_IN_JPEG) : end]
    return exif, xmp


def _notes_of_png(data: bytes) -> tuple[bytes, bytes]:
    notes = _chunks(data, 8, ">I4s", trailer=4, most=_MOST_CHUNKS, kinds=(b"eXIf", b"tEXt", b"zTXt", b"iTXt"))
    exif = raw = xmp = (b"", b"")
    for kind, part in notes:
        name = part[: len(_EXIF_IN_PNG) + 1].partition(b"\0")[0]
        if kind == b"eXIf":
            exif = kind, part
        elif name == _EXIF_IN_PNG:
            raw = kind, part
        elif name == _XMP_IN_PNG and kind == b"iTXt":
            xmp = kind, part
    # Only now, once each: packed, a picture may hold thousands of notes of the largest size.
    return exif[1] or _unhexed(_text_of_png(*raw)), _text_of_png(*xmp)


def _text_of_png(kind: bytes, part: bytes) -> bytes:
    """The text of a chunk behind its name, unpacked."""
    text = part.partition(b"\0")[2]
    if kind == b"zTXt":
        return _inflated(text[1:])
    if kind == b"iTXt":
        packed, text = text[:1] == b"\1", text[2:].partition(b"\0")[2].partition(b"\0")[2]
        return _inflated(text) if packed else text
    return text


def _notes_of_webp(data: bytes) -> tuple[bytes, bytes]:
    found = {b"EXIF": b"", b"XMP ": b""}
    found.update(_chunks(data, 12, "<4sI", trailer=0, most=_MOST_SEGMENTS, kinds=tuple(found)))
    return found[b"EXIF"], found[b"XMP "]


def _chunks(
    data: bytes, at: int, head: str, trailer: int, most: int, kinds: tuple[bytes, ...]
) -> Iterator[tuple[bytes, bytes]]:
    """Kind and content of the parts of these kinds, of a PNG (length, kind, content, checksum) or RIFF file (kind,
    length, content).
    """
    layout, even = struct.Struct(head), head.startswith("<")
    found, end = 0, len(data) - 8
    for _ in range(most):
        if at > end:
            return
        first, second = layout.unpack_from(data, at)
        kind, length = (first, second) if even else (second, first)
        if kind in kinds:
            yield kind, data[at + 8 : at + 8 + min(length, _MOST_NOTES)]
            found += 1
            if found == _MOST_SEGMENTS:
                return
        elif kind == b"IEND":
            return
        at += 8 + length + trailer + (length & even)


def _inflated(packed: bytes) -> bytes:
    try:
        return zlib.decompressobj().decompress(packed, _MOST_NOTES)
    except zlib.error:
        return b""


def _unhexed(text: bytes) -> bytes:
    """Decode a block that ImageMagick wrote as text: a name, a length, and lines of hexadecimal digits."""
    try:
        return bytes.fromhex("".join(text.decode("latin-1").split("\n")[3:]))
    except ValueError:
        return b""


def _size_of_png(data: bytes) -> tuple[int, int] | None:
    if data[12:16] != b"IHDR" or len(data) < 24:
        return None
    size = int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
    at = 8
    for _ in range(_MOST_SEGMENTS):
        if data[at + 4 : at + 8] in (b"IDAT", b""):
            return size
        at += 12 + int.from_bytes(data[at : at + 4], "big")
    return None


def _segments_of_jpeg(data: bytes) -> list[tuple[int, int, int]]:
    """Marker, begin and end of each part before the picture itself; none for a file with too many parts."""
    found: list[tuple[int, int, int]] = []
    at = 2
    for _ in range(_MOST_SEGMENTS):
        if at + 4 > len(data) or data[at] != 0xFF or data[at + 1] == 0xDA:  # what follows is the picture
            return found
        marker = data[at + 1]
        fill = marker == 0xFF or 0xD0 <= marker <= 0xD7 or marker == 0x01
        length = int.from_bytes(data[at + 2 : at + 4], "big")
        if not fill:
            found.append((marker, at + 4, at + 2 + length))
        at += 1 if marker == 0xFF else 2 if fill else 2 + length
    return []


def _size_of_jpeg(data: bytes) -> tuple[int, int] | None:
    size = None
    for marker, at, end in _segments_of_jpeg(data):
        part = data[at : min(end, at + 5)]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC) and len(part) == 5:
            size = int.from_bytes(part[3:5], "big"), int.from_bytes(part[1:3], "big")
    return size


def _size_of_webp(data: bytes) -> tuple[int, int] | None:
    if len(data) < 30:
        return None
    kind = data[12:16]
    if kind == b"VP8X":
        return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
    if kind == b"VP8L" and data[20] == 0x2F:
        bits = int.from_bytes(data[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if kind == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
        width, height = int.from_bytes(data[26:28], "little"), int.from_bytes(data[28:30], "little")
        return width & 0x3FFF, height & 0x3FFF
    return None


def _size_of_bmp(data: bytes) -> tuple[int, int] | None:
    if len(data) < 26:
        return None
    if int.from_bytes(data[14:18], "little") == 12:
        return int.from_bytes(data[18:20], "little"), int.from_bytes(data[20:22], "little")
    width = int.from_bytes(data[18:22], "little", signed=True)
    return width, abs(int.from_bytes(data[22:26], "little", signed=True))


def smart_resize(height: int, width: int, factor: int, min_pixels: int, max_pixels: int) -> tuple[int, int]:
    """(height, width) in multiples of `factor`, with about the same aspect ratio and min_pixels to max_pixels pixels.

    Raises ValueError for an aspect ratio above 200.
    """
    steepness = max(height, width) / min(height, width)
    if steepness > _STEEPEST:
        raise ValueError(f"absolute aspect ratio must be smaller than {_STEEPEST}, got {steepness}")
    rows, columns = round(height / factor) * factor, round(width / factor) * factor
    if rows * columns > max_pixels:
        shrink = math.sqrt((height * width) / max_pixels)
        rows = max(factor, math.floor(height / shrink / factor) * factor)
        columns = max(factor, math.floor(width / shrink / factor) * factor)
    elif rows * columns < min_pixels:
        grow = math.sqrt(min_pixels / (height * width))
        rows = math.ceil(height * grow / factor) * factor
        columns = math.ceil(width * grow / factor) * factor
    return rows, columns


def within(width: int, height: int, most: int) -> tuple[int, int]:
    """(width, height) scaled down to at most `most` pixels, with about the same aspect ratio."""
    if width * height <= most:
        return width, height
    shrink = math.sqrt(most / (width * height))
    return max(1, math.floor(width * shrink)), max(1, math.floor(height * shrink))


def check_scans(data: bytes, pixels: int) -> None:
    """Raise ModelError for a JPEG with very many scans: each may take as long as decoding a whole picture, however few
    bytes it has.
    """
    if not data.startswith(b"\xff\xd8\xff"):
        return
    scans = data.count(b"\xff\xda")  # within a scan, 0xFF is followed by 0x00 or a restart marker
    if scans > _MOST_SCANS and scans * pixels > _MOST_DRAWN:
        raise ModelError(f"the image has {scans} scans: save it again as a baseline JPEG")
