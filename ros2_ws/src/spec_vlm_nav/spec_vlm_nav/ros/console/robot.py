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
One robot as the console hears it and speaks to it: all of ROS that a page needs, by its namespace.

Called from two threads: ROS calls the `_on_` methods, the web server everything else; what both
touch is guarded by a lock. What comes often wakes nobody: the web server reads it by `poll`.
Nothing is published here but orders of an operator.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
import json
import threading
import time
from typing import Any

from nav_msgs.msg import Odometry
from rcl_interfaces.msg import Parameter as ParameterMessage
from rcl_interfaces.srv import GetParameters, SetParameters
from rclpy.action import ActionClient
from rclpy.node import Node
from rclpy.parameter import Parameter as RosParameter
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import CompressedImage, Image
from spec_vlm_nav.camera.images import from_raw, to_jpeg
from spec_vlm_nav.common.codes import MotionState
from spec_vlm_nav.common.errors import FrameError
from spec_vlm_nav.common.parameters import Value
from spec_vlm_nav.console.decisions import decision_record
from spec_vlm_nav.console.live import LIVE, live_rows
from spec_vlm_nav.console.thought import Thought
from spec_vlm_nav.motion.presence import OPERATOR
from spec_vlm_nav.ros.console.senses import Senses, small_picture
from spec_vlm_nav.ros.console.sights import Sights
from spec_vlm_nav.ros.console.simulator import Simulator
from spec_vlm_nav.ros.convert.messages import frame_of, pose_of, status_of
from spec_vlm_nav.ros.convert.view_messages import link_words, told_of
from spec_vlm_nav.ros.polled import Polled
from spec_vlm_nav.ros.sparing import Sparing
from spec_vlm_nav.viewing.board import Board
from spec_vlm_nav.viewing.track import Trail
from spec_vlm_nav_interfaces.action import RunMission
from spec_vlm_nav_interfaces.msg import (
    DecisionMetrics,
    MotionCommand,
    MotionStatus,
    Presence,
    Supervision,
)
from spec_vlm_nav_interfaces.srv import ChangeMission
from std_msgs.msg import Bool, Empty, String

RELIABLE = QoSProfile(depth=20, reliability=ReliabilityPolicy.RELIABLE)
SILENT_S = 1.5
SLOW_S = 0.09  # a little less than every second poll
UNWATCHED_S = 5.0  # a page that is loaded again finds all as it was
KEPT_DECISIONS, KEPT_PLACES = 40, 60
PATH_POINTS = 400
AHEAD_M = 0.4  # where something is taken to be that the robot is against
Answer = Callable[[bool, str], None]


class Robot:
    """The robot of one namespace ("" for the root)."""

    def __init__(
        self, node: Node, name: str, values: dict[str, Value], wake: Callable[[str, str], None]
    ) -> None:
        """wake: told of the robot's name and what is new: frame, status, decision, log."""
        self.name, self._node, self._wake = name, node, wake
        self._lock = threading.Lock()
        self._board, self._trail = Board(), Trail(0.05, 4000)
        self._frame: tuple[int, float, bytes] | None = None
        self._pose: tuple[float, float, float] | None = None
        self._status: tuple[float, MotionStatus] | None = None
        self._life: tuple[float, Supervision] | None = None
        self._decisions: deque[dict[str, Any]] = deque(maxlen=KEPT_DECISIONS)
        self._places: deque[dict[str, Any]] = deque(maxlen=KEPT_PLACES)
        self._mission: dict[str, Any] | None = None
        self._thought, self._instruction = Thought(), ''
        self._touched = False
        self._parameters: dict[str, Any] = {}
        self._odom_at = -1e9
        self._count = 0
        at = f'/{name}/' if name else '/'
        self._group = Sparing()
        self._senses = Senses(node, at)
        self._simulator = Simulator(node, at, self._group) if values['simulator'] else None
        self._make_mouths(at)
        self._make_ears(at, values)

    def _make_mouths(self, at: str) -> None:
        node, group = self._node, self._group
        self._instruct = node.create_publisher(
            String, f'{at}instruction', RELIABLE, callback_group=group
        )
        self._stop = node.create_publisher(Empty, f'{at}stop', RELIABLE, callback_group=group)
        self._estop = node.create_publisher(Bool, f'{at}e_stop', RELIABLE, callback_group=group)
        self._reset = node.create_publisher(
            Empty, f'{at}e_stop_reset', RELIABLE, callback_group=group
        )
        self._cancel = node.create_publisher(
            Empty, f'{at}vlm_nav_node/cancel', RELIABLE, callback_group=group
        )
        self._presence = node.create_publisher(
            Presence, f'{at}presence', RELIABLE, callback_group=group
        )
        self._missions: Any = ActionClient(node, RunMission, f'{at}run_mission')
        self._change: Any = node.create_client(
            ChangeMission, f'{at}mission_node/change', callback_group=group
        )
        self._set: dict[str, Any] = {}
        self._get: dict[str, Any] = {}
        for each in LIVE:
            self._set[each] = node.create_client(
                SetParameters, f'{at}{each}/set_parameters', callback_group=group
            )
            self._get[each] = node.create_client(
                GetParameters, f'{at}{each}/get_parameters', callback_group=group
            )

    def _make_ears(self, at: str, values: dict[str, Value]) -> None:
        """Subscribe: what may not wait wakes the executor, the rest is read by `poll`."""
        node = self._node
        kept = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)

        def on_topic(kind: Any, topic: str, on_message: Callable[[Any], None], qos: Any) -> None:
            node.create_subscription(kind, topic, on_message, qos, callback_group=self._group)

        on_topic(MotionCommand, f'{at}motion_command', self._on_command, RELIABLE)
        on_topic(MotionStatus, f'{at}motion_status', self._on_status, RELIABLE)
        on_topic(DecisionMetrics, f'{at}vlm_nav_node/metrics', self._on_metrics, RELIABLE)
        on_topic(String, f'{at}vlm_nav_node/outcome', self._on_outcome, RELIABLE)
        on_topic(String, f'{at}instruction', self._on_instruction, RELIABLE)
        on_topic(String, f'{at}mission_node/mission', self._on_mission, kept)
        odom, image = _of_robot(node, 'odom', at), _of_robot(node, 'image', at)
        self._odometry = Polled(node, Odometry, odom, _reliability(values, 'odom_reliability'))
        reliable = ReliabilityPolicy.RELIABLE
        self._lives = Polled(node, Supervision, f'{at}supervision', reliable)
        newest = QoSProfile(depth=1, reliability=_reliability(values, 'image_reliability'))
        raw = None if values['image_transport'] == 'compressed' else self._on_raw_image
        self._make_sights = lambda: Sights(
            node, at, image, newest, raw, (self._on_tokens, self._on_reasoning), self._group
        )
        self._sights: Sights | None = None
        self._watched, self._watched_at, self._slow_at = False, -1e9, -1e9
        self._watch_changed = node.create_guard_condition(self._open_or_shut)

    # -- what is read when it is wanted

    def _open_or_shut(self) -> None:
        with self._lock:
            if self._watched and self._sights is None:
                self._sights = self._make_sights()
            elif not self._watched and self._sights is not None:
                self._sights.destroy()
                self._sights = None

    def poll(self, watched: bool) -> tuple[str, ...]:
        """Read what wakes nobody; returns what is new: frame."""
        now = time.monotonic()
        new: tuple[str, ...] = ()
        if watched:
            self._watched_at = now
        if (now - self._watched_at < UNWATCHED_S) is not self._watched:
            self._watched = not self._watched
            self._watch_changed.trigger()
        with self._lock:
            sights = self._sights
            if sights is not None:
                for at, picture in sights.pictures():
                    self._take_picture(picture, bytes(picture.data), now - _age(at))
                    new = ('frame',)
            if now - self._slow_at >= SLOW_S:
                self._slow_at = now
                self._senses.look(None if sights is None else sights.scan.take())
                if (odometry := self._odometry.take()) is not None:
                    self._take_odometry(odometry)
                if (life := self._lives.take()) is not None:
                    self._life = (now, life)
                    self._board.on_supervision(link_words(life), now)
        return new

    def _take_picture(self, message: CompressedImage | Image, data: bytes, at: float) -> None:
        self._count += 1
        self._frame = (self._count, at, data)
        self._senses.keep((message.header.stamp.sec, message.header.stamp.nanosec), data)

    def _take_odometry(self, message: Odometry) -> None:
        pose, stamp = pose_of(message), message.header.stamp
        if pose.is_finite:
            self._pose, self._odom_at = (pose.x, pose.y, pose.yaw), time.monotonic()
            self._trail.add(pose, (stamp.sec, stamp.nanosec))

    # -- what is heard

    def _on_raw_image(self, message: Image) -> None:
        now = time.monotonic()
        try:
            data = to_jpeg(from_raw(frame_of(message, now).picture), 80)  # type: ignore[arg-type]
        except FrameError:
            return
        with self._lock:
            self._take_picture(message, data, now)
        self._wake(self.name, 'frame')

    def _on_command(self, message: MotionCommand) -> None:
        if (told := told_of(message)) is not None:
            with self._lock:
                self._board.on_command(told, time.monotonic())

    def _on_status(self, message: MotionStatus) -> None:
        if (status := status_of(message)) is not None:
            with self._lock:
                before = self._status[1] if self._status else None
                self._status = (time.monotonic(), message)
                self._board.on_status(status, time.monotonic())
                touches = status.state in (MotionState.BLOCKED, MotionState.COLLISION_AHEAD)
                if touches and not self._touched and self._pose is not None:
                    self._senses.touched(self._pose, AHEAD_M)
                self._touched = touches
            if before is None or (before.standing, before.state) != (
                message.standing,
                message.state,
            ):
                self._wake(self.name, 'status')

    def _on_metrics(self, message: DecisionMetrics) -> None:
        record = decision_record(message)
        seen = (message.frame_stamp.sec, message.frame_stamp.nanosec)
        with self._lock:
            frame = self._senses.frame_of(seen)
        record['frame'] = small_picture(frame) if frame else ''
        with self._lock:
            self._thought.clear()
            self._decisions.append(record)
        self._wake(self.name, 'decision')

    def _on_tokens(self, message: String) -> None:
        with self._lock:
            if not self._thought.on_tokens(message.data):
                return
        self._wake(self.name, 'thought')

    def _on_reasoning(self, message: String) -> None:
        with self._lock:
            self._thought.on_sentence(message.data)
        self._wake(self.name, 'thought')

    def _on_instruction(self, message: String) -> None:
        self._mark('begin', message.data)

    def _on_outcome(self, message: String) -> None:
        try:
            said = json.loads(message.data)
        except (ValueError, RecursionError):
            return
        if not isinstance(said, dict):
            return
        code, why = str(said.get('code', '')), str(said.get('message', ''))
        with self._lock:
            self._instruction = ''
        self._mark('end', str(said.get('instruction', '')), code)
        words = f'“{said.get("instruction", "")}”: {code}{f", {why}" if why else ""}'
        self._wake(self.name, f'log:{"good" if code == "NONE" else "warn"}:{words}')

    def _mark(self, kind: str, words: str, code: str = '') -> None:
        with self._lock:
            if kind == 'begin':
                self._instruction = words
            if self._pose is not None:
                x, y, _ = self._pose
                place = {'kind': kind, 'words': words[:80], 'code': code, 'x': x, 'y': y}
                self._places.append(place)
        self._wake(self.name, 'map')

    def _on_mission(self, message: String) -> None:
        try:
            said = json.loads(message.data)
        except (ValueError, RecursionError):
            return
        if isinstance(said, dict) and isinstance(said.get('steps'), list):
            with self._lock:
                self._mission = said
            self._wake(self.name, 'status')

    # -- what a page shows

    @property
    def is_heard(self) -> bool:
        """Whether its motion_node speaks."""
        with self._lock:
            return self._status is not None and time.monotonic() - self._status[0] < 10 * SILENT_S

    def frame(self) -> tuple[int, float, bytes] | None:
        """Return the newest picture: its number, when it was received, JPEG."""
        with self._lock:
            return self._frame

    def decisions(self) -> list[dict[str, Any]]:
        """Return the last decisions."""
        with self._lock:
            return list(self._decisions)

    def map(self) -> dict[str, Any]:
        """Return the path so far and where instructions began and ended."""
        with self._lock:
            points = [(round(s.pose.x, 2), round(s.pose.y, 2)) for s in self._trail]
            places, touched = list(self._places), list(self._senses.obstacles)
            seen = self._senses.seen(self._pose)
        step = max(1, len(points) // PATH_POINTS)
        fence = self._parameters.get('motion_node/geofence_m', 0.0)
        told = {'path': points[::step], 'places': places, 'fence_m': fence}
        return told | {'touched': touched, 'seen': seen}

    def thought(self) -> dict[str, Any]:
        """Return what the model has said so far in the decision under way."""
        with self._lock:
            return self._thought.told()

    def state(self) -> dict[str, Any]:
        """Return how the robot is now."""
        now = time.monotonic()
        with self._lock:
            scene, status, life = self._board.scene(now), self._status, self._life
            pose, mission = self._pose, self._mission
            frame, odom_at, instruction = self._frame, self._odom_at, self._instruction
            own = self._senses.words()
        told: dict[str, Any] = {
            'pose': pose,
            'instruction': instruction or scene.instruction,
            'action': scene.action,
            'by': scene.decided_by,
            'unverified': scene.unverified,
            'problem': scene.problem,
            'mission': mission,
            'camera_age_s': None if frame is None else round(now - frame[1], 2),
            'simulator': self._simulator is not None and self._simulator.is_there,
            **own,
            'odom_age_s': None if now - odom_at > 1e6 else round(now - odom_at, 2),
        }
        if scene.motion is not None:
            told['motion'] = (scene.motion.distance_m, scene.motion.angle_rad)
        if status is not None and now - status[0] < SILENT_S:
            m = status[1]
            told |= {
                'state': MotionState(m.state).name if m.state < len(MotionState) else '?',
                'reason': m.reason,
                'standing': m.standing,
                'estopped': m.estopped,
                'held_by': m.held_by,
                'left_m': round(m.left_distance_m, 2),
                'left_deg': round(m.left_angle_rad * 57.29578),
            }
        if life is not None and now - life[0] < SILENT_S:
            told |= {'link': ('unknown', 'up', 'LOST')[life[1].link % 3]}
            told |= {'rtt_ms': round(life[1].link_rtt_ms, 1)}
        return told

    # -- orders

    def stop(self) -> None:
        """Stop."""
        self._stop.publish(Empty())

    def estop(self) -> None:
        """Latch the emergency stop."""
        self._estop.publish(Bool(data=True))

    def reset(self) -> None:
        """Take the emergency stop back."""
        self._reset.publish(Empty())

    def instruct(self, words: str) -> None:
        """Begin an instruction."""
        self._instruct.publish(String(data=words))

    def cancel(self) -> None:
        """Cancel the instruction."""
        self._cancel.publish(Empty())

    def hold(self, holder: str, holds: bool) -> None:
        """Say that an operator has control, or has let go (dead man)."""
        self._presence.publish(Presence(holder=holder, kind=OPERATOR, holds=holds))

    def run_mission(self, text: str, answer: Answer) -> None:
        """Begin a mission. answer: told whether it was taken, and how it ended."""
        if not self._missions.server_is_ready():
            answer(False, 'no mission_node is heard: start one (mission:=true)')
            return

        def on_result(future: Any) -> None:
            result = future.result().result
            answer(result.error_code == 0, result.error_msg or 'mission done')

        def on_accepted(future: Any) -> None:
            future.result().get_result_async().add_done_callback(on_result)

        sent = self._missions.send_goal_async(RunMission.Goal(mission=text))
        sent.add_done_callback(on_accepted)

    def change_mission(
        self, order: str, step: int, place: int, steps: str, answer: Answer
    ) -> None:
        """Give an order about the mission under way."""
        if not self._change.service_is_ready():
            answer(False, 'no mission_node is heard')
            return
        request = ChangeMission.Request(order=order, step=step, place=place, steps=steps)

        def done(future: Any) -> None:
            answer(future.result().success, future.result().message)

        self._group.expect()
        self._change.call_async(request).add_done_callback(done)

    def inject(self, fault: dict[str, Any], answer: Answer) -> None:
        """Begin a fault in the simulator."""
        if self._simulator is not None:
            self._simulator.inject(fault, answer)

    def enter_room(self, seed: int) -> None:
        """Put the simulated robot into a room: the map begins anew."""
        if self._simulator is None:
            return
        self._simulator.enter_room(seed)
        with self._lock:
            self._trail, self._instruction = Trail(0.05, 4000), ''
            self._places.clear()
            self._senses.obstacles.clear()

    # -- live parameters

    def parameters(self) -> list[dict[str, Any]]:
        """Return the live parameters with their ranges and what is known of their values."""
        return live_rows(self._parameters)

    def ask_parameters(self) -> None:
        """Have the values told by the nodes."""
        for node, names in LIVE.items():
            client = self._get[node]
            if client.service_is_ready():

                def done(future: Any, node: str = node, names: tuple[str, ...] = names) -> None:
                    for name, value in zip(names, future.result().values, strict=False):
                        message = ParameterMessage(name=name, value=value)
                        found = RosParameter.from_parameter_msg(message).value
                        self._parameters[f'{node}/{name}'] = found

                self._group.expect()
                request = GetParameters.Request(names=list(names))
                client.call_async(request).add_done_callback(done)

    def set_parameter(self, node: str, name: str, value: Value, answer: Answer) -> None:
        """Set a live parameter."""
        client = self._set.get(node)
        if client is None or name not in LIVE[node]:
            answer(False, f'{node} {name} is no live parameter')
            return
        if not client.service_is_ready():
            answer(False, f'{node} is not heard')
            return
        request = SetParameters.Request()
        request.parameters = [RosParameter(name, value=value).to_parameter_msg()]

        def done(future: Any) -> None:
            result = future.result().results[0]
            if result.successful:
                self._parameters[f'{node}/{name}'] = value
            answer(result.successful, result.reason or f'{name} = {value}')

        self._group.expect()
        client.call_async(request).add_done_callback(done)


def _reliability(values: dict[str, Value], name: str) -> ReliabilityPolicy:
    return ReliabilityPolicy[str(values[name]).upper()]


def _age(at: float) -> float:
    """Return how old something is that came at a time (Unix, s); a clock that jumped: 0."""
    age = time.time() - at
    return age if 0.0 <= age <= 1.0 else 0.0


def _of_robot(node: Node, topic: str, at: str) -> str:
    """Return a topic as it is remapped for the console, in the namespace of another robot."""
    own, full = node.get_namespace().rstrip('/') + '/', str(node.resolve_topic_name(topic))
    return at + full.removeprefix(own).removeprefix('/')
