"""REP 117 in every sensor reader, by the conventions of drivers: too near is a thing, and unknown is not free."""

import math

import numpy as np
import pytest

from spec_vlm_nav.motion.ahead.cloud import clearance_of_cloud
from spec_vlm_nav.motion.ahead.collision import AheadConfig, AheadWatch
from spec_vlm_nav.motion.ahead.ranges import clearance_of_depth, clearance_of_scan
from tests.robot.clouds import CORRIDOR as CLOUD_CORRIDOR
from tests.robot.clouds import cloud, floor
from tests.robot.scans import CORRIDOR, depth, ray, room, scan

STOPS, GOES, BLIND = "stops", "goes", "blind"
CONFIG = AheadConfig(collision_watched=True)


def verdict(clearance):
    """What motion_node makes of a message: goes on forward, ends forward motion only, or ends every motion."""
    watch = AheadWatch()
    watch.hear(clearance, 0.0)
    if watch.blind(0.0, CONFIG):
        return BLIND
    return STOPS if watch.fault(0.0, CONFIG) else GOES


# -- laser scans: what stands in the place of a box 20 degrees wide right ahead; 3 m of free space all round


@pytest.mark.parametrize(
    ("value", "driver", "expected"),
    [
        (-math.inf, "Gazebo and REP 117: too near", STOPS),
        (math.inf, "Gazebo and REP 117: no return", GOES),
        (math.nan, "REP 117: not measured", STOPS),
        (0.0, "rplidar, LDS, YDLIDAR: no return", STOPS),
        (0.03, "drivers that do not follow REP 117: under range_min", STOPS),
        (0.007, "Hokuyo: an error code of 7 as millimetres", STOPS),
        (-1.0, "no distance at all", STOPS),
        (13.0, "before REP 117: over range_max", GOES),
        (0.2, "a box at 0.2 m", STOPS),
    ],
)
def test_a_box_in_a_scan_whatever_the_driver_says_of_it(value, driver, expected):
    ranges = np.full(720, 3.0, np.float32)
    ranges[ray(-10) : ray(10)] = value
    assert verdict(clearance_of_scan(scan(ranges), CORRIDOR)) == expected, driver


@pytest.mark.parametrize("degrees", [-24, -12, 0, 9, 24])
def test_a_part_of_a_scan_that_is_unknown_is_not_free_wherever_it_lies(degrees):
    ranges = np.full(720, np.inf, np.float32)
    ranges[ray(degrees - 9) : ray(degrees + 9)] = math.nan
    seen = clearance_of_scan(scan(ranges), CORRIDOR)
    assert verdict(seen) == STOPS and "measures nothing in a part" in seen.unseen
    ranges[ray(degrees - 9) : ray(degrees + 9) : 3] = math.inf  # one ray of three sees
    assert verdict(clearance_of_scan(scan(ranges), CORRIDOR)) == GOES


def test_an_unknown_part_beside_or_behind_the_way_is_of_no_interest():
    ranges = np.full(720, np.inf, np.float32)
    ranges[ray(50) : ray(120)] = ranges[: ray(-140)] = math.nan
    assert verdict(clearance_of_scan(scan(ranges), CORRIDOR)) == GOES


def test_too_near_behind_is_no_way_back():
    ranges = np.full(720, np.inf, np.float32)
    ranges[:20] = -math.inf
    seen = clearance_of_scan(scan(ranges), CORRIDOR)
    assert seen.behind_m == pytest.approx(0.05, abs=0.01) and verdict(seen) == GOES


# -- depth images: what stands in the place of a box in the middle; a wall 4 m away


@pytest.mark.parametrize(
    ("value", "encoding", "driver", "expected"),
    [
        (-math.inf, "32FC1", "Gazebo: nearer than the near clip", STOPS),
        (math.inf, "32FC1", "Gazebo: nothing within the far clip", GOES),
        (math.nan, "32FC1", "REP 118: not measured", STOPS),
        (0.0, "32FC1", "wrappers that divide 16UC1: not measured", STOPS),
        (0.0, "16UC1", "RealSense, REP 118: not measured, also too near", STOPS),
        (65.535, "16UC1", "saturated", GOES),
        (0.3, "16UC1", "a box at 0.3 m", STOPS),
        (0.3, "32FC1", "a box at 0.3 m", STOPS),
    ],
)
def test_a_box_in_a_depth_image_whatever_the_driver_says_of_it(value, encoding, driver, expected):
    metres = room()
    metres[16:32, 20:40] = value
    assert verdict(clearance_of_depth(depth(metres, encoding), CORRIDOR)) == expected, driver


def test_a_strip_of_a_stereo_camera_beside_the_way_and_scattered_holes_do_not_stop():
    metres = room()
    metres[:, :4] = 0.0  # what only one eye of a RealSense sees
    metres[::2, 1::3] = 0.0
    assert verdict(clearance_of_depth(depth(metres), CORRIDOR)) == GOES


# -- clouds


def rays(ranges, low=-30, high=30, rows=8, azimuths=None):
    """A cloud as Gazebo makes it: row by row, distance times direction, infinite ones as well."""
    if azimuths is None:
        azimuths = np.radians(np.linspace(-180, 179, ranges.shape[1]))
    elevation = np.radians(np.linspace(low, high, rows))[:, None]
    with np.errstate(invalid="ignore"):
        points = [
            ranges * np.cos(elevation) * np.cos(azimuths),
            ranges * np.cos(elevation) * np.sin(azimuths),
            ranges * np.sin(elevation) * np.ones_like(azimuths),
        ]
    return cloud(np.stack([p.ravel() for p in points], 1), rows=rows)


def ring(value, begin, end, ground=True):
    """A lidar of 360 columns over open ground; `value` in the columns between two azimuths, degrees."""
    ranges = np.full((8, 360), math.inf)
    if ground:
        down = np.sin(-np.radians(np.linspace(-30, 30, 8)))
        ranges[:4] = (0.3 / down[:4])[:, None]
    ranges[:, 180 + begin : 180 + end] = value
    return clearance_of_cloud(rays(ranges), CLOUD_CORRIDOR)


@pytest.mark.parametrize(
    ("value", "begin", "end", "expected"),
    [
        (-math.inf, -10, 10, STOPS),  # a box too near ahead
        (-math.inf, 30, 50, STOPS),
        (-math.inf, 120, 170, GOES),  # behind: of no interest to forward motion
        (math.inf, -10, 10, GOES),
        (math.inf, 120, 170, GOES),  # the same signs as too near ahead
        (math.nan, -30, 30, STOPS),
        (math.nan, 120, 170, GOES),
        (0.0, -30, 30, STOPS),  # Livox: zeros
    ],
)
def test_what_a_lidar_in_gazebo_says_of_a_box(value, begin, end, expected):
    assert verdict(ring(value, begin, end)) == expected


def test_open_space_all_round_is_free_also_without_any_ground():
    assert verdict(ring(math.inf, 0, 0)) == GOES
    one_row = np.full((1, 360), math.inf)
    one_row[0, 90:94] = 5.0  # something far, to tell the columns by
    assert verdict(clearance_of_cloud(rays(one_row, 0, 0, 1), CLOUD_CORRIDOR)) == GOES
    one_row[0, 175:186] = -math.inf
    assert verdict(clearance_of_cloud(rays(one_row, 0, 0, 1), CLOUD_CORRIDOR)) == STOPS


def test_what_is_too_near_behind_is_no_way_back():
    near = np.full((12, 3), math.inf)  # to the front: free ahead, or too near behind
    both = cloud(np.concatenate([floor(), near]))
    assert clearance_of_cloud(cloud(floor()), CLOUD_CORRIDOR).behind_m == pytest.approx(4.0, abs=0.1)
    assert clearance_of_cloud(both, CLOUD_CORRIDOR).behind_m == 0.0


@pytest.mark.parametrize(
    "points",
    [
        np.full((12, 3), -math.inf),
        np.column_stack([np.full(12, -math.inf), np.full(12, math.nan), np.full(12, math.nan)]),
        np.column_stack([np.full(12, -math.inf), np.full(12, math.inf), np.full(12, -math.inf)]),
    ],
)
def test_in_a_cloud_without_an_order_infinity_to_the_rear_counts_as_too_near(points):
    """Livox, Unitree L1: one row, points as they came."""
    assert verdict(clearance_of_cloud(cloud(np.concatenate([floor(), points])), CLOUD_CORRIDOR)) == STOPS
    few = clearance_of_cloud(cloud(np.concatenate([floor(), points[:2]])), CLOUD_CORRIDOR)
    assert verdict(few) == GOES  # a speck


def test_a_depth_camera_s_cloud_sees_free_space_to_its_right_as_free():
    azimuths = np.radians(np.linspace(40, -40, 64))
    ranges = np.full((8, 64), math.inf)
    ranges[:3] = 2.0
    assert verdict(clearance_of_cloud(rays(ranges, azimuths=azimuths), CLOUD_CORRIDOR)) == GOES
    ranges[:, 28:36] = -math.inf
    assert verdict(clearance_of_cloud(rays(ranges, azimuths=azimuths), CLOUD_CORRIDOR)) == STOPS


def test_a_cloud_that_sees_no_floor_in_a_part_of_the_way_is_not_free_there():
    ground = floor()
    bearing = np.degrees(np.arctan2(ground[:, 1], ground[:, 0] + 0.25))
    hole = ground[~((bearing > 5) & (bearing < 30))]
    assert verdict(clearance_of_cloud(cloud(ground), CLOUD_CORRIDOR)) == GOES
    seen = clearance_of_cloud(cloud(hole), CLOUD_CORRIDOR)
    assert verdict(seen) == STOPS and seen.unseen.startswith("cloud measures nothing")
