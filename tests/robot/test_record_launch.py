"""record.launch.py: the command line that it gives rosbag2, without launch, which is not on PyPI."""

import runpy
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from spec_vlm_nav.common.errors import ParameterError
from specnav.record.types import is_wanted

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "config"
MODULES = {
    "launch": ("LaunchContext", "LaunchDescription", "LaunchDescriptionEntity"),
    "launch.actions": ("DeclareLaunchArgument", "ExecuteProcess", "OpaqueFunction"),
    "launch.substitutions": ("LaunchConfiguration",),
}


@pytest.fixture
def recording(monkeypatch):
    """The file's functions; launch itself is replaced by empty classes."""
    for name, classes in MODULES.items():
        module = ModuleType(name)
        for one in classes:
            setattr(module, one, type(one, (), {}))
        monkeypatch.setitem(sys.modules, name, module)
    return runpy.run_path(str(ROOT / "launch" / "record.launch.py"))


def given(recording, **others):
    return {name: default for name, (default, *_) in recording["ARGUMENTS"].items()} | others


def test_every_default_is_one_of_the_choices(recording):
    for default, text, *choices in recording["ARGUMENTS"].values():
        assert text.endswith(".") and all(default in some for some in choices)


def test_the_command_line_is_rosbag2_s(recording):
    command = recording["record_command"](given(recording, out="kitchen", use_sim_time="true"))
    assert command[:12] == [
        "ros2", "bag", "record", "--storage", "mcap", "--output", "kitchen",
        "--max-bag-size", "1000000000", "--max-bag-duration", "600", "--use-sim-time",
    ]  # fmt: skip
    assert all(topic.startswith("/") for topic in command[12:])
    plain = recording["record_command"](given(recording, max_size_mb="0", max_duration_s="0"))
    assert not any(word.startswith(("--max", "--output", "--use")) for word in plain)


def test_a_limit_below_one_is_a_limit(recording):
    command = recording["record_command"](given(recording, max_size_mb="0.5", max_duration_s="0.5"))
    assert command[command.index("--max-bag-size") + 1] == "500000"
    assert command[command.index("--max-bag-duration") + 1] == "1"


@pytest.mark.parametrize("said", ["abc", "", "-5", "nan", "inf", "1e400"])
@pytest.mark.parametrize("argument", ["max_size_mb", "max_duration_s"])
def test_a_limit_that_is_no_number_from_0_is_refused(recording, argument, said):
    with pytest.raises(ParameterError, match=f"{argument} must be a number from 0"):
        recording["record_command"](given(recording, **{argument: said}))


def test_what_replay_and_rviz_need_is_recorded(recording):
    topics = recording["topics"](given(recording))
    layout = yaml.safe_load((CONFIG / "rviz/navigation.rviz").read_text())
    shown = {d["Topic"]["Value"] for d in layout["Visualization Manager"]["Displays"] if "Topic" in d}
    raw = recording["topics"](given(recording, image_transport="raw"))
    assert shown <= {*topics, *raw}
    # replay: the only picture there is, instructions, and the decisions to compare with
    assert {"/camera/image_raw/compressed", "/instruction", "/vlm_nav_node/metrics"} <= set(topics)
    pictures = [t for t in recording["topics"](given(recording)) if "image" in t]
    assert pictures == ["/camera/image_raw/compressed"]


def test_topics_are_those_that_the_black_box_hears(recording):
    heard = pytest.importorskip("spec_vlm_nav.ros.blackbox", reason="needs rclpy and interfaces")
    names = {"image": "camera/image_raw/compressed"}
    topics = set(recording["topics"](given(recording, namespace="one")))
    for one in heard.heard_topics("compressed", False, "none"):
        name = names.get(one.name, one.name)
        if name == heard.SPORT:
            continue  # outside the namespace, and only with unitree_api
        assert (name if name.startswith("/") else f"/one/{name}") in topics
        assert is_wanted(one.name, heard.type_name(one.kind)), f"specnav record leaves {one.name} out"


@pytest.mark.parametrize("namespace", ["one", "/one", "/one/"])
def test_names_are_in_the_namespace_unless_they_are_global(recording, namespace):
    topics = recording["topics"](given(recording, namespace=namespace, odom="/utlidar/robot_odom"))
    assert {"/one/cmd_vel", "/one/vlm_nav_node/metrics", "/utlidar/robot_odom", "/tf", "/diagnostics"} <= set(
        topics
    )
    assert "/one/tf" not in topics and len(topics) == len(set(topics))
