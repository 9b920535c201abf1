"""`specnav record` beside real publishers: what is heard is in the file, whichever way it ends."""

from __future__ import annotations

import array
import signal
import time

import pytest
from geometry_msgs.msg import Twist
from nav_msgs.msg import Odometry
from sensor_msgs.msg import CompressedImage, Image
from spec_vlm_nav_interfaces.msg import DecisionMetrics, MotionCommand
from std_msgs.msg import String

from specnav.bags.contents import choose_image_topic, pictures, read_contents
from specnav.bags.source import open_bag
from specnav.errors import UsageError
from specnav.record.types import own_types
from specnav.replay.plan import VOCABULARY
from specnav.ros_node import checked_namespace
from tests.graph.harness import Graph

pytestmark = pytest.mark.graph

CAMERA = "camera/image_raw/compressed"
FRAMES = 20
BEST_EFFORT = frozenset({CAMERA})


@pytest.fixture
def graph(tmp_path_factory):
    with Graph(tmp_path_factory.mktemp("record")) as running:
        yield running


def start(graph, out, *arguments):
    return graph.start("record", "specnav.cli", "record", "--out", str(out), *arguments)


def publish(graph, topic, message, times=1):
    """Publish so often; the first time waits for somebody who listens."""
    for _ in range(times):
        graph.probe.say(topic, message, topic not in BEST_EFFORT)
        time.sleep(0.01)


def speak(graph):
    """What a robot and its nodes say in one decision, and what no caller wants."""
    for number in range(FRAMES):
        frame = CompressedImage(format="jpeg", data=array.array("B", bytes(range(200))))
        frame.header.stamp.sec, frame.header.stamp.nanosec = 12, number
        publish(graph, CAMERA, frame)
    publish(graph, "odom", Odometry())
    publish(graph, "cmd_vel", Twist(), 3)
    publish(graph, "instruction", String(data="find the lamp"))
    publish(graph, "vlm_nav_node/reasoning", String(data="I see it."))
    publish(graph, "vlm_nav_node/action", String(data="The next action is move forward 50 cm."))
    publish(graph, "motion_command", MotionCommand(text="forward 50"))
    metrics = DecisionMetrics(model_action="The next action is move forward 50 cm.", action="forward 50")
    metrics.frame_stamp.sec, metrics.frame_stamp.nanosec = 12, FRAMES // 2
    publish(graph, "vlm_nav_node/metrics", metrics)


def test_a_recording_ended_by_a_signal_holds_what_was_said(graph, tmp_path):
    """By SIGTERM; Ctrl-C raises the same exception (specnav.signals)."""
    out = tmp_path / "walk.mcap"
    recorder = start(graph, out)
    recorder.wait_for("recording into")
    speak(graph)
    time.sleep(0.3)
    assert not out.exists()
    assert recorder.end(signal.SIGTERM) == 0, recorder.text
    assert [path.name for path in tmp_path.iterdir()] == ["walk.mcap"]
    bag, types = open_bag(out), own_types()
    counts = {topic.name: topic.count for topic in bag.topics}
    assert counts.pop(f"/{CAMERA}") >= FRAMES - 2
    assert counts == {
        "/odom": 1, "/cmd_vel": 3, "/instruction": 1, "/vlm_nav_node/reasoning": 1, "/vlm_nav_node/action": 1,
        "/motion_command": 1, "/vlm_nav_node/metrics": 1,
    }  # fmt: skip
    image = choose_image_topic(bag, None)
    contents = read_contents(bag, types, image, VOCABULARY)
    assert contents.instructions[0][1] == "find the lamp" and contents.source == "metrics"
    assert next(pictures(bag, types, image, {0}))[1] == bytes(range(200))
    assert "walk.mcap: " in recorder.text and "Traceback" not in recorder.text


def test_named_topics_only_and_a_set_time(graph, tmp_path):
    out = tmp_path / "raw.mcap"
    graph.probe.listen(Odometry, "odom")
    recorder = start(graph, out, "camera/raw", "/never", "--duration", "4")
    recorder.wait_for("recording into")
    publish(
        graph, "camera/raw", Image(encoding="mono8", width=2, height=1, step=2, data=array.array("B", b"ab"))
    )
    publish(graph, "odom", Odometry())
    assert recorder.popen.wait(20) == 0
    assert [(topic.name, topic.count) for topic in open_bag(out).topics] == [("/camera/raw", 1)]
    assert "never appeared: /never" in recorder.text


def test_nothing_heard_writes_no_file(graph, tmp_path):
    recorder = start(graph, tmp_path / "x.mcap", "/nobody", "--duration", "1")
    assert recorder.popen.wait(20) == 1
    assert not list(tmp_path.iterdir())
    assert "no message was received: /nobody did not appear; no file was written" in recorder.text


@pytest.mark.parametrize("name", ["/camera//image", "a b", "", "/a/", "{x}"])
def test_a_topic_that_ros_refuses_is_refused_in_one_line(name):
    with pytest.raises(UsageError, match="not a valid ROS name") as refused:
        checked_namespace("", [name])
    assert "\n" not in str(refused.value)
    assert checked_namespace("robot1", ["odom", "/odom", "~/odom"]) == "/robot1"
