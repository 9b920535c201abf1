"""The simulator's node as its own process: what it publishes, how it moves and stops, how it ends."""

from __future__ import annotations

import itertools
import json
import math
import os
import signal
import subprocess
import sys
import time

import cv2
import numpy as np
import pytest

from specnav.supervise.surroundings import Domain, ports_in_use, read_udp_tables

pytestmark = [pytest.mark.graph, pytest.mark.timeout(120)]
rclpy = pytest.importorskip("rclpy")

DOMAIN = Domain(ports_in_use(read_udp_tables()), first=os.getpid())
"""Held as long as the tests' process lives: another file of tests may run beside this one."""
START_SECONDS = 30.0


def environment() -> dict[str, str]:
    return os.environ | {"ROS_DOMAIN_ID": str(DOMAIN.number), "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"}


def start(*parameters: str) -> subprocess.Popen[str]:
    words = [word for parameter in parameters for word in ("-p", parameter)]
    return subprocess.Popen(
        [sys.executable, "-m", "navsim.ros_node", "--ros-args", *words],
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str], sign: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
    if process.poll() is None:
        process.send_signal(sign)
    try:
        _, errors = process.communicate(timeout=20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    return process.returncode, errors


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
        self.wait_for(
            lambda: self._velocity.get_subscription_count() and self._reset.get_subscription_count()
        )

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


@pytest.fixture
def simulator():
    process = start("seed:=3")
    yield process
    finish(process)


def test_frames_and_odometry_arrive_and_describe_the_start(simulator, robot):
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


def test_cmd_vel_moves_it_and_silence_stops_it_after_a_second(simulator, robot):
    robot.wait_until_ready()
    robot.drive(0.0, 0.6, 1.0)
    robot.wait_for(lambda: robot.odometry[-1].twist.twist.angular.z > 0.5, 2.0)
    moving_until = time.monotonic()
    robot.wait_for(lambda: robot.odometry[-1].twist.twist.angular.z == 0.0, 3.0)
    assert 0.7 < time.monotonic() - moving_until < 1.8
    assert robot.states[-1]["yaw"] != robot.states[0]["yaw"]


def test_reset_changes_the_room_and_a_bad_one_is_ignored(simulator, robot):
    robot.wait_until_ready()
    robot.reset('{"seed": 8, "split": "heldout"}')
    robot.wait_for(lambda: robot.states[-1]["episode_seed"] == 8 and robot.states[-1]["ready"], 5.0)
    assert robot.states[-1]["split"] == "heldout"
    for text in ("nonsense", '{"seed": -4}', '{"seed": 1, "split": "moon"}'):
        robot.reset(text)
        robot.spin(0.3)
    assert robot.states[-1]["episode_seed"] == 8
    code, errors = finish(simulator)
    assert code == 0
    assert errors.count("[WARN]") == 3


def test_camera_faults_can_be_injected_while_it_runs(simulator, robot):
    robot.wait_until_ready()
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


def test_odometry_faults_and_wrong_stamps_can_be_injected_while_it_runs(simulator, robot):
    robot.wait_until_ready()
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


def test_simulated_time_runs_faster_with_a_clock_raw_pictures_and_stamped_commands():
    process = start(
        "publish_clock:=true", "time_scale:=4.0", "publish_raw:=true", "enable_stamped_cmd_vel:=true"
    )
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
        code, errors = finish(process)
    assert code == 0, errors


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_it_cleanly_while_it_renders(sign, robot):
    process = start("camera_rate:=60.0")
    robot.wait_until_ready()
    code, errors = finish(process, sign)
    assert code == 0
    assert "Traceback" not in errors
    assert "terminate" not in errors


@pytest.mark.parametrize(
    "parameter", ["seed:=-3", "split:=moon", "camera_rate:=fast", "width:=100000", "odom_fault:=odd"]
)
def test_a_parameter_it_cannot_use_is_one_line_and_exit_code_two(parameter):
    code, errors = finish_by_itself(start(parameter))
    assert code == 2
    assert len(errors.strip().splitlines()) == 1
    assert errors.startswith("navsim: ")


def test_a_machine_that_cannot_render_is_told_so_in_one_line(monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "nonsense")
    code, errors = finish_by_itself(start())
    assert code == 1
    assert len(errors.strip().splitlines()) == 1
    assert "MUJOCO_GL=nonsense" in errors


def finish_by_itself(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, errors = process.communicate(timeout=30)
    return process.returncode, errors


def test_rendering_at_sixty_hertz_does_not_hold_up_the_base(robot):
    process = start("camera_rate:=60.0", "odom_rate:=100.0")
    try:
        robot.wait_until_ready()
        arrivals = []
        robot.node.create_subscription(
            type(robot.odometry[-1]), "odom", lambda m: arrivals.append(time.monotonic()), 50
        )
        robot.spin(3.0)
        gaps = np.diff(arrivals)
        # Generous, because other work may share the machine: a held-up base would show the whole rendering time.
        assert np.median(gaps) < 0.02
    finally:
        finish(process)
