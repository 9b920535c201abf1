"""The simulator's node as its own process: what it publishes, how it moves and stops, how it ends.

One simulator is forked for the tests of what it does; those of how it ends start it as a user does.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import pytest

from specnav.supervise.processes import ChildSpec, Running, Supervisor
from specnav.supervise.surroundings import Domain, ports_in_use, read_udp_tables
from tests.helpers.graph import quickly_started  # noqa: F401
from tests.helpers.waiting import until

pytestmark = [pytest.mark.graph, pytest.mark.timeout(120)]
rclpy = pytest.importorskip("rclpy")

DOMAIN = Domain(ports_in_use(read_udp_tables()), first=os.getpid())
"""Held as long as the tests' process lives: another file of tests may run beside this one."""
START_SECONDS = 30.0
AFRESH = staticmethod(Supervisor.launch)


ENVIRONMENT = {"ROS_DOMAIN_ID": str(DOMAIN.number), "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"}


@dataclass
class Simulator:
    """A started process, and what it says."""

    process: Running
    log: Path

    def finish(self, sign: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """End it, unless it has ended; returns its exit code and all that it said."""
        if self.process.poll() is None:
            self.process.send_signal(sign)
        return self.ended(20)

    def ended(self, seconds: float = 30) -> tuple[int, str]:
        """Wait for its end."""
        try:
            code = self.process.wait(seconds)
        finally:
            self.kill()
        return code, self.log.read_text()

    def kill(self) -> None:
        """How a forked one ends of itself is not told: what its renderer takes apart is its parent's."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(10)


def start(folder: Path, *parameters: str) -> Simulator:
    words = [word for parameter in parameters for word in ("-p", parameter)]
    log = folder / f"{len(list(folder.iterdir()))}.log"
    with log.open("wb") as stream:
        argv = [sys.executable, "-m", "navsim.ros_node", "--ros-args", *words]
        return Simulator(Supervisor.launch(ChildSpec("", argv, ENVIRONMENT), stream), log)


class Robot:
    """The other end of the simulator's topics."""

    def __init__(self, stamped: bool = False):
        from geometry_msgs.msg import Twist, TwistStamped
        from nav_msgs.msg import Odometry
        from rclpy.parameter_client import AsyncParameterClient
        from rclpy.qos import qos_profile_sensor_data
        from rosgraph_msgs.msg import Clock
        from sensor_msgs.msg import CompressedImage, Image
        from std_msgs.msg import String

        self._types = (Twist, TwistStamped, String)
        self._stamped = stamped
        self.context = rclpy.Context()
        rclpy.init(context=self.context, domain_id=DOMAIN.number)
        self.node = rclpy.create_node("tester", context=self.context)
        self.executor = rclpy.executors.SingleThreadedExecutor(context=self.context)
        self.executor.add_node(self.node)
        self.pictures, self.raw, self.odometry, self.states, self.clocks = [], [], [], [], []
        subscribe = self.node.create_subscription
        subscribe(
            CompressedImage, "camera/image_raw/compressed", self.pictures.append, qos_profile_sensor_data
        )
        subscribe(Image, "camera/image_raw", self.raw.append, qos_profile_sensor_data)
        subscribe(Odometry, "odom", self.odometry.append, 10)
        subscribe(String, "navsim/state", lambda m: self.states.append(json.loads(m.data)), 10)
        subscribe(Clock, "/clock", self.clocks.append, 10)
        self._velocity = self.node.create_publisher(TwistStamped if stamped else Twist, "cmd_vel", 1)
        self._reset = self.node.create_publisher(String, "navsim/reset", 1)
        self._parameters = AsyncParameterClient(self.node, "navsim")

    def spin(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.executor.spin_once(timeout_sec=min(left, 0.05))

    def wait_for(self, condition, seconds: float = START_SECONDS) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, "waited in vain"
            self.executor.spin_once(timeout_sec=0.05)

    def wait_until_ready(self) -> None:
        self.wait_for(lambda: self.states and self.states[-1]["ready"] and self.pictures and self.odometry)
        self.wait_until_heard()

    def wait_until_heard(self) -> None:
        self.wait_for(
            lambda: self._velocity.get_subscription_count() and self._reset.get_subscription_count()
        )
        assert self._parameters.wait_for_services(START_SECONDS)

    def make_sound(self) -> None:
        """Have everything mended, and stand at the start of room 3."""
        self.wait_until_heard()
        for name, value in (("camera_fault", "none"), ("odom_fault", "none"), ("stamp_offset_s", 0.0)):
            assert self.set_parameter(name, value)
        before = len(self.states)
        self.reset('{"seed": 3, "split": "train"}')
        self.wait_for(lambda: any(state["episode_seed"] == 3 and state["ready"] for state in self.states[before:]))
        self.wait_until_ready()

    def drive(self, vx: float, wz: float, seconds: float) -> None:
        twist, stamped, _ = self._types
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            message = twist()
            message.linear.x, message.angular.z = vx, wz
            self._velocity.publish(stamped(twist=message) if self._stamped else message)
            self.spin(0.05)

    def reset(self, text: str) -> None:
        self._reset.publish(self._types[2](data=text))

    def set_parameter(self, name: str, value) -> bool:
        future = self._parameters.set_parameters([rclpy.Parameter(name, value=value)])
        self.wait_for(future.done)
        return future.result().results[0].successful

    def close(self) -> None:
        self.executor.shutdown()
        self.node.destroy_node()
        rclpy.shutdown(context=self.context)


@pytest.fixture
def robot():
    made = Robot()
    yield made
    made.close()


@pytest.fixture(scope="module")
def simulator(tmp_path_factory, quickly_started):  # noqa: F811
    started = start(tmp_path_factory.mktemp("simulator"), "seed:=3")
    yield started
    started.kill()


@pytest.fixture
def alone(simulator, monkeypatch):
    """For a simulator of a test's own, started as a user does; the shared one has ended by then."""
    simulator.kill()
    monkeypatch.setattr(Supervisor, "launch", AFRESH)


@pytest.fixture
def shared(simulator, robot):
    """A robot of the one simulator, which is sound."""
    robot.make_sound()
    return robot


def test_frames_and_odometry_arrive_and_describe_the_start(simulator, robot):
    """The first one: the room is that of the command line."""
    from navsim.episodes import make_episode

    robot.wait_until_ready()
    before = len(robot.odometry), len(robot.pictures)
    robot.spin(2.0)
    assert 45 <= len(robot.odometry) - before[0] <= 75
    assert 7 <= len(robot.pictures) - before[1] <= 13
    picture = cv2.imdecode(np.frombuffer(robot.pictures[-1].data, np.uint8), cv2.IMREAD_COLOR)
    assert picture.shape == (140, 224, 3)
    assert picture.std() > 5
    episode = make_episode(3)
    pose = robot.odometry[-1].pose.pose
    assert (pose.position.x, pose.position.y) == (episode.start.x, episode.start.y)
    assert 2 * math.atan2(pose.orientation.z, pose.orientation.w) == pytest.approx(episode.start.yaw)
    assert not robot.raw
    assert not robot.clocks


def test_cmd_vel_moves_it_and_silence_stops_it_after_a_second(shared):
    robot, yaw = shared, shared.states[-1]["yaw"]
    robot.drive(0.0, 0.6, 1.0)
    robot.wait_for(lambda: robot.odometry[-1].twist.twist.angular.z > 0.5, 2.0)
    moving_until = time.monotonic()
    robot.wait_for(lambda: robot.odometry[-1].twist.twist.angular.z == 0.0, 3.0)
    assert 0.7 < time.monotonic() - moving_until < 1.8
    assert robot.states[-1]["yaw"] != yaw


def test_reset_changes_the_room_and_a_bad_one_is_ignored(simulator, shared):
    robot, said = shared, simulator.log.read_text()
    robot.reset('{"seed": 8, "split": "heldout"}')
    robot.wait_for(lambda: robot.states[-1]["episode_seed"] == 8 and robot.states[-1]["ready"], 5.0)
    assert robot.states[-1]["split"] == "heldout"
    for text in ("nonsense", '{"seed": -4}', '{"seed": 1, "split": "moon"}'):
        robot.reset(text)
        robot.spin(0.3)
    assert robot.states[-1]["episode_seed"] == 8
    until(lambda: simulator.log.read_text().count("[WARN]") - said.count("[WARN]") == 3, 5)


def test_camera_faults_can_be_injected_while_it_runs(shared):
    robot = shared
    assert robot.set_parameter("camera_fault", "frozen_restamped")
    robot.spin(0.5)
    robot.drive(0.0, 1.0, 0.6)
    assert robot.pictures[-1].data == robot.pictures[-2].data
    assert robot.pictures[-1].header.stamp != robot.pictures[-2].header.stamp
    assert robot.set_parameter("camera_fault", "none")
    robot.drive(0.0, 1.0, 0.6)
    assert robot.pictures[-1].data != robot.pictures[-2].data
    assert robot.set_parameter("camera_fault", "frozen")
    robot.spin(0.5)
    assert robot.pictures[-1].header.stamp == robot.pictures[-2].header.stamp
    assert robot.pictures[-1].data == robot.pictures[-2].data
    assert robot.set_parameter("camera_fault", "black")
    robot.spin(0.5)
    assert cv2.imdecode(np.frombuffer(robot.pictures[-1].data, np.uint8), cv2.IMREAD_COLOR).max() == 0
    assert robot.set_parameter("camera_fault", "stopped")
    robot.spin(0.4)
    silent = len(robot.pictures)
    robot.spin(0.8)
    assert len(robot.pictures) == silent
    assert not robot.set_parameter("camera_rate", 1000.0)
    assert not robot.set_parameter("camera_fault", "sleepy")
    assert not robot.set_parameter("seed", 5)


def test_odometry_faults_and_wrong_stamps_can_be_injected_while_it_runs(shared):
    robot = shared
    assert robot.set_parameter("odom_fault", "jumping")
    robot.spin(0.3)
    xs = [message.pose.pose.position.x for message in robot.odometry[-4:]]
    assert [abs(b - a) for a, b in itertools.pairwise(xs)] == pytest.approx([2.0] * 3)
    assert robot.set_parameter("odom_fault", "nan")
    robot.spin(0.3)
    assert math.isnan(robot.odometry[-1].pose.pose.position.x)
    assert robot.set_parameter("odom_fault", "none")
    assert robot.set_parameter("stamp_offset_s", -12.0)
    robot.spin(0.5)
    for message in (robot.odometry[-1], robot.pictures[-1]):
        assert time.time() - message.header.stamp.sec == pytest.approx(12.0, abs=1.6)
    assert robot.set_parameter("odom_fault", "stopped")
    robot.spin(0.3)
    silent = len(robot.odometry)
    robot.spin(0.4)
    assert len(robot.odometry) == silent


def test_a_value_of_an_unknown_type_is_refused_and_it_goes_on(shared):
    from rcl_interfaces.msg import Parameter, ParameterValue
    from rcl_interfaces.srv import SetParameters, SetParametersAtomically

    odd = [Parameter(name="camera_rate", value=ParameterValue(type=77))]
    for kind, name in ((SetParameters, "set_parameters"), (SetParametersAtomically, "set_parameters_atomically")):
        client = shared.node.create_client(kind, f"navsim/{name}")
        assert client.wait_for_service(START_SECONDS)
        future = client.call_async(kind.Request(parameters=odd))
        shared.wait_for(future.done)
        said = future.result()
        result = said.results[0] if kind is SetParameters else said.result
        assert not result.successful and "unknown type" in result.reason
    assert shared.set_parameter("camera_rate", 5.0)


def test_simulated_time_runs_faster_with_a_clock_raw_pictures_and_stamped_commands(tmp_path, alone):
    faster = ("publish_clock:=true", "time_scale:=4.0", "publish_raw:=true", "enable_stamped_cmd_vel:=true")
    simulator = start(tmp_path, *faster)
    robot = Robot(stamped=True)
    try:
        robot.wait_until_ready()
        robot.wait_for(lambda: robot.clocks and robot.raw)
        began, clock = time.monotonic(), robot.clocks[-1].clock
        robot.drive(0.0, 0.6, 2.0)
        simulated = (
            robot.clocks[-1].clock.sec - clock.sec + (robot.clocks[-1].clock.nanosec - clock.nanosec) / 1e9
        )
        assert simulated / (time.monotonic() - began) == pytest.approx(4.0, rel=0.15)
        assert robot.odometry[-1].twist.twist.angular.z == pytest.approx(0.6)
        assert (robot.raw[-1].encoding, robot.raw[-1].width, robot.raw[-1].height) == ("rgb8", 224, 140)
        assert robot.raw[-1].header.stamp.sec <= robot.clocks[-1].clock.sec < 10_000
    finally:
        robot.close()
        code, errors = simulator.finish()
    assert code == 0, errors


def test_a_base_that_is_broken_from_the_start_is_pushed(robot, tmp_path, alone):
    simulator = start(tmp_path, "base_fault:=pushed", "push_mps:=0.2")
    robot.wait_until_ready()
    places = [message.pose.pose.position for message in robot.odometry]
    robot.spin(1.0)
    now = robot.odometry[-1].pose.pose.position
    code, errors = simulator.finish()
    assert math.dist((places[0].x, places[0].y), (now.x, now.y)) > 0.05 and code == 0, errors


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP])
def test_rendering_at_sixty_hertz_does_not_hold_up_the_base_and_signals_end_it_cleanly(sign, robot, tmp_path, alone):
    if signal.getsignal(sign) is signal.SIG_IGN:
        pytest.skip("nohup: a closed terminal is ignored")
    simulator = start(tmp_path, "camera_rate:=60.0", "odom_rate:=100.0")
    robot.wait_until_ready()
    arrivals = []
    robot.node.create_subscription(
        type(robot.odometry[-1]), "odom", lambda m: arrivals.append(time.monotonic()), 50
    )
    robot.spin(1.5)
    code, errors = simulator.finish(sign)
    # Generous, because other work may share the machine: a held-up base would show the whole rendering time.
    assert np.median(np.diff(arrivals)) < 0.02
    assert code == 0
    assert "Traceback" not in errors
    assert "terminate" not in errors


def test_a_parameter_it_cannot_use_is_one_line_and_exit_code_two(tmp_path, quickly_started):  # noqa: F811
    wrong = ("seed:=-3", "split:=moon", "camera_rate:=fast", "width:=100000", "odom_fault:=odd")
    for started in [start(tmp_path, parameter) for parameter in wrong]:
        code, errors = started.ended()
        assert code == 2, errors
        assert len(errors.strip().splitlines()) == 1
        assert errors.startswith("navsim: ")


def test_ros_arguments_it_cannot_read_are_one_line_behind_what_rcl_says(tmp_path, quickly_started):  # noqa: F811
    for argv in (
        ["--params-file", str(tmp_path / "typo.yaml")], ["-r", "__ns:=//one"], ["--log-level", "loud"],
        ["-r", "__ns:=" + "/a" * 300],
    ):  # fmt: skip
        argv = [sys.executable, "-m", "navsim.ros_node", "--ros-args", *argv]
        log = tmp_path / "log"
        with log.open("wb") as stream:
            code, errors = Simulator(Supervisor.launch(ChildSpec("", argv, ENVIRONMENT), stream), log).ended()
        assert code == 2 and "Traceback" not in errors
        assert len([line for line in errors.splitlines() if line.startswith("navsim: ")]) == 1, errors


def test_a_machine_that_cannot_render_is_told_so_in_one_line(monkeypatch, tmp_path, alone):
    monkeypatch.setenv("MUJOCO_GL", "nonsense")
    code, errors = start(tmp_path).ended()
    assert code == 1
    assert len(errors.strip().splitlines()) == 1
    assert "MUJOCO_GL=nonsense" in errors
