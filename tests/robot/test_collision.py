"""What a laser scan or a depth image shows of the way ahead; broken ones show nothing, and nothing is not clear."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_vlm_nav.motion.ahead.cloud import PointCloud, clearance_of_cloud
from spec_vlm_nav.motion.ahead.collision import Clearance
from spec_vlm_nav.motion.ahead.corridor import CorridorConfig
from spec_vlm_nav.motion.ahead.ranges import DepthImage, Scan, clearance_of_depth, clearance_of_scan
from tests.robot.scans import CORRIDOR, depth, ray, room, scan

CLEAR = Clearance()
CLEAR_ROUND = Clearance(behind_m=math.inf)  # of a sensor that looks back as well


def with_thing(distance, degrees, width=10, value=None):
    ranges = np.full(720, np.inf, np.float32)
    first = ray(degrees) - width // 2
    ranges[first : first + width] = distance if value is None else value
    return scan(ranges)


# -- scan


def test_open_space_is_clear_and_a_wall_is_as_far_as_it_is():
    assert clearance_of_scan(scan(), CORRIDOR) == CLEAR_ROUND
    angles = np.radians(np.arange(720) / 2 - 180)
    with np.errstate(divide="ignore"):
        wall = np.where(np.cos(angles) > 0.01, 0.8 / np.cos(angles), np.inf)
    assert clearance_of_scan(scan(wall), CORRIDOR).nearest_m == pytest.approx(0.8, abs=1e-3)


@pytest.mark.parametrize(
    ("distance", "degrees", "found"),
    [
        (0.3, 0, 0.3),
        (0.3, 45, 0.21),  # inside: 0.21 m aside
        (0.5, 45, math.inf),  # passes: 0.35 m aside
        (0.3, 90, math.inf),
        (0.3, 180, math.inf),
        (0.3, -45, 0.21),
    ],
)
def test_only_what_stands_in_the_corridor_counts(distance, degrees, found):
    view = clearance_of_scan(with_thing(distance, degrees, width=3), CORRIDOR)
    assert view.blind == "" and view.nearest_m == pytest.approx(found, abs=0.01)


def test_a_speck_is_nothing_and_enough_rays_are_a_thing():
    assert clearance_of_scan(with_thing(0.2, 0, width=2), CORRIDOR) == CLEAR_ROUND
    assert clearance_of_scan(with_thing(0.2, 0, width=3), CORRIDOR).nearest_m == pytest.approx(0.2, abs=0.01)


def test_a_speck_before_a_thing_does_not_bring_it_nearer():
    both = with_thing(0.5, 0, width=40)
    both.ranges[ray(0) : ray(0) + 2] = 0.2
    assert clearance_of_scan(both, CORRIDOR).nearest_m == pytest.approx(0.5, abs=0.02)


def test_a_laser_mounted_backwards_is_turned_by_its_parameter():
    backwards = CorridorConfig(scan_yaw_rad=math.pi)
    assert clearance_of_scan(with_thing(0.3, 170, width=10), backwards).nearest_m < 0.35
    seen = clearance_of_scan(with_thing(0.3, 0), backwards)
    assert (seen.nearest_m, seen.behind_m) == (math.inf, pytest.approx(0.3, abs=0.01))


def test_a_scan_all_round_tells_what_is_behind_and_one_that_looks_ahead_does_not():
    assert clearance_of_scan(with_thing(0.6, 178), CORRIDOR).behind_m == pytest.approx(0.6, abs=0.01)
    front = Scan(np.full(181, np.inf, np.float32), -math.pi / 2, math.pi / 180, 0.05)
    assert clearance_of_scan(front, CORRIDOR) == CLEAR


@pytest.mark.parametrize("nothing", [math.nan, 0.0, -1.0])
def test_rays_that_measured_nothing_are_not_clear(nothing):
    assert clearance_of_scan(scan(np.full(720, nothing)), CORRIDOR).blind == "scan measures nothing ahead"
    some = np.full(720, nothing)
    some[::4] = 2.0
    view = clearance_of_scan(scan(some), CORRIDOR)
    assert view.blind == "" and view.nearest_m == pytest.approx(2.0, abs=0.1)


def test_a_scan_that_looks_elsewhere_or_has_no_rays_is_blind():
    behind = Scan(np.full(90, 3.0), math.pi - 0.5, 0.01, 0.05)
    assert clearance_of_scan(behind, CORRIDOR).blind == "scan does not look ahead"
    assert clearance_of_scan(scan(np.array([])), CORRIDOR).blind == "scan without rays"
    assert clearance_of_scan(Scan(np.full(9, 3.0), math.nan, 0.1, 0.05), CORRIDOR).blind
    assert clearance_of_scan(Scan(np.full(9, 3.0), 0.0, 0.0, 0.05), CORRIDOR).blind == "scan without angles"


@pytest.mark.slow
@given(
    ranges=st.lists(st.floats(width=32), max_size=60),
    header=st.tuples(*[st.floats(width=32)] * 3),
)
def test_whatever_a_scan_holds_is_a_view(ranges, header):
    with np.errstate(all="raise", under="ignore"):
        view = clearance_of_scan(Scan(np.array(ranges, np.float32), *header), CORRIDOR)
    assert not math.isnan(view.nearest_m)


# -- depth


@pytest.mark.parametrize("encoding", ["16UC1", "32FC1"])
@pytest.mark.parametrize("big_endian", [False, True])
@pytest.mark.parametrize("extra", [0, 12])
def test_a_thing_in_the_middle_is_found_whatever_the_layout(encoding, big_endian, extra):
    metres = room()
    metres[20:28, 30:34] = 0.3
    view = clearance_of_depth(depth(metres, encoding, big_endian, extra), CORRIDOR)
    assert view.blind == "" and view.nearest_m == pytest.approx(0.3)
    assert clearance_of_depth(depth(room(), encoding, big_endian, extra), CORRIDOR).nearest_m > 3.9


def test_what_is_beside_the_corridor_above_or_below_the_band_does_not_count():
    metres = room()
    metres[:, :6] = 0.4  # at the edge of 86 degrees: 0.3 m aside
    metres[:18], metres[30:] = 0.2, 0.2
    assert clearance_of_depth(depth(metres), CORRIDOR).nearest_m > 3.9
    whole = CorridorConfig(depth_band=1.0)
    assert clearance_of_depth(depth(metres), whole).nearest_m == pytest.approx(0.2)


def test_left_and_right_of_a_depth_image_are_alike():
    for columns in (slice(24, 27), slice(37, 40)):
        metres = room()
        metres[20:28, columns] = 0.3
        assert clearance_of_depth(depth(metres), CORRIDOR).nearest_m == pytest.approx(0.3)


def test_specks_and_holes_do_not_stop_but_an_image_of_holes_is_blind():
    metres = room()
    metres[24, 32:34] = 0.2
    metres[::2] = 0.0
    assert clearance_of_depth(depth(metres), CORRIDOR).nearest_m > 3.9
    for nothing in (0.0, math.nan):
        blind = clearance_of_depth(depth(room(nothing), "32FC1"), CORRIDOR)
        assert blind.blind == "depth image measures nothing ahead"
    assert clearance_of_depth(depth(room(math.inf), "32FC1"), CORRIDOR) == CLEAR


@pytest.mark.parametrize(
    ("image", "said"),
    [
        (DepthImage("rgb8", 4, 4, 12, bytes(48)), "encoding 'rgb8'"),
        (DepthImage("16UC1", 4, 4, 8, bytes(31)), "cut short"),
        (DepthImage("16UC1", 4, 4, 7, bytes(64)), "rows of 7 bytes"),
        (DepthImage("16UC1", 0, 4, 8, bytes(64)), "0x4"),
        (DepthImage("32FC1", 4, 0, 16, b""), "4x0"),
    ],
)
def test_a_broken_depth_image_is_blind_with_a_reason(image, said):
    assert said in clearance_of_depth(image, CORRIDOR).blind


def test_foreign_words_in_a_reason_are_one_line_of_a_fair_length():
    words = "x\n\x1b[2J" * 1000
    for view in (
        clearance_of_depth(DepthImage(words, 4, 4, 12, bytes(48)), CORRIDOR),
        clearance_of_cloud(PointCloud((), 1, 1, 12, 12, bytes(12), frame=f"{words}/map"), CORRIDOR),
    ):
        assert view.blind.isprintable() and len(view.blind) < 500


@given(
    data=st.binary(max_size=64), width=st.integers(0, 9), height=st.integers(0, 9), step=st.integers(0, 40)
)
@pytest.mark.slow
def test_whatever_a_depth_image_holds_is_a_view(data, width, height, step):
    for encoding in ("16UC1", "32FC1"):
        view = clearance_of_depth(DepthImage(encoding, width, height, step, data), CORRIDOR)
        assert not math.isnan(view.nearest_m)
