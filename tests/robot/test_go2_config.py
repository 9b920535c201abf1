"""The files of go2_bringup: values that their nodes take, alone and together, and XML that names the interface."""

import ast
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from spec_vlm_nav.common.parameters import check_all
from spec_vlm_nav.motion.ahead.corridor import Mounting
from spec_vlm_nav.motion.parameters import MOTION, check_motion, corridor_config
from spec_vlm_nav.parameters.nodes import tables
from spec_vlm_nav.robot.parameters import check_go2

ROOT = Path(__file__).resolve().parents[2]
CONFIG, LAUNCH = ROOT / "config", ROOT / "launch" / "go2_bringup.launch.py"
FILES = sorted(path.name for path in CONFIG.glob("go2*.yaml"))


def sections(name):
    content = yaml.safe_load((CONFIG / name).read_text())
    return {node.removeprefix("/**/"): part["ros__parameters"] for node, part in content.items()}


@pytest.mark.parametrize("name", FILES)
def test_each_file_holds_allowed_values_of_nodes_that_exist(name):
    for node, values in sections(name).items():
        check_all(tables()[node], values)


@pytest.mark.parametrize("lidar", ["base", "raw"])
def test_with_the_robot_s_parameters_they_do_not_contradict_each_other(lidar):
    values = {p.name: p.default for p in MOTION}
    for name in ("go2_bringup.yaml", f"go2_lidar_{lidar}.yaml", "go2_obstacles_avoid.yaml", "robot.yaml"):
        values |= sections(name)["motion_node"]
    check_motion({**values, "motion_backend": "auto"})
    assert values["collision_source"] == "cloud" and values["robot_state_timeout_s"] == 1.0
    mounting = corridor_config(values).cloud.mounting
    if lidar == "base":
        assert mounting == Mounting(z=0.32)
    else:
        base_link_m = 0.32
        assert mounting == Mounting(0.28945, 0.0, pytest.approx(base_link_m - 0.046825), 0.0, 2.8782, 0.0)
    state = {p.name: p.default for p in tables()["go2_state_node"]} | sections("go2_bringup.yaml")[
        "go2_state_node"
    ]
    check_go2(state)


def test_the_xml_of_cyclonedds_takes_its_interface_from_the_environment():
    (interface,) = ElementTree.parse(CONFIG / "cyclonedds.xml").iter(
        "{https://cdds.io/config}NetworkInterface"
    )
    assert interface.get("name") == "${GO2_INTERFACE}"


def test_the_launch_file_names_files_and_nodes_that_exist():
    text = LAUNCH.read_text()
    ast.parse(text)
    named = set(re.findall(r'"(go2\w*\.yaml|\w+\.xml)"', text.replace("'", '"')))
    named |= {f"go2_lidar_{lidar}.yaml" for lidar in ("base", "raw")}
    assert named == {*FILES, "cyclonedds.xml"} - {"go2.yaml"}  # that is go2.launch.py's
    setup = (ROOT / "ros2_ws/src/spec_vlm_nav/setup.py").read_text()
    started = re.findall(r'"(\w+_node)"', (LAUNCH.parent / "go2.launch.py").read_text())
    assert {"motion_node", "vlm_nav_node", "go2_state_node"} <= set(started)
    for node in started:
        assert f'"{node} = ' in setup
