"""What motion_node hears besides commands, from ROS messages to records."""

import math

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="no ROS 2 here")
pytest.importorskip("spec_vlm_nav_interfaces.msg", reason="the interface package is not built")

from rclpy.serialization import serialize_message
from sensor_msgs.msg import Image, LaserScan, PointCloud2, PointField
from spec_vlm_nav_interfaces.msg import Supervision as SupervisionMessage

from spec_vlm_nav.common.codes import LinkState
from spec_vlm_nav.motion.ahead.cloud import Field, PointCloud
from spec_vlm_nav.motion.ahead.corridor import CloudConfig, CorridorConfig, Mounting
from spec_vlm_nav.motion.ahead.ranges import DepthImage, clearance_of_depth, clearance_of_scan
from spec_vlm_nav.motion.watchdogs import Supervision
from spec_vlm_nav.ros.collision_sensor import clearance_of_bytes, cloud_of, depth_of, scan_of
from spec_vlm_nav.ros.messages import supervision_of


def test_a_sign_of_life_keeps_its_ages_and_an_unknown_link_state_counts_as_lost():
    message = SupervisionMessage(session=2**63, camera_age_s=0.25, verifier_age_s=-1.0, link_rtt_ms=40.0)
    message.link = SupervisionMessage.LINK_UP
    assert supervision_of(message) == Supervision(2**63, 0.25, -1.0, LinkState.UP, 40.0)
    assert supervision_of(SupervisionMessage(link=99)).link is LinkState.LOST


def test_a_scan_message_shows_what_is_ahead_of_it():
    message = LaserScan(angle_min=-1.0, angle_increment=0.01, range_min=0.1, range_max=10.0)
    message.ranges = [2.0] * 95 + [0.25] * 10 + [2.0] * 95
    assert clearance_of_scan(scan_of(message), CorridorConfig()).nearest_m == pytest.approx(0.25, abs=0.01)
    message.ranges = [math.nan] * 200
    assert clearance_of_scan(scan_of(message), CorridorConfig()).blind


@pytest.mark.parametrize("big", [0, 1])
def test_a_depth_message_keeps_its_layout_and_byte_order(big):
    pixels = np.full((20, 30), 500, ">u2" if big else "<u2")
    message = Image(encoding="16UC1", width=30, height=20, step=60, is_bigendian=big, data=pixels.tobytes())
    assert depth_of(message) == DepthImage("16UC1", 30, 20, 60, pixels.tobytes(), bool(big))
    assert clearance_of_depth(depth_of(message), CorridorConfig()).nearest_m == pytest.approx(0.5)


def cloud_message():
    """A floor ahead, and a post 1.5 m from the robot's middle."""
    points = [(x / 10, y / 10, -0.3) for x in range(5, 40) for y in range(-9, 10)]
    points += [(1.5, 0.0, z / 20) for z in range(-4, 8)]
    data = np.asarray(points, "<f4")
    message = PointCloud2(height=1, width=len(data), point_step=12, row_step=12 * len(data))
    message.fields = [PointField(name=n, offset=4 * i, datatype=7, count=1) for i, n in enumerate("xyz")]
    message.data, message.header.frame_id = data.tobytes(), "base_link"
    return message


def test_a_cloud_message_keeps_its_fields_steps_and_frame():
    message = cloud_message()
    record = cloud_of(message)
    assert (record.fields[2], record.frame, record.big_endian) == (Field("z", 8, 7, 1), "base_link", False)
    assert (record.width, record.height, record.point_step) == (message.width, 1, 12)
    assert bytes(record.data) == bytes(message.data) and isinstance(record, PointCloud)


def test_bytes_of_each_sensor_become_what_they_show_and_any_others_are_blind():
    config = CorridorConfig(cloud=CloudConfig(Mounting(z=0.3), front_m=0.4))
    assert clearance_of_bytes("cloud", serialize_message(cloud_message()), config).nearest_m == pytest.approx(
        1.1
    )
    scan = LaserScan(angle_min=-1.0, angle_increment=0.01, range_min=0.1, range_max=9.0, ranges=[2.0] * 200)
    assert clearance_of_bytes("scan", serialize_message(scan), config).nearest_m == pytest.approx(
        1.94, abs=0.1
    )
    pixels = np.full((20, 30), 500, "<u2").tobytes()
    depth = Image(encoding="16UC1", width=30, height=20, step=60, data=pixels)
    assert clearance_of_bytes("depth", serialize_message(depth), config).nearest_m == pytest.approx(0.5)
    for source in ("scan", "depth", "cloud"):
        for data in (b"", b"\x00\x01\x00\x00", b"\xff" * 40):
            assert clearance_of_bytes(source, data, config).blind
