# Copyright 2026 spec_vlm_nav maintainers
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.

"""
Further console inputs from one robot: its own state, obstacles, and the pictures of decisions.

The caller must hold the robot's lock.
"""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import Callable
import math
from typing import Any

import numpy as np
from rclpy.node import Node
from rclpy.qos import QoSProfile
from sensor_msgs.msg import Image, LaserScan
from spec_vlm_nav.camera.images import decode, to_jpeg
from spec_vlm_nav.common.errors import FrameError
from spec_vlm_nav.ros.basics import RELIABLE
from spec_vlm_nav.ros.polled import PolledTopic, ThrottledExecutor
from spec_vlm_nav_interfaces.msg import RobotState
from std_msgs.msg import String

KEPT_FRAMES = 80
SMALL_PX, SMALL_QUALITY = 224, 70
SCAN_POINTS, SCAN_S, FARTHEST_M = 120, 1.0, 6.0
OBSTACLES = 60
Pose = tuple[float, float, float]


def small_picture(jpeg: bytes) -> str:
    """Return a thumbnail as a data: URL; "" if the picture cannot be decoded."""
    try:
        picture = decode(jpeg)
    except FrameError:
        return ""
    picture.thumbnail((SMALL_PX, SMALL_PX))
    small = to_jpeg(picture, SMALL_QUALITY)
    return "data:image/jpeg;base64," + base64.b64encode(small).decode()


def scan_points(scan: LaserScan, pose: Pose) -> list[tuple[float, float]]:
    """Return a scan's points in the odometry frame, m; the sensor is assumed at the pose."""
    ranges = np.array(scan.ranges, dtype=float)
    ranges[np.isneginf(ranges)] = scan.range_min  # REP 117: too near to measure
    angles = scan.angle_min + scan.angle_increment * np.arange(len(ranges)) + pose[2]
    seen = np.isfinite(ranges) & (ranges > 0) & (ranges <= FARTHEST_M)
    ranges, angles = ranges[seen], angles[seen]
    step = max(1, math.ceil(len(ranges) / SCAN_POINTS))
    x, y = pose[0] + ranges * np.cos(angles), pose[1] + ranges * np.sin(angles)
    return [(round(float(a), 2), round(float(b), 2)) for a, b in zip(x[::step], y[::step], strict=True)]


class RobotSubscriptions:
    """Subscriptions of one robot; at: its topic prefix."""

    def __init__(self, node: Node, at: str) -> None:
        self._frames: deque[tuple[tuple[int, int], bytes]] = deque(maxlen=KEPT_FRAMES)
        self._robot: tuple[float, RobotState] | None = None
        self._scan: tuple[float, LaserScan] | None = None
        self.obstacles: deque[tuple[float, float]] = deque(maxlen=OBSTACLES)
        self._states = PolledTopic(node, RobotState, f"{at}robot_state")
        self._now = lambda: node.get_clock().now().nanoseconds * 1e-9

    def look(self, scan: LaserScan | None) -> None:
        """Read the robot's state, and record a laser scan if there is one."""
        if (state := self._states.take()) is not None:
            self._robot = (self._now(), state)
        if scan is not None:
            self._scan = (self._now(), scan)

    def keep(self, stamp: tuple[int, int], jpeg: bytes) -> None:
        """Keep a picture: a decision may have been made from it."""
        self._frames.append((stamp, jpeg))

    def frame_of(self, stamp: tuple[int, int]) -> bytes | None:
        """Return the picture with this stamp, if it is still kept."""
        return next((jpeg for at, jpeg in reversed(self._frames) if at == stamp), None)

    def touched(self, pose: Pose, ahead_m: float) -> None:
        """Record an obstacle at a distance ahead of a pose."""
        x, y = pose[0] + ahead_m * math.cos(pose[2]), pose[1] + ahead_m * math.sin(pose[2])
        self.obstacles.append((round(x, 2), round(y, 2)))

    def seen(self, pose: Pose | None) -> list[tuple[float, float]]:
        """Return the points of a recent laser scan."""
        if pose is None or self._scan is None or self._now() - self._scan[0] > SCAN_S:
            return []
        return scan_points(self._scan[1], pose)

    def words(self) -> dict[str, Any]:
        """Return the robot's own state, if a node publishes it."""
        if self._robot is None:
            return {}
        at, m = self._robot
        silent = self._now() - at > 5.0
        battery = None if math.isnan(m.battery) else round(float(m.battery), 2)
        said = "silent" if silent else m.mode + ("" if m.ready else f": not ready, {m.reason}")
        return {"robot_says": said, "battery": None if silent else battery}


class CameraSubscriptions:
    """
    Subscriptions that exist only while a page is open: the model's tokens, raw images, a laser.

    Without a subscriber, vlm_nav_node publishes no tokens and a raw camera sends one copy less.
    Created and destroyed in the ROS thread.
    """

    def __init__(
        self,
        node: Node,
        at: str,
        words: tuple[Callable[[String], None], Callable[[String], None]],
        encode: tuple[str, Callable[[Image], None], QoSProfile] | None,
        group: ThrottledExecutor,
    ) -> None:
        """
        Subscribe to the topics of a robot; at: its topic prefix.

        words: callbacks for tokens and for sentences; called at once, in order with decisions.
        encode: topic of raw images, callback that encodes them, and QoS; None: images are JPEG.
        """
        self._node = node
        self.scan = PolledTopic(node, LaserScan, f"{at}scan", "best_effort")
        tokens, sentences = words
        self._woken: list[Any] = [
            node.create_subscription(
                String, f"{at}vlm_nav_node/tokens", tokens, RELIABLE, callback_group=group
            ),
            node.create_subscription(
                String, f"{at}vlm_nav_node/reasoning", sentences, RELIABLE, callback_group=group
            ),
        ]
        if encode is not None:
            image, act, quality = encode
            self._woken.append(node.create_subscription(Image, image, act, quality, callback_group=group))

    def destroy(self) -> None:
        """Destroy the subscriptions."""
        self.scan.destroy()
        for woken in self._woken:
            self._node.destroy_subscription(woken)
