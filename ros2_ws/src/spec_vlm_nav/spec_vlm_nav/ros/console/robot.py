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
The console's inputs from one robot: everything that a page shows, by its namespace.

Two threads call it: ROS calls the `_on_` methods, the web server everything else; a lock guards the
shared state. Frequent messages wake no thread: the web server reads them by `poll`. The outputs are
in `command_publisher`.
"""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import Callable
import json
import math
import threading
import time
from typing import Any

from nav_msgs.msg import Odometry
import numpy as np
from rclpy.node import Node
from rclpy.qos import QoSProfile
from sensor_msgs.msg import CompressedImage, Image, LaserScan
from spec_vlm_nav.camera.images import decode, from_raw, to_jpeg
from spec_vlm_nav.common.codes import MotionState
from spec_vlm_nav.common.errors import FrameError
from spec_vlm_nav.common.parameters import Value
from spec_vlm_nav.console.board import Board, Trail
from spec_vlm_nav.console.decisions import AnswerView, decided_by, decision_record
from spec_vlm_nav.console.words import LONGEST_WORDS
from spec_vlm_nav.ros.basics import qos, RELIABLE
from spec_vlm_nav.ros.console.command_publisher import CommandPublisher
from spec_vlm_nav.ros.messages import command_of, pose_of, raw_of, status_of
from spec_vlm_nav.ros.subscriptions import PolledTopic, ThrottledExecutor
from spec_vlm_nav_interfaces.msg import DecisionMetrics, MotionCommand, MotionStatus, RobotState, Supervision
from std_msgs.msg import String

SILENT_S, OWN_SILENT_S = 1.5, 5.0
SLOW_S = 0.09  # a little less than every second poll
UNWATCHED_S = 5.0  # subscriptions stay this long without a page, so that a reload loses nothing
KEPT_DECISIONS, KEPT_PLACES = 40, 60
PATH_POINTS = 400
FRAMES = 8  # kept between two polls; a decision may have been made from any of them
AHEAD_M = 0.4  # assumed distance of an obstacle that blocks the robot
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


class RosRobot(CommandPublisher):
    """The robot of one namespace ("" for the root)."""

    def __init__(
        self, node: Node, name: str, values: dict[str, Value], wake: Callable[[str, str], None]
    ) -> None:
        """wake: called with the robot's name and the kind of news: frame, status, decision, log."""
        at = f"/{name}/" if name else "/"
        super().__init__(node, at, ThrottledExecutor(), bool(values["simulator"]))
        self.name, self._at, self._node, self._wake = name, at, node, wake
        self._lock = threading.Lock()
        self._board, self._trail = Board(), Trail(0.05, 4000)
        self._frame: tuple[int, float, bytes] | None = None
        self._pose: Pose | None = None
        self._status: tuple[float, MotionStatus] | None = None
        self._life: tuple[float, Supervision] | None = None
        self._own: tuple[float, RobotState] | None = None  # the robot's own state
        self._scan: tuple[float, LaserScan] | None = None
        self._frames: deque[tuple[tuple[int, int], bytes]] = deque(maxlen=KEPT_FRAMES)
        self._obstacles: deque[tuple[float, float]] = deque(maxlen=OBSTACLES)
        self._decisions: deque[dict[str, Any]] = deque(maxlen=KEPT_DECISIONS)
        self._places: deque[dict[str, Any]] = deque(maxlen=KEPT_PLACES)
        self._mission: dict[str, Any] | None = None
        self._thought, self._instruction = AnswerView(), ""
        self._touched = False
        self._odom_at = -1e9
        self._count = self._told = 0  # pictures received; pictures reported by poll
        self._make_ears(values)

    def _make_ears(self, values: dict[str, Value]) -> None:
        """Subscribe: urgent topics wake the executor, the others are read by `poll`."""
        node, at, on_topic = self._node, self._at, self._on_topic
        on_topic(MotionCommand, f"{at}motion_command", self._on_command, RELIABLE)
        on_topic(MotionStatus, f"{at}motion_status", self._on_status, RELIABLE)
        on_topic(DecisionMetrics, f"{at}vlm_nav_node/metrics", self._on_metrics, RELIABLE)
        on_topic(String, f"{at}vlm_nav_node/outcome", self._on_outcome, RELIABLE)
        on_topic(String, f"{at}instruction", self._on_instruction, RELIABLE)
        on_topic(String, f"{at}mission_node/mission", self._on_mission, qos("reliable", 1, latched=True))
        odom, image = topic_of_robot(node, "odom", at), topic_of_robot(node, "image", at)
        self._odometry = PolledTopic(node, Odometry, odom, values["odom_reliability"])
        self._lives = PolledTopic(node, Supervision, f"{at}supervision")
        self._states = PolledTopic(node, RobotState, f"{at}robot_state")
        sent = values["image_reliability"]
        self._pictures: PolledTopic | None = None
        self._raw: tuple[str, QoSProfile] | None = None
        self._scans: PolledTopic | None = None
        self._sights: list[Any] = []
        if values["image_transport"] == "compressed":
            # Even without a page: a decision's card shows the picture it was made from.
            self._pictures = PolledTopic(node, CompressedImage, image, sent, FRAMES)
        else:
            self._raw = (image, qos(sent, 1))
        self._watched, self._watched_at, self._slow_at = False, -1e9, -1e9
        self._watch_changed = node.create_guard_condition(self._open_or_shut)

    def _on_topic(self, kind: Any, topic: str, on_message: Callable[[Any], None], qos: Any) -> Any:
        return self._node.create_subscription(kind, topic, on_message, qos, callback_group=self._group)

    def _open_sights(self) -> None:
        """
        Subscribe to what only an open page needs: a laser, the model's words, raw images.

        Without a subscriber, vlm_nav_node publishes no tokens and a raw camera sends one copy less.
        """
        at, on_topic = self._at, self._on_topic
        self._scans = PolledTopic(self._node, LaserScan, f"{at}scan", "best_effort")
        self._sights = [  # called at once, in order with decisions
            on_topic(String, f"{at}vlm_nav_node/tokens", self._on_tokens, RELIABLE),
            on_topic(String, f"{at}vlm_nav_node/reasoning", self._on_reasoning, RELIABLE),
        ]
        if self._raw is not None:
            image, quality = self._raw
            self._sights.append(on_topic(Image, image, self._on_raw_image, quality))

    # -- polled inputs

    def _open_or_shut(self) -> None:
        with self._lock:
            if self._watched and self._scans is None:
                self._open_sights()
            elif not self._watched and self._scans is not None:
                self._scans.destroy()
                for sight in self._sights:
                    self._node.destroy_subscription(sight)
                self._scans, self._sights = None, []

    def poll(self, watched: bool) -> tuple[str, ...]:
        """Read the polled topics; returns the kinds of news ("frame" or nothing)."""
        now = time.monotonic()
        if watched:
            self._watched_at = now
        if (now - self._watched_at < UNWATCHED_S) is not self._watched:
            self._watched = not self._watched
            self._watch_changed.trigger()
        with self._lock:
            self._read_pictures()
            is_new, self._told = self._count != self._told, self._count
            if now - self._slow_at >= SLOW_S:
                self._slow_at = now
                if (own := self._states.take()) is not None:
                    self._own = (now, own)
                if self._scans is not None and (scan := self._scans.take()) is not None:
                    self._scan = (now, scan)
                if (odometry := self._odometry.take()) is not None:
                    self._take_odometry(odometry)
                if (life := self._lives.take()) is not None:
                    self._life = (now, life)
        return ("frame",) if is_new else ()

    def _read_pictures(self) -> None:
        if self._pictures is not None:
            for at, picture in self._pictures.take_all():
                self._take_picture(picture, bytes(picture.data), time.monotonic() - _age(at))

    def _take_picture(self, message: CompressedImage | Image, data: bytes, at: float) -> None:
        self._count += 1
        self._frame = (self._count, at, data)
        self._frames.append(((message.header.stamp.sec, message.header.stamp.nanosec), data))

    def _take_odometry(self, message: Odometry) -> None:
        pose = pose_of(message)
        if pose.is_finite:
            self._pose, self._odom_at = (pose.x, pose.y, pose.yaw), time.monotonic()
            self._trail.add(pose)

    # -- subscribed inputs

    def _on_raw_image(self, message: Image) -> None:
        now = time.monotonic()
        try:
            data = to_jpeg(from_raw(raw_of(message)), 80)
        except FrameError:
            return
        with self._lock:
            self._take_picture(message, data, now)
        self._wake(self.name, "frame")

    def _on_command(self, message: MotionCommand) -> None:
        with self._lock:
            self._board.on_command(command_of(message), decided_by(message.source), time.monotonic())

    def _on_status(self, message: MotionStatus) -> None:
        if (status := status_of(message)) is not None:
            with self._lock:
                before = self._status[1] if self._status else None
                self._status = (time.monotonic(), message)
                self._board.on_status(status, time.monotonic())
                touches = status.state in (MotionState.BLOCKED, MotionState.COLLISION_AHEAD)
                if touches and not self._touched and self._pose is not None:
                    x, y, yaw = self._pose
                    x, y = x + AHEAD_M * math.cos(yaw), y + AHEAD_M * math.sin(yaw)
                    self._obstacles.append((round(x, 2), round(y, 2)))
                self._touched = touches
            if before is None or (before.standing, before.state) != (
                message.standing,
                message.state,
            ):
                self._wake(self.name, "status")

    def _on_metrics(self, message: DecisionMetrics) -> None:
        record = decision_record(message)
        seen = (message.frame_stamp.sec, message.frame_stamp.nanosec)
        with self._lock:
            self._read_pictures()  # the decision's picture may not have been read yet
            frame = next((jpeg for at, jpeg in reversed(self._frames) if at == seen), None)
        record["frame"] = small_picture(frame) if frame else ""
        with self._lock:
            self._thought.clear()
            self._decisions.append(record)
        self._wake(self.name, "decision")

    def _on_tokens(self, message: String) -> None:
        with self._lock:
            if not self._thought.on_tokens(message.data):
                return
        self._wake(self.name, "thought")

    def _on_reasoning(self, message: String) -> None:
        with self._lock:
            self._thought.on_sentence(message.data)
        self._wake(self.name, "thought")

    def _on_instruction(self, message: String) -> None:
        self._mark("begin", message.data)

    def _on_outcome(self, message: String) -> None:
        if not (said := _object(message)):
            return
        code, why = str(said.get("code", "")), str(said.get("message", ""))
        with self._lock:
            self._instruction = ""
        self._mark("end", str(said.get("instruction", "")), code)
        words = f"“{said.get('instruction', '')}”: {code}{f', {why}' if why else ''}"
        self._wake(self.name, f"log:{'good' if code == 'NONE' else 'warn'}:{words}")

    def _mark(self, kind: str, words: str, code: str = "") -> None:
        with self._lock:
            if kind == "begin":
                self._instruction = words[:LONGEST_WORDS]
            if self._pose is not None:
                x, y, _ = self._pose
                place = {"kind": kind, "words": words[:80], "code": code, "x": x, "y": y}
                self._places.append(place)
        self._wake(self.name, "map")

    def _on_mission(self, message: String) -> None:
        said = _object(message)
        if isinstance(said.get("steps"), list):
            with self._lock:
                self._mission = said
            self._wake(self.name, "status")

    # -- state shown on pages

    @property
    def is_heard(self) -> bool:
        """Whether its motion_node has published lately."""
        with self._lock:
            return self._status is not None and time.monotonic() - self._status[0] < 10 * SILENT_S

    def frame(self) -> tuple[int, float, bytes] | None:
        """Return the newest picture: its number, receive time (s) and JPEG."""
        with self._lock:
            return self._frame

    def decisions(self) -> list[dict[str, Any]]:
        """Return the last decisions."""
        with self._lock:
            return list(self._decisions)

    def map(self) -> dict[str, Any]:
        """Return the path so far and where instructions began and ended."""
        with self._lock:
            points = [(round(pose.x, 2), round(pose.y, 2)) for pose in self._trail]
            places, touched = list(self._places), list(self._obstacles)
            seen = self._scanned(time.monotonic())
        step = max(1, len(points) // PATH_POINTS)
        fence = self._parameters.get("motion_node/geofence_m", 0.0)
        told = {"path": points[::step], "places": places, "fence_m": fence}
        return told | {"touched": touched, "seen": seen}

    def _scanned(self, now: float) -> list[tuple[float, float]]:
        """Return the points of a recent laser scan."""
        if self._pose is None or self._scan is None or now - self._scan[0] > SCAN_S:
            return []
        return scan_points(self._scan[1], self._pose)

    def thought(self) -> dict[str, Any]:
        """Return the model's answer so far in the decision under way."""
        with self._lock:
            return self._thought.told()

    def state(self) -> dict[str, Any]:
        """Return the robot's present state."""
        now = time.monotonic()
        with self._lock:
            shown, status, life = self._board.told(now), self._status, self._life
            pose, mission = self._pose, self._mission
            frame, odom_at, instruction = self._frame, self._odom_at, self._instruction
            own = self._own
        told: dict[str, Any] = {
            "pose": pose,
            "instruction": instruction,
            **shown,
            "mission": mission,
            "camera_age_s": None if frame is None else round(now - frame[1], 2),
            "simulator": self.is_simulated,
            "odom_age_s": None if now - odom_at > 1e6 else round(now - odom_at, 2),
        }
        if own is not None:
            m = own[1]
            silent = now - own[0] > OWN_SILENT_S
            said = "silent" if silent else m.mode + ("" if m.ready else f": not ready, {m.reason}")
            battery = None if silent or math.isnan(m.battery) else round(float(m.battery), 2)
            told |= {"robot_says": said, "battery": battery}
        if status is not None and now - status[0] < SILENT_S:
            m = status[1]
            told |= {
                "state": MotionState(m.state).name if m.state < len(MotionState) else "?",
                "reason": m.reason,
                "standing": m.standing,
                "estopped": m.estopped,
                "held_by": m.held_by,
                "left_m": round(m.left_distance_m, 2),
                "left_deg": round(m.left_angle_rad * 57.29578, 0),  # a float: it may be NaN
            }
        if life is not None and now - life[0] < SILENT_S:
            told |= {"link": ("unknown", "up", "LOST")[life[1].link % 3]}
            told |= {"rtt_ms": round(life[1].link_rtt_ms, 1)}
        return told

    def enter_room(self, seed: int) -> None:
        """Put the simulated robot into a room and clear the map."""
        if not self.is_simulated:
            return
        super().enter_room(seed)
        with self._lock:
            self._trail, self._instruction = Trail(0.05, 4000), ""
            self._places.clear()
            self._obstacles.clear()


def _object(message: String) -> dict[str, Any]:
    """Return the JSON object in a message; {} if there is none."""
    try:
        said = json.loads(message.data)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def _age(at: float) -> float:
    """Return the age of a Unix time, s; 0 outside 0 to 1 s, where the clock must have jumped."""
    age = time.time() - at
    return age if 0.0 <= age <= 1.0 else 0.0


def topic_of_robot(node: Node, topic: str, at: str) -> str:
    """
    Return a topic of a robot, with the console's remappings.

    at: the robot's namespace. A name that is relative to the console's namespace is looked for in that
    of another robot, too; any other name, such as /utlidar/robot_odom, is that of its own robot.
    """
    own, full = node.get_namespace().rstrip("/") + "/", str(node.resolve_topic_name(topic))
    if at == own or (full.startswith(at) and at != "/"):
        return full
    return at + full.removeprefix(own).removeprefix("/")
