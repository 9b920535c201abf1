"""The RViz and Foxglove layouts in config/ show topics and fields that exist, and every panel has its place."""

import json
import re
from pathlib import Path

import pytest
import yaml

pytest.importorskip("spec_vlm_nav_interfaces.msg", reason="the interface package is not built")

from geometry_msgs.msg import Twist
from nav_msgs.msg import Odometry
from sensor_msgs.msg import CompressedImage, Image
from spec_vlm_nav_interfaces.msg import DecisionMetrics, MotionStatus
from std_msgs.msg import Empty, String

CONFIG = Path(__file__).resolve().parents[2] / "config"
TOPICS = {
    "/camera/image_raw": Image,
    "/camera/image_raw/compressed": CompressedImage,
    "/odom": Odometry,
    "/cmd_vel": Twist,
    "/instruction": String,
    "/motion_status": MotionStatus,
    "/vlm_nav_node/action": String,
    "/vlm_nav_node/cancel": Empty,
    "/vlm_nav_node/metrics": DecisionMetrics,
    "/vlm_nav_node/reasoning": String,
}


def foxglove():
    return json.loads((CONFIG / "foxglove/navigation.json").read_text())


def panels(tree):
    return [tree] if isinstance(tree, str) else panels(tree["first"]) + panels(tree["second"])


def test_every_foxglove_panel_is_placed_once_and_configured():
    layout = foxglove()
    assert sorted(panels(layout["layout"])) == sorted(layout["configById"])


def test_foxglove_paths_are_topics_and_fields_of_their_messages():
    paths = re.findall(r'"(/[\w/]+(?:\.[\w.]+)?)"', json.dumps(foxglove()))
    assert len(paths) >= 10
    for path in paths:
        topic, *fields = path.split(".")
        value = TOPICS[topic]()
        for field in fields:
            value = getattr(value, field)


def test_foxglove_publishes_messages_of_the_type_that_is_listened_to():
    published = [c for c in foxglove()["configById"].values() if "datatype" in c]
    assert len(published) == 2
    for config in published:
        kind = TOPICS[config["topicName"]]
        assert config["datatype"] == f"std_msgs/msg/{kind.__name__}"
        kind(**json.loads(config["value"]))


def test_rviz_displays_are_of_topics_that_exist_and_of_their_type():
    displays = yaml.safe_load((CONFIG / "rviz/navigation.rviz").read_text())["Visualization Manager"][
        "Displays"
    ]
    kinds = {
        d["Name"]: (d["Class"].rsplit("/", 1)[1], TOPICS[d["Topic"]["Value"]])
        for d in displays
        if "Topic" in d
    }
    assert kinds == {
        "Odometry": ("Odometry", Odometry),
        "Camera": ("Image", Image),
    }
