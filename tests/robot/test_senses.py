"""What motion_node hears besides commands, from ROS messages to records."""

import math

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="no ROS 2 here")
pytest.importorskip("spec_vlm_nav_interfaces.msg", reason="the interface package is not built")

from sensor_msgs.msg import Image, LaserScan
from spec_vlm_nav_interfaces.msg import Supervision as SupervisionMessage

from spec_vlm_nav.collision import CorridorConfig, DepthImage, view_of_depth, view_of_scan
from spec_vlm_nav.decider import LinkHealth
from spec_vlm_nav.nodes.senses import depth_of, scan_of, supervision_of
from spec_vlm_nav.watchdogs import Supervision


def test_a_sign_of_life_keeps_its_ages_and_an_unknown_link_state_counts_as_lost():
    message = SupervisionMessage(session=2**63, camera_age_s=0.25, verifier_age_s=-1.0, link_rtt_ms=40.0)
    message.link = SupervisionMessage.LINK_UP
    assert supervision_of(message) == Supervision(2**63, 0.25, -1.0, LinkHealth.UP, 40.0)
    assert supervision_of(SupervisionMessage(link=99)).link is LinkHealth.LOST


def test_a_scan_message_shows_what_is_ahead_of_it():
    message = LaserScan(angle_min=-1.0, angle_increment=0.01, range_min=0.1, range_max=10.0)
    message.ranges = [2.0] * 95 + [0.25] * 10 + [2.0] * 95
    assert view_of_scan(scan_of(message), CorridorConfig()).nearest_m == pytest.approx(0.25, abs=0.01)
    message.ranges = [math.nan] * 200
    assert view_of_scan(scan_of(message), CorridorConfig()).blind


@pytest.mark.parametrize("big", [0, 1])
def test_a_depth_message_keeps_its_layout_and_byte_order(big):
    pixels = np.full((20, 30), 500, ">u2" if big else "<u2")
    message = Image(encoding="16UC1", width=30, height=20, step=60, is_bigendian=big, data=pixels.tobytes())
    assert depth_of(message) == DepthImage("16UC1", 30, 20, 60, pixels.tobytes(), bool(big))
    assert view_of_depth(depth_of(message), CorridorConfig()).nearest_m == pytest.approx(0.5)
