# SPDX-License-Identifier: Apache-2.0
"""The catalogue of objects and furniture: kinds, shapes, colours, and held-out pairs.

A *kind* is a footprint (for collisions and distances) and a list of *parts* (for rendering). The held-out pairs of kind
and colour never appear in a training room, not even as a distractor, so that success on them is real generalisation.
"""

from __future__ import annotations

from dataclasses import dataclass

RGB = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class ShapePart:
    """One geom. `size` in MuJoCo half sizes [m], `shade` scales the object's colour, `fixed` replaces it."""

    shape: str  # "box" | "cylinder" | "sphere" | "ellipsoid" | "capsule"
    size: tuple[float, ...]
    pos: tuple[float, float, float]
    euler: tuple[float, float, float] = (0.0, 0.0, 0.0)  # degrees, x-y-z
    shade: float = 1.0
    fixed: RGB | None = None


@dataclass(frozen=True, slots=True)
class ObjectKind:
    """A shape that can stand in a room. Either `radius` (round) or `half` (rectangular) is its footprint [m]."""

    name: str
    height: float
    parts: tuple[ShapePart, ...]
    radius: float = 0.0
    half: tuple[float, float] = (0.0, 0.0)
    at_wall: bool = False
    opaque: bool = True  # hides objects behind it; False if one sees through or around it
    scale: tuple[float, float] = (0.92, 1.12)


def _legs(hx: float, hy: float, half: float, height: float) -> tuple[ShapePart, ...]:
    return tuple(
        ShapePart("box", (half, half, height / 2), (i * (hx - half), j * (hy - half), height / 2), shade=0.85)
        for i in (-1, 1)
        for j in (-1, 1)
    )


_DARK: RGB = (0.20, 0.17, 0.15)
_FRAME: RGB = (0.86, 0.84, 0.78)

KINDS: tuple[ObjectKind, ...] = (
    ObjectKind("chair", 0.95, half=(0.23, 0.23), parts=(
        ShapePart("box", (0.23, 0.23, 0.035), (0.0, 0.0, 0.45)),
        ShapePart("box", (0.03, 0.23, 0.25), (-0.20, 0.0, 0.70)),
        *_legs(0.23, 0.23, 0.028, 0.42),
    )),
    ObjectKind("bottle", 0.60, radius=0.115, parts=(
        ShapePart("cylinder", (0.115, 0.18), (0.0, 0.0, 0.18)),
        ShapePart("ellipsoid", (0.115, 0.115, 0.11), (0.0, 0.0, 0.36)),
        ShapePart("cylinder", (0.042, 0.08), (0.0, 0.0, 0.50)),
        ShapePart("cylinder", (0.052, 0.03), (0.0, 0.0, 0.58), shade=0.6),
    )),
    ObjectKind("box", 0.46, half=(0.245, 0.245), parts=(
        ShapePart("box", (0.23, 0.23, 0.21), (0.0, 0.0, 0.21)),
        ShapePart("box", (0.245, 0.245, 0.03), (0.0, 0.0, 0.43), shade=0.8),
        ShapePart("box", (0.05, 0.235, 0.15), (0.0, 0.0, 0.22), shade=0.7),
        ShapePart("box", (0.235, 0.05, 0.15), (0.0, 0.0, 0.22), shade=0.7),
    )),
    ObjectKind("ball", 0.48, (ShapePart("sphere", (0.24,), (0.0, 0.0, 0.24)),), radius=0.24),
    ObjectKind("door", 1.96, half=(0.035, 0.50), at_wall=True, scale=(1.0, 1.0), parts=(
        ShapePart("box", (0.02, 0.42, 0.95), (0.0, 0.0, 0.95)),
        ShapePart("box", (0.035, 0.04, 0.98), (0.0, 0.46, 0.98), fixed=_FRAME),
        ShapePart("box", (0.035, 0.04, 0.98), (0.0, -0.46, 0.98), fixed=_FRAME),
        ShapePart("box", (0.035, 0.50, 0.04), (0.0, 0.0, 1.94), fixed=_FRAME),
        ShapePart("box", (0.006, 0.30, 0.26), (0.022, 0.0, 0.48), shade=0.72),
        ShapePart("box", (0.006, 0.30, 0.34), (0.022, 0.0, 1.36), shade=0.72),
        ShapePart("sphere", (0.04,), (0.05, -0.35, 0.92), fixed=_DARK),
    )),
    ObjectKind("plant", 0.98, radius=0.24, parts=(
        ShapePart("cylinder", (0.17, 0.13), (0.0, 0.0, 0.13), fixed=_DARK),
        ShapePart("cylinder", (0.19, 0.025), (0.0, 0.0, 0.26), fixed=(0.27, 0.23, 0.20)),
        ShapePart("ellipsoid", (0.05, 0.11, 0.36), (0.0, 0.0, 0.62)),
        ShapePart("ellipsoid", (0.045, 0.10, 0.32), (0.11, 0.0, 0.56), (0.0, 28.0, 0.0), shade=0.9),
        ShapePart("ellipsoid", (0.045, 0.10, 0.32), (-0.11, 0.0, 0.56), (0.0, -28.0, 0.0), shade=0.9),
        ShapePart("ellipsoid", (0.10, 0.045, 0.32), (0.0, 0.12, 0.55), (-30.0, 0.0, 0.0), shade=0.8),
        ShapePart("ellipsoid", (0.10, 0.045, 0.32), (0.0, -0.12, 0.55), (30.0, 0.0, 0.0), shade=0.8),
    )),
    ObjectKind("table", 0.70, half=(0.48, 0.34), opaque=False, parts=(
        ShapePart("box", (0.48, 0.34, 0.045), (0.0, 0.0, 0.655)),
        ShapePart("box", (0.42, 0.29, 0.05), (0.0, 0.0, 0.57), shade=0.8),
        *_legs(0.46, 0.32, 0.04, 0.62),
    )),
    ObjectKind("lamp", 0.98, radius=0.20, opaque=False, parts=(
        ShapePart("cylinder", (0.17, 0.025), (0.0, 0.0, 0.025)),
        ShapePart("cylinder", (0.03, 0.30), (0.0, 0.0, 0.32), shade=0.8),
        ShapePart("cylinder", (0.26, 0.06), (0.0, 0.0, 0.62)),
        ShapePart("cylinder", (0.225, 0.06), (0.0, 0.0, 0.74)),
        ShapePart("cylinder", (0.19, 0.06), (0.0, 0.0, 0.86)),
        ShapePart("cylinder", (0.15, 0.03), (0.0, 0.0, 0.95)),
    )),
)  # fmt: skip
KIND_BY_NAME: dict[str, ObjectKind] = {kind.name: kind for kind in KINDS}

COLOURS: dict[str, RGB] = {
    "red": (0.80, 0.06, 0.06),
    "orange": (0.98, 0.45, 0.02),
    "yellow": (0.98, 0.88, 0.06),
    "green": (0.08, 0.58, 0.14),
    "blue": (0.07, 0.22, 0.86),
    "purple": (0.44, 0.10, 0.62),
    "pink": (1.00, 0.50, 0.72),
    "black": (0.05, 0.05, 0.055),
    "silver": (0.62, 0.69, 0.78),
}

HELD_OUT: frozenset[tuple[str, str]] = frozenset(
    {
        ("chair", "purple"), ("chair", "black"), ("bottle", "orange"), ("bottle", "blue"), ("box", "green"),
        ("ball", "silver"), ("ball", "pink"), ("door", "red"), ("plant", "yellow"), ("table", "green"),
        ("table", "red"), ("lamp", "black"),
    }
)  # fmt: skip

ALL_PAIRS: tuple[tuple[str, str], ...] = tuple((kind.name, colour) for kind in KINDS for colour in COLOURS)
TRAIN_PAIRS: tuple[tuple[str, str], ...] = tuple(pair for pair in ALL_PAIRS if pair not in HELD_OUT)

FURNITURE: tuple[ObjectKind, ...] = (
    ObjectKind("cabinet", 0.85, half=(0.23, 0.45), at_wall=True, parts=(
        ShapePart("box", (0.22, 0.45, 0.425), (0.0, 0.0, 0.425)),
        ShapePart("box", (0.01, 0.20, 0.36), (0.22, 0.22, 0.43), shade=0.85),
        ShapePart("box", (0.01, 0.20, 0.36), (0.22, -0.22, 0.43), shade=0.85),
    )),
    ObjectKind("shelf", 1.70, half=(0.15, 0.42), at_wall=True, parts=(
        ShapePart("box", (0.02, 0.40, 0.85), (-0.13, 0.0, 0.85), shade=0.7),
        ShapePart("box", (0.15, 0.02, 0.85), (0.0, 0.40, 0.85)),
        ShapePart("box", (0.15, 0.02, 0.85), (0.0, -0.40, 0.85)),
        *(ShapePart("box", (0.15, 0.40, 0.02), (0.0, 0.0, z)) for z in (0.06, 0.46, 0.86, 1.26, 1.68)),
    )),
    ObjectKind("sofa", 0.75, half=(0.38, 0.75), at_wall=True, parts=(
        ShapePart("box", (0.38, 0.75, 0.20), (0.0, 0.0, 0.22)),
        ShapePart("box", (0.10, 0.75, 0.20), (-0.28, 0.0, 0.55)),
        ShapePart("box", (0.38, 0.09, 0.30), (0.0, 0.66, 0.30), shade=0.9),
        ShapePart("box", (0.38, 0.09, 0.30), (0.0, -0.66, 0.30), shade=0.9),
    )),
)  # fmt: skip
FURNITURE_BY_NAME: dict[str, ObjectKind] = {kind.name: kind for kind in FURNITURE}
# Muted woods and cloths, far from every nameable colour.
FURNITURE_TONES: tuple[RGB, ...] = (
    (0.52, 0.38, 0.25), (0.42, 0.30, 0.20), (0.66, 0.54, 0.40), (0.58, 0.52, 0.44), (0.45, 0.42, 0.36),
)  # fmt: skip
