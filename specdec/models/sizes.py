"""How large a picture is, by its header alone, and how much of a context it takes: nothing is decoded here.

The size that a picture gets before it is cut into patches is Qwen2-VL's own rule.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from specdec.errors import ModelError

FORMATS = ("JPEG", "PNG", "WEBP", "BMP")
"""Formats of pictures that are read, by PIL's names; nothing else is even tried."""

_STEEPEST = 200
_MOST_SEGMENTS = 512
"""Parts of a file before its picture. Others have a few dozen; a file of millions of empty ones would take seconds."""


@dataclass(frozen=True)
class PictureRules:
    """How a model sizes pictures. factor: pixels that one token is wide and high. least, most: pixels of a picture
    after resizing.
    """

    factor: int
    least: int
    most: int

    def tokens(self, width: int, height: int) -> int:
        """How many tokens a picture takes. Raises ModelError for one that cannot be resized."""
        try:
            for _ in range(2):  # resized once as it comes in and once more by the processor
                height, width = smart_resize(height, width, self.factor, self.least, self.most)
        except ValueError as error:
            raise ModelError(f"the image cannot be resized: {error}") from error
        return (height // self.factor) * (width // self.factor)


def picture_size(data: bytes) -> tuple[int, int]:
    """(width, height) in pixels of an encoded picture, by its header.

    Raises ModelError for what is none of FORMATS, is cut off before its size is told, or has no pixels.
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


def _size_of_jpeg(data: bytes) -> tuple[int, int] | None:
    at, size = 2, None
    for _ in range(_MOST_SEGMENTS):
        if at + 4 > len(data) or data[at] != 0xFF:
            return size
        marker = data[at + 1]
        if marker == 0xDA:  # what follows is the picture
            return size
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC) and at + 9 <= len(data):
            size = int.from_bytes(data[at + 7 : at + 9], "big"), int.from_bytes(data[at + 5 : at + 7], "big")
        fill = marker == 0xFF or 0xD0 <= marker <= 0xD7 or marker == 0x01
        at += 1 if marker == 0xFF else 2 if fill else 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return None


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
    """(height, width) in multiples of `factor` with about the same aspect ratio and a number of pixels in between.

    Raises ValueError for a strip more than 200 times as long as it is wide.
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
