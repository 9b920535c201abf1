"""Stand-ins for the tests of motion_node: a fake base, named so, that integrates cmd_vel and publishes odometry."""

from __future__ import annotations

import math
import threading
import time

from geometry_msgs.msg import Twist
from nav_msgs.msg import Odometry

from tests.graph.harness import Graph


class FakeBase:
    """Ideal and planar: obeys a Twist at once, holds it for `hold_s` like a Go2, publishes odom at 50 Hz."""

    def __init__(self, graph: Graph, hold_s: float = 1.0, namespace: str = "") -> None:
        self.x = self.y = self.yaw = 0.0
        self.publish_odometry = True
        self._twist, self._at, self._hold_s = Twist(), 0.0, hold_s
        node = graph.probe.node
        node.create_subscription(Twist, f"{namespace}cmd_vel", self._on_twist, 10)
        self._publisher = node.create_publisher(Odometry, f"{namespace}odom", 10)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _on_twist(self, message: Twist) -> None:
        self._twist, self._at = message, time.monotonic()

    def _run(self) -> None:
        last = time.monotonic()
        while not self._end.wait(0.02):
            now = time.monotonic()
            dt, last = now - last, now
            if now - self._at < self._hold_s:
                self.yaw += self._twist.angular.z * dt
                self.x += self._twist.linear.x * dt * math.cos(self.yaw)
                self.y += self._twist.linear.x * dt * math.sin(self.yaw)
            if self.publish_odometry:
                message = Odometry()
                message.pose.pose.position.x = self.x
                message.pose.pose.position.y = self.y
                message.pose.pose.orientation.z = math.sin(self.yaw / 2)
                message.pose.pose.orientation.w = math.cos(self.yaw / 2)
                self._publisher.publish(message)

    def close(self) -> None:
        """End the thread."""
        self._end.set()
        self._thread.join(2)
