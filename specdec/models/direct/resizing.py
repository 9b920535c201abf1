# SPDX-License-Identifier: Apache-2.0
"""Resizes pictures on any device, bit-identical to Pillow's bicubic `Image.resize`.

Pillow uses integer arithmetic: weights are rounded to 22 bits, and each of its two passes is rounded to bytes. The
weights here equal Pillow's. Which pass comes first depends on Pillow's version and both sizes, so it is found by trial.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

_BITS = 22
"""Fractional bits of a weight: Pillow's PRECISION_BITS."""
_SUPPORT, _A = 2.0, -0.5
"""Support and coefficient of the bicubic filter."""


def resize(pixels: Tensor, height: int, width: int) -> Tensor:
    """uint8 [rows, columns, channels] -> uint8 [height, width, channels], on the same device."""
    rows, columns = pixels.shape[:2]
    sizes = {0: height, 1: width}
    for axis in (0, 1) if _columns_first(columns, rows, width, height) else (1, 0):
        if pixels.shape[axis] != sizes[axis]:
            pixels = _along(pixels, axis, sizes[axis])
    return pixels


@lru_cache(maxsize=64)
def _columns_first(columns: int, rows: int, width: int, height: int) -> bool:
    """Whether Pillow resizes a picture of this size along its height first; found by a few trial resizes."""
    if columns == width or rows == height:
        return False
    noise = np.random.default_rng(0).integers(0, 256, (rows, columns, 3), dtype=np.uint8)
    picture = Image.fromarray(noise)
    wanted = picture.resize((width, height), Image.Resampling.BICUBIC).tobytes()
    by_rows = picture.resize((width, rows), Image.Resampling.BICUBIC)
    return by_rows.resize((width, height), Image.Resampling.BICUBIC).tobytes() != wanted


def _along(pixels: Tensor, axis: int, size: int) -> Tensor:
    places, weights = _taps(pixels.shape[axis], size, pixels.device)
    shape = (*pixels.shape[:axis], *weights.shape, *pixels.shape[axis + 1 :])
    seen = pixels.int().index_select(axis, places).view(shape)
    seen *= weights[..., None] if axis else weights[..., None, None]
    found = seen.sum(axis, dtype=torch.int32).add_(1 << (_BITS - 1))
    return (found >> _BITS).clamp_(0, 255).to(torch.uint8)


@lru_cache(maxsize=64)
def _taps(length: int, size: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Filter taps from `length` inputs to `size` outputs: input indices int32 [taps * size], weights int32 [taps,
    size].
    """
    scale = length / size
    stretch = max(scale, 1.0)
    support = _SUPPORT * stretch
    centre = (np.arange(size) + 0.5) * scale
    first = np.maximum((centre - support + 0.5).astype(np.int64), 0)
    behind = np.minimum((centre + support + 0.5).astype(np.int64), length)
    tap = np.arange(math.ceil(support) * 2 + 1)[:, None]
    weights = np.where(tap < behind - first, _bicubic((tap + first - centre + 0.5) * (1.0 / stretch)), 0.0)
    total = np.zeros(size)
    for row in weights:  # summed in Pillow's order
        total += row
    weights = np.where(total != 0.0, weights / np.where(total != 0.0, total, 1.0), weights) * (1 << _BITS)
    whole = np.trunc(weights + np.where(weights < 0.0, -0.5, 0.5)).astype(np.int32)
    used = whole.any(axis=1)
    places = np.minimum(tap + first, length - 1).astype(np.int32)[used].ravel()
    return torch.from_numpy(places).to(device), torch.from_numpy(whole[used]).to(device)


def _bicubic(x: NDArray[np.float64]) -> NDArray[np.float64]:
    x = np.abs(x)
    near = ((_A + 2.0) * x - (_A + 3.0)) * x * x + 1
    far = (((x - 5) * x + 8) * x - 4) * _A
    return np.where(x < 1.0, near, np.where(x < 2.0, far, 0.0))
