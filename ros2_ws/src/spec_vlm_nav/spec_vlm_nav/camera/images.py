# Copyright 2026 spec_vlm_nav maintainers
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.

"""
Camera frames, and their pictures as bytes: validation, JPEG encoding, resizing and comparison.

A picture that cannot be decoded completely raises FrameError with one line; broken frames are never
repaired. Compressed pictures pass unchanged unless a size is requested.
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
from dataclasses import dataclass
import io
from typing import cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError
from spec_vlm_nav.common.errors import FrameError, one_line

MAX_BYTES = 16 << 20
MAX_SCANS = 32  # of a JPEG: encoders make about 10, and each may take as long as a picture
MAX_PIXELS = 8192 * 8192
MAX_SIDE = 65_500  # pixels; a JPEG can have no longer side
THUMBNAIL = (56, 35)  # size at which pictures are compared
DARKEST, BRIGHTEST = 8, 247  # a picture with no value at least as bright, or as dark, shows nothing
SHORTEST_SIDE = 16  # pixels; a smaller picture cannot be a camera's
# encoding -> (channels, channel order that gives RGB or grey)
_ENCODINGS = {
    "rgb8": (3, (0, 1, 2)),
    "bgr8": (3, (2, 1, 0)),
    "rgba8": (4, (0, 1, 2)),
    "bgra8": (4, (2, 1, 0)),
    "mono8": (1, (0,)),
}


@dataclass(frozen=True)
class RawImage:
    """Pixels as in sensor_msgs/Image; `step` is bytes per row."""

    encoding: str
    width: int
    height: int
    step: int
    data: bytes


@dataclass(frozen=True)
class Frame:
    """
    A camera message.

    It holds the picture, its header stamp (seconds, nanoseconds), and its receive time (steady
    clock, s).
    """

    picture: bytes | RawImage
    stamp: tuple[int, int]
    received: float


@dataclass(frozen=True)
class PictureOptions:
    """
    How a picture is prepared.

    width, height: size in pixels; 0: unchanged. quality: of encoded JPEG. pixels: most pixels of a
    picture without a given size; 0: any number.
    """

    width: int = 0
    height: int = 0
    quality: int = 90
    pixels: int = 0


def decode(data: bytes) -> Image.Image:
    """
    Decode a JPEG or PNG completely; returns an RGB picture the right way up. Raises FrameError.

    A picture with an EXIF orientation is rotated, as the models do.
    """
    with _opened(data) as picture:
        picture.load()
        return _upright(picture).convert("RGB")


@contextlib.contextmanager
def _opened(data: bytes) -> Iterator[Image.Image]:
    """Open a picture whose header is within the limits; errors become FrameError."""
    if not data:
        raise FrameError("empty camera frame: check the camera driver")
    if len(data) > MAX_BYTES:
        raise FrameError(f"camera frame of {len(data)} bytes refused: the limit is {MAX_BYTES}")
    try:
        with Image.open(io.BytesIO(data), formats=("JPEG", "PNG")) as picture:
            _check_size(picture.width, picture.height)
            # A JPEG with several pictures has the format MPO.
            if picture.format != "PNG" and data.count(b"\xff\xda") > MAX_SCANS:
                raise FrameError("camera frame has too many JPEG scans: publish a baseline JPEG")
            if picture.mode.startswith(("I", "F")):
                raise FrameError(
                    "camera frame has more than 8 bits per channel: publish 8 (a depth picture?)"
                )
            yield picture
    except UnidentifiedImageError:
        raise FrameError(
            "camera frame is neither JPEG nor PNG: check the topic and image_transport"
        ) from None
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise FrameError(f"corrupt camera frame ({error}): check the camera and the network") from error


def _check_size(width: int, height: int) -> None:
    if width * height > MAX_PIXELS or max(width, height) > MAX_SIDE:
        raise FrameError(f"camera frame of {width}x{height} pixels refused: too large")


def _upright(picture: Image.Image) -> Image.Image:
    try:
        return ImageOps.exif_transpose(picture)
    except Exception:  # broken EXIF data does not make the picture invalid
        return picture


def pixels(data: bytes) -> NDArray[np.uint8]:
    """Decode a picture completely to uint8 [rows, columns, 3] RGB. Raises FrameError."""
    return np.asarray(decode(data))


def from_raw(raw: RawImage) -> Image.Image:
    """Convert raw pixels to a picture. Raises FrameError for an unknown encoding or missing bytes."""
    if raw.encoding not in _ENCODINGS:
        raise FrameError(
            f"camera encoding '{one_line(raw.encoding)}' is not supported; known are {', '.join(_ENCODINGS)}"
        )
    _check_size(raw.width, raw.height)
    channels, order = _ENCODINGS[raw.encoding]
    row = raw.width * channels
    if raw.width < 1 or raw.height < 1 or raw.step < row or len(raw.data) < raw.step * raw.height:
        raise FrameError(
            f"camera frame of {len(raw.data)} bytes does not hold {raw.width}x{raw.height} {raw.encoding}"
        )
    rows: NDArray[np.uint8] = np.frombuffer(raw.data, np.uint8, raw.step * raw.height).reshape(
        raw.height, raw.step
    )
    pixels = rows[:, :row].reshape(raw.height, raw.width, channels)[:, :, list(order)]
    return Image.fromarray(pixels[:, :, 0] if channels == 1 else np.ascontiguousarray(pixels)).convert("RGB")


def fit(picture: Image.Image, width: int, height: int) -> Image.Image:
    """Crop the middle to the aspect ratio of width x height, then scale, without distortion."""
    scale = max(width / picture.width, height / picture.height)
    across, down = min(width / scale, picture.width), min(height / scale, picture.height)
    left, top = (picture.width - across) / 2, (picture.height - down) / 2
    # Crop before scaling: a picture of one row would otherwise grow without bound.
    box = (left, top, left + across, top + down)
    return picture.resize((width, height), Image.Resampling.BILINEAR, box)


def within(picture: Image.Image, pixels: int) -> Image.Image:
    """Scale down to at most this many pixels, keeping the aspect ratio."""
    scale = (pixels / (picture.width * picture.height)) ** 0.5
    size = (max(1, int(picture.width * scale)), max(1, int(picture.height * scale)))
    return picture.resize(size, Image.Resampling.BILINEAR)


def to_jpeg(picture: Image.Image, quality: int = 90) -> bytes:
    """Encode as JPEG."""
    out = io.BytesIO()
    picture.save(out, "JPEG", quality=quality)
    return out.getvalue()


def prepare(source: bytes | RawImage, options: PictureOptions) -> bytes:
    """
    Return the encoded picture for the model. Raises FrameError.

    Compressed bytes are decoded once for validation, and returned unchanged if the size fits.
    """
    picture = decode(source) if isinstance(source, bytes) else from_raw(source)
    _refuse_blank(picture)
    if options.width and options.height and picture.size != (options.width, options.height):
        return to_jpeg(fit(picture, options.width, options.height), options.quality)
    sized = options.width and options.height
    if not sized and 0 < options.pixels < picture.width * picture.height:
        return to_jpeg(within(picture, options.pixels), options.quality)
    return source if isinstance(source, bytes) else to_jpeg(picture, options.quality)


def _refuse_blank(picture: Image.Image) -> None:
    """Raise FrameError for a picture in which nothing can be seen."""
    if min(picture.size) < SHORTEST_SIDE:
        raise FrameError(
            f"camera frame of {picture.width}x{picture.height} pixels refused: "
            f"each side must have {SHORTEST_SIDE}"
        )
    bands = cast("tuple[tuple[int, int], ...]", picture.getextrema())  # it is RGB
    if max(high for _, high in bands) < DARKEST:
        raise FrameError("the camera picture is black: is the lens covered, or has the camera failed?")
    if min(low for low, _ in bands) > BRIGHTEST:
        raise FrameError("the camera picture is white: is it overexposed, or has the camera failed?")


def black_like(encoded: bytes) -> bytes:
    """Return a black JPEG of the same size, which stands for missing history."""
    return to_jpeg(Image.new("RGB", decode(encoded).size))


def thumbnail(picture: bytes | RawImage) -> NDArray[np.float32]:
    """
    Return a small grey version of a picture, float32 [35, 56], 0 to 255.

    Raises FrameError if it cannot be decoded.
    """
    if isinstance(picture, RawImage):
        grey = from_raw(picture).convert("L")
    else:
        with _opened(picture) as image:
            # Draft mode decodes a JPEG at a fraction of its size, and much faster.
            image.draft("L", THUMBNAIL)
            grey = image.convert("L")
    return np.asarray(grey.resize(THUMBNAIL, Image.Resampling.BOX), dtype=np.float32)


def difference(one: bytes | RawImage, other: bytes | RawImage) -> float:
    """Return the mean difference of two pictures, grey levels of 255. Raises FrameError."""
    return float(np.abs(thumbnail(one) - thumbnail(other)).mean())


def same_scene(one: bytes | RawImage, other: bytes | RawImage, tolerance: float) -> bool:
    """
    Return whether two pictures differ by at most `tolerance` grey levels.

    False if one cannot be decoded.
    """
    try:
        return difference(one, other) <= tolerance
    except FrameError:
        return False
