"""Laser scans and depth images as sensors send them."""

import math

import numpy as np

from spec_vlm_nav.motion.ahead.corridor import CorridorConfig
from spec_vlm_nav.motion.ahead.ranges import DepthImage, Scan

CORRIDOR = CorridorConfig()


def scan(ranges=None, angle_min=-math.pi, rays=720, range_min=0.05):
    ranges = np.full(rays, np.inf, np.float32) if ranges is None else ranges
    return Scan(ranges, angle_min, 2 * math.pi / rays, range_min)


def ray(degrees, rays=720):
    """Index of the ray in a direction, left positive."""
    return round((degrees + 180) / 360 * rays) % rays


def depth(metres, encoding="16UC1", big_endian=False, extra=0):
    """An image from a matrix of metres, rows longer by `extra` bytes."""
    code = "u2" if encoding == "16UC1" else "f4"
    factor = 1000 if encoding == "16UC1" else 1
    pixels = (np.asarray(metres) * factor).astype(f"{'>' if big_endian else '<'}{code}")
    rows = np.frombuffer(pixels.tobytes(), np.uint8).reshape(pixels.shape[0], -1)
    rows = np.pad(rows, ((0, 0), (0, extra)))
    return DepthImage(encoding, pixels.shape[1], pixels.shape[0], rows.shape[1], rows.tobytes(), big_endian)


def room(metres=4.0, height=48, width=64):
    return np.full((height, width), metres)
