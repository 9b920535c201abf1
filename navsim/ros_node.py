# SPDX-License-Identifier: Apache-2.0
"""The simulator as a ROS 2 node with the interface of a robot: a camera, odometry and `cmd_vel`.

A thin shell around `Simulation` and `CameraWorker`. It publishes only what a robot could know, never the map. Run it
with `python -m navsim.ros_node --ros-args -p seed:=3`.
"""

from __future__ import annotations

import array
import math
import signal
import sys
import time
from types import FrameType

import cv2
import msgspec
import numpy as np
import rclpy
from builtin_interfaces.msg import Time
from geometry_msgs.msg import Twist, TwistStamped
from nav_msgs.msg import Odometry
from numpy.typing import NDArray
from rcl_interfaces.msg import SetParametersResult
from rclpy.clock import Clock, ClockType
from rclpy.exceptions import ParameterException
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.impl.implementation_singleton import rclpy_implementation
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.qos import qos_profile_sensor_data
from rclpy.signals import SignalHandlerOptions
from rosgraph_msgs.msg import Clock as ClockMessage
from sensor_msgs.msg import CompressedImage, Image
from std_msgs.msg import String

from navsim.base import BaseLimits
from navsim.camera_worker import CameraShot, CameraWorker
from navsim.errors import BadRequest, NavsimError
from navsim.faults import PUSHED, REAR_BLOCKED, STOPPED, STUCK, BrokenOdometry, LateDriver
from navsim.ros_parameters import SETTINGS, declare
from navsim.simulation import ResetRequest, Simulation, Snapshot, parse_reset, state_of

MAX_WALL_STEP = 0.25  # s; after a stall of the machine the robot must not jump
NODE_NAME = "navsim"
KNOWN = {setting.name: setting for setting in SETTINGS}
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP)
SPIN_S = 0.1  # longest delay until a signal is noticed


class Cadence:
    """Decides when a periodic task is due in simulated time; missed turns are skipped."""

    def __init__(self) -> None:
        self._next = 0.0

    def due(self, now: float, rate: float) -> bool:
        """Whether a turn is due at `now` [s] for a rate [Hz]."""
        if now < self._next:
            return False
        self._next = max(self._next + 1.0 / rate, now)
        return True


def later(stamp: Time, seconds: float) -> Time:
    """Return a stamp shifted by `seconds`, at least zero."""
    moved = max(stamp.sec * 10**9 + stamp.nanosec + round(seconds * 1e9), 0)
    return Time(sec=moved // 10**9, nanosec=moved % 10**9)


class NavsimNode(Node):
    """Publishes camera/image_raw[/compressed], odom, ~/state and /clock; listens to cmd_vel and ~/reset."""

    def __init__(self) -> None:
        super().__init__(NODE_NAME)
        declare(self)
        self._live = {setting.name: self.get_parameter(setting.name).value for setting in SETTINGS}
        self.add_on_set_parameters_callback(self._on_parameters)
        self._simulation = Simulation(
            ResetRequest(self._live["seed"], self._live["split"], self._live["absent"]),
            BaseLimits(hold=self._live["command_hold"]),
        )
        self._break_base()
        self._odometer, self._driver = BrokenOdometry(), LateDriver()
        self._ready_visit = -1  # the visit of which a picture was published
        self._camera = CameraWorker(self._live["width"], self._live["height"], self._publish_picture)
        self._compressed = self.create_publisher(
            CompressedImage, "camera/image_raw/compressed", qos_profile_sensor_data
        )
        self._raw = self.create_publisher(Image, "camera/image_raw", qos_profile_sensor_data)
        self._odom = self.create_publisher(Odometry, "odom", 10)
        self._state = self.create_publisher(String, "~/state", 10)
        self._clock_topic = (
            self.create_publisher(ClockMessage, "/clock", 10) if self._live["publish_clock"] else None
        )
        if self._live["enable_stamped_cmd_vel"]:
            self.create_subscription(
                TwistStamped, "cmd_vel", lambda message: self._on_command(message.twist), 1
            )
        else:
            self.create_subscription(Twist, "cmd_vel", self._on_command, 1)
        self.create_subscription(String, "~/reset", self._on_reset, 1)
        self._cadence = {name: Cadence() for name in ("camera", "odom", "state")}
        self._last_tick = time.monotonic()

    def start(self) -> None:
        """Start the camera and the simulated time. Raises the camera's error."""
        self._camera.start()
        self._last_tick = time.monotonic()
        # A steady clock: this node may be the publisher of ROS time.
        self.create_timer(
            1.0 / self._live["step_rate"], self._tick, clock=Clock(clock_type=ClockType.STEADY_TIME)
        )
        episode = self._simulation.episode
        self.get_logger().info(f'ready: room {episode.seed} ({episode.split}), "{episode.instruction}"')

    def stop(self) -> None:
        """Stop the camera; nothing is published afterwards."""
        self._camera.stop()

    # --- inputs ------------------------------------------------------------------------------------------

    def _on_parameters(self, parameters: list[Parameter]) -> SetParametersResult:
        # Ranges and read-only flags were checked before. This is the only callback, so nothing refuses afterwards.
        ours = [parameter for parameter in parameters if parameter.name in self._live]
        try:
            for parameter in ours:
                KNOWN[parameter.name].check(parameter.value)
        except BadRequest as error:
            return SetParametersResult(successful=False, reason=str(error))
        self._live.update({parameter.name: parameter.value for parameter in ours})
        self._break_base()
        return SetParametersResult(successful=True)

    def _break_base(self) -> None:
        """Apply the base fault to the base."""
        fault, base = self._live["base_fault"], self._simulation.base
        base.stuck = {STUCK: "forward", REAR_BLOCKED: "both"}.get(fault, "")
        base.push = (0.0, self._live["push_mps"] if fault == PUSHED else 0.0, 0.0)

    def _on_command(self, twist: Twist) -> None:
        delay, drops_zeros = self._live["command_delay_s"], self._live["drops_zeros"]
        now = self._simulation.snapshot().time
        self._driver.hear(twist.linear.x, twist.angular.z, now, delay, drops_zeros)
        self._drive(now)

    def _drive(self, now: float) -> None:
        for vx, wz in self._driver.due(now):
            try:
                self._simulation.base.command(vx, wz)
            except BadRequest as error:
                self.get_logger().warning(str(error), throttle_duration_sec=1.0)

    def _on_reset(self, message: String) -> None:
        try:
            self._simulation.reset(parse_reset(message.data))
        except NavsimError as error:
            self.get_logger().warning(str(error))
            return
        episode = self._simulation.episode
        self._odometer, self._driver = BrokenOdometry(episode.seed), LateDriver()
        self._break_base()
        self.get_logger().info(f'room {episode.seed} ({episode.split}), "{episode.instruction}"')

    # --- outputs -----------------------------------------------------------------------------------------

    def _tick(self) -> None:
        if self._camera.failure is not None:
            raise self._camera.failure
        now = time.monotonic()
        wall = min(now - self._last_tick, MAX_WALL_STEP)
        self._last_tick = now
        self._simulation.advance(wall * self._live["time_scale"])
        snapshot = self._simulation.snapshot()
        self._drive(snapshot.time)
        stamp = self._stamp(snapshot)
        if self._clock_topic is not None:
            self._clock_topic.publish(ClockMessage(clock=stamp))
        sensed = later(stamp, self._live["stamp_offset_s"])
        odom_fault, camera_fault = self._live["odom_fault"], self._live["camera_fault"]
        if self._cadence["odom"].due(snapshot.time, self._live["odom_rate"]) and odom_fault != STOPPED:
            self._odom.publish(self._odometry(snapshot, sensed, odom_fault))
        if self._cadence["camera"].due(snapshot.time, self._live["camera_rate"]) and camera_fault != STOPPED:
            self._camera.request(CameraShot(snapshot, (sensed.sec, sensed.nanosec), camera_fault))
        if self._cadence["state"].due(snapshot.time, self._live["state_rate"]):
            state = state_of(snapshot, ready=self._ready_visit == snapshot.visit)
            self._state.publish(String(data=msgspec.json.encode(state).decode()))

    def _stamp(self, snapshot: Snapshot) -> Time:
        if self._clock_topic is None:
            return self.get_clock().now().to_msg()
        seconds = math.floor(snapshot.time)
        return Time(sec=seconds, nanosec=min(int((snapshot.time - seconds) * 1e9), 999_999_999))

    def _odometry(self, snapshot: Snapshot, stamp: Time, fault: str) -> Odometry:
        message = Odometry()
        message.header.stamp = stamp
        message.header.frame_id = self._live["odom_frame"]
        message.child_frame_id = self._live["base_frame"]
        noise, scale = self._live["odom_noise_m"], self._live["odom_scale"]
        pose = self._odometer.tell(snapshot.pose, fault, noise, scale)
        message.pose.pose.position.x, message.pose.pose.position.y = pose.x, pose.y
        message.pose.pose.orientation.z = math.sin(pose.yaw / 2)
        message.pose.pose.orientation.w = math.cos(pose.yaw / 2)
        message.twist.twist.linear.x = snapshot.vx
        message.twist.twist.angular.z = snapshot.wz
        return message

    def _publish_picture(self, shot: CameraShot, picture: NDArray[np.uint8]) -> None:
        """Called in the camera's thread."""
        if shot.snapshot.visit != self._simulation.visit:
            return  # a reset happened meanwhile: this picture shows the previous room
        stamp = Time(sec=shot.stamp[0], nanosec=shot.stamp[1])
        quality = (cv2.IMWRITE_JPEG_QUALITY, self._live["jpeg_quality"])
        _, jpeg = cv2.imencode(".jpg", cv2.cvtColor(picture, cv2.COLOR_RGB2BGR), quality)
        compressed = CompressedImage(
            format="rgb8; jpeg compressed bgr8", data=array.array("B", jpeg.tobytes())
        )
        compressed.header.stamp = stamp
        compressed.header.frame_id = self._live["camera_frame"]
        self._compressed.publish(compressed)
        if self._live["publish_raw"]:
            height, width, _ = picture.shape
            raw = Image(height=height, width=width, encoding="rgb8", step=3 * width)
            raw.header = compressed.header
            raw.data = array.array("B", picture.tobytes())
            self._raw.publish(raw)
        self._ready_visit = shot.snapshot.visit


def main(arguments: list[str] | None = None) -> int:
    """Run the node until a signal ends it; returns 0, 1 after a failure, or 2 for invalid parameters."""
    asked_to_end = False

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal asked_to_end
        asked_to_end = True

    # rclpy's own handlers may close the context during a call; a flag is checked between calls instead.
    for number in ENDING:
        if signal.getsignal(number) != signal.SIG_IGN or number != signal.SIGHUP:  # nohup
            signal.signal(number, on_signal)
    try:
        rclpy.init(args=arguments, signal_handler_options=SignalHandlerOptions.NO)
    except Exception as error:  # ROS arguments or a parameter file that cannot be read
        print(f"navsim: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    try:
        node = NavsimNode()
    except (ParameterException, NavsimError, rclpy_implementation.RCLError) as error:
        print(f"navsim: {' '.join(str(error).split())}", file=sys.stderr)
        rclpy.try_shutdown()
        return 2
    code = 0
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    try:
        node.start()
        while not asked_to_end and rclpy.ok():
            executor.spin_once(timeout_sec=SPIN_S)
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    except Exception as error:
        # A signal during a call appears as an error of the already closed context.
        if rclpy.ok():
            what = str(error) if isinstance(error, NavsimError) else f"{type(error).__name__}: {error}"
            print(f"navsim: {what}", file=sys.stderr)
            code = 1
    finally:
        node.stop()
        executor.shutdown()
        node.destroy_node()
        rclpy.try_shutdown()
    return code


if __name__ == "__main__":
    sys.exit(main())
