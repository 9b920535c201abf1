"""Inputs that are short and take long: a grammar, and a picture that draws nothing, again and again."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import Image

BOMB = 'start: %json {"type":"integer","multipleOf":99999989}'


def encoded(size: tuple[int, int], kind: str = "JPEG", seed: int = 1, **settings: Any) -> bytes:
    """A picture of this size."""
    rough = np.random.default_rng(seed).integers(0, 255, (12, 16, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(rough).resize(size).save(buffer, kind, **settings)
    return buffer.getvalue()


def with_empty_scans(picture: bytes, scans: int) -> bytes:
    """A progressive JPEG with this many more scans, none of which draws anything."""
    scan = b"\xff\xda\x00\x08\x01\x01\x00\x01\x3f\x00" + b"\x00" * 3
    return picture[:-2] + scan * scans + b"\xff\xd9"
