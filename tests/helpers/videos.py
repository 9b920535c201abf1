"""Synthetic H.264 streams: a grey ramp with a white square that walks, a number of the picture in its place."""

from __future__ import annotations

from fractions import Fraction

import av
import numpy as np

RATE = 15
STEP = 9


def picture(number: int, width: int, height: int) -> np.ndarray:
    """The RGB picture of a number: the square's left edge is at `STEP * number` (modulo the room there is)."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[:, :, 1] = np.arange(width)[None, :] * 120 // width
    side = height // 4
    left = STEP * number % (width - side)
    pixels[side : 2 * side, left : left + side] = 255
    return pixels


def number_of(pixels: np.ndarray) -> int:
    """Which picture this is, read from where the square is; -1 where there is none."""
    height = pixels.shape[0]
    white = (pixels[height * 3 // 8] > 200).all(axis=1)
    return round(int(np.argmax(white)) / STEP) if white.any() else -1


def encode(
    count: int, width: int = 320, height: int = 200, key_every: int = 10, **options: str
) -> list[bytes]:
    """One access unit a picture, as a camera sends them: no delay, parameter sets with every key picture."""
    encoder = av.CodecContext.create("libx264", "w")
    encoder.width, encoder.height, encoder.pix_fmt = width, height, "yuv420p"
    encoder.time_base, encoder.framerate = Fraction(1, RATE), Fraction(RATE, 1)
    encoder.gop_size, encoder.thread_count = key_every, 1
    encoder.options = {
        "preset": "ultrafast",
        "tune": "zerolatency",
        "x264-params": f"repeat-headers=1:annexb=1:scenecut=0:keyint={key_every}",
        **options,
    }
    units = []
    for number in range(count):
        frame = av.VideoFrame.from_ndarray(picture(number, width, height), format="rgb24")
        frame.pts = number
        units += [bytes(packet) for packet in encoder.encode(frame)]
    assert len(units) == count and encoder.encode(None) == []
    return units
