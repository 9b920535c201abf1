# SPDX-License-Identifier: Apache-2.0
"""A ROS node for tests and drills that records messages with their time of arrival, and publishes."""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import dataclass
from typing import Any

from rclpy.parameter import Parameter
from rclpy.qos import QoSProfile, ReliabilityPolicy
from spec_vlm_nav_interfaces.msg import MotionCommand, Supervision

from spec_vlm_nav.common.nonces import NonceChain
from specnav.errors import HarnessError
from specnav.ros_node import spinning_node
from specnav.supervise.waiting import wait_until

KEPT = 20_000  # messages per topic; the oldest are dropped
SETTLE_S = 0.2
SERVICE_S = 10.0


@dataclass(frozen=True)
class ProbedMessage:
    """A message and when it arrived (time.monotonic)."""

    at: float
    message: Any


class Probe:
    """A node in this process, spinning in a thread. Close it after use."""

    def __init__(self, domain: int) -> None:
        self._running = contextlib.ExitStack()
        self.node = self._running.enter_context(spinning_node("probe", domain))
        self._lock = threading.Lock()
        self._heard: dict[str, list[ProbedMessage]] = {}
        self._publishers: dict[str, Any] = {}
        self._clients: dict[str, Any] = {}
        self._chains: dict[int, NonceChain] = {}

    def close(self) -> None:
        """Destroy the node."""
        self._running.close()

    def listen(self, kind: type, topic: str, reliable: bool = True) -> None:
        """Record every message of a topic from now on.

        Args:
            kind: Message type.
            topic: The topic.
            reliable: Whether the subscription is reliable or best effort.
        """
        kept = self._heard.setdefault(topic, [])
        reliability = ReliabilityPolicy.RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT
        qos = QoSProfile(depth=200, reliability=reliability)

        def keep(message: Any) -> None:
            heard = ProbedMessage(time.monotonic(), message)
            with self._lock:
                kept.append(heard)
                if len(kept) > KEPT:
                    del kept[: KEPT // 2]

        self.node.create_subscription(kind, topic, keep, qos)

    def heard(self, topic: str, since: float = 0.0) -> list[ProbedMessage]:
        """Return the messages of a topic received at or after a time, oldest first."""
        with self._lock:
            kept = self._heard[topic]
            first = len(kept)
            while first > 0 and kept[first - 1].at >= since:
                first -= 1
            return kept[first:]

    def last(self, topic: str) -> ProbedMessage | None:
        """Return the newest message of a topic."""
        with self._lock:
            kept = self._heard[topic]
            return kept[-1] if kept else None

    def open(self, kind: type, topic: str, reliable: bool = True) -> Any:
        """Return the publisher of a topic once a subscriber is connected; every topic has one publisher."""
        if topic not in self._publishers:
            reliability = ReliabilityPolicy.RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT
            qos = QoSProfile(depth=20, reliability=reliability)
            self._publishers[topic] = self.node.create_publisher(kind, topic, qos)
            wait_until(lambda: self.node.count_subscribers(topic) > 0, 10, f"a subscriber of {topic}")
            # Discovery is not symmetric: the other side may need a moment to match us.
            time.sleep(SETTLE_S)
        return self._publishers[topic]

    def say(self, topic: str, message: Any, reliable: bool = True) -> float:
        """Publish a message; returns the time."""
        publisher = self.open(type(message), topic, reliable)
        at = time.monotonic()
        publisher.publish(message)
        return at

    def introduce(self, life: Supervision) -> Supervision:
        """Add the commitment of its session to a supervision message, so that the commands of `order` are
        accepted.
        """
        chain = self._chains.setdefault(life.session, NonceChain(length=1000))
        life.commitment = list(chain.commitment)
        return life

    def order(self, topic: str, message: MotionCommand) -> float:
        """Publish a motion command as the sender of its session would; returns the time."""
        if message.session not in self._chains:
            life = Supervision(session=message.session, camera_age_s=-1.0, verifier_age_s=-1.0)
            self.say(topic.replace("motion_command", "supervision"), self.introduce(life))
            time.sleep(SETTLE_S)
        message.nonce = list(self._chains[message.session].take())
        return self.say(topic, message)

    def call(self, kind: type, service: str, request: Any, timeout_s: float = SERVICE_S) -> Any:
        """Call a service and wait for its response.

        Args:
            kind: Service type.
            service: Its name.
            request: The request.
            timeout_s: How long to wait for the service, and then for the response.

        Returns:
            The response.

        Raises:
            HarnessError: No response in time.
        """
        if service not in self._clients:
            self._clients[service] = self.node.create_client(kind, service)
        client = self._clients[service]
        wait_until(client.service_is_ready, timeout_s, f"service {service}")
        answer = client.call_async(request)
        wait_until(answer.done, timeout_s, f"a response from service {service}")
        return answer.result()

    def set_parameters(self, node: str, **values: bool | int | float | str) -> None:
        """Set parameters of a node. Raises HarnessError if one is rejected."""
        from rcl_interfaces.srv import SetParameters

        request = SetParameters.Request()
        request.parameters = [
            Parameter(name, value=value).to_parameter_msg() for name, value in values.items()
        ]
        answer = self.call(SetParameters, f"{node}/set_parameters", request)
        for result in answer.results:
            if not result.successful:
                raise HarnessError(f"{node} refused {values}: {result.reason}")

    def get_parameter(self, node: str, name: str, timeout_s: float = SERVICE_S) -> Any:
        """Return a parameter of a node; None if it has none of that name."""
        from rcl_interfaces.srv import GetParameters
        from rclpy.parameter import parameter_value_to_python

        answer = self.call(
            GetParameters, f"{node}/get_parameters", GetParameters.Request(names=[name]), timeout_s
        )
        return parameter_value_to_python(answer.values[0]) if answer.values else None
