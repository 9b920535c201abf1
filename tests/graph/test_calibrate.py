"""`specnav calibrate` on a graph: a late simulated robot that ignores zeros, and robots that cannot be calibrated."""

from __future__ import annotations

import random
import signal
import threading
import time

import pytest
import yaml
from geometry_msgs.msg import Twist, TwistStamped
from nav_msgs.msg import Odometry
from spec_vlm_nav_interfaces.msg import MotionStatus
from std_msgs.msg import Empty

from spec_vlm_nav.motion.command import OPERATOR_STOP
from specnav.supervise.robot_stack import CREEP
from tests.graph.bases import FakeBase
from tests.graph.harness import Graph, ros_args, wait_until

pytestmark = pytest.mark.graph
DELAY_S = 0.3
CALIBRATION_S = 60.0
FAST = ("--repetitions", "1", "--max-angular", "1.4", "--max-linear", "0.4")
FREE = {"seed": 14, "split": "train"}  # a room with more than a metre ahead of the robot


class StandingRobot:
    """Publishes the odometry of a robot that stands, whatever it is told; `hears` a command topic."""

    def __init__(self, graph, namespace, hears=True):
        node = graph.probe.node
        if hears:
            node.create_subscription(Twist, f"{namespace}/cmd_vel", lambda message: None, 10)
        self._publisher = node.create_publisher(Odometry, f"{namespace}/odom", 10)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        while not self._end.wait(0.03):
            message = Odometry()
            message.pose.pose.position.x = random.gauss(0.0, 0.0002)
            message.pose.pose.orientation.w = 1.0
            self._publisher.publish(message)

    def close(self):
        self._end.set()
        self._thread.join(2)


@pytest.fixture
def graph(tmp_path):
    with Graph(tmp_path) as running:
        yield running


@pytest.fixture
def stands_by():
    """Keeps a stand-in until the test has ended, however it ends."""
    kept = []

    def keep(robot):
        kept.append(robot)
        return robot

    yield keep
    for robot in kept:
        robot.close()


def calibrate(graph, *arguments, name="calibrate"):
    file = graph.folder / f"{name}.yaml"
    return graph.start(
        name, "specnav.cli", "calibrate", "--yes", "--out", str(file), *FAST, *arguments
    ), file


def complaint(process):
    lines = [line for line in process.text.splitlines() if line.startswith("specnav: error: ")]
    assert len(lines) == 1 and "Traceback" not in process.text, process.text
    return lines[0]


def speed_of(heard):
    fastest = max(abs(heard.message.linear.x), abs(heard.message.angular.z))
    return fastest if fastest > CREEP else 0.0


def test_a_late_robot_is_measured_while_others_that_cannot_be_are_named_and_stand(graph, stands_by):
    probe = graph.probe
    simulated = {"command_delay_s": DELAY_S, "drops_zeros": True, "odom_noise_m": 0.0002, **FREE}
    small = {"camera_rate": 0.2, "width": 32, "height": 32}
    simulator = graph.start("navsim", "navsim.ros_node", *ros_args(**simulated, **small))
    stands_by(StandingRobot(graph, "/dead"))
    for name in ("deaf", "stamped"):
        stands_by(StandingRobot(graph, f"/{name}", hears=False))
    probe.node.create_subscription(TwistStamped, "/stamped/cmd_vel", lambda message: None, 10)
    stands_by(FakeBase(graph, namespace="/obedient/"))
    for namespace in ("", "/dead/", "/obedient/"):
        probe.listen(Twist, f"{namespace}cmd_vel")
    simulator.wait_for("ready")
    good, file = calibrate(graph)
    others = {
        name: calibrate(graph, "--namespace", name, name=name)[0] for name in ("dead", "deaf", "stamped")
    }
    interrupted, unwritten = calibrate(graph, "--namespace", "obedient", name="obedient")

    # Ctrl-C in the middle of a step: zeros at once, no file, 130.
    interrupted.wait_for("stopped by plain zeros", CALIBRATION_S)
    time.sleep(0.5)
    assert speed_of(probe.last("/obedient/cmd_vel")) > 0
    struck = interrupted.kill(signal.SIGINT)
    assert interrupted.popen.wait(10) == 130 and "nothing is written" in interrupted.text
    late = [h.at - struck for h in probe.heard("/obedient/cmd_vel", struck) if speed_of(h) > 0]
    assert max(late, default=0.0) < 0.15
    assert speed_of(probe.last("/obedient/cmd_vel")) == 0 and not unwritten.exists()

    for name, said in (
        ("dead", "the base does not turn: up to 1.40 rad/s were commanded and odometry shows 0.0 degrees"),
        ("deaf", "no subscriber on /deaf/cmd_vel"),
        ("stamped", "subscribers expect geometry_msgs/msg/TwistStamped: --stamped"),
    ):
        assert others[name].popen.wait(CALIBRATION_S) == 1
        assert said in complaint(others[name])
    assert speed_of(probe.last("/dead/cmd_vel")) == 0

    assert good.popen.wait(CALIBRATION_S) == 0, good.text
    values = yaml.safe_load(file.read_text())["/**/motion_node"]["ros__parameters"]
    assert values["actuation_delay_s"] == pytest.approx(DELAY_S + 0.02, abs=0.06)
    assert values["linear_scale"] == pytest.approx(1.0, abs=0.05)
    assert values["angular_scale"] == pytest.approx(1.0, abs=0.05)
    assert 0.1 < values["stopping_distance_m"] < 0.25
    assert values["stop_style"] == "epsilon" and "plain zeros are not obeyed" in file.read_text()
    assert all(h.message.linear.x >= 0 for h in probe.heard("cmd_vel"))
    assert sorted(path.name for path in graph.folder.glob("*.yaml*")) == ["calibrate.yaml"]

    # The file is what motion_node takes.
    mover = graph.start(
        "motion_node", "spec_vlm_nav.ros.nodes.motion_node", "--ros-args", "--params-file", str(file)
    )
    mover.wait_for("ready")
    assert probe.get_parameter("motion_node", "actuation_delay_s") == values["actuation_delay_s"]


def test_a_stop_and_a_strangers_velocities_end_it(graph, stands_by):
    say = graph.probe.say
    names = ("stopped", "driven", "halted", "latched", "busy")
    bases = {name: stands_by(FakeBase(graph, namespace=f"/{name}/")) for name in names}
    reports = {"halted": MotionStatus(), "latched": MotionStatus(estopped=True, held_by="e-stop: a button")}
    told = {name: graph.probe.node.create_publisher(MotionStatus, f"/{name}/motion_status", 10) for name in reports}
    graph.probe.node.create_timer(0.2, lambda: [told[name].publish(reports[name]) for name in reports])
    graph.probe.listen(Twist, "/busy/cmd_vel")
    graph.probe.open(Twist, "/busy/cmd_vel")
    graph.probe.node.create_timer(0.05, lambda: say("/busy/cmd_vel", Twist()))
    wait_until(lambda: len(graph.probe.heard("/busy/cmd_vel")) > 5, 5, "the stranger")
    runs = {name: calibrate(graph, "--namespace", name, name=name) for name in bases}
    for name, word, said in (
        ("stopped", lambda: say("/stopped/stop", Empty()), "stop was heard on topic stop"),
        (
            "driven",
            lambda: say("/driven/cmd_vel", Twist()),
            "/probe also sends velocities on /driven/cmd_vel",
        ),
        (
            "halted",
            lambda: reports.update(halted=MotionStatus(state=MotionStatus.STOPPED, reason=OPERATOR_STOP)),
            "stop was heard by motion_node",
        ),
    ):
        process, file = runs[name]
        process.wait_for("turns left 35 degrees", CALIBRATION_S)
        time.sleep(0.3)
        word()
        assert process.popen.wait(10) == 1
        assert said in complaint(process) and "while the robot turns" in complaint(process)
        yaw = bases[name].yaw
        time.sleep(0.3)
        assert bases[name].yaw == yaw and not file.exists()
    for name, said in (("busy", "sends velocities"), ("latched", "is latched (e-stop: a button): reset it first")):
        process, _ = runs[name]
        assert process.popen.wait(20) == 1 and said in complaint(process)
        assert "1. The robot" not in process.text and bases[name].yaw == 0.0
