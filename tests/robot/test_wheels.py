"""A mission's own motions, as messages: they depend on the camera, and on no verifier."""

from types import SimpleNamespace

import pytest

pytest.importorskip("rclpy", reason="no ROS 2 here")
pytest.importorskip("spec_vlm_nav_interfaces.msg", reason="the interface package is not built")

from builtin_interfaces.msg import Time
from spec_vlm_nav_interfaces.msg import Supervision

from spec_vlm_nav.common.codes import LinkState
from spec_vlm_nav.missions.driving import Turn
from spec_vlm_nav.ros.missions import CourseDriver


class Node:
    """Keeps what is published, by topic."""

    def __init__(self):
        self.said = {}

    def create_publisher(self, kind, topic, qos):
        return SimpleNamespace(publish=self.said.setdefault(topic, []).append)

    def create_subscription(self, *arguments):
        pass

    def create_timer(self, *arguments, **named):
        pass

    def get_clock(self):
        return SimpleNamespace(now=lambda: SimpleNamespace(to_msg=Time))


@pytest.mark.parametrize("link", list(LinkState))
def test_a_sign_of_life_tells_the_cameras_age_and_nothing_of_the_link(link):
    node = Node()
    wheels = CourseDriver(node, lambda: None)
    wheels._on_supervision(Supervision(session=5, camera_age_s=0.2, verifier_age_s=3.0, link=link.value))
    wheels.drive(Turn(1.0), lambda code, words: None)
    (life,) = node.said["supervision"]
    assert life.link == LinkState.UNKNOWN.value and life.verifier_age_s < 0
    assert 0.2 <= life.camera_age_s < 1.0 and life.session not in (0, 5)
