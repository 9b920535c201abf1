# SPDX-License-Identifier: Apache-2.0
"""Decodes a picture from bytes: to RGB, upright, and resized for a model. Needs no torch."""

from __future__ import annotations

import io

from PIL import Image, UnidentifiedImageError

from specdec.errors import ModelError
from specdec.pictures.sizes import FORMATS, check_scans, orientation_of, smart_resize, stored_size, within

MAX_IMAGE_PIXELS = 64_000_000
"""Larger pictures are refused: a small file can describe a huge picture."""
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""The transformation that makes a stored picture upright, by EXIF orientation."""


def open_picture(data: bytes, factor: int, least: int, most: int) -> Image.Image:
    """Decode a picture to RGB and resize it: as `smart_resize`, or with factor 0 to at most `most` pixels.

    Raises ModelError.
    """
    image = decode_image(data)
    size = size_opened(*image.size, factor, least, most)
    return image if size == image.size else image.resize(size, Image.Resampling.BICUBIC)


def size_opened(width: int, height: int, factor: int, least: int, most: int) -> tuple[int, int]:
    """(width, height) of the result of `open_picture` for a picture of this size. Raises ModelError."""
    if not factor:
        return within(width, height, most)
    try:
        rows, columns = smart_resize(height, width, factor, least, most)
    except ValueError as error:
        raise ModelError(f"the image cannot be resized: {error}") from error
    return columns, rows


def decode_image(data: bytes) -> Image.Image:
    """Decode one image to upright RGB. Raises ModelError if it is corrupt, too large, or of an unknown format."""
    width, height = stored_size(data)
    check_scans(data, width * height)
    if width * height > MAX_IMAGE_PIXELS:
        raise ModelError(
            f"the image has {width} x {height} pixels, more than {MAX_IMAGE_PIXELS}: send a smaller one"
        )
    try:
        image: Image.Image = Image.open(io.BytesIO(data), formats=FORMATS)
        if image.size != (width, height):  # two headers, and the bounds were checked on the other one
            raise ModelError("the image states two different sizes: save it again as a JPEG or PNG")
        image.load()
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise ModelError(f"the image cannot be decoded ({len(data)} bytes): send a JPEG or PNG") from error
    if image.mode in ("RGBA", "LA") or "transparency" in image.info:
        # As in qwen-vl-utils, transparency is blended onto white.
        image = image.convert("RGBA")
        background = Image.new("RGB", image.size, (255, 255, 255))
        background.paste(image, mask=image.split()[3])
        image = background
    turn = _TURNS.get(orientation_of(data))
    if image.mode != "RGB":
        image = image.convert("RGB")
    return image if turn is None else image.transpose(turn)
