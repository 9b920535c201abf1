"""Plane geometry: distances, rays and angles agree with each other."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from navsim.geometry import Disc, Pose2D, Rect, bearing_to, wrap_angle

coordinate = st.floats(-5.0, 5.0)
shapes = st.one_of(
    st.builds(Disc, coordinate, coordinate, st.floats(0.05, 1.0)),
    st.builds(Rect, coordinate, coordinate, st.floats(-4.0, 4.0), st.floats(0.05, 1.0), st.floats(0.05, 1.0)),
)


@given(st.floats(-100.0, 100.0))
def test_wrapping_keeps_the_direction(angle):
    wrapped = wrap_angle(angle)
    assert -math.pi < wrapped <= math.pi
    assert math.cos(wrapped) == pytest.approx(math.cos(angle), abs=1e-9)
    assert math.sin(wrapped) == pytest.approx(math.sin(angle), abs=1e-9)


@given(shapes, coordinate, coordinate)
def test_distance_is_to_the_nearest_point_and_the_same_for_arrays(shape, x, y):
    distance = shape.distance(x, y)
    assert shape.distances(np.array([x]), np.array([y]))[0] == pytest.approx(distance, abs=1e-9)
    if distance > 1e-6:
        assert math.dist((x, y), shape.nearest(x, y)) == pytest.approx(distance, abs=1e-6)


@given(shapes, coordinate, coordinate)
def test_a_ray_at_the_nearest_point_is_as_long_as_the_distance(shape, x, y):
    distance = shape.distance(x, y)
    if distance < 1e-3:
        return
    nx, ny = shape.nearest(x, y)
    ux, uy = (shape.x - x), (shape.y - y)
    span = math.hypot(ux, uy)
    assert shape.ray(x, y, ux / span, uy / span) >= distance - 1e-6
    assert math.isinf(shape.ray(x, y, -(nx - x) / distance, -(ny - y) / distance))


def test_bearing_is_positive_to_the_left():
    assert bearing_to(Pose2D(0.0, 0.0, math.pi / 2), -1.0, 0.0) == pytest.approx(math.pi / 2)
