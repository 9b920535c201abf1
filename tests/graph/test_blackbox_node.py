"""blackbox_node beside made-up speakers: files appear when they should, hold what was said, and can be replayed.

Two nodes for all tests, one hears a compressed camera in a namespace of its own, the other a raw one.
"""

from __future__ import annotations

import array
import itertools
import json
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
from geometry_msgs.msg import Twist
from nav_msgs.msg import Odometry
from sensor_msgs.msg import CompressedImage, Image
from spec_vlm_nav_interfaces.msg import DecisionMetrics, MotionStatus, RobotState
from std_msgs.msg import Bool, Empty, String
from std_srvs.srv import Trigger

from spec_vlm_nav.camera.images import decode
from specnav.bags.contents import pictures
from specnav.bags.source import open_bag
from specnav.blackbox.files import read_file
from specnav.replay.config import ReplayConfig
from specnav.replay.run import read_bag
from specnav.supervise.probe import Probe
from tests.bags.made_up import encoded
from tests.graph.harness import Graph, ros_args, wait_until

pytestmark = pytest.mark.graph

FORWARD = "The next action is move forward 50 cm."
AFTER_S, GAP_S = 0.6, 1.0
NODE = "spec_vlm_nav.ros.nodes.blackbox_node"


class Robot:
    """What the nodes of a robot say, made up; and what the black box writes about it."""

    def __init__(self, graph, process, folder: Path, namespace: str) -> None:
        self.graph, self.process, self.folder, self.namespace = graph, process, folder, namespace
        self._numbers = itertools.count(1)
        self._seen: set[Path] = set()

    def say(self, topic, message, reliable=True):
        self.graph.probe.say(f"{self.namespace}{topic}", message, reliable)

    def status(self, state, sequence, **more):
        self.say("motion_status", MotionStatus(session=1, sequence=sequence, state=state, **more))

    def walk(self, frames=5):
        """Some frames, a decision for every other one."""
        for number in range(frames):
            seconds = next(self._numbers)
            frame = CompressedImage(format="jpeg", data=array.array("B", encoded(seconds)))
            frame.header.stamp.sec = seconds
            self.say("image", frame, reliable=False)
            self.say("odom", Odometry(), reliable=False)
            self.say("cmd_vel", Twist())
            if number % 2 == 0:
                said = DecisionMetrics(
                    model_action=FORWARD, action="forward 50", instruction_text="find the lamp"
                )
                said.frame_stamp.sec = seconds
                self.say("vlm_nav_node/metrics", said)
            time.sleep(0.02)

    def next_file(self) -> Path:
        """The file that appears next, whole."""
        new: list[Path] = []

        def there() -> bool:
            new[:] = [path for path in self.folder.glob("*.mcap") if path not in self._seen]
            return bool(new)

        wait_until(there, 10, "a black-box file", lambda: self.process.text)
        self._seen.update(new)
        assert len(new) == 1
        return new[0]

    def counts(self, path):
        """Messages by topic; what the node says of itself left out."""
        return {t.name: t.count for t in open_bag(path).topics if t.name != "/diagnostics"}


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    with Graph(tmp_path_factory.mktemp("blackbox")) as running:
        yield running


def start(graph, name, folder, *more, **parameters):
    bounds = {"after_s": AFTER_S, "min_gap_s": GAP_S, "keep_s": 20.0, "silence_s": 0.0, **parameters}
    return graph.start(name, NODE, *ros_args({"__ns": f"/{name}"}, folder=str(folder), **bounds), *more)


@pytest.fixture(scope="module")
def robots(graph, tmp_path_factory):
    folder = tmp_path_factory.mktemp("boxes")
    found = {}
    for name, transport in (("one", "compressed"), ("two", "raw")):
        process = start(graph, name, folder / name, image_transport=transport)
        found[name] = Robot(graph, process, folder / name, f"/{name}/")
    for robot in found.values():
        robot.process.wait_for("blackbox_node ready")
    return found


@pytest.fixture
def robot(robots):
    """The one with the compressed camera; nothing is waiting to be written."""
    found = robots["one"]
    assert found.process.is_up
    time.sleep(GAP_S)
    return found


def test_a_fault_is_written_with_what_was_before_and_after_and_can_be_replayed(robot):
    robot.say("instruction", String(data="find the lamp"))
    robot.status(MotionStatus.MOVING, 1)
    robot.walk()
    at = time.monotonic()
    for _ in range(3):  # the heartbeat repeats it
        robot.status(MotionStatus.NO_RESPONSE, 1, reason="no answer from the base", held_by="no response")
    robot.walk(2)
    assert not list(robot.folder.glob("*.mcap"))
    path = robot.next_file()
    assert time.monotonic() - at > AFTER_S and "NO_RESPONSE" in path.name
    assert [one.name for one in robot.folder.iterdir()] == [path.name]
    counts = robot.counts(path)
    assert counts["/one/image"] >= 6 and counts["/one/odom"] >= 6
    assert counts["/one/motion_status"] == 4 and counts["/one/instruction"] == 1
    assert counts["/one/vlm_nav_node/metrics"] == 4 and counts["/one/cmd_vel"] == 7
    about = read_file(path)
    assert [cause.word for cause in about.causes] == ["NO_RESPONSE"]
    assert about.instruction == "find the lamp"
    assert about.state == "NO_RESPONSE (command 1), no answer from the base, held by no response"
    # Every type is explained by the file itself.
    assert all(topic.definition for topic in open_bag(path).topics if topic.kind != "std_msgs/msg/Empty")
    bag, types, contents, plan = read_bag(ReplayConfig(path, every=99))
    assert not bag.warnings and contents.source == "metrics"
    assert len([task for task in plan.tasks if task.reference == "forward 50"]) >= 3
    assert next(pictures(bag, types, contents.image, {0}))[1] == encoded(1)


def test_buttons_of_any_qos_and_failed_instructions_join_one_file(robot):
    # Connected beforehand: all of it has to be said within AFTER_S.
    said = (Bool, "e_stop", False), (String, "vlm_nav_node/outcome", True), (Empty, "e_stop_reset", True)
    for kind, topic, reliable in (*said, (RobotState, "robot_state", False)):
        robot.graph.probe.open(kind, f"{robot.namespace}{topic}", reliable)
    robot.status(MotionStatus.MOVING, 10)
    robot.say("e_stop", Bool(data=True), reliable=False)
    robot.status(MotionStatus.ESTOPPED, 10, estopped=True, held_by="e-stop (topic e_stop)")
    robot.say(
        "vlm_nav_node/outcome",
        String(data=json.dumps({"instruction": 3, "code": "ESTOPPED", "message": "x"})),
    )
    robot.say("vlm_nav_node/outcome", String(data="no JSON"))
    statuses = robot.graph.probe.open(MotionStatus, f"{robot.namespace}motion_status")
    statuses.publish(b"\0\1\0\0" + b"\xff" * 200)
    robot.say("e_stop_reset", Empty())
    robot.say("robot_state", RobotState(ready=True, mode="standing"), reliable=False)
    path = robot.next_file()
    # Said at once on three topics: they may be heard in any order.
    assert sorted(cause.word for cause in read_file(path).causes) == ["ESTOP", "ESTOP", "FAILED_ESTOPPED"]
    counts = robot.counts(path)
    assert counts["/one/e_stop"] == counts["/one/e_stop_reset"] == counts["/one/robot_state"] == 1
    assert counts["/one/vlm_nav_node/outcome"] == 2
    assert counts["/one/motion_status"] >= 3  # the one that is not a message among them
    assert "vlm_nav_node/outcome: a message cannot be read: not JSON" in robot.process.text
    assert "/one/motion_status: a message cannot be read: " in robot.process.text


def test_what_follows_too_soon_waits_and_an_operator_may_ask(robot):
    probe = robot.graph.probe
    answer = probe.call(Trigger, "/one/blackbox_node/write", Trigger.Request())
    assert answer.success and str(robot.folder) in answer.message
    robot.next_file()
    first = time.monotonic()
    robot.status(MotionStatus.MOVING, 20)
    robot.status(MotionStatus.GEOFENCE, 20)
    assert "GEOFENCE" in robot.next_file().name
    assert time.monotonic() - first > 0.9 * GAP_S


def test_parameters_change_while_it_runs_and_contradictions_are_refused(robot):
    probe: Probe = robot.graph.probe
    probe.set_parameters("/one/blackbox_node", keep_s=30.0)
    with pytest.raises(Exception, match="disk_mb = 5 and memory_mb = 64 contradict each other"):
        probe.set_parameters("/one/blackbox_node", disk_mb=5)
    probe.set_parameters("/one/blackbox_node", memory_mb=4, disk_mb=4)
    noise = np.random.default_rng(0)
    for _ in range(3):
        for _ in range(8):
            frame = CompressedImage(format="jpeg", data=array.array("B", noise.bytes(400_000)))
            robot.say("image", frame, reliable=False)
            time.sleep(0.01)
        probe.call(Trigger, "/one/blackbox_node/write", Trigger.Request())
        time.sleep(AFTER_S + GAP_S)
    sizes = [path.stat().st_size for path in robot.folder.iterdir()]
    assert 0 < sum(sizes) <= 4_000_000 and max(sizes) > 1_000_000
    robot._seen.update(robot.folder.glob("*.mcap"))


def test_a_raw_camera_is_kept_as_jpeg_and_a_broken_picture_is_told(robots):
    robot = robots["two"]
    pixels = np.full((60, 80, 3), 200, np.uint8)
    shown = Image(encoding="rgb8", width=80, height=60, step=240, data=array.array("B", pixels.tobytes()))
    shown.header.stamp.sec = 5
    for _ in range(3):
        robot.say("image", shown, reliable=False)
        time.sleep(0.25)
    robot.say("image", Image(encoding="yuv422", width=8, height=8), reliable=False)
    robot.process.wait_for("camera picture not kept: camera encoding 'yuv422' is not supported", 5)
    robot.graph.probe.call(Trigger, "/two/blackbox_node/write", Trigger.Request())
    bag, types, contents, _ = read_bag(ReplayConfig(robot.next_file(), instruction="find the lamp"))
    assert contents.image.name == "/two/image/compressed" and len(contents.frames) >= 2
    jpeg = next(pictures(bag, types, contents.image, {0}))[1]
    assert decode(jpeg).size == (80, 60)


def test_a_folder_that_went_away_is_one_line_and_the_end_writes_what_waits(robots):
    robot = robots["two"]
    time.sleep(GAP_S)
    shutil.rmtree(robot.folder)
    robot.folder.write_text("in the way")
    robot.graph.probe.call(Trigger, "/two/blackbox_node/write", Trigger.Request())
    robot.process.wait_for("cannot write into", 5)
    assert robot.process.is_up and robot.process.text.count("cannot write into") == 1
    robot.folder.unlink()
    time.sleep(GAP_S)
    robot.graph.probe.call(Trigger, "/two/blackbox_node/write", Trigger.Request())
    assert robot.process.end() == 0
    assert len(list(robot.folder.glob("*-ASKED.mcap"))) == 1 and "Traceback" not in robot.process.text


def test_wrong_parameters_end_it_with_one_line(graph, tmp_path):
    (tmp_path / "file").write_text("")
    wrong = {
        "folder": start(graph, "folder", tmp_path / "file"),
        "gap": start(graph, "gap", tmp_path, min_gap_s=30.0),
    }
    said = {
        "folder": f"the folder {tmp_path / 'file'} cannot be used (File exists)",
        "gap": "min_gap_s = 30.0 and keep_s = 20 contradict each other",
    }
    for name, process in wrong.items():
        assert process.popen.wait(20) == 1
        assert said[name] in process.text and "Traceback" not in process.text
