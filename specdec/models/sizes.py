"""The size that a picture gets before it is cut into patches: Qwen2-VL's own rule."""

from __future__ import annotations

import math

_STEEPEST = 200


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
