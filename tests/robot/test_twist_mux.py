"""config/twist_mux.yaml has the form that twist_mux reads, and its order of priorities is the safe one."""

from pathlib import Path

import pytest
import yaml

from spec_vlm_nav.motion.parameters import MOTION

FILE = Path(__file__).resolve().parents[2] / "config" / "twist_mux.yaml"
STAMPED = next(p.default for p in MOTION if p.name == "enable_stamped_cmd_vel")


@pytest.fixture
def parameters():
    (node,) = yaml.safe_load(FILE.read_text()).items()
    assert node[0].endswith("twist_mux")
    return node[1]["ros__parameters"]


def test_every_input_and_lock_has_what_twist_mux_asks_for(parameters):
    assert set(parameters) == {"use_stamped", "topics", "locks"}
    for entry in [*parameters["topics"].values(), *parameters["locks"].values()]:
        assert set(entry) == {"topic", "timeout", "priority"}
        assert isinstance(entry["topic"], str) and not entry["topic"].startswith("/")
        # rclcpp does not turn an integer into a double, nor the other way round.
        assert isinstance(entry["timeout"], float) and entry["timeout"] >= 0
        assert isinstance(entry["priority"], int) and 0 <= entry["priority"] <= 255


def test_the_joystick_goes_before_navigation_and_the_lock_before_both(parameters):
    topics, lock = parameters["topics"], parameters["locks"]["stop_lock"]
    assert topics["navigation"]["topic"] == "cmd_vel_nav" and topics["joystick"]["topic"] == "cmd_vel_joy"
    assert topics["navigation"]["priority"] < topics["joystick"]["priority"] < lock["priority"] == 255


def test_an_input_that_falls_silent_loses_its_say_soon(parameters):
    assert all(0 < entry["timeout"] <= 0.5 for entry in parameters["topics"].values())


def test_stamped_or_not_is_as_motion_node_publishes(parameters):
    assert parameters["use_stamped"] is STAMPED
