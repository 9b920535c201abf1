"""Where the floor ends in a picture: of floors, boxes and walls that are painted as a camera would see them."""

import math

import numpy as np
import pytest

from spec_vlm_nav.exploring.floor_reading import FAR_M, CameraGeometry, read_floor
from tests.robot.painted import BOX, FLOOR, SIM, WALL, painted


@pytest.mark.parametrize(
    ("camera", "size"),
    [
        (SIM, (140, 224)),
        (SIM, (480, 640)),
        (CameraGeometry(0.35, math.radians(100)), (140, 224)),
        (CameraGeometry(1.0, math.pi / 2, math.radians(20)), (240, 320)),
        (SIM, (60, 90)),
    ],
)
@pytest.mark.parametrize("metres", [0.8, 1.3])
def test_a_box_is_where_it_stands(camera, size, metres):
    reading, _ = read_floor(painted(camera, [(0.5, 0.1, metres, BOX)], size), camera)
    at = -metres * np.tan(reading.bearings)  # to the right of ahead, where a thing so far away is seen
    on_box = (-at > 0.15) & (-at < 0.45)
    assert on_box.sum() >= 3
    assert reading.ends[on_box] == pytest.approx(metres / np.cos(reading.bearings[on_box]), rel=0.12)
    beside = (-at < -0.1) | (-at > 0.7)
    assert np.isinf(reading.ends[beside]).all(), f"the floor goes on for {FAR_M} m"
    assert reading.bearings[0] > 0.3 > -0.3 > reading.bearings[-1]


def test_a_wall_across_is_a_straight_line():
    reading, _ = read_floor(painted(SIM, wall_m=1.5), SIM)
    assert reading.ends * np.cos(reading.bearings) == pytest.approx(1.5, rel=0.1)


def test_what_fills_the_foreground_is_no_floor_once_the_floor_is_known():
    close = painted(SIM, [(0.4, -0.4, 0.4, BOX)])
    _, colour = read_floor(painted(SIM), SIM)
    reading, after = read_floor(close, SIM, colour)
    assert after == colour
    middle = np.abs(reading.bearings) < 0.4
    assert reading.ends[middle].max() < 0.65, "as near as the picture shows"


def test_the_floors_colour_follows_the_light():
    _, colour = read_floor(painted(SIM), SIM)
    for share in (0.9, 0.8, 0.75, 0.7, 0.7, 0.65, 0.65, 0.6):
        reading, colour = read_floor(painted(SIM, floor=tuple(share * one for one in FLOOR)), SIM, colour)
        assert np.isinf(reading.ends).mean() > 0.9


@pytest.mark.parametrize("shape", [(10, 224, 3), (140, 20, 3), (140, 224), (140, 224, 4), (0, 0, 3)])
def test_pictures_that_tell_nothing_are_left_alone(shape):
    assert read_floor(np.zeros(shape, np.uint8), SIM) is None


def test_a_wall_that_fills_the_foot_is_no_floor():
    wall, open_floor = painted(SIM, wall_m=0.5), painted(SIM)
    assert read_floor(wall, SIM) is None, "no floor was seen so far"
    _, colour = read_floor(open_floor, SIM)
    reading, after = read_floor(wall, SIM, colour)
    assert after == colour
    assert reading.ends.max() < 0.8, "as near as the picture shows"


def test_a_wrong_floor_is_given_up_for_one_that_is_only_below_the_horizon():
    as_wall = read_floor(painted(SIM, floor=WALL), CameraGeometry(0.35, SIM.width, math.radians(35)))[1]
    reading, colour = read_floor(painted(SIM), SIM, as_wall)
    assert np.isinf(reading.ends).mean() > 0.9
    assert colour == pytest.approx(read_floor(painted(SIM), SIM)[1])
