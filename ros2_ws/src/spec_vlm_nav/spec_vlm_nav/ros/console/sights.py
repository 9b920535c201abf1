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
What is subscribed to only while a page looks: pictures, the model's words as they come, a laser.

Without a reader nobody sends or makes them: the camera's driver has a copy less to write, the
deciding node no tokens to publish. Made and destroyed in ROS's thread; whoever calls the rest
holds the lock of the robot this belongs to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rclpy.node import Node
from rclpy.qos import QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import CompressedImage, Image, LaserScan
from spec_vlm_nav.ros.polled import Polled
from spec_vlm_nav.ros.sparing import Sparing
from std_msgs.msg import String

RELIABLE, BEST_EFFORT = ReliabilityPolicy.RELIABLE, ReliabilityPolicy.BEST_EFFORT
FRAMES = 8  # between two looks; a decision may have been made from any of them


class Sights:
    """Of one robot, whose topics begin with `at`."""

    def __init__(
        self,
        node: Node,
        at: str,
        image: str,
        quality: QoSProfile,
        raw: Callable[[Image], None] | None,
        words: tuple[Callable[[String], None], Callable[[String], None]],
        group: Sparing,
    ) -> None:
        """
        Subscribe.

        words: told of tokens and of sentences at once: few, and in order with their decision.
        raw: for pictures that are yet to be encoded, in ROS's thread; None: JPEGs are sent.
        """
        self._node = node
        qos = QoSProfile(depth=20, reliability=RELIABLE)
        tokens, sentences = words
        self._woken: list[Any] = [
            node.create_subscription(
                String, f'{at}vlm_nav_node/tokens', tokens, qos, callback_group=group
            ),
            node.create_subscription(
                String, f'{at}vlm_nav_node/reasoning', sentences, qos, callback_group=group
            ),
        ]
        self.scan = Polled(node, LaserScan, f'{at}scan', BEST_EFFORT)
        self._pictures: Polled | None = None
        if raw is None:
            kind = CompressedImage
            self._pictures = Polled(node, kind, image, quality.reliability, FRAMES)
        else:
            self._woken.append(node.create_subscription(Image, image, raw, quality))

    def pictures(self) -> list[tuple[float, CompressedImage]]:
        """Return the pictures that came since the last call, and when each came (Unix, s)."""
        return [] if self._pictures is None else self._pictures.take_all()

    def destroy(self) -> None:
        """Subscribe to nothing any longer."""
        for one in (self.scan, self._pictures):
            if one is not None:
                one.destroy()
        for woken in self._woken:
            self._node.destroy_subscription(woken)
