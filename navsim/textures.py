# SPDX-License-Identifier: Apache-2.0
"""Procedural textures of floors and walls, light grey so that a room's tint colours them; no image files."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

SIZE = 256
Image = NDArray[np.uint8]


def _noise(rng: np.random.Generator, grain: int, amount: float) -> NDArray[np.float32]:
    """Smooth noise around 0, [SIZE, SIZE]; `grain` is the size of its blobs in pixels, the edges wrap roughly."""
    coarse = rng.standard_normal((SIZE // grain, SIZE // grain)).astype(np.float32)
    return cv2.resize(coarse, (SIZE, SIZE), interpolation=cv2.INTER_CUBIC) * np.float32(amount)


def _finish(value: NDArray[np.float32]) -> Image:
    grey = np.clip(value, 0.0, 1.0) * 255.0
    return np.repeat(grey.astype(np.uint8)[:, :, None], 3, axis=2)


def floor_textures() -> list[Image]:
    """Planks, large tiles, small tiles, carpet; uint8 [SIZE, SIZE, 3]."""
    rng = np.random.default_rng(11)
    planks = 0.82 + _noise(rng, 2, 0.03)
    width = SIZE // 8
    for row in range(8):
        planks[row * width : (row + 1) * width] += rng.uniform(-0.10, 0.10)
        planks[row * width : row * width + 2] = 0.5
        cut = int(rng.integers(0, SIZE))
        planks[row * width : (row + 1) * width, cut : cut + 2] = 0.5
    large, small = 0.88 + _noise(rng, 8, 0.02), 0.86 + _noise(rng, 4, 0.02)
    large[:3] = large[:, :3] = 0.6
    for i in range(4):
        for j in range(4):
            cell = small[i * 64 : (i + 1) * 64, j * 64 : (j + 1) * 64]
            cell -= 0.16 * ((i + j) % 2)
            cell[:2] = 0.55
            cell[:, :2] = 0.55
    carpet = 0.80 + _noise(rng, 1, 0.06) + _noise(rng, 16, 0.03)
    return [_finish(texture) for texture in (planks, large, small, carpet)]


def wall_textures() -> list[Image]:
    """Plaster, wide panels, bricks, stripes; each covers a wall's whole height once, skirting board included."""
    rng = np.random.default_rng(12)
    plaster = 0.93 + _noise(rng, 4, 0.015) + _noise(rng, 32, 0.02)
    panels = 0.93 + _noise(rng, 8, 0.01)
    panels[:, :3] = 0.75
    panels[:, 128:131] = 0.75
    bricks = 0.90 + _noise(rng, 2, 0.02)
    for row in range(16):
        top = row * 16
        bricks[top : top + 2] = 0.74
        shift = 32 * (row % 2)
        for column in range(4):
            left = (column * 64 + shift) % SIZE
            bricks[top : top + 16, left : left + 2] = 0.74
    stripes = 0.92 + _noise(rng, 8, 0.01)
    for column in range(0, SIZE, 32):
        stripes[:, column : column + 16] -= 0.08
    finished = []
    for texture in (plaster, panels, bricks, stripes):
        texture[-12:] = 0.55  # 12 cm of skirting board
        texture[-13:-12] = 0.35
        finished.append(_finish(texture))
    return finished


def png(image: Image) -> bytes:
    """An image as PNG bytes."""
    ok, data = cv2.imencode(".png", image[:, :, ::-1])
    if not ok:
        raise ValueError("a texture could not be encoded")
    return data.tobytes()
