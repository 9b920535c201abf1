"""What a cloud of points shows of the way ahead; hostile, cut and empty ones are blind, and blind is not clear."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_vlm_nav.motion.ahead.cloud import Field, PointCloud, clearance_of_cloud
from spec_vlm_nav.motion.ahead.corridor import CloudConfig, CorridorConfig, Mounting
from tests.robot.clouds import CORRIDOR, cloud, floor

# The lidar of a Go2 as its public URDF has it, over a floor 0.32 m below base_link; and its body.
GO2 = CloudConfig(
    Mounting(0.28945, 0.0, 0.32 - 0.046825, 0.0, 2.8782, 0.0), front_m=0.38, rear_m=0.38, side_m=0.25
)


def post(x, y=0.0, low=-0.2, high=0.3, count=12):
    """Something thin that stands there."""
    return np.column_stack([np.full(count, x), np.full(count, y), np.linspace(low, high, count)])


def seen(*parts, config=CORRIDOR, **layout):
    return clearance_of_cloud(cloud(np.concatenate(parts), **layout), config)


def on_sensor(points, mounting):
    """Points over the floor below the robot's middle, as the sensor there sees them."""
    place = np.array([mounting.x, mounting.y, mounting.z])
    return (np.asarray(points) - place) @ mounting.rotation


# -- what is met


def test_open_floor_is_clear_and_a_post_is_as_far_as_it_is():
    assert seen(floor()).nearest_m == math.inf
    assert seen(floor(), post(0.8)).nearest_m == pytest.approx(0.8)
    assert seen(floor(), post(0.8)).blind == ""


@pytest.mark.parametrize(
    ("thing", "found"),
    [
        (post(0.6, y=0.24), 0.6),
        (post(0.6, y=-0.24), 0.6),
        (post(0.6, y=0.27), math.inf),  # beside the way
        (post(-0.6), math.inf),
        (post(0.6, low=-0.29, high=-0.24), math.inf),  # lies flat: floor
        (post(0.6, low=0.32, high=0.9), math.inf),  # passes over the robot
        (post(0.6, low=0.2, high=0.29), 0.6),
        (post(0.6, count=2), math.inf),  # a speck
    ],
)
def test_only_what_stands_on_the_way_counts(thing, found):
    assert seen(floor(), thing).nearest_m == pytest.approx(found)


def test_a_speck_before_a_thing_does_not_bring_it_nearer():
    assert seen(floor(), post(0.4, count=2), post(0.9)).nearest_m == pytest.approx(0.9)


def test_the_robot_s_own_legs_are_not_met_and_distances_count_from_its_front():
    config = replace(CORRIDOR, cloud=replace(CORRIDOR.cloud, front_m=0.4, rear_m=0.4, side_m=0.3))
    legs = [post(x, y) for x in (0.3, -0.3) for y in (0.15, -0.15)]
    assert seen(floor(), *legs, config=config).nearest_m == math.inf
    assert seen(floor(), *legs, post(0.9), config=config).nearest_m == pytest.approx(0.5)
    # Without its body in the parameters it would stand still for ever: that is the safe side.
    assert seen(floor(), *legs).nearest_m == pytest.approx(0.3)


@pytest.mark.slow
@given(
    x=st.floats(0.5, 3.0),
    y=st.floats(-0.24, 0.24),
    mounting=st.builds(
        Mounting, *[st.floats(-0.5, 0.5)] * 2, st.floats(0.05, 1.0), *[st.floats(-3.14, 3.14)] * 3
    ),
)
def test_a_post_is_found_however_the_sensor_is_mounted(x, y, mounting):
    config = CorridorConfig(cloud=CloudConfig(mounting, front_m=0.3, rear_m=0.3, side_m=0.2))
    world = np.concatenate([floor(z=0.0), post(x, y, low=0.1, high=0.5)])
    view = seen(on_sensor(world, mounting), config=config)
    assert view.blind == "" and view.nearest_m == pytest.approx(x - 0.3, abs=1e-3)


def test_the_lidar_of_a_go2_hangs_head_down_and_looks_forward():
    config = CorridorConfig(cloud=GO2)
    ahead, up = GO2.mounting.rotation @ [1.0, 0.0, 0.0], GO2.mounting.rotation @ [0.0, 0.0, 1.0]
    assert ahead[0] < -0.9 and up[2] < -0.9  # its x points back, its z down
    world = np.concatenate([floor(z=0.0), post(1.0, low=0.1, high=0.5)])
    assert seen(on_sensor(world, GO2.mounting), config=config).nearest_m == pytest.approx(0.62, abs=1e-3)
    # Read as if it were mounted upright, its floor hangs in the air: never a clear way.
    wrong = CorridorConfig(cloud=replace(GO2, mounting=Mounting(0.28945, 0.0, 0.273)))
    view = seen(on_sensor(world, GO2.mounting), config=wrong)
    assert view.blind or view.nearest_m < 0.35


# -- the way back


def test_the_way_back_is_free_as_far_as_its_floor_is_seen():
    assert seen(floor(near=-1.5)).behind_m == pytest.approx(1.5, abs=0.1)
    assert seen(floor(near=-3.0), post(-0.8)).behind_m == pytest.approx(0.8)


def test_a_way_back_whose_floor_begins_behind_the_body_s_shadow_is_not_known():
    shadow = floor()
    shadow = shadow[~((shadow[:, 0] < 0) & (shadow[:, 0] > -1.0))]
    assert seen(shadow).behind_m == 0.0
    assert seen(floor(near=0.0)).behind_m == 0.0


# -- layouts


@pytest.mark.parametrize("kind", ["f4", "f8"])
@pytest.mark.parametrize("big_endian", [False, True])
@pytest.mark.parametrize(("rows", "pad"), [(1, 0), (4, 0), (4, 9)])
def test_any_layout_reads_alike(kind, big_endian, rows, pad):
    size = int(kind[1])
    offsets = (3, 5 + 2 * size, 4 + size)  # in any order, aligned to nothing
    shown = seen(
        floor(),
        post(0.8),
        kind=kind,
        offsets=offsets,
        step=9 + 4 * size,
        big_endian=big_endian,
        rows=rows,
        pad=pad,
    )
    assert shown.blind == "" and shown.nearest_m == pytest.approx(0.8)


def test_fields_of_two_kinds_and_a_missing_row_step_are_read():
    plain = cloud(np.concatenate([floor(), post(0.8)]))
    assert clearance_of_cloud(replace(plain, row_step=0), CORRIDOR).nearest_m == pytest.approx(0.8)
    points = np.concatenate([floor(), post(0.8)])
    packed = np.zeros(len(points), [("x", "<f4"), ("y", "<f8"), ("z", "<f4"), ("ring", "<u2")])
    packed["x"], packed["y"], packed["z"] = points.T
    fields = (Field("ring", 16, 4), Field("x", 0, 7), Field("y", 4, 8), Field("z", 12, 7, 0))
    mixed = PointCloud(fields, len(points), 1, 18, 18 * len(points), packed.tobytes())
    assert clearance_of_cloud(mixed, CORRIDOR).nearest_m == pytest.approx(0.8)


def test_holes_are_not_things_and_do_not_hide_one():
    holes = np.full((500, 3), math.nan)
    holes[::3], holes[::5] = 0.0, math.inf
    holes[1::9, 1] = 1e30
    assert seen(holes, floor()).nearest_m == math.inf
    assert seen(holes, floor(), post(0.8)).nearest_m == pytest.approx(0.8)


# -- blind, and why


@pytest.mark.parametrize(
    ("points", "said"),
    [
        (np.zeros((0, 3)), "is empty"),
        (np.zeros((400, 3)), "shows nothing ahead (0 points)"),
        (np.full((400, 3), math.nan), "shows nothing ahead (0 points)"),
        (floor(far=-0.5), "shows nothing ahead (0 points)"),
        (floor(z=1.0), "shows nothing ahead (0 points)"),  # a ceiling says nothing of the floor
        (floor(far=0.15)[:9], "shows nothing ahead"),
        (floor(z=-0.8), "under the floor"),
    ],
)
def test_a_cloud_without_anything_ahead_is_blind_and_not_clear(points, said):
    view = seen(points)
    assert said in view.blind and view.behind_m == 0.0


def test_reflections_under_the_floor_do_not_blind_it():
    under = floor(z=-1.0)[::3]
    assert seen(floor(), under, post(0.8)).nearest_m == pytest.approx(0.8)


@pytest.mark.parametrize("frame", ["odom", "map", "world", "robot1/odom", "/map"])
def test_a_cloud_in_a_frame_that_does_not_turn_with_the_robot_is_refused(frame):
    assert f"frame {frame}, which does not turn" in seen(floor(), frame=frame).blind
    assert seen(floor(), frame="base_link").blind == ""


GOOD = cloud(np.concatenate([floor(), post(0.8)]))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"fields": GOOD.fields[:2]}, "has 0 fields z"),
        ({"fields": (*GOOD.fields, GOOD.fields[0])}, "has 2 fields x"),
        ({"fields": (Field("x", 0, 5), *GOOD.fields[1:])}, "x of datatype 5: float32"),
        ({"fields": (Field("x", 9, 7), *GOOD.fields[1:])}, "x outside its points of 12 bytes"),
        ({"fields": (Field("x", 0, 7, 3), *GOOD.fields[1:])}, "x outside its points"),
        ({"fields": (Field("x", -4, 7), *GOOD.fields[1:])}, "x outside its points"),
        ({"point_step": 0}, "outside its points of 0 bytes"),
        ({"width": GOOD.width + 1}, "is cut short"),
        ({"data": GOOD.data[:-1]}, "is cut short"),
        ({"data": b""}, "is cut short"),
        ({"width": 2**32 - 1, "height": 2**32 - 1, "row_step": 2**62}, "is cut short"),
        ({"height": 2}, "is cut short"),
        ({"height": 2, "row_step": 11}, "in rows of 11 bytes"),
        ({"height": 0}, "is empty"),
        ({"width": 0, "height": 2**32 - 1}, "is empty"),
    ],
)
def test_a_broken_cloud_is_blind_with_the_reason(change, said):
    assert said in clearance_of_cloud(replace(GOOD, **change), CORRIDOR).blind


field = st.builds(
    Field,
    st.sampled_from(["x", "y", "z", "x", "y", "z", "rgb", ""]),
    st.integers(0, 40),
    st.sampled_from([7, 8, 7, 8, 0, 2, 99]),
    st.integers(0, 2),
)


@pytest.mark.slow
@given(
    fields=st.lists(field, max_size=5).map(tuple),
    size=st.tuples(*[st.integers(0, 20)] * 2, *[st.integers(0, 60)] * 2),
    data=st.binary(max_size=600),
    big_endian=st.booleans(),
)
def test_whatever_a_message_holds_is_a_view(fields, size, data, big_endian):
    with np.errstate(all="raise", under="ignore"):
        view = clearance_of_cloud(PointCloud(fields, *size, data, big_endian), CORRIDOR)
    assert not math.isnan(view.nearest_m) and math.isfinite(view.behind_m)


@pytest.mark.slow
@given(data=st.binary(min_size=240, max_size=2400), kind=st.sampled_from([(7, 4), (8, 8)]))
def test_whatever_the_numbers_are_it_is_a_view(data, kind):
    datatype, size = kind
    fields = tuple(Field(name, size * i, datatype) for i, name in enumerate("xyz"))
    count = len(data) // (3 * size)
    with np.errstate(all="raise", under="ignore"):
        view = clearance_of_cloud(PointCloud(fields, count, 1, 3 * size, 0, data), CORRIDOR)
    assert not math.isnan(view.nearest_m) and math.isfinite(view.behind_m)
