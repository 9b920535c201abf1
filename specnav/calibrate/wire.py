# SPDX-License-Identifier: Apache-2.0
"""The ROS side of a calibration: the robot's own back-ends, odometry, and other nodes that may interfere. Needs rclpy.

Messages published here are recorded, so that those of other nodes on the same topic can be told from them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from geometry_msgs.msg import Twist, TwistStamped
from nav_msgs.msg import Odometry
from rclpy.node import Node
from rclpy.qos import QoSProfile, ReliabilityPolicy
from std_msgs.msg import Bool, Empty, String

from spec_vlm_nav.common.codes import MotionState
from spec_vlm_nav.common.geometry import ZERO, Velocity
from spec_vlm_nav.common.status import UNDER_WAY
from spec_vlm_nav.language.stop_words import is_stop
from spec_vlm_nav.missions.run import StopLatch
from spec_vlm_nav.motion.command import OPERATOR_STOP
from spec_vlm_nav.motion.stopping import RestDetector
from spec_vlm_nav.motion.watchdogs import OdometryReading
from spec_vlm_nav.ros.backends.outputs import Output, make_backend
from spec_vlm_nav.ros.messages import reading_of, seconds_of
from spec_vlm_nav.ros.subscriptions import subscribe
from specnav.calibrate.config import CalibrateConfig
from specnav.calibrate.core.result import DEFAULTS
from specnav.doctor.robot.roles import is_listener_only

OURS_S = 1.0  # our own messages return within this time
STOPS, MOST_STOPS, PAUSE_S = 5, 50, 0.02
SPORT = "api/sport/request"
MOVING_APIS = (1008,)  # Move, of the Go2's sport service
_UNDER_WAY = tuple(state.value for state in UNDER_WAY)


class NotingNode:
    """A node for a back-end whose publishers' messages are recorded."""

    def __init__(self, node: Node, note: Callable[[Any], None]) -> None:
        self._node, self._note = node, note

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)

    def create_publisher(self, *arguments: Any) -> Any:
        """A publisher whose messages are recorded."""
        return _NotingPublisher(self._node.create_publisher(*arguments), self._note)


class _NotingPublisher:
    def __init__(self, publisher: Any, note: Callable[[Any], None]) -> None:
        self._publisher, self._note = publisher, note

    def __getattr__(self, name: str) -> Any:
        return getattr(self._publisher, name)

    def publish(self, message: Any) -> None:
        """Record it first: it may come back before publish() returns."""
        self._note(message)
        self._publisher.publish(message)


def _key(message: Any) -> tuple[float, float] | int:
    """A key that tells our messages from those of others."""
    if hasattr(message, "header") and hasattr(message.header, "identity"):
        return int(message.header.identity.id)
    twist = message.twist if isinstance(message, TwistStamped) else message
    return (float(twist.linear.x), float(twist.angular.z))


class Wire:
    """Publishes velocities; receives odometry and reasons to end a calibration. Times: time.monotonic, s."""

    def __init__(
        self,
        node: Node,
        config: CalibrateConfig,
        on_odometry: Callable[[OdometryReading, float], None],
        on_end: Callable[[str], None],
    ) -> None:
        """on_end: called with the reason when everything must end now. Raises BackendError."""
        self._node, self._config, self._on_end = node, config, on_end
        self._noted: deque[tuple[float, Any]] = deque()
        self.foreign_at = -1.0  # when another node's velocity was last received
        sport = config.backend == "go2_sport"
        self.topic = node.resolve_topic_name(SPORT if sport else "cmd_vel")
        self.odom_topic = node.resolve_topic_name("odom")
        self._outputs = {
            style: self._make_output(style)
            for style in ({config.stop_style} if sport else {"zero", "epsilon", config.stop_style})
        }
        best_effort = QoSProfile(depth=50, reliability=ReliabilityPolicy.BEST_EFFORT)
        node.create_subscription(
            Odometry, "odom", lambda m: on_odometry(reading_of(m), time.monotonic()), best_effort
        )
        node.create_subscription(self._kind(), self.topic, self._on_velocity, best_effort)
        subscribe(node, Empty, "stop", lambda message: on_end("stop was heard on topic stop"))
        subscribe(node, Bool, "e_stop", self._on_button, latched=True)
        subscribe(node, String, "instruction", self._on_words)
        self._watch_motion_node()

    @property
    def commands(self) -> str:
        """The topic of velocities, and their message type."""
        return f"{self.topic} ({self._kind().__name__})"

    def _make_output(self, style: str) -> Output:
        values = {
            **DEFAULTS,
            "motion_backend": self._config.backend,
            "enable_stamped_cmd_vel": self._config.stamped,
            "stop_style": style,
        }
        node: Any = NotingNode(self._node, self._note)
        return make_backend(node, values)[0]

    def _kind(self) -> Any:
        if self._config.backend == "go2_sport":
            from unitree_api.msg import Request

            return Request
        return TwistStamped if self._config.stamped else Twist

    # -- outputs

    def send(self, velocity: Velocity, rest: RestDetector, style: str) -> None:
        """Send the velocity of one tick. style: how to send a stop, "" for the configured style."""
        self._outputs[style or self._config.stop_style].send(velocity, rest)

    def stand(self) -> None:
        """Stop the robot, repeating the command, and wait until it has arrived."""
        for output in self._outputs.values():
            output.stop()
        # In the configured style; also with a creep, because plain zeros may not be obeyed.
        for style in dict.fromkeys((self._config.stop_style, "epsilon")):
            if style in self._outputs:
                _insist(self._outputs[style])

    # -- inputs

    def _note(self, message: Any) -> None:
        now = time.monotonic()
        self._noted.append((now, _key(message)))
        while self._noted and self._noted[0][0] < now - OURS_S:
            self._noted.popleft()

    def _on_velocity(self, message: Any) -> None:
        key = _key(message)
        for place, (_, noted) in enumerate(self._noted):
            if noted == key:
                del self._noted[place]  # each message returns once
                return
        if hasattr(message, "parameter") and message.header.identity.api_id not in MOVING_APIS:
            return
        self.foreign_at = time.monotonic()

    def _on_button(self, message: Bool) -> None:
        if message.data:
            self._on_end("e_stop was pressed")

    def _on_words(self, message: String) -> None:
        if is_stop(message.data):
            self._on_end(f'stop was heard: instruction "{message.data[:40]}"')

    def _watch_motion_node(self) -> None:
        try:
            from spec_vlm_nav_interfaces.msg import MotionStatus
        except ImportError:
            return  # without the message type there is no motion_node either

        stops = StopLatch()

        def look(message: Any) -> None:
            # Its services stop and e_stop are heard by motion_node alone.
            by_hand = message.state == MotionState.STOPPED.value and message.reason == OPERATOR_STOP
            if stops.is_new(by_hand, seconds_of(message.since)):
                self._on_end("stop was heard by motion_node")
            if message.estopped:
                self._on_end(f"the emergency stop of motion_node is latched ({message.held_by}): reset it first")
            if message.state in _UNDER_WAY:
                self._on_end("motion_node is moving the robot: end its instruction first")

        reliable = QoSProfile(depth=10, reliability=ReliabilityPolicy.RELIABLE)
        self._node.create_subscription(MotionStatus, "motion_status", look, reliable)

    # -- other nodes

    def others(self) -> list[str]:
        """Full names of other nodes that publish velocities."""
        return self._names(self._node.get_publishers_info_by_topic(self.topic))

    def listeners(self) -> list[str]:
        """Full names of nodes that receive velocities of our type, and may be a base."""
        infos = self._node.get_subscriptions_info_by_topic(self.topic)
        kind = self._kind().__name__
        return self._names([info for info in infos if info.topic_type.endswith(f"/{kind}")])

    def other_types(self) -> list[str]:
        """Message types that other nodes subscribe to on the topic and that we do not send."""
        infos = self._node.get_subscriptions_info_by_topic(self.topic)
        return sorted({i.topic_type for i in infos if not i.topic_type.endswith(f"/{self._kind().__name__}")})

    def _names(self, infos: list[Any]) -> list[str]:
        own = (self._node.get_name(), self._node.get_namespace())
        return sorted(
            {
                f"{info.node_namespace.rstrip('/')}/{info.node_name}"
                for info in infos
                if (info.node_name, info.node_namespace) != own and not is_listener_only(info.node_name)
            }
        )

    @property
    def odometers(self) -> int:
        """Number of odometry publishers."""
        return int(self._node.count_publishers(self.odom_topic))


def _insist(output: Output) -> None:
    """Send stop repeatedly, and wait until it has arrived."""
    left = STOPS
    for _ in range(MOST_STOPS):
        # RESISTS: treat the base as one that ignores a stop, which sends the creep each time.
        output.send(ZERO, RestDetector.RESISTS)
        time.sleep(PAUSE_S)
        left -= output.stop()
        time.sleep(PAUSE_S)
        if left <= 0:
            break
    output.release()
    output.drain()
