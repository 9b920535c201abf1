"""Painted views of a floor."""

import math

import numpy as np

from spec_vlm_nav.exploring.floor_reading import CameraGeometry

FLOOR, WALL, BOX = (150, 120, 90), (210, 205, 190), (200, 40, 40)
SIM = CameraGeometry(0.35)


def painted(camera, things=(), size=(140, 224), floor=FLOOR, wall_m=4.0, noise=6):
    """Things are (left, right, metres ahead, colour), metres and left positive; they are upright, a metre high."""
    rows, columns = size
    focal = columns / 2 / math.tan(camera.width / 2)
    x = (np.arange(columns) + 0.5 - columns / 2)[None, :] / focal
    y = (np.arange(rows) + 0.5 - rows / 2)[:, None] / focal
    ahead, below = math.cos(camera.down) - math.sin(camera.down) * y, math.sin(camera.down) + math.cos(camera.down) * y
    picture = np.empty((rows, columns, 3))
    picture[:] = WALL
    on_floor = (below > 0) & (camera.height_m / np.maximum(below, 1e-9) * ahead < wall_m)
    picture[np.broadcast_to(on_floor, (rows, columns))] = floor
    for left, right, metres, colour in sorted(things, key=lambda one: -one[2]):
        at = metres / np.maximum(ahead, 1e-9)
        height, side = camera.height_m - at * below, -at * x
        picture[(height > 0) & (height < 1.0) & (side < left) & (side > right)] = colour
    picture += np.random.default_rng(0).normal(0, noise, (rows, columns, 1))
    return np.clip(picture, 0, 255).astype(np.uint8)
