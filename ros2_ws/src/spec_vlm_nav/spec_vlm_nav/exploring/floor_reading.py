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
Finds in a picture where the floor ends, by its colour.

The floor's colour is a colour at the bottom of the picture that is rarer above the horizon; a wall
that fills the bottom also continues above the horizon. Going up in each column, the floor ends
where at least ENOUGH of RUN consecutive rows differ from its colour. The camera's geometry gives
the distance. A wall as pale as the floor is missed, and a dark rug counts as an obstacle: good
enough for keeping some distance, but not for safety. After I. Horswill, Polly: a vision-based
artificial agent, AAAI 1993.
"""

from __future__ import annotations

from dataclasses import dataclass
import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

COLUMNS = 56  # number of bearings
WIDEST = 224  # pixels; a wider picture is subsampled
LEAST = (24, COLUMNS)  # smallest picture: rows, columns
FOOT = 0.13  # share of the rows at the bottom of the picture, which mostly show floor
SHADE, TINT = 35.0, 6.0  # of 255: largest differences of brightness and chroma from the floor's
BIN = 4.0  # width of a chroma bin in the search for the floor's colour
OTHER = 10.0  # a larger change of the colour at the bottom is an object, not the floor
CANDIDATES = 6  # colours at the bottom that are compared
MORE = 0.1  # the floor's share at the bottom minus above the horizon must exceed this
THIN = 3  # subsampling above the horizon
NEW = 0.2  # weight of a new picture in the floor's colour
RUN, ENOUGH = 4, 3  # window of rows, and how many of them must differ from the floor
FAR_M = 2.5  # beyond this distance the floor counts as going on


@dataclass(frozen=True)
class CameraGeometry:
    """A camera: height above the floor, m; horizontal field of view and downward tilt, rad."""

    height_m: float
    width: float = math.pi / 2
    down: float = 0.0


@dataclass(frozen=True)
class RobotBody:
    """The robot's camera and size. radius_m: room that the robot needs to either side, m."""

    camera: CameraGeometry
    radius_m: float


@dataclass(frozen=True, eq=False)
class FloorPicture:
    """A picture, uint8 [rows, columns, 3] RGB, with the robot's camera and size."""

    picture: NDArray[np.uint8]
    body: RobotBody


@dataclass(frozen=True, eq=False)
class FloorReading:
    """
    The distance to the end of the floor, by bearing.

    bearings [n]: radians, left positive, descending. ends [n]: metres from below the camera; inf:
    the floor goes on.
    """

    bearings: Floats
    ends: Floats


Colour = tuple[float, float, float]
"""Brightness and chroma of the floor (Y, Cb, Cr without offset)."""


def read_floor(
    picture: NDArray[np.uint8], camera: CameraGeometry, before: Colour | None = None
) -> tuple[FloorReading, Colour] | None:
    """
    Return where the floor ends, and its colour; None if the picture is too small or shows no floor.

    picture: uint8 [rows, columns, 3], RGB. before: the floor's colour in earlier pictures.
    """
    if picture.ndim != 3 or picture.shape[2] != 3:
        return None
    step = max(1, picture.shape[1] // WIDEST)
    picture = picture[::step, ::step]
    rows, columns = picture.shape[:2]
    if rows < LEAST[0] or columns < LEAST[1]:
        return None
    hues = _hues(picture)
    focal = columns / 2 / math.tan(camera.width / 2)
    horizon = round(rows / 2 - focal * math.tan(camera.down))
    above = hues[: max(horizon, 0) : THIN, ::THIN]
    colour = _floor_colour(hues[rows - max(4, round(FOOT * rows)) :], above, before)
    if colour is None:
        return None
    alike = _alike(hues, np.asarray(colour, np.float32))
    group = columns // COLUMNS
    spare = (columns - group * COLUMNS) // 2
    alike = alike[:, spare : spare + group * COLUMNS]
    other = alike.reshape(rows, COLUMNS, group).mean(axis=2)[::-1] < 0.5
    run = sum(other[at : rows - RUN + 1 + at].astype(np.int8) for at in range(RUN))
    ends = (run >= ENOUGH) & other[: rows - RUN + 1]
    # Rows of floor, from the foot up.
    first = np.where(ends.any(axis=0), ends.argmax(axis=0), rows)
    x = spare + (np.arange(COLUMNS) + 0.5) * group - columns / 2
    y = rows / 2 - first
    return _on_the_floor(x, y, focal, camera), colour


def _hues(picture: NDArray[np.uint8]) -> NDArray[np.float32]:
    red, green, blue = np.moveaxis(picture.astype(np.float32), -1, 0)
    bright = 0.299 * red + 0.587 * green + 0.114 * blue
    return np.stack([bright, 0.564 * (blue - bright), 0.713 * (red - bright)], axis=-1)


def _floor_colour(
    foot: NDArray[np.float32], above: NDArray[np.float32], before: Colour | None
) -> Colour | None:
    """
    Return the colour of the floor; None if no picture so far has shown it.

    foot [n, m, 3]: colours at the bottom of the picture. above: colours above the horizon, where
    there is no floor.
    """
    pixels = foot.reshape(-1, 3)
    bins = np.round(pixels[:, 1:] / BIN).astype(int)
    keys = bins[:, 0] * 1000 + bins[:, 1]
    values, counts = np.unique(keys, return_counts=True)
    likeliest = values[np.argsort(-counts, kind="stable")[:CANDIDATES]]
    found, most = None, MORE
    for key in likeliest:
        colour = np.median(pixels[keys == key], axis=0)
        more = _share(pixels, colour) - _share(above, colour)
        if more > most:
            found, most = colour, more
    if found is None or before is None:
        return before if found is None else _colour(found)
    known = np.asarray(before)
    if np.abs(found[1:] - known[1:]).max() <= OTHER:
        return _colour((1.0 - NEW) * known + NEW * found)
    held = _share(pixels, known) - _share(above, known)
    return before if held > -MORE else _colour(found)


def _share(pixels: NDArray[np.float32], colour: NDArray[np.floating]) -> float:
    """Return the share of pixels with a colour."""
    return float(_alike(pixels, colour).mean()) if pixels.size else 0.0


def _alike(pixels: NDArray[np.float32], colour: NDArray[np.floating]) -> NDArray[np.bool_]:
    off = np.abs(pixels - colour)
    return (off[..., 0] < SHADE) & (off[..., 1] < TINT) & (off[..., 2] < TINT)


def _colour(values: NDArray[np.floating]) -> Colour:
    return float(values[0]), float(values[1]), float(values[2])


def _on_the_floor(x: Floats, y: Floats, focal: float, camera: CameraGeometry) -> FloorReading:
    """Project pixels onto the floor; x, y: right of and below the picture's middle."""
    ahead = math.cos(camera.down) - math.sin(camera.down) * y / focal
    below = math.sin(camera.down) + math.cos(camera.down) * y / focal
    right = x / focal
    with np.errstate(divide="ignore", invalid="ignore"):
        far = np.where(below > 1e-6, camera.height_m * np.hypot(ahead, right) / below, np.inf)
    return FloorReading(-np.arctan2(right, ahead), np.where(far < FAR_M, far, np.inf))
